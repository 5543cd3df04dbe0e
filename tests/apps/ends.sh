#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A thousand forks of a process with queue pairs, children that end in every way there is: each that
# makes a verbs call leaves one file, the others none, and no count is lost.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

forks=${QPG_FORKS:-1000}
fresh
set_for_guard QPGUARD_STATE_MAX_FILES=10000 QPGUARD_STATE_MAX_BYTES=1G
guarded ends "$forks" </dev/null >"$work/out" 2>"$work/err"
is "$forks forks: it runs to its end" "$? $(cat "$work/err")" "0 "
sed -n 's/^child //p' "$work/out" | awk '$3 > 0' | sort -n >"$work/with"
parent=$(sed -n 's/^parent \([0-9]*\) .*/\1/p' "$work/out")
is "every child said who it is" "$(grep -c '^child ' "$work/out")" "$forks"
is "a file for the parent and each child with a verbs call, none for the others" \
	"$(find "$state" -type f | wc -l)" $(($(wc -l <"$work/with") + 1))
json .pid >/dev/null

# PID, how it ended, what it made, what it posted to that and to its parent's queues, what it inherited.
jq -r --argjson parent "$parent" '.processes[] | select(.parent_pid == $parent) |
	[.pid, .state, .totals.created_qps, ([.qps[].recv.posted] | add // 0), .inherited.posts, .inherited.qps] | @tsv' \
	"$work/report" | sort -n | tr '\t' ' ' >"$work/got"
awk '{ own = $2 == "own"; print $1, $4, own + 0, own ? $3 : 0, own ? 0 : $3, 2 }' "$work/with" >"$work/want"
is "every child's end and counts: its queue pairs, its posts to them, to the parent's, what the parent had" \
	"$(diff "$work/want" "$work/got")" ""
is "the parent's counts" \
	"$(json ".processes[] | select(.pid == $parent) |
		[.state, .parent_pid, .inherited, .totals.live_qps, .qps[0].send.posted, .qps[0].send.completed, .qps[1].recv.outstanding]")" \
	"[\"exited\",null,null,2,$forks,$forks,5]"
finish
