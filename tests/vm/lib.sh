# shellcheck shell=bash disable=SC2034 # variables for those who include this
# SPDX-License-Identifier: MIT
#
# For tests with the virtual machine: to report, to start programs bare or under
# guard, to wait until a server listens.
#
# Every process that is started in the virtual machine costs a tenth of a second or
# more.  So what can be judged afterwards is judged outside: a script collects in
# there (collect) and judges out here, from the files it left.  The waiting below
# starts no process either.

: "${QPG_SRC:=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)}"
: "${QPG_BUILD:=$QPG_SRC/build}"
export QPG_SRC QPG_BUILD
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

# Runs the script that calls this once more, in the virtual machine, with a time
# limit.  There $results is /out; here it is the same folder by its own name.
if [ -n "${QPG_IN_VM-}" ]; then
	results=/out
else
	results=$QPG_BUILD/tests/vm/$(basename "$0" .sh)
fi

collect() {
	local seconds=$1 status
	shift
	rm -rf "$results"
	"$QPG_SRC/tests/vm/vm" run -t "$seconds" -o "$results" "$0" "$@"
	status=$?
	[ "$status" != 77 ] || exit 77
	is "the run in the virtual machine came to its end" "$status" 0
}

# What plays the device for the programs that are started, if a library does.
device_library=

# Starts a program in the background, its output in FILE; its pid is $!.
start_bare() {
	local file=$1
	shift
	(
		[ -z "$device_library" ] || export LD_PRELOAD=$device_library
		exec "$@" >"$file" 2>&1 </dev/null
	) &
}

# The same under guard, its state file in DIR.
start_guarded() {
	local file=$1 dir=$2
	shift 2
	(
		export LD_PRELOAD=$guard_library${device_library:+:$device_library} QPGUARD_DIR=$dir
		exec "$@" >"$file" 2>&1 </dev/null
	) &
}

# Nothing ever comes out of this: to wait for it is to sleep without a process.
exec {nothing}<> <(:)

# A condition, given as a command, comes true within SECONDS.
wait_until() {
	local deadline=$((SECONDS + $1 + 1))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || return 1
		read -r -t 0.05 -u "$nothing"
	done
	return 0
}

# Somebody listens at a TCP port, or, for "cm", with the RDMA connection manager.
listens() {
	local address port state line
	if [ "$1" = cm ]; then
		rdma resource show cm_id | grep -q 'state LISTEN'
		return
	fi
	printf -v port %04X "$1"
	while read -r _ address _ state line; do
		[ "${address##*:} $state" != "$port 0A" ] || return 0
	done < <(echo "$(</proc/net/tcp)"$'\n'"$(</proc/net/tcp6)")
	return 1
}

# Dead, also while nobody has asked yet how it ended.
is_gone() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
	[[ $stat == *") Z "* ]]
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
