#!/bin/bash
# SPDX-License-Identifier: MIT
#
# tests/apps/lookups.sh with the library built otherwise: without optimization, by clang, with
# AddressSanitizer (whose runtime looks functions up before anything of ours could run), and with
# jemalloc, which is called by the loader itself. Builds in variants/ of the build folder.
. "$(dirname "$0")/lib.sh"

# build NAME WORDS OF CONFIGURE...: leaves the library in $library.
build() {
	local folder=$QPG_BUILD/variants/$1
	shift
	mkdir -p "$folder" || return
	library=$folder/.libs/libqpguard.so
	(
		cd "$folder" || exit
		[ -e Makefile ] || "$QPG_SRC/configure" --quiet "$@" >configure.log 2>&1
		make -j2 libqpguard.la >make.log 2>&1
	)
}

# lookups TEXT LIBRARY FRONT
lookups() {
	env -u QPG_DEVICE QPG_GUARD="$2" QPG_FRONT="$3" ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 \
		timeout -k 5 300 "$QPG_SRC/tests/apps/lookups.sh" >"$work/lookups.log" 2>&1 </dev/null
	equal "$1: tests/apps/lookups.sh passes" "$? $(grep -c '^ok' "$work/lookups.log") $(grep '^not ok' -A5 "$work/lookups.log" | head -40)" \
		"0 $(sed -n 's/^1\.\.//p' "$work/lookups.log") "
}

# variant NAME TEXT FRONT WORDS...
variant() {
	local name=$1 text=$2 front=$3
	shift 3
	if build "$name" "$@"; then
		lookups "$text" "$library" "$front"
	else
		not_ok "$text: it builds" "$(tail -20 "$QPG_BUILD/variants/$name"/*.log)"
	fi
}

variant O0 "without optimization" "" CFLAGS='-O0 -g'
variant clang "by clang" "" CC=clang CFLAGS='-O2 -g'
variant clang-O0 "by clang, without optimization" "" CC=clang CFLAGS='-O0 -g'
libasan=$(${CC:-gcc} -print-file-name=libasan.so)
variant address "with AddressSanitizer" "$(readlink -f "$libasan")" --enable-sanitizers=address CFLAGS='-O1 -g'
for library in /usr/lib/*/libjemalloc.so.2; do
	lookups "with jemalloc" "$QPG_BUILD/.libs/libqpguard.so" "$library"
done
finished
