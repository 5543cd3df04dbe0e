#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Refused posts: the program tallies them by what it did, and the report says the same numbers.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

for what in full lists overlong afterwards sges inline early other receives srq datagrams; do
	fresh
	follow refusals "$what"
done

# Once more from a thread that is not the first to post and to poll.
export QPG_OWNER=other
for what in lists overlong afterwards sges inline srq; do
	fresh
	follow refusals "$what"
done
finish
