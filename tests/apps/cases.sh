#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What people ran into with RDMA in production: what the log and the report say of it. One line where a
# line is due, none where none is. On the played mlx5 device, whose limits can be set.
#
# Not here, and why:
#   a kernel that refuses (completion queue overruns, hangs by under-polling, peers that time out): they are seen as
#	counts of the queues, which refusals.sh and signals.sh hold against the truth
#   budgets (52 connections of 640 MiB): budgets.sh
#   a device that cannot be opened for want of doorbell pages: opening the played device takes none; test_reason.c has
#	the sentence
#   queues made by DEVX: the played device has none
#   a container killed at its memory limit: kill.sh, by SIGKILL; the cgroup's numbers are the report's
#   children of fork: forks.sh
#   an oversized receive queue: peak and depth are in every report
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

# [VARIABLE=VALUE...] -- STEPS...: $log is what the guard said, in its order.
run_case() {
	local device_settings=()
	while [ "$1" != -- ]; do
		device_settings+=("$1")
		shift
	done
	shift
	fresh
	set_for_guard "${device_settings[@]}"
	"${without[@]}" env "LD_PRELOAD=$guard_library${preload:+:$preload}" "QPGUARD_DIR=$state" \
		"${settings[@]}" "$apps/cases" "$@" </dev/null >"$work/out" 2>"$work/err"
	log=$(grep '^qpguard' "$work/err" | sed 's/^qpguard\[[0-9]*\]: //')
	grep '^Bail' "$work/err" "$work/out"
}
without=()

# TEXT REGEX: the log is one line, and matches.
one_line() {
	if [ "$(grep -c . <<<"$log")" = 1 ] && grep -qE "$2" <<<"$log"; then
		ok "$1"
	else
		not_ok "$1" "not one line that matches: $2" "$log" "$(cat "$work/err")"
	fi
}

silent() {
	is "$1" "$log" ""
}

# TEXT CALL REASON [REGEX OF THE TEXT]: failures[] holds it.
reason() {
	local text
	text=$(json ".failures[] | select(.call == \"$2\" and .reason == \"$3\") | .text" 2>&1)
	if [ -n "$text" ] && grep -qE "${4-.}" <<<"$text"; then
		ok "$1"
	else
		not_ok "$1" "got: $text" "$(json '[.failures[] | [.call, .reason, .text]]' 2>&1)"
	fi
}

# --- locked memory ---

# The kernel does not hold who has CAP_IPC_LOCK to the limit: without it.
if setpriv --bounding-set -ipc_lock true 2>/dev/null; then
	without=(setpriv --bounding-set -ipc_lock)
