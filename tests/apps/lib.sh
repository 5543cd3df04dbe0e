# shellcheck shell=bash disable=SC2034 # variables for those who include this
# SPDX-License-Identifier: MIT
#
# For the scripts of this folder: to run a program of it bare and guarded, to read the report
# while it waits and afterwards, and to compare that with what the program says it did
# (verbs_pair.h).
#
# Environment: QPG_BUILD and QPG_SRC, the build and source trees; QPG_DEVICE and QPG_GID, the
# device and the index of its GID; QPG_PRELOAD, what to preload besides the guard (the device
# itself, where it is played by a library), or nothing. Without QPG_DEVICE it is rxe0 in the
# virtual machine of tests/vm, else the mlx5 device of tests/device.
set -u

QPG_SRC=${QPG_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)}
QPG_BUILD=${QPG_BUILD:-$QPG_SRC/build}
apps=$QPG_BUILD/tests/apps
guard_library=$QPG_BUILD/.libs/libqpguard.so
qpguard=$QPG_BUILD/qpguard
if [ -z "${QPG_DEVICE-}" ] && [ -n "${QPG_IN_VM-}" ]; then
	QPG_DEVICE=rxe0
	QPG_GID=1
	QPG_PRELOAD=
elif [ -z "${QPG_DEVICE-}" ]; then
	QPG_DEVICE=mlx5_0
	QPG_GID=0
	QPG_PRELOAD=$QPG_BUILD/tests/device/.libs/mlx5dev.so
fi
export QPG_DEVICE QPG_GID=${QPG_GID:-0}
preload=${QPG_PRELOAD-}

# Nothing of the caller's own settings takes part.
for variable in $(compgen -e QPGUARD); do
	unset "$variable"
done

tests=0
failures=0
work=$(mktemp -d /dev/shm/qpguard-apps.XXXXXX) || exit 1
state=
settings=()
trap 'rm -rf "$work"' EXIT

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
	[ $# = 0 ] || printf '%s\n' "$@" | head -n 40 | sed 's/^/# /'
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
	[ -n "${QPG_COLLECT-}" ] || echo "1..$tests"
	[ "$failures" = 0 ]
	exit
}

# An empty folder for state files, and no settings.
fresh() {
	state=$(mktemp -d "$work/state.XXXXXX")
	settings=()
}

# NAME=VALUE...: variables of the guard for the runs that follow, until fresh.
set_for_guard() {
	settings+=("$@")
}

on_rxe() {
	[[ $QPG_DEVICE == rxe* ]]
}

# Runs a program without the guard.
bare() {
	env ${preload:+LD_PRELOAD="$preload"} "$apps/$1" "${@:2}" </dev/null
}

# Runs a program under guard, its state file in $state.
guarded() {
	at_rest=
	rm -f "$work/report"
	env LD_PRELOAD="$guard_library${preload:+:$preload}" QPGUARD_DIR="$state" "${settings[@]}" \
		"$apps/$1" "${@:2}"
}

# The same in the background: $! is the program itself. To be called with redirections and a &.
guarded_exec() {
	exec env LD_PRELOAD="$guard_library${preload:+:$preload}" QPGUARD_DIR="$state" "${settings[@]}" \
		"$apps/$1" "${@:2}"
}

# What the report says: FILTER of jq, applied to the one process in $state (FILTER may start with
# .processes where there are several). A script that knows that nothing runs any more sets at_rest,
# so that the report is made once.
at_rest=
json() {
	[ -n "$at_rest" ] && [ -s "$work/report" ] ||
		"$qpguard" report --format json --verbose "$state" >"$work/report" 2>"$work/report.err" || {
		cat "$work/report.err"
		return 1
	}
	case $1 in
	.processes*) jq -rc "$1" "$work/report" ;;
	*) jq -rc ".processes[0] | $1" "$work/report" ;;
	esac
}

