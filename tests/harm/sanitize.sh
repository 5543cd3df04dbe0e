#!/bin/bash
# SPDX-License-Identifier: MIT
#
# AddressSanitizer, UndefinedBehaviorSanitizer, ThreadSanitizer and valgrind have nothing to say of
# the unit tests, of the programs of tests/apps and of tests/harm/guest. All is built twice more for
# that, in sanitized/ of the build folder. Two lanes run side by side, which are told apart in what
# is printed.
. "$(dirname "$0")/lib.sh"

state=$(mktemp -d /dev/shm/qpg-harm.XXXXXX) || exit 77
undo+=('rm -rf "$state"')

# build FOLDER SANITIZERS TARGET...: what is built is the test that it can be.
build() {
	mkdir -p "$1" || return
	(
		cd "$1" || exit
		[ -e Makefile ] || "$QPG_SRC/configure" --quiet --enable-sanitizers="$2" CFLAGS='-O1 -g' >configure.log 2>&1
		make "${@:3}" >make.log 2>&1
	)
	check "everything builds with $2" test $? = 0
}

# passes TEST STATUS LOG
passes() {
	if [ "$2" = 0 ]; then ok "$1 passes"; else not_ok "$1 passes" "status $2" "$(grep -a '^not ok' -A 3 "$3" | head -40)" "$(tail -3 "$3")"; fi
}

# The runtime that a program built so wants to be the first that is loaded.
runtime() {
	ldd "$1" | sed -n "s/.*lib$2.* => \(.*\) (.*/\1/p"
}

# begin NAME: reports of this lane go to $reports.*, which are cleared.
begin() {
	lane=$1
	reports=$work/$lane/report
	rm -rf "${work:?}/$lane"
	mkdir "$work/$lane"
}
nothing_said() {
	equal "$1: nothing is said" "$(cat "$reports".* 2>/dev/null | head -60)" ""
	begin "$lane"
}

# under VARIABLE=VALUE... PROGRAM ARG...: to its end, in silence.
under() {
	local status
	env QPGUARD_DIR="$state" "$@" >"$work/$lane/out" 2>"$work/$lane/err" </dev/null
	status=$?
	[ $status -lt 124 ] && [ -s "$work/$lane/out" ] && ! grep -q '^Bail\| failed: errno' "$work/$lane/out" ||
		not_ok "it runs to its end: $*" "status $status" "$(tail -5 "$work/$lane/out")" "$(tail -5 "$work/$lane/err")"
}

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
address() {
	local test setting each script libasan
	build "$asan" address,undefined check-programs || return
	begin address
	libasan=$(runtime "$asan/tests/harm/guest" asan)
	export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0:log_path=$reports
	export UBSAN_OPTIONS=print_stacktrace=1:log_path=$reports
	for test in "$asan"/tests/unit/test_*; do
		[ -x "$test" ] && [ -f "$test" ] || continue
		(cd "$asan" && ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=1 QPG_MUTATIONS=200 timeout 600 "$test") >"$work/unit.log" 2>&1
		passes "${test##*/}" $? "$work/unit.log"
	done
	nothing_said "unit tests"
	for setting in QPGUARD=on QPGUARD_BUDGET_QPS=3 QPGUARD_CLAMP_MAX_RECV_WR=8; do
		for each in "${words[@]}"; do
			# shellcheck disable=SC2086 # words
			under $setting LD_PRELOAD="$libasan:$asan/.libs/libqpguard.so:$QPG_PRELOAD" timeout -k 5 300 "$guest" $each
		done
		nothing_said "the guard built so, the program not, $setting"
	done
	for each in "${words[@]}"; do
		# shellcheck disable=SC2086 # words
		under LD_PRELOAD="$libasan:$guard:$QPG_PRELOAD" timeout -k 5 300 "$asan/tests/harm/guest" $each
	done
	nothing_said "the program built so, the guard not"
	# What these budgets refuse ends the program.
	for setting in QPGUARD_BUDGET_QPS=3 QPGUARD_BUDGET_PROCESS_BYTES=100K; do
		for each in clamp refuse; do
			# shellcheck disable=SC2086 # words
			env QPGUARD_DIR="$state" $setting QPGUARD_BUDGET_ACTION=$each \
				LD_PRELOAD="$libasan:$asan/.libs/libqpguard.so:$QPG_PRELOAD" \
				timeout -k 5 300 "$guest" ${words[0]} >/dev/null 2>&1 </dev/null
		done
	done
	nothing_said "the guard built so, with budgets that refuse"
	for script in "$QPG_SRC"/tests/apps/*.sh; do
		case $script in */lib.sh) continue ;; esac
		env -u QPG_DEVICE -u QPG_PRELOAD QPG_BUILD="$asan" timeout -k 5 600 "$script" >"$work/script.log" 2>&1 </dev/null
		passes "tests/apps/${script##*/}" $? "$work/script.log"
		nothing_said "tests/apps/${script##*/}, all built so"
	done
}

