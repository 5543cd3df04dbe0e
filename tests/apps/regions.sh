#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Memory regions: counted with their bytes, peaks and sizes, whichever way they come in, and held to
# their budgets.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

fresh
follow regions
expect "the report has each size that was registered, those most used first" \
	'.mrs.sizes | map("\(.from)-\(.to): \(.registered)") | join(", ")' \
	"$(on_rxe && echo "8192-16383: 2, 64-127: 1, 4096-8191: 1, 1048576-2097151: 1" ||
		echo "8192-16383: 2, 0-0: 1, 64-127: 1, 16384-32767: 1, 1048576-2097151: 1")"

fresh
follow regions many
expect "of 10,000 small ones the sizes are known" \
	'.mrs.sizes[:2] | map("\(.from)-\(.to): \(.registered)") | join(", ")' \
	"8192-16383: 7500, 4096-8191: 2500"
text=$(COLUMNS=200 "$qpguard" report "$state" | grep '^ *memory')
is "the text has a line of them" "$(tr -s ' ' <<<"$text" | sed 's/^ //')" \
	"memory 0 MRs (10001 registered, peak 2) of 0 B (peak 1 MiB); most of 8 KiB to 16 KiB (7500)"

# --- budgets

fresh
set_for_guard QPGUARD_BUDGET_MRS=2 QPGUARD_BUDGET_ACTION=refuse
guarded objects mr=4096 mr=4096 drop=mr mr=8192 </dev/null 2>"$work/log" | sed -n 's/^result //p' >"$work/out"
is "budget mrs = 2: the third is refused, a place that was freed serves again" \
	"$(paste -sd, "$work/out")" "mr=4096: made,mr=4096: ENOMEM,drop=mr: 0,mr=8192: made"
expect "budget mrs = 2: the report has used, peak and refusals" \
	'.budget.mrs | "\(.used) \(.peak) \(.refusals)"' "2 2 1"

fresh
set_for_guard QPGUARD_BUDGET_MR_BYTES=1052676 QPGUARD_BUDGET_ACTION=refuse
# 1 MiB is the program's, 4100 bytes remain
guarded regions </dev/null >"$work/out" 2>"$work/log"
grep -q '^Bail' "$work/out" && ok "budget mr_bytes: an MR beyond it is refused" ||
	not_ok "budget mr_bytes: an MR beyond it is refused" "$(cat "$work/out")"
expect "budget mr_bytes: what is over it is not counted" '.mrs.bytes' 1048576
finish
