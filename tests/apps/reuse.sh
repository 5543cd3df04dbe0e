#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Queue pairs that come and go: what they did ends in the groups, to the last request.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

for what in churn contexts reset stale flush shared; do
	fresh
	follow reuse "$what"
done
fresh
follow_racing reuse at_once
finish
