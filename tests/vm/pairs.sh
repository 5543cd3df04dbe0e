# shellcheck shell=bash disable=SC2034,SC2154,SC2317 # variables and functions for those who include this
# SPDX-License-Identifier: MIT
#
# Programs that know nothing of the guard, as server and client: once bare and once with both ends under guard;
# whether they ended and printed alike, and what the guard counted. Wants lib.sh.

# run_pair NAME bare|guarded PORT CLIENT_ARGUMENT PROGRAM...: runs a server and its client to their ends; leaves in
# $work/NAME.bare or NAME.guarded their output, with the exit status for a last line, their pids and their
# state files.
client_seconds=60
run_pair() {
	local name=$1 how=$2 port=$3 client_argument=$4 dir server client
	shift 4
	dir=$work/$name.$how
	mkdir -p "$dir"
	start "$how" "$dir" server "$@"
	server=$!
	wait_until 30 listens_or_gone "$port" "$server"
	# Of all of them rping alone is told by an option which end it is.
	[ "$1" != rping ] || set -- "${@/#-s/-c}"
	# shellcheck disable=SC2086 # none or one word
	start "$how" "$dir" client "$@" $client_argument
	client=$!
	wait_for "$client" "$client_seconds"
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

# Numbers differ from run to run, in hexadecimal too, and with them the spaces
# that align them.  A clock as coarse as the emulated one divides by zero, and
# perftest complains of it in some runs and not in others.
mask() {
	grep -vE '^(Correlation coefficient r\^2|Conflicting CPU frequency values)' "$1" |
		sed -E '/ exit status /b
			s/\b0x[0-9a-fA-F]+/N/g
			s/\b[0-9a-fA-F]*[0-9][0-9a-fA-F]*(\.[0-9]+)?(e[-+][0-9]+)?/N/g
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

# judge_pair NAME: what run_pair left in $results of both runs. Sets $server_pid, $client_pid and $report, the report of
# both processes as JSON.
judge_pair() {
	local name=$1
	report=$results/$name.json
	# shellcheck source=/dev/null
	. "$results/$name.guarded/pids"
	compare_end "$name" server
	compare_end "$name" client
	if ! "$qpguard" report --format json --verbose "$results/$name.guarded/state" >"$report" 2>"$report.errors"; then
		not_ok "$name: the report can be made" "$(cat "$report.errors")"
		return 1
	fi
	check_report
}

check_report() {
	is "$name: the report has both processes, ended" \
		"$(jq -r '.processes[] | "\(.pid) \(.state)"' "$report" | sort -n)" \
		"$(printf '%s exited\n' "$server_pid" "$client_pid" | sort -n)"
	is "$name: posted = completed + outstanding + discarded in every queue" \
		"$(jq -c '[.processes[].groups[] | .send, .recv | select(. != null and .posted != null)
			| select(.posted != .completed + .outstanding + .discarded)]' "$report")" "[]"
}
