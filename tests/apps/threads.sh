#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Threads that share queues: nothing is lost and nothing counted twice, ten runs of ten.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

for run in {1..10}; do
	fresh
	guarded threads 4 5000 $((run % 2)) </dev/null >"$work/guarded" 2>"$work/guarded.err"
	is "run $run: it runs to its end" "$?$(grep '^Bail' "$work/guarded")$(cat "$work/guarded.err")" 0
	at_rest=yes
	refused=$(sed -n 's/^total side=send.* queue_full=\([0-9]*\).*/\1/p' "$work/guarded" | tail -n 1)
	expect "run $run: all 20,008 sends are posted and completed, none is outstanding or lost" \
		'[.groups[].send | select(.posted > 0) | [.posted, .completed, .outstanding, .discarded]]' \
		'[[20008,20008,0,0]]'
	expect "run $run: refusals are what the program counted: $refused" \
		'[.groups[].send.rejected | add] | add' "$refused"
done
fresh
follow_racing threads 4 500 1
finish
