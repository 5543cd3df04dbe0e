#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A process that makes no verbs call is left with nothing: no line, no file, no measurable start-up. The library
# needs libc alone, exports what it interposes, and asks for nothing newer than glibc 2.31.
QPG_PRELOAD=
. "$(dirname "$0")/lib.sh"

state=$work/state
export QPGUARD_DIR=$state

# --- prints the same, leaves no file ---
job='ls / | wc -l; python3 -c "print(1)"; echo error >&2; exit 3'
bash -c "$job" >"$work/bare.out" 2>"$work/bare.err"
bare=$?
LD_PRELOAD=$guard bash -c "$job" >"$work/guarded.out" 2>"$work/guarded.err"
equal "the same exit status" $? $bare
equal "the same lines" "$(cat "$work/guarded.out")" "$(cat "$work/bare.out")"
equal "nothing on standard error" "$(cat "$work/guarded.err")" "$(cat "$work/bare.err")"
check "no file, no folder" test ! -e "$state"
LD_PRELOAD=$guard QPGUARD_LOG_LEVEL=debug QPGUARD_NONSENSE=1 QPGUARD_CONF=/nowhere bash -c "$job" >"$work/guarded.out" 2>"$work/guarded.err"
equal "whatever the variables" "$(cat "$work/guarded.err")" "$(cat "$work/bare.err")"
# libibverbs alone, and no call into it
LD_PRELOAD=$guard:libibverbs.so.1 bash -c "$job" >"$work/guarded.out" 2>"$work/guarded.err"
equal "libibverbs loaded and not called" "$(cat "$work/guarded.err")" "$(cat "$work/bare.err")"
check "no file then either" test ! -e "$state"
LD_PRELOAD=$guard ibv_devices >/dev/null 2>"$work/guarded.err"
check "devices listed and not opened: no file" test ! -e "$state"

# --- system calls ---
if command -v strace >/dev/null; then
	: >"$work/empty.c"
	${CC:-cc} -shared -fPIC -nostartfiles -o "$work/lib/empty.so" "$work/empty.c"
	calls() {
		strace -f -o "$work/trace" -E LD_PRELOAD="$1" /bin/true
		# between the end of loading and the exit
		sed 's/^[0-9]* *//' "$work/trace" | grep -v '^mmap\|^openat\|^read\|^fstat\|^newfstatat\|^close\|^mprotect\|^munmap\|^pread64\|^brk\|^access\|^execve\|^+++' | sed 's/(.*//' | sort | uniq -c
	}
	calls "$work/lib/empty.so" >"$work/calls.empty"
	calls "$guard" >"$work/calls.guard"
	diff "$work/calls.empty" "$work/calls.guard" >"$work/calls.diff"
	at_most "system calls more than an empty library" "$(grep -c '^>' "$work/calls.diff")" 1
fi

# --- what it needs and what it exports ---
equal "NEEDED is libc alone" "$(readelf -dW "$guard" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort | tr '\n' ' ')" "libc.so.6 "
exported=$(readelf --dyn-syms -W "$guard" | awk '$5 == "GLOBAL" && $7 != "UND" && $7 != "ABS" { sub(/@.*/, "", $8); print $8 }' | sort -u)
# Everything exported is a function of libibverbs, of librdmacm or of a provider's library, or a lookup of libc's; those of rdma-core 50
# and later need not be there.
later="hnsdv_create_qp ibv_reg_mr_ex"
provided=$(for l in /usr/lib/*/libibverbs.so.1 /usr/lib/*/libmlx5.so.1 /usr/lib/*/libmlx4.so.1 /usr/lib/*/libefa.so.1 \
	/usr/lib/*/librdmacm.so.1; do
	[ -e "$l" ] && readelf --dyn-syms -W "$l"
done | awk -v later="$later" '$7 != "UND" { sub(/@.*/, "", $8); print $8 }
	END { n = split(later, name, " "); for (i = 1; i <= n; i++) print name[i]; print "dlsym"; print "dlvsym" }' | sort -u)
equal "every exported symbol stands for one of libibverbs, of a provider or for a lookup" "$(comm -23 <(echo "$exported") <(echo "$provided"))" ""
echo "# exports: $(echo $exported)"
newest=$(readelf -VW "$guard" | sed -n '/^Version needs/,$p' | grep -o 'GLIBC_[0-9.]*' | sort -uV | tail -1)
equal "no symbol newer than glibc 2.31 ($newest)" "$(printf '%s\nGLIBC_2.31\n' "$newest" | sort -V | tail -1)" GLIBC_2.31
equal "no text relocation, no executable stack" "$(readelf -dW "$guard" | grep -c TEXTREL) $(readelf -lW "$guard" | grep -c 'GNU_STACK.*RWE')" "0 0"

# --- a root that has libc only ---
root=$work/root
mkdir -p "$root"
for file in /bin/true $(ldd /bin/true | grep -o '/[^ ]*'); do
	mkdir -p "$root$(dirname "$file")" && cp -L "$file" "$root$file"
done
cp "$guard" "$root/guard.so"
in_root() {
	# unshare gives an ordinary user a root of its own
	if [ "$(id -u)" = 0 ]; then chroot "$root" "$@"; else unshare -Ur chroot "$root" "$@"; fi
}
equal "the root holds libc and little else" "$(find "$root" -name '*.so*' | sed 's,.*/,,' | sort | tr '\n' ' ')" \
	"guard.so ld-linux-x86-64.so.2 libc.so.6 "
in_root "$(find "$root" -name 'ld-linux*' -printf '/%P\n')" --preload /guard.so /bin/true 2>"$work/root.err"
equal "/bin/true starts in it" "$? $(cat "$work/root.err")" "0 "

# --- what a start costs ---
: >"$work/empty.c"
${CC:-cc} -shared -fPIC -o "$work/lib/empty.so" "$work/empty.c"
out=$("$QPG_BUILD/tests/harm/starts" 1000 "$work/lib/empty.so" "$guard" /bin/true)
echo "$out" | sed 's/^/# /'
more=$(sed -n 's/^more \(-\{0,1\}[0-9]*\)$/\1/p' <<<"$out")
at_most "1,000 starts of /bin/true cost more than under an empty library, in thousandths" "${more:-9999}" 50
finished
