#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs that reach libibverbs by a handle, by a plugin, by the symbols of 2006: they do what they do
# bare, and what they make is seen. And nobody else's lookups are disturbed, whoever else wraps them.
#
# $QPG_GUARD is the library, if not that of the build; $QPG_FRONT what is preloaded before all else.
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/apps/lib.sh
. "$here/lib.sh"

guard=${QPG_GUARD:-$guard_library}
front=${QPG_FRONT:+$QPG_FRONT:}
wrapper=$apps/.libs/wrapper.so
plugin=$apps/.libs/plugin_lib.so

# LIBRARIES PROGRAM ARGS...: runs it with these preloaded; what it says is in $work/$name.
run_with() {
	local libraries=$1
	shift
	env LD_PRELOAD="$front$libraries${preload:+${libraries:+:}$preload}" QPGUARD_DIR="$state" \
		timeout -k 5 60 "$@" </dev/null
}

# TEXT LIBRARIES-BARE LIBRARIES-GUARDED PROGRAM ARGS...: the same lines, errors and status.
same_with() {
	local text=$1 bare=$2 guarded=$3
	shift 3
	fresh
	run_with "$bare" "$@" >"$work/bare" 2>"$work/bare.err"
	echo "status $?" >>"$work/bare"
	fresh
	run_with "$guarded" "$@" >"$work/guarded" 2>"$work/guarded.err"
	echo "status $?" >>"$work/guarded"
	if diff <(cat "$work/bare" "$work/bare.err") <(cat "$work/guarded" "$work/guarded.err") >"$work/difference"; then
		ok "$text: the same as bare"
	else
		not_ok "$text: the same as bare" "$(cat "$work/difference")"
	fi
}

# TEXT QPS CQS SRQS MESSAGES: so many were made by symbol or by handle, and none is left.
made() {
	expect "$1: the report shows what was made" \
		'[.guard.entry_points.create_qp, .guard.entry_points.create_cq, .guard.entry_points.create_srq,
		  .totals.live_qps, .totals.live_cqs, .totals.live_srqs]' "[$2,$3,$4,0,0,0]"
	expect "$1: and each request" \
		'[([.groups[].send.posted] | add), ([.groups[].send.completed] | add), ([.groups[].recv.completed] | add)]' \
		"[$5,$5,$5]"
}

# --- by handle ---
for how in dlsym dlvsym; do
	same_with "by handle, $how" "" "$guard" "$apps/byhandle" $how
	is "by handle, $how: it runs to its end" "$(tail -1 "$work/bare")" "status 0"
	made "by handle, $how" 2 1 1 10
	expect "by handle, $how: lookups that got a guarded function are counted" '.guard.looked_up > 8' true
	fresh
	QPGUARD=off run_with "$guard" "$apps/byhandle" $how >"$work/guarded" 2>&1
	is "by handle, $how, bypassed: nothing is left" "$(tail -1 "$work/guarded") $(ls "$state")" "result all given back "
done

# --- who gets what ---
fresh
run_with "" "$apps/byhandle" lookups >"$work/bare" 2>&1
run_with "$guard" "$apps/byhandle" lookups >"$work/guarded" 2>&1
is "guarded are four of the lookups" \
	"$(diff "$work/bare" "$work/guarded" | sed -n 's/^> lookup \(.*\): libqpguard.so, dlerror clear$/\1/p' | tr '\n' ';')" \
	"create_qp;create_qp 1.1;reg_mr_iova2 1.8;reg_dmabuf_mr 1.12;"
is "all others find what they find bare and leave the same for dlerror()" \
	"$(grep -v ': libqpguard' "$work/guarded")" "$(sed -E '/lookup (create_qp( 1.1)?|reg_mr_iova2 1.8|reg_dmabuf_mr 1.12): /d' "$work/bare")"
