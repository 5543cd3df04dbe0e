#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Does the played mlx5 device carry the distribution's own programs? Runs
# selftest.c's program under several settings of libmlx5, then ibverbs-utils and
# perftest as two processes. Prints TAP. From the environment:
#	MLX5DEV_SO		the device (where the build leaves it)
#	MLX5DEV_SELFTEST	selftest.c, compiled (compiled here if not given)
# Few iterations, because two programs that spin on their CQs and two NICs share
# the processors.
set -u

here=$(cd "$(dirname "$0")" && pwd -P)
build=${QPG_BUILD:-$here/../..}
so=${MLX5DEV_SO:-$build/tests/device/.libs/mlx5dev.so}
self=${MLX5DEV_SELFTEST:-$build/tests/device/selftest}
dir=$(mktemp -d)
tests=0 failures=0 port=$((20000 + $$ % 20000))
trap 'rm -rf "$dir"' EXIT

report() { # STATUS TEXT
	tests=$((tests + 1))
	if [ "$1" = 0 ]; then
		echo "ok $tests - $2"
	else
		echo "not ok $tests - $2"
		failures=$((failures + 1))
	fi
}

skip() {
	tests=$((tests + 1))
	echo "ok $tests - $1 # SKIP $2"
}

with_device() {
	LD_PRELOAD=$so timeout 60 "$@"
}

# selftest.c prints TAP of its own: here it is one line, with what failed behind it.
self_test() { # TEXT VARIABLE=VALUE... -- ARGUMENT...
	local text=$1 settings=()
	shift
	while [ "$1" != -- ]; do
		settings+=("$1")
		shift
	done
	shift
	env "${settings[@]}" LD_PRELOAD="$so" timeout 120 "$self" "$@" >"$dir/out" 2>&1
	report $? "$text ($(grep -c '^ok' "$dir/out") passed)"
	grep -v '^ok\|^1\.\.' "$dir/out" | sed 's/^/# /'
}

# Runs a program as server and client; both must end well and complain of nothing.
two() { # COMMAND...
	local server status=1
	if ! command -v "$1" >/dev/null; then
		skip "$*" "$1 is not installed"
		return
	fi
	port=$((port + 1))
	with_device "$@" -d mlx5_0 -p $port >"$dir/server" 2>"$dir/server.err" &
	server=$!
	# The client ends at once when nobody listens yet.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		sleep 0.2
		kill -0 $server 2>/dev/null || break
		if with_device "$@" -d mlx5_0 -p $port localhost >"$dir/client" 2>"$dir/client.err"
		then
			status=0
			break
		fi
		grep -qi "refused\|couldn.t connect" "$dir/client" "$dir/client.err" || break
	done
	[ $status = 0 ] || kill $server 2>/dev/null
	wait $server || status=1
	# perftest measures the processor's frequency, and complains where that is uneven.
	! grep -vi "correlation coefficient\|cpu freq" "$dir/server.err" "$dir/client.err" || status=1
	report $status "$*"
	[ $status = 0 ] || sed 's/^/# /' "$dir/client" "$dir/client.err" "$dir/server.err"
}

[ -e "$so" ] || { echo "no $so"; exit 77; }
[ -e /usr/include/infiniband/verbs.h ] || [ -x "$self" ] || { echo "no verbs.h"; exit 77; }
if [ ! -x "$self" ]; then
	self=$dir/selftest
	${CC:-cc} -std=gnu17 -D_GNU_SOURCE -O1 -o "$self" "$here/selftest.c" -libverbs || exit 1
fi

self_test "verbs in one process" --
self_test "the same with CQEs of 128 bytes" MLX5_CQE_SIZE=128 -- variant
self_test "the same with signatures" MLX5_QP_SIGNATURE=1 -- variant
self_test "the same without BlueFlame" MLX5_SHUT_UP_BF=1 -- variant
self_test "the same with all QPs on one doorbell page" MLX5_TOTAL_UUARS=4 \
	MLX5_NUM_LOW_LAT_UUARS=1 -- variant
