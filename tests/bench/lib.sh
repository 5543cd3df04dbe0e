# shellcheck shell=bash
# SPDX-License-Identifier: MIT
#
# For the scripts of this folder: a bare and a guarded process of creation.c or times.c that take turns.
# Environment: see tests/apps/lib.sh.
set -u
export LC_ALL=C QPG_DEVICE=mlx5_0 QPG_GID=0

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
build=${QPG_BUILD:-$here/build}
device=$build/tests/device/.libs/mlx5dev.so
guard_library=$build/.libs/libqpguard.so
work=$(mktemp -d /dev/shm/qpguard-bench.XXXXXX) || exit 1
declare -A to=() from=() pid=()
trap 'end_both; rm -rf "$work"' EXIT

# The caller's own settings take no part.
for variable in $(compgen -e QPGUARD); do
	unset "$variable"
done

# bare COMMAND..., guarded COMMAND...: on the played device; state files in $work/state.
bare() {
	LD_PRELOAD=$device "$@"
}
guarded() {
	QPGUARD_DIR=$work/state LD_PRELOAD=$guard_library:$device "$@"
}

# begin_both PROGRAM: a bare and a guarded process of it.
begin_both() {
	local how
	rm -rf "$work/state"
	for how in bare guarded; do
		rm -f "$work/$how".{in,out}
		mkfifo "$work/$how.in" "$work/$how.out"
		"$how" "$build/tests/bench/$1" <"$work/$how.in" >"$work/$how.out" &
		pid[$how]=$!
		exec {to[$how]}>"$work/$how.in" {from[$how]}<"$work/$how.out"
	done
}

# Both are told before either is waited for: the second holds what the first reads from.
end_both() {
	local how
	for how in "${!pid[@]}"; do
		exec {to[$how]}>&- {from[$how]}<&-
	done
	[ ${#pid[@]} = 0 ] || wait "${pid[@]}"
	pid=()
}

# tell HOW LINE...; answer_of HOW: sets $answer to what the process answers with, without its first word.
tell() {
	echo "${*:2}" >&"${to[$1]}" || exit 1
}
answer_of() {
	local word
	read -r -t 300 word answer <&"${from[$1]}" && return
	echo "the $1 process does not answer" >&2
	exit 1
}
ask() {
	tell "$@"
	answer_of "$1"
}
# The same of both at once.
both() {
	tell bare "$@"
	tell guarded "$@"
	answer_of bare
	answer_of guarded
}

# Of the lines of numbers on standard input: the median of each column, on one line.
medians() {
	awk '
	function sort(c, n,    i, j, x) {
		for (i = 2; i <= n; i++) {
			x = value[c, i]
			for (j = i - 1; j && value[c, j] > x; j--) value[c, j + 1] = value[c, j]
			value[c, j + 1] = x
		}
	}
	{ for (c = 1; c <= NF; c++) value[c, NR] = $c + 0; columns = NF }
	END {
		for (c = 1; c <= columns; c++) {
			sort(c, NR)
			line = line (c > 1 ? " " : "") value[c, int((NR + 1) / 2)]
		}
		print line
	}'
}

# instructions HOW: of a creation and a destruction, medians of 9.
instructions() {
	local how=$1 i
	for ((i = 0; i < 9; i++)); do
		ask "$how" step
		echo "$answer"
	done | medians
}

# Bytes that the state file takes, holes not counted.
state_bytes() {
	echo $(($(stat -c %b "$work"/state/*.state) * 512))
}
