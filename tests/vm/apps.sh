#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The programs of tests/apps on rxe, in one virtual machine. What they do there is judged by the same
# scripts out here, as far as it can be (follow, in tests/apps/lib.sh).
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"

collected="refusals reuse signals extended"
whole="errnos threads kill budgets"

if [ -n "${QPG_IN_VM-}" ]; then
	for script in $collected; do
		QPG_COLLECT=$results/$script "$QPG_SRC/tests/apps/$script.sh" >"$results/$script.log" 2>&1
	done
	for script in $whole; do
		"$QPG_SRC/tests/apps/$script.sh" >"$results/$script.log" 2>&1
		echo $? >"$results/$script.status"
	done
	exit 0
fi

# What a script said becomes ours.
retell() {
	local line
	while IFS= read -r line; do
		case $line in
		ok\ *\#\ SKIP\ *) skip "$1: $(sed 's/^ok [0-9]* - //; s/ # SKIP.*//' <<<"$line")" "${line#*\# SKIP }" ;;
		ok\ *) ok "$1: ${line#ok * - }" ;;
		not\ ok\ *) not_ok "$1: ${line#not ok * - }" ;;
		1..*) ;;
		*) echo "$line" ;;
		esac
	done
}

collect 1200
for script in $collected; do
	is "$script: nothing goes wrong on the way" "$(cat "$results/$script.log")" ""
	retell "$script" < <(
		QPG_JUDGE=$results/$script QPG_DEVICE=rxe0 "$QPG_SRC/tests/apps/$script.sh" 2>&1
		echo "ended $?" >"$results/$script.ended"
	)
	is "$script: it is judged to its end" "$(grep -c '^ended [01]$' "$results/$script.ended")" 1
done
for script in $whole; do
	is "$script: it runs to its end" "$(grep -c '^[01]$' "$results/$script.status")$(grep -c '^1\.\.' "$results/$script.log")" 11
	retell "$script" <"$results/$script.log"
done
finish
