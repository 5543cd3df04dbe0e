#!/bin/bash
# SPDX-License-Identifier: MIT
#
# AddressSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer and valgrind have nothing to say about us: over
# the unit tests, the programs of tests/apps and tests/harm/guest. What they say of libibverbs, its providers
# and the played device is not looked at. Builds all of it twice more, in sanitized/ of the build folder.
. "$(dirname "$0")/lib.sh"

state=$(mktemp -d /dev/shm/qpg-harm.XXXXXX) || exit 77
undo+=('rm -rf "$state"')

# build FOLDER SANITIZERS
build() {
	mkdir -p "$1" || return
	(
		cd "$1" || exit
		[ -e Makefile ] || "$QPG_SRC/configure" --quiet --enable-sanitizers="$2" CFLAGS='-O1 -g' >configure.log 2>&1
		make -j2 check-programs >make.log 2>&1
	)
}

# What one run of a program makes a sanitizer say, if it is about us: nothing, in the good case.
# said FOLDER: the reports there, of which a line of the stack lies in our sources.
said() {
	local file
	for file in "$1"/report.*; do
		[ -e "$file" ] || continue
		if grep -q -e "$QPG_SRC/\(shim\|policy\|report\)/" -e 'libqpguard\.so' "$file"; then cat "$file"; fi
	done
}
nothing_said() {
	local text
	text=$(said "$work/reports")
	equal "$1: nothing is said" "$(head -60 <<<"$text")" ""
	rm -rf "$work/reports"
	mkdir "$work/reports"
}
mkdir "$work/reports"

words=(
	"open pair send 50 qps 100 fail 20 failall 300 drop close"
	"open churn 2000 close"
	"open pair send 10 fork open qps 3 drop end clone inherited end vfork send 10 drop"
	"open pair nowipe fork open qps 3 inherited end send 10 drop"
	"open pair posters exit 0"
	"open pair pollrace 50"
	"open forkrace 5"
	"open cancel 5 qps 2 drop"
	"library $QPG_BUILD/tests/harm/.libs/late_lib.so open pair send 5 drop"
	"open pair overfill exit 3"
)

# --- AddressSanitizer and UndefinedBehaviorSanitizer ---
asan=$QPG_BUILD/sanitized/address
if build "$asan" address,undefined; then
	ok "everything builds with address,undefined"
	export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:log_path=$work/reports/report
	export UBSAN_OPTIONS=print_stacktrace=1:log_path=$work/reports/report
	for test in "$asan"/tests/unit/test_*; do
		[ -x "$test" ] && [ -f "$test" ] || continue
		(cd "$asan" && ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1 timeout 600 "$test") >"$work/unit.log" 2>&1
		check "$(basename "$test") passes" test $? = 0
	done
	nothing_said "unit tests"
	for setting in "" QPGUARD_BUDGET_QPS=3 "QPGUARD_BUDGET_PROCESS_BYTES=64K QPGUARD_BUDGET_ACTION=clamp" \
		"QPGUARD_BUDGET_QPS=3 QPGUARD_BUDGET_ACTION=refuse"; do
		for each in "${words[@]}"; do
			# shellcheck disable=SC2086 # words
			env QPGUARD_DIR="$state" $setting LD_PRELOAD="$asan/.libs/libqpguard.so:$QPG_PRELOAD" \
				timeout -k 5 300 "$guest" $each >"$work/out" 2>"$work/err" </dev/null
		done
		nothing_said "the guard built so, the program not${setting:+, $setting}"
	done
	libasan=$(ldd "$asan/tests/harm/guest" | sed -n 's/.*libasan.* => \(.*\) (.*/\1/p')
	for each in "${words[@]}"; do
		# shellcheck disable=SC2086 # words
		QPGUARD_DIR=$state LD_PRELOAD=$libasan:$guard:$QPG_PRELOAD \
			timeout -k 5 300 "$asan/tests/harm/guest" $each >"$work/out" 2>"$work/err" </dev/null
		check "the program built so, the guard not: $each" test -s "$work/out" -a ! -s "$work/err"
	done
	nothing_said "the program built so, the guard not"
	for script in "$QPG_SRC"/tests/apps/*.sh; do
		case $script in */lib.sh) continue ;; esac
		env -u QPG_DEVICE QPG_BUILD="$asan" timeout -k 5 600 "$script" >"$work/script.log" 2>&1 </dev/null
		nothing_said "tests/apps/$(basename "$script"), all built so"
	done
	unset ASAN_OPTIONS UBSAN_OPTIONS
