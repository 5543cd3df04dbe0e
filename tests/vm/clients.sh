#!/bin/bash
# SPDX-License-Identifier: MIT
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

address=10.9.9.1
iterations=300
work=$(mktemp -d /tmp/clients.XXXXXX)

# Runs a server and its client to their ends.  HOW is bare or guarded; leaves
# output and exit statuses in $work/NAME.HOW and sets the two pids.
run_pair() {
	local name=$1 how=$2 port=$3 client_argument=$4 dir
	shift 4
	dir=$work/$name.$how
	mkdir -p "$dir"
	start "$how" "$dir" server "$@"
	server_pid=$!
	wait_until 20 listens_or_gone "$port" "$server_pid"
	# Of all of them rping alone is told by an option which end it is.
	# shellcheck disable=SC2086 # none or one word
	start "$how" "$dir" client "${@/#-s/-c}" $client_argument
	client_pid=$!
	wait_for "$client_pid" 60
	echo "client exit status $status" >>"$dir/client"
	wait_for "$server_pid" 20
	echo "server exit status $status" >>"$dir/server"
}

# shellcheck disable=SC2317 # called by wait_until
listens_or_gone() {
	listens "$1" || is_gone "$2"
}

start() {
	local how=$1 dir=$2 end=$3
	shift 3
	if [ "$how" = guarded ]; then
		start_guarded "$dir/$end" "$dir/state" "$@"
	else
		start_bare "$dir/$end" "$@"
	fi
}

# Numbers differ from run to run, in hexadecimal too, and with them the spaces
# that align them.  A clock as coarse as the emulated one divides by zero, and
# perftest complains of it in some runs and not in others.
mask() {
	grep -vE '^(Correlation coefficient r\^2|Conflicting CPU frequency values)' "$1" |
		sed -E 's/\b(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*(\.[0-9]+)?(e[-+][0-9]+)?/N/g
			s/-?\b(inf|nan)\b/N/g; s/[ \t]+/ /g; s/ $//'
}

# The exit statuses are the last lines of what is compared.
compare_end() {
	local name=$1 end=$2 bare=$work/$1.bare/$2 guarded=$work/$1.guarded/$2 difference
	if ! grep -qx "$end exit status 0" "$bare"; then
		not_ok "$name: the $end works without the guard" "$(cat "$bare")"
	elif difference=$(diff <(mask "$bare") <(mask "$guarded")); then
		ok "$name: the $end ends and prints alike with and without the guard"
	else
		not_ok "$name: the $end ends and prints alike with and without the guard" "$difference"
	fi
}

# Counts of one process, all its QPs together: "posted completed outstanding".
counts() {
	jq -r --argjson pid "$2" --arg queue "$3" '
		[.processes[] | select(.pid == $pid) | .groups[] | .[$queue]]
		| [map(.posted), map(.completed), map(.outstanding)] | map(add) | map(tostring) | join(" ")' "$1"
}

check_state() {
	local name=$1 report=$work/$1.json
	if ! "$qpguard" report --format json --verbose "$work/$name.guarded/state" >"$report" 2>"$report.errors"; then
		not_ok "$name: the report can be made" "$(cat "$report.errors")"
		return
	fi
	is "$name: the report has both processes, ended" \
		"$(jq -r '.processes | sort_by(.pid) | map("\(.pid) \(.state)") | join(", ")' "$report")" \
		"$(printf '%s exited\n' "$server_pid" "$client_pid" | sort -n | paste -sd , | sed 's/,/, /')"
	is "$name: posted = completed + outstanding + discarded in every queue" \
		"$(jq -c '[.processes[].groups[] | .send, .recv | select(. != null and .posted != null)
			| select(.posted != .completed + .outstanding + .discarded)]' "$report")" "[]"
}

# What perftest does with -n 300: the tests of bandwidth and of READ latency post
# sends at the client only, those of SEND and WRITE latency at both ends; it waits
# for every one of them.  The receiver of a SEND takes as many completions.
check_perftest() {
	local name=$1 report=$work/$1.json server_sends=0 receives=0 client_receives=0
	local all="$iterations $iterations 0"
	case $name in
	ib_send_lat) server_sends=$iterations receives=$iterations client_receives=$iterations ;;
	ib_write_lat) server_sends=$iterations ;;
	ib_send_bw) receives=$iterations ;;
	esac
	[ -s "$report" ] || return
	is "$name: the client posted and completed $iterations sends" \
		"$(counts "$report" "$client_pid" send)" "$all"
	is "$name: the server posted and completed $server_sends sends" \
		"$(counts "$report" "$server_pid" send)" "$server_sends $server_sends 0"
	is "$name: the server completed $receives receives" \
		"$(counts "$report" "$server_pid" recv | cut -d ' ' -f 2)" "$receives"
	is "$name: the client completed $client_receives receives" \
		"$(counts "$report" "$client_pid" recv | cut -d ' ' -f 2)" "$client_receives"
}

# test_client NAME PORT ARGUMENT-OF-THE-CLIENT COMMAND...
test_client() {
	local name=$1
	[ -z "$chosen" ] || [[ " $chosen " == *" $name "* ]] || return
	run_pair "$name" bare "${@:2}"
	run_pair "$name" guarded "${@:2}"
	compare_end "$name" server
	compare_end "$name" client
	check_state "$name"
	case $name in
	ib_*) check_perftest "$name" ;;
	esac
}

chosen=$*
for name in ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong; do
	test_client "$name" 18515 "$address" "$name" -d rxe0 -g 1
done
test_client rping cm "" rping -s -a "$address" -C 10 -v
test_client fi_pingpong 47592 "$address" fi_pingpong -p verbs -e msg
for name in ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat; do
	test_client "$name" 18515 "$address" "$name" -d rxe0 -x 1 -F -n "$iterations"
done
[ -d /out ] && cp -r "$work" /out/
rm -rf "$work"
finish
