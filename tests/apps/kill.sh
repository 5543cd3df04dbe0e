#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A process that is killed in mid-run: the report says that it died, with every object and with
# counts up to the call in flight. And one that runs is shown to run, from another pid namespace
# too.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

# Sets $pid; returns when all its threads work.
start() {
	rm -f "$work/will" "$work/out"
	mkfifo "$work/out"
	guarded_exec victim "$work/will" >"$work/out" 2>"$work/err" </dev/null &
	pid=$!
	read -r line <"$work/out"
	[ "$line" = "result all work" ] || not_ok "the program works" "$line" "$(cat "$work/err")"
}

# The first number between the other two.
between() {
	[ "$1" -ge "$2" ] && [ "$1" -le "$3" ]
}

for run in {1..5}; do
	fresh
	start
	if [ "$run" = 1 ]; then
		expect "a process that runs is shown to run" '[.state, .totals.live_qps]' '["running",6]'
		if unshare --pid --fork --mount-proc true 2>/dev/null; then
			is "also from another pid namespace" \
				"$(unshare --pid --fork --mount-proc "$qpguard" report --format json "$state" |
					jq -r '.processes[0].state')" running
		else
			skip "also from another pid namespace" "this machine allows no pid namespace"
		fi
	fi
	sleep "0.0$run"
	kill -KILL $pid
	wait $pid 2>/dev/null
	expect "kill $run: it died, and every object is there" \
		'[.state, .totals.live_qps, .totals.live_cqs, .totals.live_srqs, ([.qps[], .cqs[], .srqs[]] | length)]' \
		'["died",6,6,1,13]'
	expect "kill $run: the SRQ holds what was posted" '.srqs[0].recv | [.posted, .outstanding]' '[5,5]'
	wrong=
	while read -r qp posting posted _ retired; do
		sends=$(json ".qps[] | select(.qp_num == $qp) | .send | \"\\(.posted) \\(.completed) \\(.outstanding) \\(.discarded)\"")
		read -r said completed outstanding discarded <<<"$sends"
		# at most one poll of 4 completions, one in four requests signaled, was under way
		between "$said" "$posted" "$posting" &&
			between "$completed" "$retired" $((retired + 16)) &&
			[ $((completed + outstanding + discarded)) = "$said" ] ||
			wrong+="QP $qp: $posted to $posting posted, $retired retired; the report: $sends"$'\n'
	done < <("$apps/victim" "$work/will" tell | sed 's/[a-z]*=//g')
	is "kill $run: the counts are those up to the call in flight" "$wrong" ""
done

# Afterwards the same folder serves the next.
start
is "another process in the same folder: one died, one runs" \
	"$(json '.processes | map(.state) | sort | join(" ")')" "died running"
kill -KILL $pid
wait $pid 2>/dev/null
finish
