#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Holds what the guard adds to the making and destroying of a QP, and the memory it takes, to their bounds:
# instructions and bytes, which do not depend on the machine's mood. Prints TAP.
# shellcheck source=tests/bench/lib.sh
. "$(dirname "$0")/lib.sh"

tests=0 failures=0
# TEXT VALUE LEAST MOST
within() {
	local good=ok
	[ "$2" -ge "$3" ] && [ "$2" -le "$4" ] || good="not ok"
	tests=$((tests + 1))
	[ "$good" = ok ] || failures=$((failures + 1))
	echo "$good $tests - $1: $2, at least $3 and at most $4"
}

# Sets $added_create and $added_destroy.
added() {
	local bare guarded
	bare=$(instructions bare)
	guarded=$(instructions guarded)
	added_create=$((${guarded% *} - ${bare% *}))
	added_destroy=$((${guarded#* } - ${bare#* }))
}

# resident HOW: KiB.
resident() {
	local -a kib
	ask "$1" memory
	read -r -a kib <<<"$answer"
	echo $((kib[0] + kib[1] + kib[2]))
}
anonymous() {
	ask "$1" memory
	echo "${answer%% *}"
}

begin_both creation
both live 1
within "KiB resident more in a process with one QP" $(($(resident guarded) - $(resident bare))) 0 1024
both live 100
added
few_create=$added_create few_destroy=$added_destroy
file=$(state_bytes) anon=$(($(anonymous guarded) - $(anonymous bare)))
both live 10000
file=$(($(state_bytes) - file)) anon=$((($(anonymous guarded) - $(anonymous bare) - anon) * 1024))
within "bytes for each of 9,900 QPs more ($((file / 9900)) in the file, $((anon / 9900)) beside it)" \
	$(((file + anon) / 9900)) 384 512
both live 100000
added
within "instructions added to create_qp at 100,000 QPs, of which 100 take $few_create" \
	"$added_create" $((few_create * 3 / 4)) $((few_create * 5 / 4))
within "instructions added to destroy_qp at 100,000 QPs, of which 100 take $few_destroy" \
	"$added_destroy" $((few_destroy * 3 / 4)) $((few_destroy * 5 / 4))
end_both
echo "1..$tests"
[ "$failures" = 0 ]
