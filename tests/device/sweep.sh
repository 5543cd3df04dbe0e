#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The sweep on played devices of several sizes: the usual one, one with the max_qp_wr of newer
# kernels, a small one, and one whose limits are no powers of two. Then under guard: what it says
# of the QPs is the provider's word, and that the model differs it says if it does.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
build=${QPG_BUILD:-$here/../../build}
device=${MLX5DEV_SO:-$build/tests/device/.libs/mlx5dev.so}
sweep=$build/tests/device/sweep
state=$(mktemp -d /dev/shm/sweep.XXXXXX)
trap 'rm -rf "$state"' EXIT
status=0 tests=0

run() {
	echo "# sweep $*"
	# shellcheck disable=SC2086 # numbers
	env "${@:2}" LD_PRELOAD="$device" "$sweep" $1 || status=1
}

run "1 5000 500 500"
run "2 2000 250 250" MLX5DEV_max_qp_wr=new MLX5DEV_max_cqe=65535
run "3 2000 250 250" MLX5DEV_max_send_wqebb=4096 MLX5DEV_max_sq_desc_sz=512 \
	MLX5DEV_max_rq_desc_sz=256 MLX5DEV_max_recv_wr=4096 MLX5DEV_max_srq_recv_wr=4096
run "4 2000 250 250" MLX5DEV_max_send_wqebb=5000 MLX5DEV_max_sq_desc_sz=832 \
	MLX5DEV_max_rq_desc_sz=300 MLX5DEV_max_recv_wr=5000 MLX5DEV_max_srq_recv_wr=8192

# The guard reads MLX5_QP_SIGNATURE when the device is opened; the sweep sets it later too.
guarded() {
	echo "# sweep under guard $*"
	rm -f "$state"/*
	env "$@" QPGUARD_DIR="$state" LD_PRELOAD="$build/.libs/libqpguard.so $device" \
		"$sweep" 5 400 100 100 2>"$state/stderr" || status=1
	"$build/qpguard" report --format json --verbose "$state" >"$state/json"
}

is() {
	tests=$((tests + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $tests - $1"
	else
		echo "not ok $tests - $1 ($2 instead of $3)"
		status=1
	fi
}

of_report() {
	jq -r "[.processes[] | $1] | unique | join(\" \")" "$state/json"
}

told() {
	grep -c 'model and provider differ' "$state/stderr"
}

guarded SWEEP_UNSIGNED=1
is "the bytes of all QPs are the provider's" "$(of_report '.qps[].bytes.basis')" provider
is "the bytes of all CQs are the model's" "$(of_report '.cqs[].bytes.basis')" model
is "where model and provider agree nothing is said" "$(told)" 0
guarded
is "the bytes of all QPs are still the provider's" "$(of_report '.qps[].bytes.basis')" provider
is "where they differ it is said, once" "$(told)" 1
is "and stands in the report" "$(of_report '.events[].text | select(test("model and provider differ")) | "told"')" told
echo "1..$tests"
exit $status
