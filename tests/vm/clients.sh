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

# Runs a server and its client to their ends; leaves their output, with the exit
# status for a last line, their pids and their state files.
run_pair() {
	local name=$1 how=$2 port=$3 client_argument=$4 dir server client
	shift 4
	dir=$work/$name.$how
	mkdir -p "$dir"
	start "$how" "$dir" server "$@"
	server=$!
	wait_until 30 listens_or_gone "$port" "$server"
	# Of all of them rping alone is told by an option which end it is.
	# shellcheck disable=SC2086 # none or one word
	start "$how" "$dir" client "${@/#-s/-c}" $client_argument
	client=$!
	wait_for "$client" 90
	echo "client exit status $status" >>"$dir/client"
	wait_for "$server" 30
	echo "server exit status $status" >>"$dir/server"
	echo "server_pid=$server client_pid=$client" >"$dir/pids"
}

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

# --- outside, afterwards

judge() {
	local name=$1 server_pid client_pid report=$results/$1.json
	is_chosen "$name" || return
	if ! [ -s "$results/$name.guarded/pids" ]; then
		not_ok "$name: was run"
		return
	fi
	# shellcheck source=/dev/null
	. "$results/$name.guarded/pids"
	compare_end "$name" server
	compare_end "$name" client
	if ! "$qpguard" report --format json --verbose "$results/$name.guarded/state" >"$report" 2>"$report.errors"; then
		not_ok "$name: the report can be made" "$(cat "$report.errors")"
		return
	fi
	check_report
	case $name in
	ib_*) check_perftest ;;
	esac
}

# Numbers differ from run to run, in hexadecimal too, and with them the spaces
# that align them.  A clock as coarse as the emulated one divides by zero, and
# perftest complains of it in some runs and not in others.
mask() {
	grep -vE '^(Correlation coefficient r\^2|Conflicting CPU frequency values)' "$1" |
		sed -E '/ exit status /b
			s/\b(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*(\.[0-9]+)?(e[-+][0-9]+)?/N/g
			s/-?\b(inf|nan)\b/N/g; s/[ \t]+/ /g; s/ $//'
}

compare_end() {
	local name=$1 end=$2 bare=$results/$1.bare/$2 guarded=$results/$1.guarded/$2 difference
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
	jq -r --argjson pid "$1" --arg queue "$2" '
		[.processes[] | select(.pid == $pid) | .groups[] | .[$queue]]
		| [map(.posted), map(.completed), map(.outstanding)] | map(add | tostring) | join(" ")' "$report"
}

check_report() {
	is "$name: the report has both processes, ended" \
		"$(jq -r '.processes[] | "\(.pid) \(.state)"' "$report" | sort -n)" \
		"$(printf '%s exited\n' "$server_pid" "$client_pid" | sort -n)"
	is "$name: posted = completed + outstanding + discarded in every queue" \
		"$(jq -c '[.processes[].groups[] | .send, .recv | select(. != null and .posted != null)
			| select(.posted != .completed + .outstanding + .discarded)]' "$report")" "[]"
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
	for_each_client run_bare_and_guarded
	cp -r --sparse=always "$work/." "$results"
	exit
fi
# A minute or two, but many on a machine that has much else to do.
collect 900 "$@"
for_each_client judge
finish
