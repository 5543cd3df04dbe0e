#!/bin/bash
# SPDX-License-Identifier: MIT
#
# [clamp] to_device: random oversized requests are made the nearest that the device takes, in a
# handful of attempts, and nothing is left over. With both meanings of max_qp_wr to the last request;
# on devices whose descriptors are smaller than any that is known, something smaller is made.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
build=${QPG_BUILD:-$here/../../build}
device=${MLX5DEV_SO:-$build/tests/device/.libs/mlx5dev.so}
clamps=$build/tests/device/clamps
state=$(mktemp -d /dev/shm/clamps.XXXXXX)
trap 'rm -rf "$state"' EXIT
status=0

for variable in $(compgen -e QPGUARD); do
	unset "$variable"
done

# SEED COUNT KEEP exactly|somehow [SETTING...]: an attempt that left its QP behind would soon find no room.
run() {
	echo "# clamps $*"
	env "${@:5}" MLX5DEV_max_qp=4 QPGUARD_DIR="$state" QPGUARD_LOG_LEVEL=off \
		QPGUARD_CLAMP_TO_DEVICE=yes QPGUARD_CLAMP_KEEP="$3" \
		LD_PRELOAD="$build/.libs/libqpguard.so $device" \
		"$clamps" ask "$1" "$2" >"$state/asked" || status=1
	env "${@:5}" LD_PRELOAD="$device" "$clamps" verify "$3" "$4" <"$state/asked" || status=1
	rm -f "$state"/*.state
}

for keep in sge depth; do
	for meaning in old new; do
		run 1 2000 "$keep" exactly MLX5DEV_max_qp_wr=$meaning
	done
	run 2 500 "$keep" exactly MLX5DEV_max_send_wqebb=4096 MLX5DEV_max_qp_wr=new \
		MLX5DEV_max_recv_wr=4096 MLX5DEV_max_srq_recv_wr=1024
	run 3 500 "$keep" somehow MLX5DEV_max_send_wqebb=4096 MLX5DEV_max_sq_desc_sz=512 \
		MLX5DEV_max_rq_desc_sz=256 MLX5DEV_max_recv_wr=4096 MLX5DEV_max_srq_recv_wr=4096
	run 4 500 "$keep" somehow MLX5DEV_max_send_wqebb=5000 MLX5DEV_max_sq_desc_sz=832 \
		MLX5DEV_max_rq_desc_sz=300 MLX5DEV_max_recv_wr=5000 MLX5DEV_max_srq_recv_wr=8192
done
exit $status
