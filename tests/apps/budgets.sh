#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Budgets and clamps as a program meets them: what it gets, what it is refused with, and what the
# report and the log say of it.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

qp=qp=RC,16,16,1,1,0
datagrams=qp=UD,16,16,1,1,0

# Runs the program with these arguments; $results is what it said, $log what the guard said.
objects() {
	guarded objects "$@" </dev/null >"$work/out" 2>"$work/log" || echo "# objects $* failed"
	at_rest=yes
	results=$(sed -n 's/^result //p; /^Bail/p' "$work/out")
	log=$(grep '^qpguard' "$work/log")
}

# The same without a guard.
objects_bare() {
	results=$(bare objects "$@" | sed -n 's/^result //p; /^Bail/p')
}

policy() {
	cat >"$work/policy"
	set_for_guard QPGUARD_CONF="$work/policy"
}

# What became of the objects, in order: made, or an errno.
outcomes() {
	sed -nE 's/^[a-z]+(=[^:]*)?: ([^,]*).*/\2/p' <<<"$results" | paste -sd ' '
}

# The caps of the Nth object, by default the first.
given() {
	sed -n "${1-1}s/.*caps //p" <<<"$results"
}

has() {
	if grep -qE "$3" <<<"$2"; then
		ok "$1"
	else
		not_ok "$1" "no line matches: $3" "$2"
	fi
}

# What the provider itself makes of such a QP, bare.
objects_bare "$qp" "$qp" "$qp" "$qp" traffic
is "bare: four QPs are made" "$(outcomes)" "made made made made 20 of 20 done"
caps=$(given 1)

# --- a count ---

fresh
set_for_guard QPGUARD_BUDGET_QPS=3 QPGUARD_BUDGET_ACTION=refuse
objects "$qp" "$qp" "$qp" "$qp" traffic drop=qp "$qp" "$qp"
is "budget qps = 3: the fourth is refused with ENOMEM, the first work on, a place that was freed serves again" \
	"$(outcomes)" "made made made ENOMEM 20 of 20 done 0 made ENOMEM"
is "budget qps = 3: a request that is refused stays as it was" \
	"$(given 4)" "16 16 1 1 0"
expect "budget qps = 3: two refusals, no failures of creation, four made" \
	'[.totals.budget_refusals, .totals.create_failures, .totals.created_qps, .totals.live_qps]' '[2,0,4,3]'
expect "budget qps = 3: limit, use, peak and refusals are told" \
	'.budget.qps | [.limit, .action, .used, .peak, .refusals]' '[3,"refuse",3,3,2]'
expect "budget qps = 3: the failure is told once, counted" \
	'[.failures[] | [.call, .errno, .reason, .type, .count, .requested.max_send_wr]]' \
	'[["ibv_create_qp","ENOMEM","budget","RC",2,16]]'
has "budget qps = 3: and said" "$log" 'ibv_create_qp.*budget qps.*4.*3'

fresh
set_for_guard QPGUARD_BUDGET_QPS=3
objects "$qp" "$qp" "$qp" "$qp" traffic
is "budget qps = 3, observed: all are made" "$(outcomes)" "made made made made 20 of 20 done"
expect "budget qps = 3, observed: what would have been refused is counted" \
	'[.totals.budget_refusals, .budget.qps.refusals, .budget.qps.used, (.failures | length)]' '[0,1,4,0]'
has "budget qps = 3, observed: and said" "$log" 'budget qps.*limit 3.*observed'

fresh
set_for_guard QPGUARD_BUDGET_QPS=2 QPGUARD_BUDGET_ACTION=refuse
objects "$qp" race=100
is "two threads race for the last place, 100 times: exactly one gets it" \
	"$(tail -n 1 <<<"$results")" "race: none got it 0 times, one 100, both 0; wrong errno 0"
expect "two threads race for the last place: refusals and creations add up" \
	'[.totals.budget_refusals, .totals.created_qps, .totals.live_qps, .budget.qps.used, .budget.qps.peak]' \
	'[100,101,1,1,2]'

# --- the other counts ---

# LIMIT NUMBER OUTCOMES USED OBJECTS...
limited() {
	local limit=$1 number=$2 outcomes=$3 used=$4
	shift 4
	fresh
	set_for_guard "QPGUARD_BUDGET_${limit^^}=$number" QPGUARD_BUDGET_ACTION=refuse
	objects "$@"
	is "budget $limit = $number: $*" "$(outcomes)" "$outcomes"
	expect "budget $limit = $number: what is used then" ".budget.$limit.used" "$used"
	has "budget $limit = $number: it is said" "$log" "budget $limit"
}

