# SPDX-License-Identifier: MIT
#
# All that a program printed (verbs_pair.h), $truth, against the report of the copies made of its
# state file at its steps, $reports: prints "STEP DIFFERENCE", steps counted from 0, for each
# number that differs.

def fields: reduce (split(" ")[1:][] | split("=")) as $f ({}; .[$f[0]] = $f[1]);
def flat: if . == null then {} else . + (.rejected // {}) end;
def living: select(.destroyed_at == null);
# sums of groups, peaks are the most of one member
def total($p; side): reduce ($p.groups[] | .[side] | flat | del(.rejected)) as $g ({};
	reduce ($g | to_entries[]) as $e (.;
		if $e.key | startswith("peak") then .[$e.key] = ([.[$e.key] // 0, $e.value] | max)
		else .[$e.key] += $e.value end));
def reported($p; $kind; $f):
	if $kind == "queue" and $f.qp then
		[$p.qps[] | living | select(.qp_num == ($f.qp | tonumber))][0] | .[$f.side] | flat
	elif $kind == "queue" then
		[$p.srqs[] | living | select(.id == ($f.srq | tonumber))][0] | .recv | flat
	elif $kind == "cq" then
		[$p.cqs[] | living | select(.id == ($f.id | tonumber))][0] | flat
	elif $kind == "total" then
		total($p; $f.side)
	elif $kind == "wq" then
		[$p.wqs[] | living | select(.id == ($f.id | tonumber))][0]
			| . + .effective + (.recv | flat)
	elif $kind == "mrs" then
		$p.mrs
	elif $kind == "unguarded" then
		$p.guard.unguarded
	elif $kind == "entry_points" then
		$p.guard.entry_points
	else
		$p.totals
	end;

def differences($p):
	split(" ")[0] as $kind
	| split(" ")[0:3] as $name
	| fields as $f
	| reported($p; $kind; $f) as $r
	| $f | to_entries[] | select(.key | IN("qp", "srq", "id", "side") | not)
	| ($r[.key] // (if $kind == "total" then 0 else "nothing" end)) as $reported
	| select(($reported | tostring) != .value)
	| "\($name | join(" ")): \(.key) is \(.value), the report says \($reported)";

($reports[0].processes | sort_by(.state_file)) as $at
| foreach ($truth | split("\n")[] | select(test("^(queue|cq|wq|total|totals|mrs|unguarded|entry_points|step) "))) as $line (
	{ steps: 0 };
	if .done then .steps += 1 else . end | .done = ($line | startswith("step ")) | .line = $line;
	select(.done | not) | "\(.steps) \($at[.steps] as $p | .line | differences($p))")
