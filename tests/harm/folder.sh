#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Whatever the state folder is - full, on a disk, read-only, missing, a trap laid by another - and whatever
# became of the program's descriptors and limits, the program comes to the same results, its files are
# untouched, and one line tells what happened where there is a place for it.
[ "${QPG_IN_NAMESPACE-}" ] || exec unshare -m env QPG_IN_NAMESPACE=1 "$0" "$@" || exit 77
. "$(dirname "$0")/lib.sh"

mount --make-rprivate / 2>/dev/null
mount -t tmpfs -o size=64m none "$work" 2>/dev/null || {
	echo "no file system can be mounted here"
	exit 77
}
# The libraries went under the mount.
chmod 711 "$work"
mkdir "$work/lib"
cp "$QPG_BUILD/.libs/libqpguard.so" "$QPG_BUILD/tests/harm/guest" "$work/lib/"
cp "$QPG_BUILD/tests/device/.libs/mlx5dev.so" "$work/lib/device.so"
chmod -R a+rX "$work/lib"
undo+=('umount -R "$work" 2>/dev/null')

words=(open pair send 50 qps 200 fail 20 drop pair send 50 drop close)
state=$work/state
nobody=(setpriv --reuid=65534 --regid=65534 --clear-groups)
fresh() {
	rm -rf "$state"
	settings=(QPGUARD_DIR="$state" QPGUARD_LOG_LEVEL=info)
	as=() between=
}
in_use() {
	find "$1" -name '*.state' -o -name '.qpguard*' | count
}

# --- the good case ---
fresh
same "a folder of our own" "${words[@]}"
told "a failing creation is told once, nothing else" 1 '(EINVAL)'
equal "one file" "$(in_use "$state")" 1
equal "the folder is 0700" "$(stat -c %a "$state")" 700
equal "the file is 0600" "$(stat -c %a "$(state_files "$state")")" 600
equal "its numbers" "$(report '[p[0]["totals"][k] for k in ("created_qps","destroyed_qps","create_failures")]' "$state")" '[204, 204, 20]'

fresh
same "whatever the umask" umask 0777 "${words[@]}"
if [ -d "$state" ]; then
	equal "the file is 0600 then too" "$(stat -c %a $(state_files "$state"))" 600
fi

# --- full ---
for size in 64k 256k; do
	fresh
	mkdir "$state" && mount -t tmpfs -o size=$size,mode=700 none "$state"
	same "a tmpfs of $size" "${words[@]:0:4}" qps 2000 "${words[@]:6}"
	told "a tmpfs of $size: told" 2 'state file cannot grow (ENOSPC)\|no room\|(EINVAL)'
	umount "$state"
done
fresh
mkdir "$state" && mount -t tmpfs -o size=64k,mode=700 none "$state"
head -c 1M /dev/zero >"$state/theirs" 2>/dev/null
sum=$(cksum <"$state/theirs")
same "a tmpfs that the program filled" "${words[@]}"
told "a tmpfs that the program filled: told" 2 'no state file in .*: no room in it'
equal "the program's file is as it was" "$(cksum <"$state/theirs")" "$sum"
equal "nothing is left there" "$(in_use "$state")" 0
umount "$state"
fresh
mkdir "$state" && mount -t tmpfs -o nr_inodes=1,mode=700 none "$state"
same "a tmpfs without inodes" "${words[@]}"
told "a tmpfs without inodes: told" 2 'no state file in .*: no file can be made'
umount "$state"

# --- read-only, missing, not a folder ---
fresh
mkdir "$state" && mount -t tmpfs -o ro,mode=700 none "$state"
same "a read-only folder" "${words[@]}"
told "a read-only folder: told" 2 'no state file in .*: no file can be made'
umount "$state"
fresh
settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR="$work/there/is/none")
same "a folder that cannot be made" "${words[@]}"
told "a folder that cannot be made: told" 2 'it is missing and cannot be made'
check "and it is not made" test ! -e "$work/there"
fresh
echo theirs >"$state"
same "a file in place of the folder" "${words[@]}"
told "a file in place of the folder: told" 2 'not a folder, or a symbolic link'
equal "the file is untouched" "$(cat "$state")" theirs
fresh
mkfifo "$state"
same "a pipe in place of the folder" "${words[@]}"
told "a pipe in place of the folder: told" 2 'not a folder, or a symbolic link'

# --- symbolic links ---
mkdir -m 700 "$work/target"
for slash in '' / //; do
	fresh
	ln -s "$work/target" "$state"
	settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR="$state$slash")
	same "a symbolic link in place of the folder ('$slash' after it)" "${words[@]}"
	told "a symbolic link: told" 2 'not a folder, or a symbolic link'
	equal "it is not followed" "$(find "$work/target" -type f | count)" 0