fi
small() {
	(ulimit -l 64 && run_case MLX5DEV_memlock=rlimit -- "$@"; printf '%s' "$log" >"$work/log")
	log=$(cat "$work/log")
	state=$(find "$work" -maxdepth 1 -name 'state.*' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
}
small cq=4096
one_line "a CQ of 4096 under a memlock of 64 KiB" \
	'^ibv_create_cq on mlx5_0 failed: 524288 bytes to pin, [0-9]+ pinned already by this process, and RLIMIT_MEMLOCK is 65536; a CQ of 4095 would need 262144 .*\(ENOMEM\)$|^ibv_create_cq on mlx5_0 failed: 524288 bytes to pin, [0-9]+ pinned already by this process, and RLIMIT_MEMLOCK is 65536; a CQ of 4095 would need 262144 \(ENOMEM\)$'
reason "and in the report" ibv_create_cq memlock
small mr=65537
one_line "an MR one byte over it" '^ibv_reg_mr on mlx5_0 failed: 69632 bytes to pin, 0 pinned .*RLIMIT_MEMLOCK is 65536.*ENOMEM'
reason "and in the report" ibv_reg_mr memlock
small close
silent "a library that only looked at the device: nothing is said"
small cq=4096 close
silent "nor when it tried, gave up and the program ended well"
reason "though the report has it" ibv_create_cq memlock
small cq=4096 close exit=3
one_line "but it is when the program ended badly" '^ibv_create_cq on mlx5_0 failed: 524288 bytes'
without=()

# --- requests over the device ---

run_case -- qp=RC,16,16,1,1,1000
one_line "too much inline data: the field, asked and possible" \
	'^ibv_create_qp on mlx5_0 failed: asked max_inline_data 1000, the device takes at most 828 \(EINVAL\)$'
reason "and in the report" ibv_create_qp device_limit
run_case -- qp=RC,16,16,60,40,1000
one_line "all fields that are over" \
	'asked max_send_sge 60, the device takes at most 52; max_recv_sge 40, at most 32; max_inline_data 1000, at most 828 \(EINVAL\)$'
run_case QPGUARD_LOG_LEVEL=info -- inline=1024,900,512
one_line "a probe for the inline size: one line for the run" \
	'^ibv_create_qp on mlx5_0: 2 attempts failed before one succeeded, max_inline_data 1024 to 512$'
run_case -- inline=1024,900,512
silent "which is no fault: nothing at level warn"
run_case -- inline=512 inline=1024,768 inline=900,850
silent "a search of which some were granted and the last were not"
run_case -- inline=512 inline=1024,768 inline=900
silent "the same with one at the end"
run_case -- inline=256 inline=1000
one_line "too much inline data after less was granted: no search" 'asked max_inline_data 1000'
run_case -- inline=1024,900,850
one_line "a probe that found nothing" 'asked max_inline_data 850.*, the last of 3 attempts$'
run_case -- qp=RC,65536,16,16,1,0
one_line "a send queue of too many bytes: deepest and widest" \
	'max_send_wr 65536 with max_send_sge 16 make a queue of 32 MiB, the device takes 2 MiB .*: with as many SGEs at most 4681 requests, with that depth no number of SGEs will do \(EINVAL\)$'
reason "and in the report" ibv_create_qp joint_limit
run_case MLX5DEV_max_qp_wr=old -- qp=RC,32768,16,1,1,0
one_line "as many as max_qp_wr says, which are too many" \
	'max_send_wr 32768 .*\(256 bytes a request\): with as many SGEs at most 8192 requests'
run_case -- qp=RC,16,3735928559,1,1,0
one_line "a field that was never set" \
	'max_recv_wr 3735928559 \(0xdeadbeef\) looks like memory that was never set; the device takes at most 32768 \(EINVAL\)$'
reason "and in the report" ibv_create_qp uninitialized
run_case -- cq=5000000
one_line "a CQ that is too large" 'ibv_create_cq on mlx5_0 failed: asked cqe 5000000, the device takes at most 4194303 \(EINVAL\)$'
run_case -- srq=40000,1
one_line "an SRQ that is too deep" 'ibv_create_srq on mlx5_0 failed: .*max_wr 40000.*at most 32767 \(EINVAL\)$'

# --- resources ---

run_case MLX5DEV_nth_qp=20 MLX5DEV_max_qp=1000 -- qp=RC,16,16,1,1,0 qps=100
one_line "the device has no more QPs, and no limit is near" \
	'^ibv_create_qp on mlx5_0 failed, and no limit that can be seen is near: this process has 1 context, [0-9]+ QPs of 1000 and .* of queues on the device.*dmesg\) \(ENOMEM\)$'
reason "and in the report" ibv_create_qp exhausted
run_case MLX5DEV_max_qp=20 -- qp=RC,16,16,1,1,0 qps=100
one_line "the device has no more QPs, as it says" 'this process has 20 QPs there, and the device reports a limit of 20 \(ENOMEM\)$'

# --- CQs ---

run_case QPGUARD_CQ_CHECK=warn -- cq=3000 qp=RC,2048,2048,1,1,0
one_line "a CQ of 3000 and a QP of 2048 + 2048" \
	'^ibv_create_qp on mlx5_0: CQ 1 of 4095 entries may have to hold the completions of 4096 requests$'
run_case QPGUARD_CQ_CHECK=warn -- cq=3000 qp=RC,1000,1000,1,1,0 qp=RC,500,500,1,1,0
silent "a CQ that is large enough"
run_case QPGUARD_CQ_CHECK=warn -- cq=3000 srq=2000,1 shared=RC,16,0,1,1,0 shared=RC,16,0,1,1,0 shared=RC,16,0,1,1,0
silent "an SRQ is counted once"
run_case QPGUARD_CQ_CHECK=warn -- cq=4096
one_line "a power of two that costs double" 'a CQ of 4096 takes 524288 bytes, one of 4095 would take 262144$'
run_case QPGUARD_CQ_CHECK=grow -- cq=100 qp=RC,100,100,1,1,0
if on_rxe; then
	silent "a CQ is grown"
else
	one_line "a CQ that cannot be grown stays as it is" \
		'^CQ 1 of 127 entries may have to hold the completions of 200 requests, and could not be grown \([A-Z]*\): it is left as it is$'
fi
expect "and the QP is made" '.totals.live_qps' 1
run_case -- cq=3000 qp=RC,2048,2048,1,1,0
silent "nothing is checked unless asked"
run_case -- cq=100 qp=RC,16,16,1,1,0 drop=cq
one_line "a CQ that is still in use: by whom" '^ibv_destroy_cq on mlx5_0 failed: still in use by 1 QP \(number [0-9]+\) \(EBUSY\)$'

# --- posts ---

run_case -- connect signaled=10 unsignaled=10
silent "a full queue is the way of many programs: nothing at level warn"
run_case QPGUARD_LOG_LEVEL=info -- connect signaled=10 unsignaled=10
one_line "a full queue: outstanding, depth, unsignaled" \
	'^ibv_post_send on mlx5_0 refused, the queue is full: 16 outstanding \(6 of them unsignaled\), depth 16 \(ENOMEM\)$'
expect "all that nobody looked at are counted" \
	'[.failures[] | select(.call == "ibv_post_send") | [.reason, .count]] + [.qps[0].send.rejected.queue_full]' '[["queue_full",4],4]'
run_case -- connect sges=5
one_line "too many SGEs" '^ibv_post_send on mlx5_0 refused: num_sge 5, the QP takes at most 1 \(ENOMEM\)$'
run_case -- connect bytes=600
one_line "too much inline data" '^ibv_post_send on mlx5_0 refused: inline data of 600, the QP takes at most [0-9]+ \(ENOMEM\)$'
run_case QPGUARD_CLAMP_MAX_SEND_WR=4 QPGUARD_LOG_LEVEL=off -- connect signaled=10
reason "a queue that was lowered: its refusals are the clamp's" ibv_post_send clamped 'depth 4, lowered .* from the 16 asked for'
expect "and counted as such" '.qps[0].send.rejected_by_clamp' 6

# --- failure on purpose ---

run_case QPGUARD_INJECT_CREATE_QP=2 QPGUARD_INJECT_CREATE_QP_ERRNO=EAGAIN -- qp=RC,16,16,1,1,0 qps=3
one_line "[inject]: told at the start" '^failures on purpose, by \[inject\]: create_qp 2$'
expect "[inject]: the second is hit, with the errno asked for" \
	'[.guard.injects, .totals.live_qps, (.failures[] | [.call, .reason, .errno, .count])]' \
	'[true,1,["ibv_create_qp","injected","EAGAIN",1]]'
run_case QPGUARD_INJECT_POST_SEND=1/2 -- connect signaled=10
expect "[inject]: about half of the posts are refused" \
	'.qps[0].send | (.rejected.injected > 1 and .rejected.injected < 9 and .rejected.injected + .posted == 10)' true
hits=$(json '.qps[0].send.rejected.injected')
run_case QPGUARD_INJECT_POST_SEND=1/2 -- connect signaled=10
expect "[inject]: the same when it is run again" '.qps[0].send.rejected.injected' "$hits"
run_case QPGUARD_INJECT_REG_MR=1 QPGUARD_INJECT_CREATE_CQ=1 -- mr=4096 cq=100 cq=100
expect "[inject]: registrations and CQs" '[.failures[] | [.call, .reason]] + [.totals.live_cqs]' \
	'[["ibv_reg_mr","injected"],["ibv_create_cq","injected"],1]'

# --- the good path ---

run_case -- cq=4095 qp=RC,4,4,1,1,0 qps=999
silent "a thousand creations: nothing is said"
run_case -- connect posts=1000000
silent "a million posts: nothing is said"
expect "they were all posted" '.qps[0].send.posted' 1000000

# --- policy/ ---

is "policy/ is linked without libibverbs" \
	"$(readelf -dW "$QPG_BUILD/tests/unit/test_policy_judge" "$QPG_BUILD/tests/unit/test_policy_fit" | grep -c 'NEEDED.*ibverbs')" 0
finish
