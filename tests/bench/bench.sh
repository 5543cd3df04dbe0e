#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What the guard costs: posting and polling (paths.c), making and destroying QPs (creation.c), memory; bare and
# guarded in turns on the played mlx5 device. Instructions are counted exactly and stay the same; nanoseconds are
# this machine's, now: the median of the pairs, with the quartiles of what was added, which say how far to
# trust it. Prints a table; writes the same to bench.json in the build folder.
#
#   bench.sh [PAIRS [QPS]]     15 pairs, paths over 1000 QPs
# shellcheck source=tests/bench/lib.sh
. "$(dirname "$0")/lib.sh"
pairs=${1:-15} qps=${2:-1000}

say() {
	[ ! -t 2 ] || printf '\r%-60s' "$*" >&2
}

# --- paths: rows "name instructions_bare instructions_guarded", then "name ns_bare ns_guarded" of each pair ---
paths=$build/tests/bench/paths
for ((i = 1; i <= pairs; i++)); do
	say "paths, pair $i of $pairs"
	for how in bare guarded; do
		rm -rf "$work/state"
		"$how" "$paths" "$qps" 5 >"$work/paths.$how" || exit 1
	done
	paste "$work/paths.bare" "$work/paths.guarded" | cut -f 1,2,5,7,10 >>"$work/paths"
done

# --- creation: the same rows ---
begin_both
for live in 10 10000 100000; do
	say "creation, $live QPs live"
	both live "$live"
	paste -d ' ' <(instructions bare) <(instructions guarded) >"$work/steps"
	read -r bare_create bare_destroy guarded_create guarded_destroy <"$work/steps"
	for ((i = 1; i <= 4 * pairs; i++)); do
		ask bare time 10
		read -r bare_create_ns bare_destroy_ns bare_both_ns <<<"$answer"
		ask guarded time 10
		read -r create_ns destroy_ns both_ns <<<"$answer"
		printf '%s\t%s\t%s\t%s\t%s\n' \
			"create_qp, $live live" "$bare_create" "$bare_create_ns" "$guarded_create" "$create_ns" \
			"destroy_qp, $live live" "$bare_destroy" "$bare_destroy_ns" "$guarded_destroy" "$destroy_ns" \
			"create + destroy, $live live" $((bare_create + bare_destroy)) "$bare_both_ns" \
			$((guarded_create + guarded_destroy)) "$both_ns" >>"$work/creation"
	done
done
end_both

# --- memory, in processes that did nothing else ---
rm -rf "$work/state"
begin_both
kib() {
	local -a part
	ask guarded memory
	read -r -a part <<<"$answer"
	ask bare memory
	# shellcheck disable=SC2086 # three words
	set -- $answer
	echo $((part[0] - $1)) $((part[0] + part[1] + part[2] - $1 - $2 - $3)) "$(state_bytes)"
}
both live 1
read -r anon_one resident_one file_one < <(kib)
both live 10000
read -r anon_many _ file_many < <(kib)
end_both
say ""

# --- told ---
awk -F '\t' -v OFS='\t' '
	function at(list, share,    v, n, i, j, x) {
		n = split(list, v, " ")
		for (i = 2; i <= n; i++) {
			x = v[i] + 0
			for (j = i - 1; j && v[j] + 0 > x; j--) v[j + 1] = v[j]
			v[j + 1] = x
		}
		i = int(n * share) + 1
		return v[i > n ? n : i] + 0
	}
	!($1 in seen) { name[++names] = $1; seen[$1] }
	{
		bare_steps[$1] = bare_steps[$1] " " $2
		more_steps[$1] = more_steps[$1] " " $4 - $2
		bare_ns[$1] = bare_ns[$1] " " $3
		more_ns[$1] = more_ns[$1] " " $5 - $3
	}
	END {
		for (i = 1; i <= names; i++) {
			n = name[i]
			print n, at(bare_steps[n], 0.5), at(more_steps[n], 0.5), at(bare_ns[n], 0.5),
				at(more_ns[n], 0.25), at(more_ns[n], 0.5), at(more_ns[n], 0.75)
		}
	}' "$work/paths" "$work/creation" >"$work/rows"

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
jq -Rn --arg processor "$processor" --argjson qps "$qps" --argjson pairs "$pairs" \
	--argjson bytes "$((((anon_many - anon_one) * 1024 + file_many - file_one) / 9999))" \
	--argjson in_file "$(((file_many - file_one) / 9999))" --argjson one "$((resident_one * 1024))" '
	{ processor: $processor, pairs: $pairs, qps: $qps,
	  calls: [inputs | split("\t") | { call: .[0],
		instructions: { bare: (.[1] | tonumber), added: (.[2] | tonumber) },
		nanoseconds: { bare: (.[3] | tonumber), added: (.[5] | tonumber),
			added_quartiles: [(.[4], .[6]) | tonumber] } }],
	  memory: { bytes_per_qp_at_10000: $bytes, of_them_in_state_file: $in_file,
		resident_bytes_with_one_qp: $one } }' "$work/rows" >"$build/bench.json" || exit 1

printf '%s\n%s\n\n' "$processor" \
	"$pairs pairs of processes, bare and guarded in turns; posting and polling over $qps QPs on 16 CQs"
awk -F '\t' '
	BEGIN {
		printf "%-38s %16s   %s\n", "", "instructions", "nanoseconds"
		printf "%-38s %8s %7s   %8s %7s  %s\n", "", "bare", "added", "bare", "added", "quartiles"
	}
	{ printf "%-38s %8d %7d   %8d %7d  %d to %d\n", $1, $2, $3, $4, $6, $5, $7 }' "$work/rows"
jq -r '.memory | "\nmemory: \(.bytes_per_qp_at_10000) bytes for each QP, \(.of_them_in_state_file) of them in the state file, measured with 10,000;\n        \(.resident_bytes_with_one_qp / 1024 | floor) KiB resident more in a process with one QP"' "$build/bench.json"
echo
echo "the same as JSON: $build/bench.json"
