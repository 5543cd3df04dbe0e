#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The ways in which programs live and end: fork, exec, daemons, threads that are cancelled, small stacks, little
# memory, forbidden system calls, other allocators. The program does the same as bare, and the report tells
# of each image of it what it did.
. "$(dirname "$0")/lib.sh"

state=$work/state
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
	state=$(mktemp -d /dev/shm/qpg-harm.XXXXXX)
	undo+=('rm -rf "$state"')
fi
settings=(QPGUARD_DIR="$state")
fresh() {
	rm -f "$state"/*.state
}
# The processes of the report by what they made, least first.
made() {
	report 'sorted([q["totals"]["created_qps"] for q in p])' "$state"
}
ended() {
	report 'sorted([q["state"] for q in p])' "$state"
}
tree() {
	fresh
	same "$@"
}

# --- children ---
tree "a child without verbs" open pair fork end send 20 drop
equal "... leaves nothing of its own" "$(made)" "[2]"
tree "a child with verbs of its own" open pair send 20 fork open qps 3 drop end send 20 drop
equal "... has a file of its own" "$(made)" "[2, 3]"
equal "... and is told to be one" "$(report 'sum(1 for q in p if q.get("parent_pid") or q.get("parent"))' "$state" 2>/dev/null || echo 1)" 1
tree "a child that touches what it inherited" open pair send 20 fork inherited end send 20 drop
inherited() {
	report '[[q["inherited"][k] for k in ("qps", "cqs", "posts", "modified_qps", "destroyed_qps")] for q in p if q["inherited"]]' "$state"
}
equal "... has a file that tells so" "$(made) $(inherited)" "[0, 2] [[2, 1, 1, 0, 0]]"
equal "... that counts for the parent" "$(report 'sum(g["send"]["posted"] for q in p for g in q["groups"] if g.get("send"))' "$state")" 40
tree "a child that had no verbs, and its child that touches what it inherited" open pair fork fork inherited end end drop
equal "... tells of the one that made it" "$(made) $(inherited)" "[0, 2] [[2, 1, 1, 0, 0]]"
tree "a child that uses it after verbs of its own" open pair fork open qps 2 inherited end send 20 drop
equal "... tells the two apart" "$(made) $(inherited)" "[2, 2] [[2, 1, 1, 0, 0]]"
tree "a child of a child" open pair fork open qps 1 fork open qps 5 end end drop
equal "... three files" "$(made)" "[1, 2, 5]"
# The played device itself does not live through a bare clone: the child's open fails.
fresh
guarded "$work/guarded" "$guest" open pair send 20 clone open qps 3 end send 20 drop
check "a child by a bare clone has a file of its own: $(made)" grep -q '^\[[03], 2\]$\|^\[2, 3\]$' <(made)
tree "a child by a bare clone that touches what it inherited" open pair clone inherited end send 20 drop
equal "... tells so" "$(made) $(inherited)" "[0, 2] [[2, 1, 1, 0, 0]]"
tree "vfork and exec" open pair vfork send 20 drop
equal "... leaves nothing of its own" "$(made)" "[2]"
tree "a kernel without MADV_WIPEONFORK" nowipe open pair send 20 fork open qps 3 inherited end send 20 drop
equal "... a file each there too, which tells what was inherited" "$(made) $(inherited)" "[2, 3] [[2, 1, 1, 0, 0]]"
tree "no wiping, and a child without verbs of its own" nowipe open pair fork inherited end send 20 drop
equal "... counts nothing in its parent's file" "$(report 'sum(g["send"]["posted"] for q in p for g in q["groups"] if g.get("send"))' "$state")" 20
tree "forks while two threads create and destroy" open forkrace 20

# --- other images ---
tree "exec of itself with QPs open" open qps 4 exec open qps 2 exec open qps 1 drop close
equal "... a file for each image" "$(made)" "[1, 2, 4]"
tree "a daemon that closes all descriptors" daemon open pair send 20 drop
equal "... is in the report" "$(made)" "[2]"

# --- ends ---
tree "exit with QPs left" open pair send 20 exit 7
equal "... exited" "$(ended)" "['exited']"
tree "exit while a thread posts and polls" open pair posters exit 0
tree "exit handlers that make QPs" open atexit pair exit 0
equal "... are counted" "$(made)" "[4]"
tree "_exit" open pair send 20 _exit 5
tree "abort" open pair send 20 abort
equal "... died" "$(ended)" "['died']"
tree "SIGKILL" open pair send 20 kill
equal "... died, with all it did" "$(report '[q["state"] for q in p] + [sum(g["send"]["posted"] for g in p[0]["groups"] if g.get("send"))]' "$state")" "['died', 20]"

# --- libraries ---
cp "$QPG_BUILD/tests/harm/.libs/late_lib.so" "$work/lib/late.so"
tree "a plugin whose constructor and destructor make QPs" library "$work/lib/late.so"
tree "and with QPs of the program's own" open pair library "$work/lib/late.so" send 20 drop
front=$work/lib/late.so tree "a preloaded library that does so, before us" open pair send 20 drop
for allocator in jemalloc.so.2 tcmalloc_minimal.so.4; do
	library=$(ls /usr/lib/*/lib$allocator 2>/dev/null | head -1)
	if [ -n "$library" ]; then
		front=$library tree "with ${allocator%%.*}" open pair send 100 churn 200 fail 5 drop fork open qps 2 end close
	else
		skip "with ${allocator%%.*}" "lib$allocator is not installed"
	fi