self_test "limits" MLX5DEV_max_qp_wr=new MLX5DEV_nth_qp=3 MLX5DEV_memlock=40960 -- limits
self_test "100,000 QPs" -- many 100000

asan=$(${CC:-cc} -print-file-name=libasan.so 2>/dev/null)
if [ -e "$asan" ] && ${CC:-cc} -std=gnu17 -D_GNU_SOURCE -fsanitize=address -O1 -o "$dir/asan" \
	"$here/selftest.c" -libverbs 2>/dev/null; then
	# libmlx5 leaks what a context still holds when it is closed: one test does that.
	LD_PRELOAD="$asan $so" ASAN_OPTIONS=detect_leaks=0 timeout 120 "$dir/asan" >"$dir/out" 2>&1
	report $? "the same with AddressSanitizer"
else
	skip "the same with AddressSanitizer" "not installed"
fi

MLX5DEV_max_cqs=1 with_device true 2>/dev/null
[ $? = 2 ]
report $? "a misspelt limit ends the program"
with_device sh -c 'cat /proc/self/maps >/dev/null && echo fine' >"$dir/out" 2>&1
[ "$(cat "$dir/out")" = fine ]
report $? "programs that use no device do not notice"

if command -v ibv_devinfo >/dev/null; then
	with_device ibv_devinfo -d mlx5_0 -v >"$dir/out" 2>"$dir/err"
	[ $? = 0 ] && [ ! -s "$dir/err" ] && grep -q "max_qp_wr:.*32768" "$dir/out"
	report $? "ibv_devinfo"
fi

two ibv_rc_pingpong -g 0 -n 200
two ibv_rc_pingpong -g 0 -n 200 -e
two ibv_rc_pingpong -g 0 -n 200 -N -e
two ibv_uc_pingpong -g 0 -n 200
two ibv_uc_pingpong -g 0 -n 200 -e
two ibv_ud_pingpong -g 0 -n 200
two ibv_ud_pingpong -g 0 -n 200 -e
two ibv_srq_pingpong -g 0 -n 200
two ibv_srq_pingpong -g 0 -n 200 -e

two ib_write_bw -F -n 200
two ib_write_bw -F -n 200 -l 8 -s 1024
two ib_write_bw -F -n 200 -q 8 -s 1024
two ib_write_bw -F -n 200 -I 64 -s 64
two ib_send_bw -F -n 200
two ib_send_bw -F -n 200 -l 8 -s 1024
two ib_send_bw -F -n 200 -q 8 -s 1024
two ib_send_bw -F -n 200 -e
two ib_send_bw -F -n 200 -I 64 -s 64
two ib_send_bw -F -n 200 -c UD -s 1024
two ib_send_bw -F -n 200 -c UC
two ib_read_lat -F -n 100
two ib_read_lat -F -n 100 -e
two ib_read_bw -F -n 200 -q 8
two ib_send_lat -F -n 100 -I 64 -s 64
two ib_atomic_lat -F -n 100

# The client's requests to a server that is killed run into their timeout.
if command -v ib_write_bw >/dev/null; then
	port=$((port + 1))
	LD_PRELOAD=$so ib_write_bw -F -D 8 -d mlx5_0 -p $port >/dev/null 2>&1 &
	server=$!
	sleep 1
	LD_PRELOAD=$so timeout 60 ib_write_bw -F -D 8 -u 10 -d mlx5_0 -p $port localhost \
		>"$dir/out" 2>&1 &
	client=$!
	sleep 1.5
	disown $server
	kill -9 $server
	wait $client
	[ $? != 0 ] && grep -q "retry exceeded\|status 12\|Completion with error" "$dir/out"
	report $? "a killed server ends its client with an error"
fi

echo "1..$tests"
[ $failures = 0 ]