done
fresh
ln -s "$work/dangling" "$state"
same "a link to nothing" "${words[@]}"
check "it is not followed" test ! -e "$work/dangling"

# --- of another user, or open to others ---
if chown 65534 "$work/target" 2>/dev/null; then
	fresh
	mkdir -m 777 "$state" && chmod 777 "$state" && chown 65534 "$state"
	same "another user's folder, 0777" "${words[@]}"
	told "another user's folder: told" 2 'it belongs to another user'
	equal "nothing is written there" "$(find "$state" -type f | count)" 0

	fresh
	mkdir -m 700 "$state"
	as=("${nobody[@]}")
	same "root's folder, closed to this user" "${words[@]}"
	told "root's folder, closed: told" 2 'it cannot be opened'

	fresh
	mkdir "$state" && chmod 1777 "$state"
	as=("${nobody[@]}")
	same "root's folder for all, sticky" "${words[@]}"
	equal "a file 0600 of this user" "$(stat -c '%a %u' $(state_files "$state"))" "600 65534"

	fresh
	mkdir "$state" && chmod 777 "$state"
	as=("${nobody[@]}")
	same "root's folder for all, not sticky" "${words[@]}"
	told "root's folder for all, not sticky: told" 2 'others may write to it'

	fresh
	as=("${nobody[@]}")
	mkdir -m 1777 "$work/tmp" && chmod 1777 "$work/tmp"
	settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR="$work/tmp/mine")
	same "an ordinary user's own folder" "${words[@]}"
	equal "0700" "$(stat -c '%a %u' "$work/tmp/mine")" "700 65534"
	equal "0600" "$(stat -c '%a %u' $(state_files "$work/tmp/mine"))" "600 65534"
	as=()
else
	skip "folders of other users" "only root can make them"
fi
fresh
mkdir "$state" && chmod 777 "$state"
same "our own folder, open to all" "${words[@]}"
told "our own folder, open to all: told" 2 'others may write to it'

# --- files planted in advance ---
# The names that a process would take: namespace, pid and start are known only when it runs. A
# program plants them for itself, before its first verbs call.
plant='set -- $(cat /proc/$PPID/stat | sed "s/.*) //"); n=qpguard-$(stat -Lc %i /proc/self/ns/pid)-$PPID-${20}'
for how in "echo theirs > $state/\$n.state" "ln -s $work/victim $state/\$n.state" \
	"ln -s $work/victim $state/.\$n" "echo theirs > $state/.\$n" "mkdir $state/.\$n" \
	"mkfifo $state/\$n.state" "mkdir $state/\$n.state"; do
	fresh
	mkdir -m 700 "$state"
	echo victim >"$work/victim"
	between="rm -rf $state; mkdir -m 700 $state"
	same "planted in advance: $(sed "s,$work/,,g" <<<"$how")" shell "$plant; $how" "${words[@]}"
	equal "no link is followed, nothing overwritten" "$(cat "$work/victim")" victim
	equal "the program has its file" "$(find "$state" -name '*.state' -type f -size +1k | count)" 1
done
if chown 65534 "$work/target" 2>/dev/null; then
	# What another planted in a sticky folder cannot be removed by us.
	fresh
	mkdir "$state" && chmod 1777 "$state"
	mkfifo "$work/go"
	guarded "$work/guarded" "${nobody[@]}" bash -c '"$@" <'"$work/go" - "$guest" wait "${words[@]}" &
	exec 9>"$work/go"
	until pid=$(pgrep -x guest); do sleep 0.05; done
	set -- $(sed 's/.*) //' "/proc/$pid/stat")
	planted=$state/.qpguard-$(stat -Lc %i /proc/self/ns/pid)-$pid-${20}
	echo theirs >"$planted" && chown 1 "$planted" && chmod 666 "$planted"
	echo go >&9
	exec 9>&-
	wait
	equal "planted by another user: the program works" "$(cat "$work/guarded.status")" 0
	equal "planted by another user: left alone" "$(cat "$planted")" theirs
	equal "the program has its file" "$(find "$state" -name '*.state' -uid 65534 -size +1k | count)" 1
fi

# --- taken away meanwhile ---
fresh
same "the folder removed meanwhile" open pair shell "rm -rf $state" "${words[@]:2}"
fresh
same "the file removed meanwhile" open pair shell "rm -f $state/*.state" "${words[@]:2}"
fresh
same "another file in its place" open pair \
	shell "for f in $state/*.state; do [ ! -e \$f ] || { rm \$f; echo theirs >\$f; }; done" "${words[@]:2}"
equal "it is left alone" "$(cat $(state_files "$state"))" theirs

