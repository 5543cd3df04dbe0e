#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Nothing grows without end: neither by objects that come and go, nor by failures, nor by dead processes.
. "$(dirname "$0")/lib.sh"

state=$(mktemp -d /dev/shm/qpg-harm.XXXXXX) || exit 77
undo+=('rm -rf "$state"')
settings=(QPGUARD_DIR="$state" QPGUARD_LOG_LEVEL=debug QPGUARD_LOG_FILE="$work/log")

fresh() {
	rm -f "$state"/*.state "$work/log"
}
# bounded TEXT: the state file under 4 MiB, the log under 100 lines.
bounded() {
	equal "$1: the program works" "$(cat "$work/guarded.status")" 0
	equal "$1: the report is whole" "$("$qpguard" report "$state" 2>&1 >/dev/null)" ""
	at_most "$1: bytes of the state file" "$(stat -c %s "$state"/*.state)" 4194303
	at_most "$1: lines of the log" "$(cat "$work/log" 2>/dev/null | count)" 99
}
# Processor time between the n-th and the next "clock", in microseconds.
between_clocks() {
	sed -n 's/^clock //p' "$1" | awk -v n="$2" 'NR == n { a = $1 } NR == n + 1 { print $1 - a }'
}

fresh
guarded "$work/guarded" "$guest" open pair churn 100000 send 10 drop close
bounded "100,000 QPs of random caps"
equal "they are counted" "$(report '[p[0]["totals"][k] for k in ("created_qps", "live_qps", "bytes")]' "$state")" "[100002, 0, 0]"
equal "their groups add up" "$(report 'sum(g["created"] for g in p[0]["groups"] if g["type"] == "RC" or g["type"] is None)' "$state")" 100002

fresh
plain "$work/bare" "$guest" open clock fail 1000000 clock
guarded "$work/guarded" "$guest" open clock fail 1000000 clock
bounded "1,000,000 failing creates"
equal "they are counted" "$(report '[p[0]["totals"]["create_failures"], len(p[0]["failures"]), p[0]["failures"][0]["count"]]' "$state")" "[1000000, 1, 1000000]"
more=$((($(between_clocks "$work/guarded.err" 1) - $(between_clocks "$work/bare.err" 1)) / 1000))
at_most "nanoseconds more for each" $more 3000

fresh
plain "$work/bare" "$guest" open clock failall 1000000 clock
guarded "$work/guarded" "$guest" open clock failall 1000000 clock
bounded "1,000,000 failing creates, no two alike"
equal "they are counted" "$(report '[p[0]["totals"]["create_failures"], sum(f["count"] for f in p[0]["failures"])]' "$state")" "[1000000, 1000000]"
more=$((($(between_clocks "$work/guarded.err" 1) - $(between_clocks "$work/bare.err" 1)) / 1000))
at_most "nanoseconds more for each" $more 6000

fresh
settings+=(QPGUARD_BUDGET_QPS=3 QPGUARD_BUDGET_ACTION=refuse)
guarded "$work/guarded" "$guest" open qps 3 clock failall 1000000 clock
bounded "1,000,000 refusals by budget"
equal "they are counted" "$(report '[p[0]["totals"]["budget_refusals"], p[0]["totals"]["create_failures"]]' "$state")" "[1000000, 0]"
unset 'settings[-1]' 'settings[-1]'

# --- memory ---
fresh
plain "$work/bare" "$guest" open pair rss
guarded "$work/guarded" "$guest" open pair rss
rss() {
	sed -n 's/^rss //p' "$1"
}
at_most "KiB resident more with a pair of QPs" $(($(rss "$work/guarded.err") - $(rss "$work/bare.err"))) 1024
fresh
guarded "$work/guarded" "$guest" open churn 20000 rss churn 50000 rss
at_most "KiB resident more after 50,000 more QPs" \
	"$(rss "$work/guarded.err" | awk 'NR == 1 { a = $1 } END { print $1 - a }')" 256

# --- dead processes ---
rm -f "$state"/*.state
settings+=(QPGUARD_STATE_MAX_FILES=5)
for _ in 1 2 3 4 5 6 7 8; do guarded "$work/guarded" "$guest" open kill; done
at_most "files of dead processes, of 8" "$(state_files "$state" | count)" 6
at_most "temporary files left" "$(find "$state" -name '.*' -type f | count)" 0
finished
