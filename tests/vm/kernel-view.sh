#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The kernel as a witness: while programs hold QPs, `rdma resource show qp` lists
# for the pid of each what the report lists as living.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"

state=$(mktemp -d /dev/shm/kernel-view.XXXXXX)
address=10.9.9.1
pids=()

# "number type" of each QP of a pid, as the kernel has them.
in_kernel() {
	rdma -j resource show qp | jq -r --argjson pid "$1" '
		.[] | select(.pid == $pid) | "\(.lqpn) \(.type)"' | sort -n
}

in_report() {
	"$qpguard" report --format json "$state" | jq -r --argjson pid "$1" '
		.processes[] | select(.pid == $pid) | .qps[] | select(.destroyed_at == null)
		| "\(.qp_num) \(.type)"' | sort -n
}

live_in_report() {
	"$qpguard" report --format json "$state" | jq --argjson pid "$1" '
		.processes[] | select(.pid == $pid) | .totals.live_qps'
}

# Starts a program under guard and waits until the kernel lists COUNT QPs of it.
start() {
	local name=$1 count=$2
	shift 2
	start_guarded "$state/$name.output" "$state" "$@"
	pid=$!
	pids+=("$pid")
	[ "$count" = 0 ] || wait_until 20 holds "$pid" "$count"
}

# shellcheck disable=SC2317 # called by wait_until
holds() {
	[ "$(in_kernel "$1" | wc -l)" = "$2" ]
}

compare() {
	local text=$1 pid=$2 count=$3
	is "$text: the kernel lists $count QPs" "$(in_kernel "$pid" | wc -l)" "$count"
	is "$text: the report says as many" "$(live_in_report "$pid")" "$count"
	is "$text: they are the same, by number and type" "$(in_report "$pid")" "$(in_kernel "$pid")"
}

stop() {
	kill -KILL "${pids[@]}" 2>/dev/null
	wait "${pids[@]}" 2>/dev/null
	pids=()
}

# The servers of libibverbs make their QPs before they wait for a client.
start one 1 ibv_rc_pingpong -d rxe0 -g 1 -p 20001
compare "a server that waits" "$pid" 1
start many 16 ibv_srq_pingpong -d rxe0 -g 1 -p 20002 -q 16
compare "a server with an SRQ that waits" "$pid" 16
start datagram 1 ibv_ud_pingpong -d rxe0 -g 1 -p 20003
compare "a server of datagrams that waits" "$pid" 1
stop

# QPs made through the connection manager, at both ends, in mid-run.
start cm-server 0 rping -s -a "$address" -C 1000000
server=$pid
wait_until 20 listens cm
start cm-client 1 rping -c -a "$address" -C 1000000
client=$pid
compare "a server of the connection manager" "$server" 1
compare "a client of the connection manager" "$client" 1
stop

# Several in a run, at both ends.
start run-server 0 ib_write_bw -d rxe0 -x 1 -F -q 8 -n 1000000 -s 1024
server=$pid
wait_until 20 listens 18515
start run-client 8 ib_write_bw -d rxe0 -x 1 -F -q 8 -n 1000000 -s 1024 "$address"
client=$pid
compare "a server with 8 QPs" "$server" 8
compare "a client with 8 QPs in its run" "$client" 8
stop
is "afterwards the kernel lists none of ours" "$(rdma -j resource show qp | jq -r '[.[] | select(.pid)] | length')" 0

rm -rf "$state"
finish
