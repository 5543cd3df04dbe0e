#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Return values and errno: a call that fails does so as it does bare, and a call that succeeds
# changes errno only where it does so bare.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

fresh
bare errnos >"$work/bare" 2>/dev/null
guarded errnos </dev/null >"$work/guarded" 2>/dev/null
is "it runs to its end" "$?$(grep ^Bail "$work/guarded")" 0
while IFS= read -r line; do
	name=${line#* }
	name=${name%: *}
	if grep -qxF "$line" "$work/guarded"; then
		ok "${line#result }"
	else
		not_ok "${line#result }" "guarded: $(grep -F "$name" "$work/guarded")"
	fi
done < <(grep ^result "$work/bare")
is "the calls are the same" "$(sed -n 's/^errno \(.*\) [a-z]*$/\1/p' "$work/guarded" | grep -v '^poll_cq of none')" \
	"$(sed -n 's/^errno \(.*\) [a-z]*$/\1/p' "$work/bare" | grep -v '^poll_cq of none')"
while read -r _ name; do
	name=${name% *}
	if grep -qxF "errno $name changed" "$work/guarded" && ! grep -qxF "errno $name changed" "$work/bare"; then
		not_ok "$name leaves errno alone"
	else
		ok "$name leaves errno alone"
	fi
done < <(grep ^errno "$work/guarded")
finish