done

# --- threads and stacks ---
tree "threads cancelled while they create" open cancel 20 qps 3 drop
tree "a thread polls while QPs go" open pollrace 300
tree "a coroutine's stack of 16 KiB" open coroutine pair send 20 fail 2 end drop
tree "the first verbs call on such a stack" coroutine open pair send 20 fail 2 drop end

plain "$work/deep" "$guest" opendepth pair depths
fresh
guarded "$work/deeper" "$guest" opendepth pair depths
# The first verbs call of a process reads its policy and makes its file: it may take more.
while read -r _ what bare _ _ guarded; do
	if [ "$what" = open ]; then limit=8192; else limit=4096; fi
	at_most "bytes of stack that $what takes more than bare" $((guarded - bare)) $limit
done < <(paste -d' ' <(grep -a '^depth ' "$work/deep.err") <(grep -a '^depth ' "$work/deeper.err"))

# --- memory and system calls ---
for kib in 0 64 256 1024 2048 4096 8192; do
	# Bare it may fail too: what is looked at is that it ends of itself.
	fresh
	guarded "$work/guarded" "$guest" open more_as $kib pair send 5 churn 50
	status=$(cat "$work/guarded.status")
	check "$kib KiB of address space left: no signal ($status)" test "$status" -lt 124
done
for kib in 128 512 1024 2048 4096; do
	fresh
	guarded "$work/guarded" "$guest" more_as $kib open pair send 5
	status=$(cat "$work/guarded.status")
	check "$kib KiB of address space at the first verbs call: no signal ($status)" test "$status" -lt 124
done
tree "all memory locked" mlockall open pair send 20 qps 20 fail 3 drop
tree "no descriptors left" open pair nofile 3 send 20 qps 100 fail 3 drop
tree "unusual system calls kill" open pair seccomp send 20 qps 400 fail 3 failall 5 drop
equal "... the report is whole" "$(made)" "[402]"
tree "unusual system calls kill, and exit" open pair seccomp send 20 drop close exit 3

# --- the environment ---
settings=(QPGUARD_DIR="$state" QPGUARD=off QPGUARD_BUDGET_QPS=1 QPGUARD_BUDGET_ACTION=refuse)
tree "QPGUARD=off" open pair send 20 fail 2 drop
told "... says nothing" 0 ''
equal "... leaves nothing" "$(state_files "$state" | count)" 0
settings=(QPGUARD_DIR="$state" QPGUARD_BUDGET_QSP=4 QPGUARD_CLAMP_MAX_SEND_WR=many)
tree "wrong variables" open pair send 20 drop
told "... told once each" 2 "did you mean\|QPGUARD_"
printf '[budget]\nqps = 1\naction = refuse\nproces_bytes = 3\n[clmap]\nmax_send_wr = 4\nnonsense\n[budget device=\n' >"$work/conf"
settings=(QPGUARD_DIR="$state" QPGUARD_CONF="$work/conf")
fresh
guarded "$work/guarded" "$guest" open qps 1 fork open qps 1 drop end fail 1
equal "wrong lines of the policy: the program runs" "$(cat "$work/guarded.status")" 0
check "... each is told by file and line" test "$(grep -c "^qpguard.*$work/conf:[4578]: " "$work/guarded.err")" -ge 4
settings=(QPGUARD_DIR="$state" QPGUARD_CONF=/dev/zero)
fresh
guarded "$work/guarded" "$guest" open pair send 5 drop
equal "an endless policy file" "$(cat "$work/guarded.status")" 0
mkfifo "$work/fifo"
settings=(QPGUARD_DIR="$state" QPGUARD_CONF="$work/fifo")
tree "a pipe for a policy file" open pair send 5 drop
settings=(QPGUARD_DIR="$state" QPGUARD_CONF="$work")
tree "a folder for a policy file" open pair send 5 drop
settings=(QPGUARD_DIR="$state" QPGUARD_LABELS="$(head -c 100000 /dev/zero | tr '\0' x)")
tree "labels without end" open pair send 5 drop
settings=(QPGUARD_DIR="/dev/shm/$(head -c 5000 /dev/zero | tr '\0' x)")
tree "a folder's name without end" open pair send 5 drop
finished
