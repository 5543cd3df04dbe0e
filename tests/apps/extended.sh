#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The same programs by the extended calls, ibv_wr_* and ibv_start_poll: what is seen there is
# counted as it is in the others.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

export QPG_API=extended
for run in 'refusals full' 'refusals afterwards' 'refusals sges' 'refusals inline' 'refusals datagrams' \
	'signals window' 'signals tail' 'signals late' 'signals all_signal' 'signals batches' 'signals deep' \
	'signals both_ways' \
	'reuse churn' 'reuse reset' 'reuse flush' 'reuse shared'; do
	fresh
	# shellcheck disable=SC2086 # two words
	follow $run
done
# A thread that is not the first.
export QPG_OWNER=other
for run in 'refusals afterwards' 'signals tail' 'signals late'; do
	fresh
	# shellcheck disable=SC2086
	follow $run
done
unset QPG_OWNER
[ -z "${QPG_COLLECT-}${QPG_JUDGE-}" ] || finish
fresh
guarded signals batches </dev/null >/dev/null 2>&1
expect "the way in is told: extended QPs and CQs" '.guard.entry_points | [.create_qp_ex, .create_cq_ex, .create_qp, .create_cq]' '[2,2,0,0]'
expect "and the posts are visible" '[.qps[].posts_visible] | all' true
finish
