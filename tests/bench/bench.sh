#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What the guard costs: posting and polling (paths.c counts, times.c times), making and destroying QPs
# (creation.c), memory; bare and guarded in turns on the played mlx5 device. Instructions are counted exactly and stay
# the same; nanoseconds are this machine's, now: the median of the pairs, with the quartiles of what was
# added, which say how far to trust it. Prints a table; writes the same to bench.json in the build folder.
#
#   bench.sh [PAIRS]     31
# shellcheck source=tests/bench/lib.sh
. "$(dirname "$0")/lib.sh"
pairs=${1:-31} qps=1000

say() {
	[ ! -t 2 ] || printf '\r%-60s' "$*" >&2
}

# --- posting and polling: rows "name instructions_bare instructions_guarded", and for each pair "name picoseconds_bare
# picoseconds_guarded" ---
for how in bare guarded; do
	say "instructions, $how"
	rm -rf "$work/state"
	"$how" "$build/tests/bench/paths" "$qps" 9 >"$work/paths.$how" || exit 1
done
paste "$work/paths.bare" "$work/paths.guarded" | cut -f 1,2,7 >"$work/steps"
begin_both times
for ((path = 0; ; path++)); do
	both run "$path"
	[ "$answer" != "0 end" ] || break
	[ "$answer" != "0 mixed" ] || continue
	for ((i = 1; i <= pairs; i++)); do
		say "${answer#* }, pair $i of $pairs"
		ask bare run "$path"
		bare_ps=${answer%% *}
		ask guarded run "$path"
		printf '%s\t%s\t%s\n' "${answer#* }" "$bare_ps" "${answer%% *}" >>"$work/times"
	done
done
end_both

# --- creation: the same rows ---
begin_both creation
for live in 10 10000 100000; do
	say "creation, $live QPs live"
	both live "$live"
	read -r bare_create bare_destroy < <(instructions bare)
	read -r guarded_create guarded_destroy < <(instructions guarded)
	printf '%s, %s live\t%s\t%s\n' create_qp "$live" "$bare_create" "$guarded_create" \
		destroy_qp "$live" "$bare_destroy" "$guarded_destroy" \
		"create + destroy" "$live" $((bare_create + bare_destroy)) \
		$((guarded_create + guarded_destroy)) >>"$work/steps"
	for ((i = 1; i <= 2 * pairs; i++)); do
		ask bare time 10
		read -r bare_create bare_destroy bare_both <<<"$answer"
		ask guarded time 10
		read -r guarded_create guarded_destroy guarded_both <<<"$answer"
		printf '%s, %s live\t%s000\t%s000\n' create_qp "$live" "$bare_create" "$guarded_create" \
			destroy_qp "$live" "$bare_destroy" "$guarded_destroy" \
			"create + destroy" "$live" "$bare_both" "$guarded_both" >>"$work/times"
	done
done
end_both

# --- memory, in processes that did nothing else ---
begin_both creation
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
	FILENAME ~ /steps$/ { name[++names] = $1; steps[$1] = $2; more_steps[$1] = $3 - $2; next }
	{
		bare[$1] = bare[$1] " " $2 / 1000
		more[$1] = more[$1] " " ($3 - $2) / 1000
	}
	END {
		for (i = 1; i <= names; i++) {
			n = name[i]
			if (n in bare)
				print n, steps[n], more_steps[n], at(bare[n], 0.5), at(more[n], 0.25), at(more[n], 0.5), at(more[n], 0.75)
			else
				print n, steps[n], more_steps[n], "null", "null", "null", "null"
		}
	}' "$work/steps" "$work/times" >"$work/rows"

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
jq -Rn --arg processor "$processor" --argjson qps "$qps" --argjson pairs "$pairs" \
	--argjson bytes "$((((anon_many - anon_one) * 1024 + file_many - file_one) / 9999))" \
	--argjson in_file "$(((file_many - file_one) / 9999))" --argjson one "$((resident_one * 1024))" '
	{ processor: $processor, pairs: $pairs, qps: $qps,
	  calls: [inputs | split("\t") | { call: .[0],
		instructions: { bare: (.[1] | tonumber), added: (.[2] | tonumber) },
		nanoseconds: (if .[3] == "null" then null else { bare: (.[3] | tonumber),
			added: (.[5] | tonumber), added_quartiles: [(.[4], .[6]) | tonumber] } end) }],
	  memory: { bytes_per_qp_at_10000: $bytes, of_them_in_state_file: $in_file,
		resident_bytes_with_one_qp: $one } }' "$work/rows" >"$build/bench.json" || exit 1

printf '%s\n%s\n\n' "$processor" \
	"bare and guarded in turns, $pairs pairs; posting and polling over $qps QPs on 16 CQs in shuffled order"
awk -F '\t' '
	BEGIN {
		printf "%-38s %16s   %s\n", "", "instructions", "nanoseconds"
		printf "%-38s %8s %7s   %8s %7s  %s\n", "", "bare", "added", "bare", "added", "quartiles"
	}
	$4 == "null" { printf "%-38s %8d %7d\n", $1, $2, $3; next }
	{ printf "%-38s %8d %7d   %8d %7d  %d to %d\n", $1, $2, $3, $4, $6, $5, $7 }' "$work/rows"
jq -r '.memory | "\nmemory: \(.bytes_per_qp_at_10000) bytes for each QP, \(.of_them_in_state_file) of them in the state file, measured with 10,000;\n        \(.resident_bytes_with_one_qp / 1024 | floor) KiB resident more in a process with one QP"' "$build/bench.json"
echo
echo "the same as JSON: $build/bench.json"
