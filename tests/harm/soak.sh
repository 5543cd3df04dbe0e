#!/bin/bash
# SPDX-License-Identifier: MIT
#
# QPs that come and go for long: memory and the state file stay where they are, and of threads that make,
# post, poll and destroy at once no request is lost or counted twice, also where ThreadSanitizer looks.
. "$(dirname "$0")/lib.sh"

soak=$QPG_BUILD/tests/harm/soak
state=$(mktemp -d /dev/shm/qpg-harm.XXXXXX) || exit 77
undo+=('rm -rf "$state"')

# churn PRELOAD: 200,000 QPs, 1000 at a time. Sets $first and $last, KiB, and the size and blocks of
# the state file then, if there is one.
churn() {
	local from to pid
	rm -f "$state"/*
	coproc program { QPGUARD_DIR=$state LD_PRELOAD=$1 exec timeout 600 "$soak" churn 200000 1000 5000; }
	# shellcheck disable=SC2154 # coproc sets it
	from=${program[0]} to=${program[1]} pid=$program_PID
	read -r _ first _ <&"$from"
	first_file=$(cat "$state"/*.state 2>/dev/null | wc -c) first_blocks=$(stat -c %b "$state"/*.state 2>/dev/null)
	echo >&"$to"
	read -r _ last _ <&"$from"
	last_file=$(cat "$state"/*.state 2>/dev/null | wc -c) last_blocks=$(stat -c %b "$state"/*.state 2>/dev/null)
	echo >&"$to"
	wait "$pid"
	equal "200,000 QPs are made and destroyed, ${2}" $? 0
}
churn "$QPG_PRELOAD" bare
bare_growth=$((last - first))
churn "$guard:$QPG_PRELOAD" guarded
equal "the state file is as long as after 5,000" "$last_file" "$first_file"
equal "and takes as much memory" "$last_blocks" "$first_blocks"
at_most "KiB of memory more than after 5,000, bare $bare_growth" $((last - first)) $((bare_growth + 128))
equal "the report has them all" \
	"$(report '[p[0]["totals"][k] for k in ("created_qps", "destroyed_qps", "live_qps", "bytes")] + [sum(g["created"] for g in p[0]["groups"] if g["type"] == "RC")]' "$state")" \
	"[200000, 200000, 0, 0, 200000]"

# of_group DEPTH SIDE KEYS: from the one group of QPs with that max_send_wr.
of_group() {
	report "[[g['$2'][k] for k in '$3'.split()] for g in p[0]['groups'] if g['requested'].get('max_send_wr') == $1 and g['type'] == 'RC'][0]" "$state"
}
# balanced TEXT: what the program printed into $work/out is what the report says.
balanced() {
	local depth made sends completed refused receives counted
	equal "$1: it runs to its end" "$(cat "$work/status")" 0
	while read -r _ depth _ made _ sends _ completed _ refused _ receives; do
		counted=$(of_group "$depth" send "posted outstanding")
		case $depth in
		16) equal "$1: $sends sends of QPs that were drained before they went" \
			"$(of_group 16 send "posted completed outstanding discarded")" "[$sends, $completed, 0, 0]" ;;
		32)
			counted=$(of_group 32 send completed)
			equal "$1: $sends sends of QPs that went as they were" \
				"$(of_group 32 send "posted outstanding discarded")" "[$sends, 0, $((sends - ${counted//[^0-9]/}))]"
			at_most "$1: of them completed, when $completed were polled, some after destroy_qp began" \
				"${counted//[^0-9]/}" "$completed"
			check "$1: of them some are completed" test "${counted//[^0-9]/}" -gt 0
			;;
		64) equal "$1: $sends sends by threads that share QPs, $refused calls refused" \
			"$(of_group 64 send "posted completed outstanding discarded"), $(report "[sum(g['send']['rejected'].values()) for g in p[0]['groups'] if g['requested'].get('max_send_wr') == 64 and g['type'] == 'RC'][0]" "$state")" \
			"[$sends, $completed, 0, 0], $refused" ;;
		esac
		[ "$depth" = 64 ] || equal "$1: $receives receives of these QPs, never used" \
			"$(of_group "$depth" recv "posted completed outstanding discarded")" "[$receives, 0, 0, $receives]"
		equal "$1: $made QPs of max_send_wr $depth" \
			"$(report "sum(g['created'] for g in p[0]['groups'] if g['requested'].get('max_send_wr') == $depth and g['type'] == 'RC')" "$state")" "$made"
	done <"$work/out"
	equal "$1: 8 QPs are left, and all are in the totals" \
		"$(report '[p[0]["totals"]["live_qps"], p[0]["totals"]["created_qps"] - p[0]["totals"]["destroyed_qps"]]' "$state")" "[8, 8]"
}

rm -f "$state"/*
QPGUARD_DIR=$state LD_PRELOAD=$guard:$QPG_PRELOAD timeout 400 "$soak" threads "${1:-60}" >"$work/out" 2>"$work/err"
echo $? >"$work/status"
equal "nothing is said" "$(cat "$work/err")" ""
balanced "${1:-60} seconds"

tsan=$QPG_BUILD/sanitized/thread
if build_sanitized "$tsan" thread; then
	rm -f "$state"/*
	libtsan=$(ldd "$tsan/tests/harm/soak" | sed -n 's/.*libtsan.* => \(.*\) (.*/\1/p')
	TSAN_OPTIONS=exitcode=0:report_signal_unsafe=0:log_path=$work/race QPGUARD_DIR=$state \
		LD_PRELOAD=$libtsan:$tsan/.libs/libqpguard.so:$QPG_PRELOAD \
		timeout 400 setarch -R "$tsan/tests/harm/soak" threads 10 >"$work/out" 2>"$work/err"
	echo $? >"$work/status"
	balanced "under ThreadSanitizer"
	equal "under ThreadSanitizer: no race of ours" "$(races_of_ours "$work"/race.* | head -80)" ""
else
	not_ok "everything builds with thread" "$(tail -20 "$tsan/make.log")"
fi
finished
