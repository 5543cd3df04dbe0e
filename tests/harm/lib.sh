# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# What the scripts of this folder share. A program is run bare and guarded, and both must come to the
# same: lines, exit status. Sourced; expects QPG_BUILD, and QPG_PRELOAD to name what a program needs
# to find its device (by default the played mlx5 device). Prints TAP.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
QPG_SRC=${QPG_SRC:-$(cd "$here/../.." && pwd -P)}
QPG_BUILD=${QPG_BUILD:-$QPG_SRC/build}
guard=$QPG_BUILD/.libs/libqpguard.so
qpguard=$QPG_BUILD/qpguard
guest=$QPG_BUILD/tests/harm/guest
if [ -z "${QPG_PRELOAD+set}" ]; then
	QPG_PRELOAD=$QPG_BUILD/tests/device/.libs/mlx5dev.so
	export QPG_DEVICE=mlx5_0 QPG_GID=0
fi
# Nothing of the caller's may decide what happens here.
for name in $(compgen -v QPGUARD); do unset "$name"; done
unset LD_PRELOAD

work=$(mktemp -d /tmp/qpg-harm.XXXXXX)
chmod 711 "$work"
# The library where another user may read it, whatever the build folder's path allows.
mkdir "$work/lib" && cp "$guard" "$work/lib/libqpguard.so" && guard=$work/lib/libqpguard.so
if [ -n "$QPG_PRELOAD" ]; then
	cp "$QPG_PRELOAD" "$work/lib/device.so" && QPG_PRELOAD=$work/lib/device.so
fi
cp "$guest" "$work/lib/guest" && guest=$work/lib/guest
chmod -R a+rX "$work/lib"

undo=()
finish() {
	local command
	for command in ${undo[@]+"${undo[@]}"}; do eval "$command"; done
	rm -rf "$work"
}
trap finish EXIT

tests=0 failures=0
ok() {
	tests=$((tests + 1))
	echo "ok $tests - $1"
}
not_ok() {
	tests=$((tests + 1)) failures=$((failures + 1))
	echo "not ok $tests - $1"
	shift
	local line
	for line; do sed 's/^/# /' <<<"$line"; done
}
skip() {
	tests=$((tests + 1))
	echo "ok $tests - $1 # SKIP $2"
}
# check TEXT COMMAND...: ok when the command succeeds.
check() {
	local text=$1
	shift
	if "$@"; then ok "$text"; else not_ok "$text" "failed: $*"; fi
}
# equal TEXT GOT WANTED
equal() {
	if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got: $2" "wanted: $3"; fi
}
# at_most TEXT GOT LIMIT
at_most() {
	if [ "$2" -le "$3" ]; then ok "$1: $2 <= $3"; else not_ok "$1: $2 > $3"; fi
}
finished() {
	echo "1..$tests"
	[ "$failures" = 0 ]
	exit
}

# How programs are started: words before the program (setpriv ...), variables, library in front.
as=() settings=() front=

# plain FILE PROGRAM...: runs it bare; lines in FILE.out, FILE.err, status in FILE.status.
plain() {
	local to=$1
	shift
	${as[@]+"${as[@]}"} env LD_PRELOAD="${front:+$front:}$QPG_PRELOAD" timeout -k 5 120 "$@" \
		2>"$to.err" </dev/null | cat >"$to.out"
	echo "${PIPESTATUS[0]}" >"$to.status"
}
guarded() {
	local to=$1
	shift
	${as[@]+"${as[@]}"} env ${settings[@]+"${settings[@]}"} \
		LD_PRELOAD="${front:+$front:}$guard${QPG_PRELOAD:+:$QPG_PRELOAD}" \
		timeout -k 5 120 "$@" 2>"$to.err" </dev/null | cat >"$to.out"
	echo "${PIPESTATUS[0]}" >"$to.status"
}

# A success may change errno where it does so bare; nowhere else.
results() {
	grep -v ' changed errno to ' "$1.out"
	cat "$1.status"
}
errno_changes() {
	grep ' changed errno to ' "$1.out" | sed 's/ to .*//' | sort -u
}

# same TEXT WORDS...: guest comes to the same bare and guarded. What it printed guarded
# is left in $work/guarded.*.
same() {
	local text=$1 new bare
	shift
	# The same words come to the same bare, however often.
	bare=$work/bare.$(cksum <<<"${as[*]-} $front $*" | tr ' ' .)
	[ -e "$bare.status" ] || plain "$bare" "$guest" "$@"
	[ -z "${between-}" ] || eval "$between"
	guarded "$work/guarded" "$guest" "$@"
	new=$(comm -13 <(errno_changes "$bare") <(errno_changes "$work/guarded"))
	if ! diff <(results "$bare") <(results "$work/guarded") >"$work/diff"; then
		not_ok "$text: same results" "$(cat "$work/diff")" "$(tail -5 "$work/guarded.err")"
	elif [ -n "$new" ]; then
		not_ok "$text: same results" "$new"
	elif grep -q ' failed: errno' "$bare.out"; then
		not_ok "$text: the program works bare" "$(tail -3 "$bare.out")"
	else
		ok "$text: same results"
	fi
}

# told TEXT N PATTERN: standard error has N lines of the guard, the first with PATTERN.
told() {
	local lines
	lines=$(grep -a -c '^qpguard\[' "$work/guarded.err")
	if [ "$lines" = "$2" ] && { [ "$2" = 0 ] || grep -a -m1 '^qpguard\[' "$work/guarded.err" | grep -q -e "$3"; }; then
		ok "$1"
	else
		not_ok "$1" "$lines lines of $2, '$3':" "$(head -5 "$work/guarded.err")"
	fi
}

# The state files of a folder, and one number of a report.
state_files() {
	find "$1" -maxdepth 1 -name '*.state' 2>/dev/null
}
count() {
	wc -l | tr -d ' '
}
# report JQ PATH...: from the processes[] of these files.
report() {
	local filter=$1
	shift
	"$qpguard" report --format json "$@" | python3 -c '
import json, sys
processes = json.load(sys.stdin)["processes"]
print(eval(sys.argv[1], {"p": processes, "sum": sum, "len": len, "sorted": sorted, "max": max}))' "$filter"
}

# build_sanitized FOLDER SANITIZERS: builds everything there once more; the log is FOLDER/make.log.
build_sanitized() {
	mkdir -p "$1" || return
	(
		cd "$1" || exit
		[ -e Makefile ] || "$QPG_SRC/configure" --quiet --enable-sanitizers="$2" CFLAGS='-O1 -g' >configure.log 2>&1
		make -j2 check-programs >make.log 2>&1
	)
}

# races_of_ours REPORT...: what ThreadSanitizer says, as far as both accesses are in our own functions. The
# provider, the loader and the played device are not built so, and the order that they establish is not seen.
races_of_ours() {
	awk '/^WARNING: ThreadSanitizer/ { text = ""; ours = 0 }
		/^  (Previous )?([Aa]tomic )?([Rr]ead|[Ww]rite) of size/ { getline next_line; if (next_line ~ /\/(shim|policy)\//) ours++; text = text "\n" $0 "\n" next_line; next }
		{ text = text "\n" $0 }
		/^SUMMARY/ { if (ours == 2) print text }' "$@" 2>/dev/null
}
