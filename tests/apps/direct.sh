#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Objects by direct verbs of libmlx5 are guarded like all others; those of DEVX are counted and named as not
# guarded, and their memory is held to the budgets.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

if on_rxe; then
	skip "direct verbs of libmlx5" "rxe has none"
	finish
fi
export MLX5DEV_devx=1

fresh
follow direct
expect "QPs by the way they came in" \
	'[.qps[] | "\(.type) \(.created_by) \(.bytes.basis) \(.posts_visible)"] | unique | join(", ")' \
	"DRIVER mlx5dv_create_qp model true, DRIVER mlx5dv_create_qp provider true, RC mlx5dv_create_qp provider true"
expect "CQs, with entries of the size that was asked for" \
	'[.cqs[] | "\(.created_by) \(.effective_cqe) \(.bytes.ring)"] | join(", ")' \
	"mlx5dv_create_cq 127 16384, mlx5dv_create_cq 127 8192"
expect "no byte of queue memory is left" '.totals.bytes' 0

fresh
set_for_guard QPGUARD_BUDGET_QPS=1 QPGUARD_BUDGET_ACTION=refuse
guarded direct </dev/null >"$work/out" 2>"$work/log"
is "a budget holds there too" "$(sed -n 's/^result //p' "$work/out" | paste -sd,)" \
	"mlx5dv_create_qp: made,mlx5dv_create_qp: Cannot allocate memory"

# --- DEVX

fresh
follow direct devx
expect "objects by kind" \
	'.guard.unguarded.devx | to_entries | map("\(.key) \(.value.peak)/\(.value.created)") | sort | join(", ")' \
	"cq 1/1, other 1/1, qp 1/1, sq 1/1, uar 1/1, umem 2/2"
expect "their memory counts as that of queues" '.totals.peak_bytes' 69632
text=$(COLUMNS=200 "$qpguard" report "$state" | sed -n 's/^ *unguarded *//p')
is "the text names them" "$text" \
	"0 DEVX objects, 0 B registered for them (peak 68 KiB): not guarded, their posts are not visible"

fresh
set_for_guard QPGUARD_BUDGET_PROCESS_BYTES=65536 QPGUARD_BUDGET_ACTION=refuse
guarded direct devx </dev/null >"$work/out" 2>"$work/log"
is "memory over the budget process_bytes is refused" "$(sed -n 's/^result //p' "$work/out")" \
	"a second piece of memory: Cannot allocate memory"
expect "and told" '.failures[0] | "\(.call) \(.reason)"' "mlx5dv_devx_umem_reg budget"
finish
