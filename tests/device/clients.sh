#!/bin/bash
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2317 # functions are called by the name in a variable
#
# Programs that know nothing of the guard, server and client on the played mlx5 device, once bare and once with
# both ends under guard: they must end and print alike, and what the guard counted must be their
# iterations. perftest posts by ibv_wr_* here, ibverbs-utils by ibv_post_send.
set -u
here=$(cd "$(dirname "$0")/../vm" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"
# shellcheck source=tests/vm/pairs.sh
. "$here/pairs.sh"

device_library=$QPG_BUILD/tests/device/.libs/mlx5dev.so
work=$(mktemp -d /dev/shm/clients.XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
results=$work
port=$((21000 + $$ % 10000))

# totals PID SIDE: "posted completed outstanding discarded" of all queues of one process; receives also of SRQs.
totals() {
	jq -r --argjson pid "$1" --arg queue "$2" '
		[.processes[] | select(.pid == $pid) | (.groups + .srq_groups)[] | .[$queue] // {}]
		| [map(.posted), map(.completed), map(.outstanding), map(.discarded)]
		| map(map(. // 0) | add | tostring) | join(" ")' "$report"
}

# pair SENDS RECEIVES SERVER_SENDS SERVER_RECEIVES PROGRAM ARGUMENT...: what client and server complete. With several
# QPs on an SRQ each of them may begin one more round than is needed: $rounds_more.
rounds_more=0
pair() {
	local client=$1,$2 server=$3,$4 name how end sends receives pid
	local -a sent
	shift 4
	name=$*
	for how in bare guarded; do
		port=$((port + 1))
		run_pair "$name" "$how" "$port" localhost "$@" -d mlx5_0 -p "$port"
	done
	judge_pair "$name" || return
	for end in client server; do
		IFS=, read -r sends receives <<<"${!end}"
		pid=${end}_pid
		if [ "$rounds_more" = 0 ]; then
			is "$name: the $end posted and completed $sends sends" \
				"$(totals "${!pid}" send)" "$sends $sends 0 0"
			is "$name: the $end completed $receives receives" \
				"$(totals "${!pid}" recv | cut -d ' ' -f 2)" "$receives"
		else
			within "$name: sends of the $end" "$(totals "${!pid}" send | cut -d ' ' -f 1)" \
				"$sends" $((sends + rounds_more))
			within "$name: receives of the $end" "$(totals "${!pid}" recv | cut -d ' ' -f 2)" \
				"$receives" $((receives + rounds_more))
		fi
	done
}

# TEXT VALUE LEAST MOST
within() {
	if [ "$2" -ge "$3" ] && [ "$2" -le "$4" ]; then
		ok "$1 are $3 to $4"
	else
		not_ok "$1 are $3 to $4" "got:  $2"
	fi
}

n=200
for events in "" -e; do
	pair $n $n $n $n ibv_rc_pingpong -g 0 -n $n $events
	pair $n $n $n $n ibv_ud_pingpong -g 0 -n $n $events
done
pair $n $n $n $n ibv_srq_pingpong -g 0 -n $n -q 1
rounds_more=7
pair $n $n $n $n ibv_srq_pingpong -g 0 -n $n -q 8 -e
rounds_more=0

pair $n 0 0 0 ib_write_bw -F -n $n
pair $n 0 0 0 ib_write_bw -F -n $n -l 8 -s 1024
pair $((8 * n)) 0 0 0 ib_write_bw -F -n $n -q 8 -s 1024
pair $n 0 0 0 ib_write_bw -F -n $n -I 64 -s 64
pair $n 0 0 $n ib_send_bw -F -n $n
pair $n 0 0 $n ib_send_bw -F -n $n -l 8 -s 1024
pair $((8 * n)) 0 0 $((8 * n)) ib_send_bw -F -n $n -q 8 -s 1024
pair $n 0 0 $n ib_send_bw -F -n $n -e
pair $n 0 0 $n ib_send_bw -F -n $n -I 64 -s 64
pair $n 0 0 0 ib_read_lat -F -n $n
pair $n 0 0 0 ib_read_lat -F -n $n -e
finish