send_wrs=${caps%% *}
recv_wrs=$(cut -d ' ' -f 2 <<<"$caps")
objects_bare cq=100
cqe=${results##* }
objects_bare srq=20,1
srq_wrs=$(given)
srq_wrs=${srq_wrs%% *}

limited cqs 2 "made made ENOMEM made" 2 cq=100 cq=100 cq=100 "$qp"
limited cqes $((cqe + 99)) "made ENOMEM 0 made" "$cqe" cq=100 cq=100 drop=cq cq=100
limited srqs 1 "made ENOMEM 0 made" 1 srq=20,1 srq=20,1 drop=srq srq=20,1
limited recv_wrs $((srq_wrs + 15)) "made ENOMEM 0 made" "$recv_wrs" srq=20,1 "$qp" drop=srq "$qp"
limited send_wrs $((2 * send_wrs + 15)) "made made ENOMEM 0 made" $((2 * send_wrs)) "$qp" "$qp" "$qp" drop=qp "$qp"

# The program itself registers 1 MiB at its beginning.
fresh
set_for_guard QPGUARD_BUDGET_MRS=2 QPGUARD_BUDGET_ACTION=refuse
objects mr=4096 mr=4096 drop=mr mr=8192
is "budget mrs = 2: the third is refused until one is gone" "$(outcomes)" "made ENOMEM 0 made"
expect "budget mrs = 2: one refusal" '.totals.budget_refusals' 1
fresh
set_for_guard QPGUARD_BUDGET_MR_BYTES=1028K QPGUARD_BUDGET_ACTION=refuse
objects mr=4097 mr=4096 mr=1 drop=mr mr=1
is "budget mr_bytes = 1028K: to the byte" "$(outcomes)" "ENOMEM made ENOMEM 0 made"

# --- bytes ---

fresh
objects cq=256 "$qp"
bytes=$(json '.qps[0].bytes.total')
all=$(json '.totals.bytes')
is "the bytes of a QP and of its CQ make the total" \
	"$(json '[.qps[0].bytes.total, .cqs[0].bytes.total] | add')" "$all"
for limit in bytes_per_qp process_bytes device_bytes; do
	[ $limit = bytes_per_qp ] && most=$bytes || most=$all
	fresh
	set_for_guard QPGUARD_BUDGET_${limit^^}="$most" QPGUARD_BUDGET_ACTION=refuse
	objects cq=256 "$qp"
	is "budget $limit: what fits to the byte is made" "$(outcomes)" "made made"
	fresh
	set_for_guard QPGUARD_BUDGET_${limit^^}=$((most - 1)) QPGUARD_BUDGET_ACTION=refuse
	objects cq=256 "$qp"
	is "budget $limit: what is a byte too much is refused" "$(outcomes)" "made ENOMEM"
	expect "budget $limit: nothing is held by what was refused" '.totals.bytes' $((all - bytes))
done

fresh
objects cq=256 qp=RC,256,256,1,1,0
deep=$(json '.qps[0].bytes.total')
ring=$(json '.cqs[0].bytes.total')
limit=$((ring + deep + deep / 2))
fresh
set_for_guard QPGUARD_BUDGET_PROCESS_BYTES=$limit QPGUARD_BUDGET_ACTION=clamp
objects cq=256 qp=RC,256,256,1,1,0 qp=RC,256,256,1,1,0 traffic
is "budget process_bytes, clamped: both are made and work" "$(outcomes)" "made made made 20 of 20 done"
shrunk=$(given 3 | cut -d ' ' -f 1)
[ "$shrunk" -lt 256 ] && [ "$shrunk" -gt 0 ]
is "budget process_bytes, clamped: the second is shallower" "$?" 0
expect "budget process_bytes, clamped: the caps written back are the effective ones of the report" \
	'.qps[1] | [.requested.max_send_wr, .effective.max_send_wr, .clamped]' "[256,$shrunk,true]"
is "budget process_bytes, clamped: the limit holds" \
	"$(json ".totals.bytes <= $limit and .totals.peak_bytes <= $limit")" true
submitted=$(json '.qps[1].submitted | "qp=RC,\(.max_send_wr),\(.max_recv_wr),\(.max_send_sge),\(.max_recv_sge),\(.max_inline_data)"')
expect "budget process_bytes, clamped: it is counted" '[.totals.clamped, .totals.budget_refusals]' '[1,0]'
has "budget process_bytes, clamped: and said" "$log" 'lowered by \[budget\] process_bytes'
objects_bare "$submitted"
is "budget process_bytes, clamped: it is what the provider gives for what was submitted" \
	"$(given | cut -d ' ' -f 1)" "$shrunk"

fresh
set_for_guard QPGUARD_BUDGET_PROCESS_BYTES=$((ring + deep)) QPGUARD_BUDGET_ACTION=clamp
objects cq=256 qp=RC,256,256,1,1,0 qp=RC,256,256,1,1,0
is "budget process_bytes, clamped: where not even one request fits it is refused" "$(outcomes)" "made made ENOMEM"

fresh
set_for_guard QPGUARD_BUDGET_SEND_WRS=40 QPGUARD_BUDGET_ACTION=clamp
objects qp=RC,32,16,1,1,0 qp=RC,32,16,1,1,0
expect "budget send_wrs, clamped: the second gets the 8 that are left, and all its receives" \
	'[.qps[] | .submitted | [.max_send_wr, .max_recv_wr]]' '[[32,16],[8,16]]'

# --- conditions ---

fresh
policy <<-'END'
	[budget type=UD]
	qps = 1
	action = refuse
END
objects "$datagrams" "$qp" "$datagrams" "$qp"
is "[budget type=UD] qps = 1: only datagrams are refused" "$(outcomes)" "made made ENOMEM made"

fresh
policy <<-'END'
	[budget]
	qps = 2
	action = refuse
	[budget program=*/objects]
	qps = 3
	[budget program=*/something_else]
	qps = 1
END
objects "$qp" "$qp" "$qp" "$qp"
is "[budget program=GLOB]: the section that matches holds" "$(outcomes)" "made made made ENOMEM"

fresh
policy <<-END
	[clamp after_qps=2 device=${QPG_DEVICE%?}*]
	max_send_wr = 8
	[clamp after_qps=2 device=none]
	max_send_wr = 4
END
objects "$qp" "$qp" "$qp"
expect "[clamp after_qps=2]: from the third on" '[.qps[].submitted.max_send_wr]' '[16,16,8]'

fresh
policy <<-END
	[budget]
	qps = 1
	qps.action = refuse
	cqs = 1
END
objects "$qp" "$qp" cq=10
is "qps.action = refuse: one limit refuses, the others observe" "$(outcomes)" "made ENOMEM made"

# --- clamps ---

big=qp=RC,128,128,4,4,64
objects_bare "$big"
big_caps=$(given)

# KEY NUMBER REQUEST: REQUEST is what must be submitted.
clamped() {
	fresh
	set_for_guard "QPGUARD_CLAMP_${1^^}=$2"
	objects_bare "$3"
	local given
	given=$(given)
	objects "$big" "$qp" traffic
	is "clamp $1 = $2: the caps are those that the provider gives for $3" \
		"$(given 1)" "$given"
	expect "clamp $1 = $2: requested, submitted and effective are told" \
		'.qps[0] | [.requested, .submitted, .effective] | [.[0].'"$1, .[1].$1"'] + [.[2] | .max_send_wr, .max_recv_wr, .max_send_sge, .max_recv_sge, .max_inline_data]' \
		"[$(tr ',' '\n' <<<"${big#*,}" | sed -n "${4}p"),$2,$(tr ' ' ',' <<<"$given")]"
	has "clamp $1 = $2: it is said" "$log" "lowered by \\[clamp\\] $1 .*$1 $2( |\$)"
	is "clamp $1 = $2: what is below is left alone" "$(given 2)" "$caps"
	is "clamp $1 = $2: the QPs work" "$(tail -n 1 <<<"$results")" "traffic: 20 of 20 done"
}
clamped max_send_wr 32 qp=RC,32,128,4,4,64 1
clamped max_recv_wr 32 qp=RC,128,32,4,4,64 2
clamped max_send_sge 2 qp=RC,128,128,2,4,64 3
clamped max_recv_sge 2 qp=RC,128,128,4,2,64 4
clamped max_inline_data 16 qp=RC,128,128,4,4,16 5
fresh
objects "$big"
is "without a clamp the caps are those of the bare run" "$(given)" "$big_caps"

fresh
set_for_guard QPGUARD_CLAMP_MAX_CQE=50
objects cq=1000
objects_result=$results
objects_bare cq=50
is "clamp max_cqe = 50: the CQ is one of 50" "${objects_result#cq=1000}" "${results#cq=50}"
expect "clamp max_cqe = 50: requested and submitted are told" '.cqs[0] | [.requested_cqe, .submitted_cqe]' '[1000,50]'

# --- failures that are the provider's ---

deep=qp=RC,16777216,16,1,1,0
# What mlx5 reports as its limit is none: there the bytes of the queue are.
on_rxe && reason=device_limit || reason=joint_limit
fresh
set_for_guard QPGUARD_BUDGET_QPS=2 QPGUARD_BUDGET_ACTION=refuse
objects_bare "$qp" "$deep"
bare_results=$results
objects "$qp" "$deep"
is "a QP that is too deep fails as it does bare" "$results" "$bare_results"
expect "a QP that is too deep: the failure has a reason and is no refusal" \
	'[.failures[] | [.call, .reason, .count, .requested.max_send_wr]] + [.totals.create_failures, .totals.budget_refusals]' \
	"[[\"ibv_create_qp\",\"$reason\",1,16777216],1,0]"
expect "a QP that is too deep holds no budget" '[.budget.qps.used, .budget.send_wrs.used, .totals.bytes == (.qps[0].bytes.total + .cqs[0].bytes.total)]' "[1,$send_wrs,true]"
objects "$qp" "$deep" "$deep" "$deep" "$qp" "$qp"
is "a QP that is too deep takes nobody's place" "$(outcomes | sed 's/EINVAL/ENOMEM/g')" "made ENOMEM ENOMEM ENOMEM made ENOMEM"
finish
