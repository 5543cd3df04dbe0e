#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A process that forks: a child has a state file of its own if it makes verbs calls, and none if
# not; the parent's counts are its own.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

bare forks >"$work/bare" 2>&1
fresh
guarded forks </dev/null >"$work/guarded" 2>&1
is "it runs to its end" "$?" 0
is "guarded, it does what it does bare" "$(grep ^result "$work/guarded")" "$(grep ^result "$work/bare")"
parent=$(sed -n 's/^parent //p' "$work/guarded")
child=$(sed -n 's/^child //p' "$work/guarded")
is "of three children one has a state file, and the parent" "$(find "$state" -name '*.state' | wc -l)" 2
expect "the child is told as a child of its parent" \
	".processes[] | select(.pid == $child) | [.parent_pid, .state, .totals.created_qps, .totals.live_qps]" \
	"[$parent,\"exited\",1,1]"
expect "the child's queue pair is its own alone" \
	".processes[] | select(.pid == $child) | [.qps[].recv | [.posted, .outstanding]]" '[[4,4]]'
expect "the parent's sends: unaffected" \
	".processes[] | select(.pid == $parent) | .qps[0].send | [.posted, .completed, .outstanding]" '[6,6,0]'
expect "the parent's receives: unaffected" \
	".processes[] | select(.pid == $parent) | [.qps[].recv | [.posted, .completed, .outstanding]]" '[[8,0,8],[6,6,0]]'
expect "the parent is nobody's child, and ended by itself" \
	".processes[] | select(.pid == $parent) | [.parent_pid, .state, .totals.created_qps]" '[null,"exited",2]'
finish