# What the programs of tests/apps do, for the slower tools.
apps=(errnos)
for each in full lists overlong afterwards sges inline early other receives srq datagrams; do apps+=("refusals $each"); done
for each in window one_in tail late all_signal batches both_ways; do apps+=("signals $each"); done
for each in churn contexts reset stale flush shared at_once; do apps+=("reuse $each"); done
apps+=("threads 4 200" "threads 4 200 1" forks "objects cq=100 qp=RC,16,16,1,1,0 qp=UD,16,16,1,1,0 srq=20,1 mr=4096 traffic drop=qp")

# over_apps COMMAND...: runs each of them by it, and some once more by the extended calls and by a
# thread that is not the first.
over_apps() {
	local each
	for each in "${apps[@]}"; do
		# shellcheck disable=SC2086 # words
		"$@" $each
	done
	for each in "refusals full" "refusals afterwards" "signals tail" "signals batches" "reuse shared"; do
		# shellcheck disable=SC2086 # words
		QPG_API=extended "$@" $each
		# shellcheck disable=SC2086 # words
		QPG_OWNER=other "$@" $each
	done
}

# --- ThreadSanitizer ---
# A race is ours if both its accesses lie in our functions. The provider, the loader and the played
# device are not built so, and the order that they establish is not seen.
tsan=$QPG_BUILD/sanitized/thread
tsan_app() {
	under LD_PRELOAD="$libtsan:$tsan/.libs/libqpguard.so:$QPG_PRELOAD" setarch -R timeout -k 5 300 "$tsan/tests/apps/$1" "${@:2}"
}
threads() {
	local each libtsan shape
	build "$tsan" thread libqpguard.la tests/harm/guest tests/apps/{threads,signals,reuse} || return
	begin thread
	libtsan=$(runtime "$tsan/tests/harm/guest" tsan)
	export TSAN_OPTIONS=exitcode=0:report_signal_unsafe=0:log_path=$reports
	for each in "open pair posters exit 0" "open pair pollrace 50" "open cancel 5 qps 2 drop"; do
		# shellcheck disable=SC2086 # words
		under LD_PRELOAD="$libtsan:$tsan/.libs/libqpguard.so:$QPG_PRELOAD" setarch -R \
			timeout -k 5 300 "$tsan/tests/harm/guest" $each
	done
	for shape in "" "4 1000" "4 1000 1"; do
		# shellcheck disable=SC2086 # words
		tsan_app threads $shape
	done
	for each in "reuse at_once" "reuse shared" "signals batches" "signals late"; do
		# shellcheck disable=SC2086 # words
		QPG_OWNER=other tsan_app $each
	done
	awk '/^WARNING: ThreadSanitizer/ { text = ""; ours = 0 }
		/^  (Previous )?([Aa]tomic )?([Rr]ead|[Ww]rite) of size/ { top = 2 }
		top && /^    #/ { top--; if ($0 ~ /\/(shim|policy)\//) { ours++; top = 0 } }
		{ text = text "\n" $0 }
		/^SUMMARY/ { if (ours == 2) print text }' "$reports".* 2>/dev/null >"$work/races"
	equal "no race of ours" "$(head -80 "$work/races")" ""
	unset TSAN_OPTIONS
}

# --- valgrind ---
memcheck() {
	under LD_PRELOAD="$guard:$QPG_PRELOAD" timeout -k 5 300 \
		valgrind --quiet --num-callers=30 --log-file="$reports.%p" "$@"
}
memcheck_app() {
	memcheck "$QPG_BUILD/tests/apps/$1" "${@:2}"
}
valgrinds() {
	local test each
	command -v valgrind >/dev/null || { skip "valgrind" "it is not installed"; return; }
	begin valgrind
	for test in "$QPG_BUILD"/tests/unit/test_*; do
		[ -x "$test" ] && [ -f "$test" ] || continue
		(cd "$QPG_BUILD" && CK_FORK=no CK_DEFAULT_TIMEOUT=0 QPG_MUTATIONS=20 QPG_UNBOUNDED=1 timeout -k 5 600 \
			valgrind --quiet --leak-check=full --num-callers=30 --log-file="$reports.%p" "$test") >"$work/valgrind.log" 2>&1
		passes "${test##*/} under valgrind" $? "$work/valgrind.log"
	done
	nothing_said "unit tests under valgrind"
	for each in "${words[@]}"; do
		case $each in *forkrace* | *cancel* | *posters*) continue ;; esac
		# shellcheck disable=SC2086 # words
		memcheck "$guest" ${each/churn 2000/churn 100}
	done
	nothing_said "tests/harm/guest under valgrind"
	over_apps memcheck_app
	nothing_said "tests/apps under valgrind"
}

slow() {
	threads
	valgrinds
}

address >"$work/first" 2>&1 &
slow >"$work/second" 2>&1
wait
cat "$work/first" "$work/second" | awk '/^(not )?ok [0-9]/ { sub(/ok [0-9]+/, "ok " ++n) } { print } END { print "1.." n }'
! grep -q '^not ok' "$work/first" "$work/second"
