#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The kernel as a witness: while programs hold QPs, `rdma resource show qp` lists
# for the pid of each what the report lists as living.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"

address=10.9.9.1

# --- in the virtual machine

# Starts a program under guard, sets $pid and waits until the kernel lists COUNT
# QPs of it.
start() {
	local count=$1
	shift
	start_guarded "$results/$1.output" "$state" "$@"
	pid=$!
	pids+=("$pid")
	[ "$count" = 0 ] || wait_until 30 holds "$pid" "$count"
}

# shellcheck disable=SC2317 # called by wait_until
holds() {
	[ "$(rdma resource show qp | grep -c " pid $1 ")" = "$2" ]
}

# Notes what kernel and guard say of a pid now; judged later.
look() {
	local number
	number=$(wc -l <"$results/looks")
	rdma -j resource show qp >"$results/$number.kernel"
	"$qpguard" report --format json "$state" >"$results/$number.report"
	echo "$1 $2 $3" >>"$results/looks"
}

stop() {
	kill -KILL "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
	pids=()
}

collect_here() {
	local server
	state=$(mktemp -d /dev/shm/kernel-view.XXXXXX) pids=()
	: >"$results/looks"

	# The servers of libibverbs make their QPs before they wait for a client.
	start 1 ibv_rc_pingpong -d rxe0 -g 1 -p 20001
	look "$pid" 1 "a server that waits"
	start 16 ibv_srq_pingpong -d rxe0 -g 1 -p 20002 -q 16
	look "$pid" 16 "a server with an SRQ that waits"
	start 1 ibv_ud_pingpong -d rxe0 -g 1 -p 20003
	look "$pid" 1 "a server of datagrams that waits"
	stop

	# QPs made through the connection manager, at both ends, in mid-run.
	start 0 rping -s -a "$address" -C 1000000
	server=$pid
	wait_until 30 listens cm
	start 1 rping -c -a "$address" -C 1000000
	look "$server" 1 "a server of the connection manager"
	look "$pid" 1 "a client of the connection manager"
	stop

	# Several in a run, at both ends.
	start 0 ib_write_bw -d rxe0 -x 1 -F -q 8 -n 1000000 -s 1024
	server=$pid
	wait_until 30 listens 18515
	start 8 ib_write_bw -d rxe0 -x 1 -F -q 8 -n 1000000 -s 1024 "$address"
	look "$server" 8 "a server with 8 QPs"
	look "$pid" 8 "a client with 8 QPs in its run"
	stop
	look 0 0 "when all have ended"
}

# --- outside, afterwards

# "number type" of each QP of a pid; of no pid: of any program.
in_kernel() {
	jq -r --argjson pid "$1" '.[] | select(.pid and ($pid == 0 or .pid == $pid)) | "\(.lqpn) \(.type)"' "$2" | sort -n
}

in_report() {
	jq -r --argjson pid "$1" '.processes[] | select(.pid == $pid) | .qps[]
		| select(.destroyed_at == null) | "\(.qp_num) \(.type)"' "$2" | sort -n
}

live_in_report() {
	jq --argjson pid "$1" '.processes[] | select(.pid == $pid) | .totals.live_qps' "$2"
}

judge() {
	local number=0 pid count text kernel report
	while read -r pid count text; do
		kernel=$results/$number.kernel report=$results/$number.report
		number=$((number + 1))
		is "$text: the kernel lists $count QPs" "$(in_kernel "$pid" "$kernel" | grep -c .)" "$count"
		[ "$pid" != 0 ] || continue
		is "$text: the report says as many" "$(live_in_report "$pid" "$report")" "$count"
		is "$text: they are the same, by number and type" \
			"$(in_report "$pid" "$report")" "$(in_kernel "$pid" "$kernel")"
	done <"$results/looks"
	is "all of them were looked at" "$number" 8
}

if [ -n "${QPG_IN_VM-}" ]; then
	collect_here
	exit
fi
collect 400
judge
finish