else
	not_ok "everything builds with address,undefined" "$(tail -20 "$asan/make.log")"
fi

# --- ThreadSanitizer ---
# A race is ours if both its stacks are. The provider, the loader and the played device are not built so,
# and the order that they establish is not seen.
tsan=$QPG_BUILD/sanitized/thread
if build "$tsan" thread; then
	ok "everything builds with thread"
	libtsan=$(ldd "$tsan/tests/harm/guest" | sed -n 's/.*libtsan.* => \(.*\) (.*/\1/p')
	export TSAN_OPTIONS=exitcode=0:report_signal_unsafe=0:log_path=$work/reports/report
	for each in "open pair posters exit 0" "open pair pollrace 50" "open cancel 5 qps 2 drop"; do
		# shellcheck disable=SC2086 # words
		env QPGUARD_DIR="$state" LD_PRELOAD="$libtsan:$tsan/.libs/libqpguard.so:$QPG_PRELOAD" \
			setarch -R timeout -k 5 300 "$tsan/tests/harm/guest" $each >"$work/out" 2>"$work/err" </dev/null
	done
	for shape in "" 1 2; do
		env QPGUARD_DIR="$state" LD_PRELOAD="$libtsan:$tsan/.libs/libqpguard.so:$QPG_PRELOAD" \
			setarch -R timeout -k 5 300 "$tsan/tests/apps/threads" $shape >"$work/out" 2>"$work/err" </dev/null
	done
	# Both accesses in our own functions.
	awk '/^WARNING: ThreadSanitizer/ { text = ""; ours = 0 }
		/^  (Previous )?([Aa]tomic )?([Rr]ead|[Ww]rite) of size/ { getline next_line; if (next_line ~ /\/(shim|policy)\//) ours++; text = text "\n" $0 "\n" next_line; next }
		{ text = text "\n" $0 }
		/^SUMMARY/ { if (ours == 2) print text }' "$work"/reports/report.* 2>/dev/null >"$work/races"
	equal "no race of ours" "$(head -80 "$work/races")" ""
	rm -rf "$work/reports" && mkdir "$work/reports"
	unset TSAN_OPTIONS
else
	not_ok "everything builds with thread" "$(tail -20 "$tsan/make.log")"
fi

# --- valgrind ---
if command -v valgrind >/dev/null; then
	memcheck() {
		valgrind --quiet --error-exitcode=0 --num-callers=30 --log-file="$work/reports/report.%p" "$@"
	}
	for test in "$QPG_BUILD"/tests/unit/test_*; do
		[ -x "$test" ] && [ -f "$test" ] || continue
		(cd "$QPG_BUILD" && CK_FORK=no CK_DEFAULT_TIMEOUT=0 memcheck --leak-check=full timeout 900 "$test") >"$work/unit.log" 2>&1
		check "$(basename "$test") passes under valgrind" test $? = 0
	done
	cat "$work"/reports/report.* 2>/dev/null | sed 's/^==[0-9]*== //' >"$work/said"
	equal "unit tests: valgrind says nothing" "$(head -40 "$work/said")" ""
	rm -rf "$work/reports" && mkdir "$work/reports"
	for each in "${words[@]:0:3}" "open pair pollrace 5" "open pair overfill exit 3"; do
		# shellcheck disable=SC2086 # words
		QPGUARD_DIR=$state LD_PRELOAD=$guard:$QPG_PRELOAD memcheck --leak-check=no timeout -k 5 600 \
			"$guest" ${each/churn 2000/churn 100} >"$work/out" 2>"$work/err" </dev/null
	done
	# An error is ours when it happens in our library.
	awk '/ at 0x/ { ours = /libqpguard\.so|\((send|recv|poll|poll_ex|wr|qp|cq|srq|mr|device|file|log|lookup|memory|records|groups|failures|account|callers|process|real|sweep|ask|outstanding|counts)\.c:/ } ours { print }' \
		"$work"/reports/report.* 2>/dev/null >"$work/said"
	equal "valgrind says nothing of us" "$(head -40 "$work/said")" ""
else
	skip "valgrind" "it is not installed"
fi
finished
