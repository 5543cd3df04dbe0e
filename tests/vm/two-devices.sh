#!/bin/bash
# SPDX-License-Identifier: MIT
#
# One process that uses the played mlx5 device and rxe0 at once: both are accounted, each its own.
set -u
here=$(cd "$(dirname "$0")" && pwd -P)
# shellcheck source=tests/vm/lib.sh
. "$here/lib.sh"

program=$QPG_BUILD/tests/apps/two_devices
device_library=$QPG_BUILD/tests/device/.libs/mlx5dev.so

if [ -n "${QPG_IN_VM-}" ]; then
	work=$(mktemp -d /dev/shm/two-devices.XXXXXX)
	LD_PRELOAD=$device_library "$program" mlx5_0:0 rxe0:1 >"$results/bare" 2>&1
	LD_PRELOAD=$guard_library:$device_library QPGUARD_DIR=$work "$program" rxe0:1 mlx5_0:0 \
		>"$results/guarded" 2>&1
	"$qpguard" report --format json --verbose "$work" >"$results/report" 2>&1
	exit 0
fi

collect 200
is "bare, the first device does 10 writes and 5 sends, the second twice that" "$(cat "$results/bare")" \
	"mlx5_0 sends=15 receives=5 completions=15 refused=1 made=3
rxe0 sends=30 receives=10 completions=30 refused=2 made=4"
is "guarded, in the other order, so does it" "$(grep -v "^qpguard" "$results/guarded")" \
	"rxe0 sends=15 receives=5 completions=15 refused=1 made=3
mlx5_0 sends=30 receives=10 completions=30 refused=2 made=4"

is "and all that is said is what was refused on each" \
	"$(sed -n 's/^qpguard\[[0-9]*\]: \(.*\) (E[A-Z]*)$/\1/p' "$results/guarded" | sort)" \
	"ibv_post_send on mlx5_0 refused: num_sge 3, the QP takes at most 2
ibv_post_send on rxe0 refused: num_sge 3, the QP takes at most 2"
# expect TEXT FILTER VALUE: of the one process in the report.
expect() {
	is "$1" "$(jq -c ".processes[0] | $2" "$results/report" 2>&1)" "$3"
}
expect "each device has its driver" '[.devices[] | [.name, .driver]] | sort' '[["mlx5_0","mlx5"],["rxe0","rxe"]]'
expect "the QPs of the process are those of both" '.totals | [.created_qps, .live_qps, .live_cqs]' '[7,4,2]'
expect "QPs of each: made and living" \
	'[.groups | map(select(.type == "RC")) | group_by(.device)[] | [.[0].device, (map(.created) | add), (map(.live) | add)]]' \
	'[["mlx5_0",4,2],["rxe0",3,2]]'
expect "sends of each: posted, completed, outstanding, discarded, with too many SGEs" \
	'[.groups | map(select(.type == "RC")) | group_by(.device)[] | [.[0].device] + (map([.send | .posted, .completed, .outstanding, .discarded, .rejected.too_many_sge]) | transpose | map(add))]' \
	'[["mlx5_0",30,30,0,0,2],["rxe0",15,15,0,0,1]]'
expect "receives of each" \
	'[.groups | map(select(.type == "RC")) | group_by(.device)[] | [.[0].device] + (map([.recv | .posted, .completed, .outstanding, .discarded]) | transpose | map(add))]' \
	'[["mlx5_0",10,10,0,0],["rxe0",5,5,0,0]]'
expect "completions of each CQ" '[.cqs[] | [.device, .completions]] | sort' '[["mlx5_0",30],["rxe0",15]]'
expect "bytes of each by its own way: the provider's word, the model" \
	'[.qps[] | select(.destroyed_at == null) | [.device, .bytes.basis]] | unique' '[["mlx5_0","provider"],["rxe0","model"]]'
expect "the bytes of the process are those of its objects" \
	'.totals.bytes == ([.groups, .cq_groups | .[].bytes] | add)' true
finish
