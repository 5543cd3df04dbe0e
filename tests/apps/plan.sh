#!/bin/bash
# SPDX-License-Identifier: MIT
#
# qpguard plan against figures worked out by hand: what libmlx5 makes of a request (rdma-core
# providers/mlx5/verbs.c, with the limits of an adapter that reports max_qp_wr 32768), the rule of thumb,
# and what is told of arguments that are wrong.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
. "$here/lib.sh"

# planned TEXT WANT OPTIONS...: a row of the JSON, as "send_wr inline sq recv_wr/recv_sge rq" or the errno.
planned() {
	local text=$1 want=$2
	shift 2
	is "$text" "$("$qpguard" plan --format json --max-qp-wr 32768 "$@" | jq -r '.providers[0] |
		if .refused then .error else
		"\(.effective.max_send_wr) \(.effective.max_inline_data) \(.bytes.sq)" +
		" \(.effective.max_recv_wr)/\(.effective.max_recv_sge) \(.bytes.rq)" end')" "$want"
}

# mlx5 TYPE SEND RECV WANT OPTIONS...: SEND is wr/sge/inline, RECV wr/sge.
mlx5() {
	local type=$1 send recv want=$4
	IFS=/ read -ra send <<<"$2"
	IFS=/ read -ra recv <<<"$3"
	planned "mlx5 $type $2 $3 ${*:5}" "$want" --driver mlx5 --type "$type" --send-wr "${send[0]}" \
		--send-sge "${send[1]}" --inline "${send[2]}" --recv-wr "${recv[0]}" --recv-sge "${recv[1]}" "${@:5}"
}

mlx5 RC 128/1/0 128/1 "128 60 32768 128/1 2048"
mlx5 RC 1/1/0 1/1 "1 60 256 4/1 64"
mlx5 RC 128/4/0 128/4 "128 60 32768 128/4 8192"
mlx5 RC 128/5/0 128/5 "204 124 65536 128/8 16384"
mlx5 RC 128/1/64 128/1 "204 124 65536 128/1 2048"
mlx5 RC 128/1/220 128/1 "146 252 65536 128/1 2048"
mlx5 RC 129/1/0 129/1 "256 60 65536 256/1 4096"
mlx5 RC 100/12/0 100/3 "170 188 65536 128/4 8192"
mlx5 RC 8193/1/0 128/1 EINVAL
mlx5 RC 4096/1/512 128/1 EINVAL
mlx5 RC 128/52/0 128/1 "128 828 131072 128/1 2048"
mlx5 RC 128/53/0 128/1 EINVAL
mlx5 RC 128/1/829 128/1 EINVAL
mlx5 RC 0/0/0 64/1 "0 0 0 64/1 1024"
mlx5 RC 128/1/0 128/1 "128 28 8192 128/1 2048" --ops send,write
mlx5 RC 128/1/44 128/1 "128 44 8192 128/1 2048" --ops send
mlx5 RC 128/1/45 128/1 "128 108 16384 128/1 2048" --ops send
mlx5 UC 128/1/0 128/1 "128 60 32768 128/1 2048"
mlx5 UD 128/1/0 128/1 "128 60 16384 128/1 2048"
mlx5 UD 128/1/64 128/1 "170 124 32768 128/1 2048"
mlx5 XRC_SEND 128/1/0 0/0 "128 44 32768 0/0 0"
mlx5 RAW_PACKET 128/1/0 128/1 "128 12 8192 128/1 2048"
mlx5 RAW_PACKET 128/4/0 128/1 "128 204 32768 128/1 2048" --ops send,tso --tso-header 128

# thumb WR SGE BYTES: a send queue by 64 bytes and 16 per SGE.
thumb() {
	is "rule of thumb: $1 x $2 SGE" "$("$qpguard" plan --format json --send-wr "$1" --send-sge "$2" |
		jq -r '.providers[-1] | "\(.provider) \(.bytes.sq)"')" "estimate $3"
}
thumb 128 1 10240
thumb 1024 4 131072
thumb 8192 16 2621440
thumb 32768 16 10485760
thumb 4096 8 786432
thumb 4096 1 327680

many=(--qps 2000 --send-wr 4096 --send-sge 8 --recv-wr 4096 --driver mlx5)
is "2000 QPs of 4096 x 8 on mlx5: one, its CQ, all" "$("$qpguard" plan --format json "${many[@]}" |
	jq -r '.providers[0] | "\(.bytes.total) \(.cq.cqe)/\(.cq.effective_cqe) \(.cq.bytes) \(.cq.count) \(.all_bytes == 2000 * (.bytes.total + .cq.bytes))"')" \
	"$((2097152 + 65536 + 32768 * 16 + 4096 * 8 + 64 + 960)) 10649/16383 $((16384 * 64 + 64 + 592)) 2000 true"
"$qpguard" plan "${many[@]}" --memory 4G >"$work/out"
is "... does not fit 4 GiB" $? 1
"$qpguard" plan "${many[@]}" --memory 64G >"$work/out"
is "... fits 64 GiB" $? 0
is "all providers side by side, and the rule of thumb" "$("$qpguard" plan --format json | jq '.providers | length > 15')" true
is "no line is wider than the terminal" "$(COLUMNS=80 "$qpguard" plan --qps 2000 | grep -v '^[A-Z?]' | awk 'length > 80' | wc -l)" 0

# wrong WORDS OPTIONS...: exit status 2, and one line that says what would be right.
wrong() {
	local words=$1
	shift
	"$qpguard" plan "$@" >"$work/out" 2>"$work/err"
	is "plan $*" "$? $(grep -c "$words" "$work/err")" "2 1"
}
wrong "a number" --send-wr many
wrong "a number of at most" --send-wr 99999999999
wrong "at least 1" --qps 0
wrong "one of bnxt_re" --driver mlx9
wrong "RC, UC" --type RX
wrong "a size such as" --memory lots
wrong "write, write_imm" --ops sned
wrong "no argument" 4096
finish