QPGUARD=off run_with "$guard" "$apps/byhandle" lookups >"$work/guarded" 2>&1
is "bypassed, all of them" "$(cat "$work/guarded")" "$(cat "$work/bare")"
symbols() {
	readelf --dyn-syms -W "$1" | awk '$7 != "UND" && $4 == "FUNC" && $5 != "LOCAL" { sub(/@.*/, "", $8); print $8 }' | sort -u
}
libibverbs=$(ldd "$plugin" | sed -n 's/.*libibverbs.so.1 => \([^ ]*\) .*/\1/p')
# shellcheck disable=SC2046 # one word for each
run_with "$guard" "$apps/byhandle" ours libibverbs.so.1 $(comm -12 <(symbols "$guard") <(symbols "$libibverbs")) \
	>"$work/ours" 2>&1
is "whatever is interposed by symbol is so by handle: $(wc -l <"$work/ours") functions" \
	"$(grep -v ' libqpguard.so$' "$work/ours")" ""

# --- another library that wraps dlsym, on either side ---
for order in "$wrapper:$guard" "$guard:$wrapper"; do
	text="with a wrapper of dlsym $([ "${order%%:*}" = "$wrapper" ] && echo before || echo after) it"
	same_with "$text" "$wrapper" "$order" "$apps/byhandle" dlsym
	made "$text" 2 1 1 10
	run_with "$order" "$apps/byhandle" lookups >"$work/guarded" 2>"$work/guarded.err"
	is "$text: what the wrapper hands out is handed out" "$(sed -n 's/lookup puts of the program: //p' "$work/guarded")" \
		"wrapper.so, dlerror clear"
	is "$text: the wrapper sees the lookups" "$(cat "$work/guarded.err")" "wrapper: some functions of libibverbs were looked up"
	is "$text: create_qp is guarded" "$(sed -n 's/lookup create_qp: //p' "$work/guarded")" "libqpguard.so, dlerror clear"
done

# --- plugins ---
for how in local twice global; do
	times=$([ $how = local ] && echo 1 || echo 2)
	same_with "a plugin, $how" "" "$guard" "$apps/plugin" "$plugin" $how
	is "a plugin, $how: it runs to its end" "$(tail -1 "$work/bare")" "status 0"
	made "a plugin, $how" $((2 * times)) "$times" "$times" $((10 * times))
done
# Which goes past every preloaded library, the played device too: so it finds a device only in the
# virtual machine. It goes past another allocator too, and dies of what that did not allocate.
if [ -z "$front" ]; then
	same_with "a plugin, deepbind" "" "$guard" "$apps/plugin" "$plugin" deepbind
	is "a plugin, deepbind: is out of reach" "$(ls "$state")" ""
fi

# --- the symbols of IBVERBS_1.0 ---
same_with "bound to IBVERBS_1.0" "" "$guard" "$apps/compat10"
is "bound to IBVERBS_1.0: it runs to its end" "$(tail -1 "$work/bare")" "status 0"
made "bound to IBVERBS_1.0" 2 1 0 10

# --- C++ ---
# libgcc_s comes in by libstdc++ alone.
if ${CXX:-g++} -o "$work/throws" "$here/throws.cc" -nodefaultlibs -libverbs -lstdc++ -lc -Wl,-z,dynamic-undefined-weak 2>"$work/throws.log"; then
	is "libgcc_s is needed by libstdc++ alone" "$(readelf -dW "$work/throws" | grep -c 'NEEDED.*libgcc_s')" 0
	same_with "exceptions through creations" "" "$guard" "$work/throws"
	# AddressSanitizer puts itself before it.
	unwinder=libgcc_s.so.1
	[[ $front != *libasan* ]] || unwinder=$(sed -n 's/^result unwinder //p' "$work/bare")
	is "exceptions through creations: libgcc's unwinder is used" \
		"$(grep unwinder "$work/guarded"; tail -1 "$work/guarded")" "result unwinder $unwinder"$'\n'"status 0"
	expect "exceptions through creations: all that was made was given back" \
		'[.totals.created_qps, .totals.destroyed_qps, .totals.live_cqs]' '[250,250,0]'
else
	not_ok "a C++ program can be built" "$(cat "$work/throws.log")"
fi
finish
