# shellcheck shell=bash disable=SC2034 # variables for those who include this
# SPDX-License-Identifier: MIT
#
# For the scripts that run in the virtual machine: to report tests, to start
# programs bare or under guard, to wait until a server listens.

guard_library=$QPG_BUILD/.libs/libqpguard.so
qpguard=$QPG_BUILD/qpguard
tests=0
failures=0

ok() {
	tests=$((tests + 1))
	echo "ok $tests - $1"
}

# What follows the text helps whoever looks for the reason.
not_ok() {
	tests=$((tests + 1))
	failures=$((failures + 1))
	echo "not ok $tests - $1"
	shift
	[ $# = 0 ] || printf '%s\n' "$@" | sed 's/^/# /'
}

skip() {
	tests=$((tests + 1))
	echo "ok $tests - $1 # SKIP $2"
}

is() {
	if [ "$2" = "$3" ]; then
		ok "$1"
	else
		not_ok "$1" "got:  $2" "want: $3"
	fi
}

finish() {
	echo "1..$tests"
	[ "$failures" = 0 ]
	exit
}

# Starts a program in the background, its output in FILE; its pid is $!.
start_bare() {
	local file=$1
	shift
	"$@" >"$file" 2>&1 </dev/null &
}

# The same under guard, its state file in DIR.
start_guarded() {
	local file=$1 dir=$2
	shift 2
	(
		export LD_PRELOAD=$guard_library QPGUARD_DIR=$dir
		exec "$@" >"$file" 2>&1 </dev/null
	) &
}

# A condition, given as a command, comes true within SECONDS.
wait_until() {
	local seconds=$1 deadline=$((SECONDS + $1 + 1))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05
	done
}

# Somebody listens at a TCP port, or, for "cm", with the RDMA connection manager.
listens() {
	case $1 in
	cm) rdma resource show cm_id | grep -q 'state LISTEN' ;;
	*) cat /proc/net/tcp /proc/net/tcp6 | grep -qi ":$(printf %04X "$1") [0-9A-F:]* 0A " ;;
	esac
}

is_gone() {
	! kill -0 "$1" 2>/dev/null
}

# Sets $status to how a program started by us ended: 124 when it had to be killed.
wait_for() {
	local pid=$1 seconds=$2
	if wait_until "$seconds" is_gone "$pid"; then
		wait "$pid"
		status=$?
	else
		kill -KILL "$pid"
		wait "$pid" 2>/dev/null
		status=124
	fi
}
