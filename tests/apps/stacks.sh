#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Who made objects: one caller for each place, named by function and line, also by a file elsewhere with
# the same build-id and by no other; on stacks of every kind; and what that costs.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

fresh
bare stacks places 1000 >"$work/bare" 2>&1
guarded stacks places 100000 </dev/null >"$work/guarded" 2>&1
is "100,000 queue pairs from 50 places: it runs to its end" "$?" 0
expect "they keep 50 stacks" '[.groups[] | select(.type == "RC")] | [length, (map(.created) | add), (map(.stack | map(.offset)) | unique | length)]' '[50,100000,50]'
expect "the caller is the function that calls verbs" '[.groups[] | select(.type == "RC") | .caller.function] | unique' '["make_one"]'
expect "behind it the way to it, up to main" \
	'.groups[] | select(.type == "RC") | [.stack[].function] | .[:8] | join(" ")' \
	"$(for _ in $(seq 50); do echo "make_one take_way take_way take_way take_way take_way take_way take_way"; done)"

fresh
guarded stacks deep </dev/null >"$work/guarded" 2>&1
expect "a stack of more frames than are kept is cut" '.groups[] | select(.type == "RC") | .stack | length' 24

fresh
bare stacks odd >"$work/bare" 2>&1
is "odd stacks: bare, it runs to its end" "$?" 0
guarded stacks odd </dev/null >"$work/guarded" 2>&1
is "guarded too, and does the same" "$?$(diff "$work/bare" "$work/guarded")" 0
expect "all it made is counted" '.totals | [.created_qps, .live_qps]' '[53,0]'
expect "a frame of varying size is one caller" \
	'[.groups[] | select(.type == "RC" and .stack[1].function == "varying") | .created]' '[13]'
expect "one that is aligned too" \
	'[.groups[] | select(.type == "RC" and .stack[1].function == "aligned") | .created]' '[32]'

# --- stripped, and its twin
run_copy() {
	env LD_PRELOAD="$guard_library${preload:+:$preload}" QPGUARD_DIR="$state" "$1" named </dev/null \
		>"$work/guarded" 2>&1
}
caller_of() {
	"$qpguard" report --format json "$@" "$state" 2>&1 |
		jq -rc '.processes[0].groups[] | select(.type == "RC") | [.caller.text, .stack[1].function]'
}
mkdir "$work/twin" "$work/other" "$work/id"
cp "$apps/stacks" "$work/twin/program"
objcopy --strip-all "$work/twin/program" "$work/program"
fresh
run_copy "$work/program"
is "stripped, it runs to its end" "$?" 0
is "it is named by module and offset" "$(caller_of | sed -E 's/0x[0-9a-f]+/N/')" '["program+N",null]'
line=$(grep -n 'ibv_create_qp(pd' "$QPG_SRC/tests/apps/stacks.c" | cut -d: -f1)
named="[\"make_one at stacks.c:$line\",\"made_by_this_function\"]"
is "by its unstripped twin, by function and line" "$(caller_of --debug-dir "$work/twin")" "$named"
id=$(readelf -n "$work/program" | sed -n 's/.*Build ID: //p')
mkdir -p "$work/id/.build-id/${id:0:2}"
objcopy --only-keep-debug "$work/twin/program" "$work/id/.build-id/${id:0:2}/${id:2}.debug"
is "by its debug information alone too" "$(caller_of --debug-dir "$work/id")" "$named"
objcopy --strip-debug "$work/twin/program" "$work/other/program"
is "by its symbols alone, by function" \
	"$(caller_of --debug-dir "$work/other" | sed -E 's/0x[0-9a-f]+/N/')" '["make_one+N in program","made_by_this_function"]'
printf '\xff' | dd of="$work/other/program" bs=1 conv=notrunc status=none \
	seek=$((16#$(readelf -SW "$work/other/program" | sed -n 's/.*\.note\.gnu\.build-id *NOTE *[0-9a-f]* *\([0-9a-f]*\).*/\1/p') + 16))
is "by none whose build-id is another" \
	"$(caller_of --debug-dir "$work/other" | sed -E 's/0x[0-9a-f]+/N/')" '["program+N",null]'
cp "$work/twin/program" "$work/program"
is "once the file itself has it, by that" "$(caller_of)" "$named"
rm "$work/program"
mkfifo "$work/program"
is "a pipe in its place is not waited for" "$(caller_of | sed -E 's/0x[0-9a-f]+/N/')" '["program+N",null]'

# --- what it costs: the least of 3000, which the machine's mood leaves alone
mkdir "$work/no"
echo "no library" >"$work/no/libunwind-x86_64.so.8"
best() {
	local i value least=
	for i in 1 2 3; do
		fresh
		LD_LIBRARY_PATH=$2 "$1" stacks cost </dev/null >"$work/guarded" 2>&1
		value=$(sed -n 's/^least //p' "$work/guarded")
		[ -n "$least" ] && [ "$least" -le "$value" ] || least=$value
	done
	echo "$least"
}
none=$(best bare "") without=$(best guarded "$work/no") with=$(best guarded "")
within() {
	if [ "$2" -le "$3" ]; then ok "$1: $2 ns"; else not_ok "$1: $2 ns" "bare $none, without stacks $without, with $with"; fi
}
within "a stack of 24 frames that was seen adds at most 5 us to a creation" $((with - without)) 5000
within "creation and destruction take at most 10 us more" $((with - none)) 10000

# --- without libunwind
fresh
LD_LIBRARY_PATH=$work/no guarded stacks named </dev/null >"$work/guarded" 2>&1
is "without libunwind: it runs to its end, and nothing is printed" "$?$(cat "$work/guarded")" 0
expect "the caller is the return address" \
	'[.groups[] | select(.type == "RC") | [.caller.function, (.stack | length)]]' '[["make_one",1]]'
expect "which is told once" '[.events[] | select(.text | test("libunwind")) | .count]' '[1]'
finish
