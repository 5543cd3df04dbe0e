#!/bin/bash
# SPDX-License-Identifier: MIT
# shellcheck disable=SC2317 # functions are called by the name in a variable
#
# Programs that know nothing of the guard, server and client on the device rxe0,
# once bare and once with both ends under guard: they must end and print alike,
# and what the guard counted must be what they did.
#
#   clients.sh [NAME...]     only those
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"
# shellcheck source=tests/vm/pairs.sh
. "$here/pairs.sh"

address=10.9.9.1
iterations=300
chosen=$*

# name, where the server listens, what the client has besides, how it is called
for_each_client() {
	local name
	for name in ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong; do
		"$1" "$name" 18515 "$address" "$name" -d rxe0 -g 1
	done
	"$1" rping cm "" rping -s -a "$address" -C 10 -v
	"$1" fi_pingpong 47592 "$address" fi_pingpong -p verbs -e msg
	for name in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat; do
		"$1" "$name" 18515 "$address" "$name" -d rxe0 -x 1 -F -n "$iterations"
	done
}

is_chosen() {
	[ -z "$chosen" ] || [[ " $chosen " == *" $1 "* ]]
}

# --- in the virtual machine

run_bare_and_guarded() {
	is_chosen "$1" || return
	run_pair "$1" bare "${@:2}"
	run_pair "$1" guarded "${@:2}"
}

# --- outside, afterwards

judge() {
	local name=$1 server_pid client_pid report
	is_chosen "$name" || return
	if ! [ -s "$results/$name.guarded/pids" ]; then
		not_ok "$name: was run"
		return
	fi
	judge_pair "$name" || return
	case $name in
	ib_*) check_perftest ;;
	esac
}

# What perftest does with -n 300: the tests of bandwidth and of READ latency post
# sends at the client only, those of SEND and WRITE latency at both ends; it waits
# for every one of them.  The receiver of a SEND takes as many completions.
check_perftest() {
	local server_sends=0 receives=0 client_receives=0
	case $name in
	ib_send_lat) server_sends=$iterations receives=$iterations client_receives=$iterations ;;
	ib_write_lat) server_sends=$iterations ;;
	ib_send_bw) receives=$iterations ;;
	esac
	is "$name: the client posted and completed $iterations sends" \
		"$(counts "$client_pid" send)" "$iterations $iterations 0"
	is "$name: the server posted and completed $server_sends sends" \
		"$(counts "$server_pid" send)" "$server_sends $server_sends 0"
	is "$name: the server completed $receives receives" \
		"$(counts "$server_pid" recv | cut -d ' ' -f 2)" "$receives"
	is "$name: the client completed $client_receives receives" \
		"$(counts "$client_pid" recv | cut -d ' ' -f 2)" "$client_receives"
}

if [ -n "${QPG_IN_VM-}" ]; then
	work=$(mktemp -d /dev/shm/clients.XXXXXX)
	client_seconds=90
	for_each_client run_bare_and_guarded
	cp -r --sparse=always "$work/." "$results"
	exit
fi
# A minute or two, but many on a machine that has much else to do.
collect 900 "$@"
for_each_client judge
finish
