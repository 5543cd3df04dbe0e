#!/bin/bash
# SPDX-License-Identifier: MIT
#
#   tests/roots/root.sh SUITE
#
# Builds and tests in a root of another Debian: unit tests and those on the played device, against the libc, the
# rdma-core and the compiler of that release. The root is made by debootstrap from the mirror that this machine's own
# apt uses, below build/roots, where it stays for the next time. Needs root. Prints TAP, a line for each test there.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
QPG_SRC=${QPG_SRC:-$(cd "$here/../.." && pwd -P)}
QPG_BUILD=${QPG_BUILD:-$QPG_SRC/build}
suite=$1
root=$QPG_BUILD/roots/$suite
packages="gcc make libc6-dev pkg-config libibverbs-dev librdmacm-dev libunwind-dev libjansson-dev libdw-dev check
	ibverbs-providers ibverbs-utils perftest jq python3 strace iproute2"

skip_all() {
	echo "1..0 # SKIP $1"
	exit 0
}

# Own mounts, which end with us.
[ "$(id -u)" = 0 ] || skip_all "only root can make a root"
[ "${QPG_IN_NAMESPACE-}" ] || exec unshare -m --propagation private env QPG_IN_NAMESPACE=1 "$0" "$@" ||
	skip_all "this machine allows no mounts of one's own"
command -v debootstrap >/dev/null || skip_all "debootstrap is not installed"

# Any of the archive's mirrors that has the suite; security updates lie elsewhere.
find_mirror() {
	local uri release=$root.release
	mkdir -p "$(dirname "$root")"
	while read -r uri; do
		/usr/lib/apt/apt-helper download-file "${uri%/}/dists/$suite/InRelease" "$release" >/dev/null 2>&1 || continue
		rm -f "$release"
		echo "${uri%/}"
		return
	done < <(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
		grep -v security | sort -u)
	return 1
}

in_root() {
	env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive \
		chroot "$root" "$@"
}

# As this machine reaches its mirror, so does apt in there.
reach_the_mirror() {
	cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
	apt-config dump | grep '^Acquire::[a-z]*::Proxy\|^Acquire::Check' >"$root/etc/apt/apt.conf.d/90host"
	echo 'APT::Install-Recommends "false";' >>"$root/etc/apt/apt.conf.d/90host"
	echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
}

# Whatever was begun and not ended is begun anew.
make_root() {
	local mirror
	mirror=$(find_mirror) || skip_all "no mirror of this machine's apt has $suite"
	rm -rf --one-file-system "$root"
	mkdir -p "$root"
	debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 &&
		reach_the_mirror &&
		mount -t proc none "$root/proc" &&
		in_root apt-get -q update >>"$root.log" 2>&1 &&
		in_root apt-get -qy install $packages >>"$root.log" 2>&1 &&
		in_root apt-get clean &&
		umount "$root/proc" &&
		cksum <<<"$packages" >"$root/packages"
}

if [ "$(cksum <<<"$packages")" != "$(cat "$root/packages" 2>/dev/null)" ] && ! make_root; then
	echo "Bail out! the root of $suite could not be made: see $root.log"
	tail -5 "$root.log" | sed 's/^/# /'
	exit 1
fi

mkdir -p "$root/source" "$root/build"
mount -t proc none "$root/proc" &&
	mount --bind "$QPG_SRC" "$root/source" && mount -o remount,bind,ro "$root/source" &&
	mount --rbind /dev "$root/dev" && mount -t tmpfs none "$root/dev/shm" &&
	mount -t tmpfs none "$root/tmp" && mount -t sysfs -o ro none "$root/sys" ||
	skip_all "this machine allows no mounts of one's own"

echo "# $suite: glibc $(in_root dpkg-query -W -f '${Version}' libc6), rdma-core $(in_root dpkg-query -W -f '${Version}' libibverbs1), gcc $(in_root gcc -dumpfullversion)"
if ! in_root sh -c 'cd build && { [ -e Makefile ] || ../source/configure --quiet; } &&
	make -j "$(nproc)" AUTOMAKE=: AUTOCONF=: ACLOCAL=: AUTOHEADER=: check-programs' >"$root.build.log" 2>&1; then
	echo "not ok 1 - $suite: it builds"
	tail -30 "$root.build.log" | sed 's/^/# /'
	echo "1..1"
	exit 1
fi
echo "ok 1 - $suite: it builds"
in_root make -s -C build AUTOMAKE=: AUTOCONF=: ACLOCAL=: AUTOHEADER=: check-in-root >"$root.tests.log" 2>&1 </dev/null
# One line for each of its tests; what it says of faults is passed on.
awk -v suite="$suite" '
	/^[^ ].* passed +[0-9]+ failed +[0-9]+ skipped/ {
		printf "%sok %d - %s: %s, %d passed%s\n", $4 > 0 ? "not " : "", ++n + 1, suite, $1, $2,
			$2 + $4 == 0 ? " # SKIP " $6 " skipped" : ""
		next
	}
	{ print "# " $0 }
	END { print "1.." n + 1; exit n == 0 }' "$root.tests.log" || exit 1
! grep -q '^[^ ].* passed *[1-9][0-9]* failed' "$root.tests.log"