# --- on a disk ---
disk=$QPG_BUILD/tests/harm/disk.$$
if mkdir -m 700 "$disk" 2>/dev/null && [ "$(stat -f -c %T "$disk")" != tmpfs ]; then
	undo+=('rm -rf "$disk"')
	fresh
	settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR="$disk")
	same "a disk file system" "${words[@]}"
	told "a disk file system: told" 2 'not on tmpfs; written once at exit'
	equal "written at exit" "$(report '[p[0]["totals"][k] for k in ("created_qps","create_failures")]' "$disk")" '[204, 20]'
	equal "0600" "$(stat -c %a "$disk"/*.state)" 600
	rm -f "$disk"/*
	same "a disk file system, closed descriptors" open pair closefds "${words[@]:2}"
	equal "written at exit then too" "$(in_use "$disk")" 1
	rm -f "$disk"/*
	settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR="$(realpath --relative-to="$PWD" "$disk")")
	same "a relative folder, on disk, and chdir" open chdir / pair "${words[@]:2}"
	equal "written where it was meant" "$(in_use "$disk")" 1
	rm -f "$disk"/*
	settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR="$disk")
	same "a file size limit and a disk" fsize 0 "${words[@]}"
	equal "nothing is written" "$(in_use "$disk")" 0
else
	skip "a disk file system" "the build folder is on none"
fi

# --- limits ---
for when in before after; do
	fresh
	if [ $when = before ]; then set -- fsize 0 open pair; else set -- open pair fsize 0; fi
	same "a file size limit of 0, $when the first verbs call" "$@" "${words[@]:2}" signals
	told "a file size limit of 0: told on a pipe" 0 ''
	# Standard error is a file here, and the limit holds for it: there is no place for a line.
	guarded "$work/guarded" bash -c '"$@" 2>&1 >/dev/null | cat >&2' - "$guest" "$@" "${words[@]:2}"
	told "a file size limit of 0, $when: told on a pipe" $((1 + (${#when} > 5))) 'file size limit\|failed'
done
fresh
settings+=(QPGUARD_LOG_FILE="$work/log.%p")
same "a file size limit of 0 and a log file" open fsize 0 "${words[@]:1}" signals
fresh
same "no descriptors to be had" open nofile 3 qps 200 fail 20 drop
fresh
same "closed descriptors" open pair closefds "${words[@]:2}"
told "closed descriptors: nothing is missing" 1 '(EINVAL)'
equal "closed descriptors: the report is whole" "$(report 'p[0]["totals"]["created_qps"]' "$state")" 204
fresh
same "closed descriptors before the first verbs call" closefds "${words[@]}"

# --- standard error ---
fresh
same "descriptor 2 made a data file" open err2file "$work/data" "${words[@]:1}"
equal "the data file has what the program wrote" "$(cat "$work/data")" data
fresh
same "descriptor 2 made a data file before the first verbs call" err2file "$work/data" "${words[@]}"
equal "the data file has what the program wrote" "$(cat "$work/data")" data
fresh
same "descriptor 2 made a closed pipe" open err2closed "${words[@]:1}" signals
fresh
same "descriptor 2 made a full pipe" open err2full "${words[@]:1}" signals
fresh
guarded "$work/guarded" bash -c '{ "$@"; echo $? >&3; } 3>"$0" 2> >(exec sleep 0.2)' "$work/status" \
	"$guest" open pair shell 'sleep 0.5' fail 1 failall 5 signals
equal "standard error is a pipe that was closed" "$(cat "$work/status") $(grep -c 'failall 5' "$work/guarded.out")" "0 1"
fresh
guarded "$work/guarded" bash -c '{ "$@"; echo $? >&3; } 3>"$0" 2> >(exec sleep 3)' "$work/status" \
	"$guest" open pair fillerr fail 1 failall 5 signals
equal "standard error is a pipe that is full" "$(cat "$work/status") $(grep -c 'failall 5' "$work/guarded.out")" "0 1"
fresh
guarded "$work/guarded" bash -c '"$@" 2>&-' - "$guest" "${words[@]}"
equal "standard error is closed" "$(cat "$work/guarded.status")" 0

# --- the program moves ---
fresh
settings=(QPGUARD_LOG_LEVEL=info QPGUARD_DIR=state)
cd "$work" || exit 1
same "a relative folder and chdir" open chdir / "${words[@]:1}"
told "a relative folder and chdir: the file grows" 1 '(EINVAL)'
equal "the report is whole" "$(report 'p[0]["totals"]["created_qps"]' "$state")" 204
cd / || exit 1
if chown 65534 "$work/target" 2>/dev/null; then
	fresh
	for how in "setuid 65534" "chroot $work/target"; do
		fresh
		# shellcheck disable=SC2086 # two words
		same "${how%% *} after the first verbs call" open pair $how send 50 qps 200 fail 20 drop
		told "${how%% *}: the file grows" 1 '(EINVAL)'
		equal "${how%% *}: the report is whole" "$(report 'p[0]["totals"]["created_qps"]' "$state")" 202
	done
fi
finished
