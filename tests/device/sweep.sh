#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The sweep on played devices of several sizes: the usual one, one with the limits of newer kernels'
# max_qp_wr, a small one, and one whose limits are no powers of two.
set -u
: "${QPG_BUILD:=$(cd "$(dirname "$0")/../.." && pwd -P)/build}"
device=${MLX5DEV_SO:-$QPG_BUILD/tests/device/.libs/mlx5dev.so}
sweep=${SWEEP:-$QPG_BUILD/tests/device/sweep}

run() {
	echo "# ${*:-the usual device}"
	env "${@:2}" LD_PRELOAD="$device" "$sweep" $1 || status=1
}

status=0
run "1 5000 500 500"
run "2 2000 250 250" MLX5DEV_max_qp_wr=new MLX5DEV_max_cqe=65535
run "3 2000 250 250" MLX5DEV_max_send_wqebb=4096 MLX5DEV_max_sq_desc_sz=512 \
	MLX5DEV_max_rq_desc_sz=256 MLX5DEV_max_recv_wr=4096 MLX5DEV_max_srq_recv_wr=4096
run "4 2000 250 250" MLX5DEV_max_send_wqebb=5000 MLX5DEV_max_sq_desc_sz=832 \
	MLX5DEV_max_rq_desc_sz=300 MLX5DEV_max_recv_wr=5000 MLX5DEV_max_srq_recv_wr=8192
exit $status
