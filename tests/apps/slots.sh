#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Work queues, tables of receive side scaling and XRC, which come in through the slots of a context.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

if on_rxe; then
	skip "work queues and XRC" "rxe has neither"
	finish
fi

fresh
follow slots
expect "bytes of work queues: their rings and a page's rest, by the model" \
	'[.wqs[] | "\(.bytes.ring) \((.bytes.total - .bytes.bookkeeping) % 64) \(.bytes.basis)"] | join(", ")' \
	"256 0 model, 1024 0 model, 4096 0 model, 8192 0 model"
expect "what ended is in the groups" \
	'[.wq_groups[] | "\(.live)/\(.created) \(.recv.posted) \(.recv.rejected.queue_full) \(.recv.rejected.too_many_sge)"] | join(", ")' \
	"0/1 16 1 0, 0/1 3 0 1, 0/1 0 0 0, 0/1 8 0 0"
expect "no byte of queue memory is left" '.totals.bytes' 0
text=$(COLUMNS=200 "$qpguard" report "$state" | sed -n '/^WQs/,/^$/p' | grep -c '1 ended')
is "the text lists them" "$text" 4

fresh
follow slots xrc
expect "QPs by the way they came in" \
	'[.qps[] | "\(.type) \(.created_by) \(.effective.max_send_wr) \(.bytes.rq)"] | join(", ")' \
	"XRC_SEND create_qp 16 0, XRC_RECV create_qp_ex 0 0, XRC_RECV open_qp 0 0"
expect "a refusal is told by its call" '[.failures[] | "\(.call) \(.errno)"] | join(", ")' "ibv_open_qp EINVAL"
expect "completions of an XRC SRQ do not tell of it" '[.srqs[] | "\(.posts_visible) \(.recv)"] | join(", ")' "false null"

# --- budgets

fresh
set_for_guard QPGUARD_BUDGET_RECV_WRS=100 QPGUARD_BUDGET_ACTION=refuse
guarded slots </dev/null >"$work/out" 2>"$work/log"
is "a WQ over the budget recv_wrs is refused" \
	"$(sed -n 's/^Bail out! *//p' "$work/out")" "create_wq: Cannot allocate memory (errno 12)"
expect "and counted" '.budget.recv_wrs | "\(.peak) \(.refusals)"' "48 1"
expect "and told" '.failures[0] | "\(.call) \(.reason) \(.requested.max_wr)"' "ibv_create_wq budget 64"
finish
