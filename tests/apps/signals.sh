#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What one completion retires: the report agrees with the program at every quiet moment.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

for what in window one_in tail late all_signal batches deep both_ways; do
	fresh
	follow signals "$what"
done

# Once more from a thread that is not the first to post and to poll.
export QPG_OWNER=other
for what in tail late batches; do
	fresh
	follow signals "$what"
done
finish
