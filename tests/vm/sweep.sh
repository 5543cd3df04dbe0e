#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The sweep of requests (tests/device/sweep.c) on the device rxe0: what librxe and the kernel make of
# them against the model, and the model against the mappings in /proc/self/maps.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"

sweep=$QPG_BUILD/tests/device/sweep

if [ -n "${QPG_IN_VM-}" ]; then
	"$sweep" 1 5000 500 500 >"$results/output" 2>&1
	echo "exit status $?" >>"$results/output"
	exit 0
fi

collect 350
grep '^#' "$results/output"
while read -r text; do
	ok "$text"
done < <(sed -n 's/^ok [0-9]* - //p' "$results/output")
while read -r text; do
	not_ok "$text"
done < <(sed -n 's/^not ok [0-9]* - //p' "$results/output")
is "the sweep came to its end" "$(tail -n 1 "$results/output")" "exit status 0"
finish
