#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What `make demo` shows: a perftest program, unmodified, under guard on an RDMA
# device, and what qpguard tells of it; then the same with a budget that its
# queues do not fit in.  Runs on the device of this machine if it has one, else
# in the virtual machine.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
export QPG_SRC=${QPG_SRC:-$(cd "$here/../.." && pwd -P)}
export QPG_BUILD=${QPG_BUILD:-$QPG_SRC/build}

device_of_this_machine() {
	local device
	for device in /sys/class/infiniband/*; do
		[ -e "$device" ] && echo "${device##*/}" && return
	done
	return 1
}

if ! device=$(device_of_this_machine); then
	echo "This machine has no RDMA device; starting a virtual machine that has one ..."
	exec "$here/vm" run -t 600 "$here/demo.sh"
fi

# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"
perftest=(ib_send_bw -d "$device" -F -n 1000 -s 4096)
# The software device has its address at the second place of its table.
[ -z "${QPG_IN_VM-}" ] || perftest+=(-x 1)
state=$(mktemp -d /dev/shm/qpguard-demo.XXXXXX)
server_pid=
trap 'stop_server; rm -rf "$state"' EXIT

heading() {
	printf '\n\n== %s\n' "$1"
}

# Shows a command as one would type it, then runs it.
show() {
	printf '\n$ %s\n' "$*"
	"$@"
}

stop_server() {
	[ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null
	[ -z "$server_pid" ] || wait "$server_pid" 2>/dev/null
	server_pid=
}

# The other end of the run, not shown and not guarded.
start_server() {
	stop_server
	start_bare "$state/server.output" "${perftest[@]}"
	server_pid=$!
	wait_until 20 listens 18515
}

export PATH=$QPG_BUILD:$PATH
export LD_LIBRARY_PATH=$QPG_BUILD/.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

heading "The device"
show ibv_devices
show rdma link

heading "1. An unmodified program under guard"
# shellcheck disable=SC2031 # set in a subshell by others
export QPGUARD_DIR=$state/first
start_server
show env LD_PRELOAD=libqpguard.so "${perftest[@]}" 127.0.0.1
echo "(exit status $?)"
stop_server

heading "What its queues asked for, what they got and what they cost"
show qpguard report

heading "2. The same program with a budget that it exceeds"
export QPGUARD_DIR=$state/second
start_server
# Enough for its completion queues, too little for the queue pair besides.
show env LD_PRELOAD=libqpguard.so QPGUARD_BUDGET_PROCESS_BYTES=256K QPGUARD_BUDGET_ACTION=refuse \
	"${perftest[@]}" 127.0.0.1
echo "(exit status $?)"
stop_server

heading "What was refused"
show qpguard report
