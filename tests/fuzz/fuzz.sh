#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The policy text and the state file under libFuzzer, FUZZ_SECONDS each (120): no crash, no leak, and
# what fuzz_policy.c and fuzz_state.c assert besides. Needs clang and its runtimes.
set -u
src=${QPG_SRC:-$(cd "$(dirname "$0")/../.." && pwd -P)}
build=${QPG_BUILD:-$src/build}
seconds=${FUZZ_SECONDS:-120}
dir=$build/tests/fuzz
number=0 failures=0
mkdir -p "$dir"

command -v clang >/dev/null || {
	echo "no clang (./bootstrap check-slow installs it)"
	exit 77
}

# NAME SOURCES...: built with the sanitizers and run; a finding stays in $dir.
fuzz() {
	local name=$1 log=$dir/$1.log corpus=$dir/$1.corpus dictionary=() status
	shift
	number=$((number + 1))
	mkdir -p "$corpus"
	[ ! -e "$src/tests/fuzz/$name.dict" ] || dictionary=(-dict="$src/tests/fuzz/$name.dict")
	clang -std=gnu17 -g -O1 -D_GNU_SOURCE -DPACKAGE_VERSION='"fuzz"' -DLIBDIR='"/usr/lib"' \
		-fsanitize=fuzzer,address,undefined -fno-sanitize-recover=undefined \
		-I"$src" -I"$build" -o "$dir/$name" "$@" >"$log" 2>&1 &&
		(cd "$dir" && "./$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
			-print_final_stats=1 "${dictionary[@]}" "$corpus") >>"$log" 2>&1
	status=$?
	if [ $status = 0 ]; then
		echo "ok $number - $name finds nothing in $seconds seconds" \
			"($(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs)"
	else
		failures=$((failures + 1))
		echo "not ok $number - $name finds nothing"
		tail -n 40 "$log" | sed 's/^/# /'
	fi
}

# shellcheck disable=SC2046 # what pkg-config prints is words
fuzz fuzz_policy "$src"/tests/fuzz/fuzz_policy.c "$src"/policy/*.c
# shellcheck disable=SC2046
fuzz fuzz_state "$src"/tests/fuzz/fuzz_state.c "$src"/tests/unit/state_builder.c $(ls "$src"/report/*.c | grep -v /main.c) \
	"$src"/shim/counts.c "$src"/shim/retain.c "$src"/policy/*.c $(pkg-config --cflags --libs jansson libdw libelf)
echo "1..$number"
[ $failures = 0 ]