# TEXT FILTER VALUE: the report says so.
expect() {
	is "$1" "$(json "$2" 2>&1)" "$3"
}

# Numbers of QPs and what differs from one run to the next are masked.
masked() {
	sed -E 's/qp=[0-9]+/qp=N/; s/0x[0-9a-f]+/0xN/g; /^qpguard/d'
}

# PROGRAM ARGS...: runs it bare, then guarded, where the state file is read at each step: the
# first time at once, then from a copy, all copies in one go. The report must have said what the
# program says, and the guarded run must print what the bare run printed; of a program whose
# threads race, follow_racing, no more than its results.
#
# Reading reports is slow where the processor is emulated. So with $QPG_COLLECT, a folder, the
# programs are only run and what there is to read is left there, and with $QPG_JUDGE that is judged
# by the same script, on another machine.
follow_racing() {
	same='^(result|step) '
	follow "$@"
	same=
}
same=
followed=0

follow() {
	followed=$((followed + 1))
	run=${QPG_COLLECT:-${QPG_JUDGE:-$work}}/run-$followed
	[ -n "${QPG_JUDGE-}" ] || follow_run "$@"
	[ -n "${QPG_COLLECT-}" ] || follow_judge "$*${QPG_API:+, extended}${QPG_OWNER:+, second thread}"
}

follow_run() {
	local line copy steps=0
	mkdir -p "$run/copies"
	bare "$@" >"$run/bare" 2>"$run/bare.err"
	echo $? >"$run/bare.status"
	coproc program { guarded "$@" 2>"$run/guarded.err"; }
	# shellcheck disable=SC2154 # coproc sets it
	local to=${program[1]} from=${program[0]} pid=$program_PID
	while IFS= read -r line <&"$from"; do
		echo "$line"
		case $line in
		step\ *)
			printf -v copy '%s/qpguard-%06d.state' "$run/copies" $steps
			cp "$state"/*.state "$copy"
			[ $steps != 0 ] || "$qpguard" report --format json "$state" >"$run/during" 2>&1
			steps=$((steps + 1))
			echo >&"$to"
			;;
		esac
	done >"$run/guarded"
	wait "$pid" 2>/dev/null
	echo $? >"$run/guarded.status"
	"$qpguard" report --format json "$state" >"$run/after" 2>&1
}

follow_judge() {
	local text=$1 difference i=0 step
	is "$text: bare, it runs to its end" "$(cat "$run/bare.status")$(grep '^Bail' "$run/bare")" 0
	is "$text: guarded, it runs to its end" "$(cat "$run/guarded.status")$(grep '^Bail' "$run/guarded")" 0
	is "$text: it is said to run while it runs, and to have ended when it has" \
		"$(jq -r '.processes[0].state' "$run/during" "$run/after" 2>&1 | paste -sd ' ')" "running exited"
	"$qpguard" report --format json --verbose "$run/copies" >"$run/reports" 2>&1
	jq -rn --rawfile truth "$run/guarded" --slurpfile reports "$run/reports" \
		-f "$QPG_SRC/tests/apps/compare.jq" >"$run/differences" 2>&1 ||
		not_ok "$text: the reports can be compared" "$(cat "$run/differences")"
	while read -r _ step; do
		if difference=$(grep "^$i " "$run/differences"); then
			not_ok "$text: the report is right after: $step" "${difference//$'\n'$i /$'\n'}"
		else
			ok "$text: the report is right after: $step"
		fi
		i=$((i + 1))
	done < <(grep '^step ' "$run/guarded")
	same_output "$text: guarded, it does what it does bare" "$run/bare" "$run/guarded"
	same_output "$text: guarded, it prints the errors that it prints bare" \
		"$run/bare.err" "$run/guarded.err"
}

same_output() {
	local difference
	if difference=$(diff <(masked <"$2" | grep -E "$same") <(masked <"$3" | grep -E "$same")); then
		ok "$1"
	else
		not_ok "$1" "$difference"
	fi
}
