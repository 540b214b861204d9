#!/usr/bin/env bash
# peel bench allreduce from outside, on threads: the fields that other tools read, what is verified, and what is refused.
set -u

. "$(dirname "$0")/program.sh"

# bench LINES OPTIONS...: the sweep has that many configurations, none of them wrong, and all the fields.
bench() {
  local lines="$1"
  shift
  "$peel" bench allreduce --warmup 1 --repeat 1 "$@" --json - >out.jsonl 2>err || { fail "$*: $(cat err)"; return; }
  python3 - "$lines" <<'PY' || fail "bench allreduce $*"
import json, sys
FIELDS = """transport workers elements density pattern strategy chosen grain seconds baseline baseline_seconds speedup
bytes_sent dense_bytes rounds lost wrong summed repaired rescaled encode_s wire_s decode_s algbw busbw
workspace_bytes machine date""".split()
reports = [json.loads(line) for line in open("out.jsonl")]
assert len(reports) == int(sys.argv[1]), f"{len(reports)} configurations"
for report in reports:
    missing = [field for field in FIELDS if report.get(field) is None]
    assert not missing, f"fields {missing} are missing"
    assert report["wrong"] == 0 and report["lost"] == 0, report
    assert abs(report["busbw"] - report["algbw"] * 2 * (report["workers"] - 1) / report["workers"]) < 1e-9, report
PY
}

# expect PYTHON: a fact about `reports`, the last sweep.
expect() {
  python3 -c "import json; reports = [json.loads(line) for line in open('out.jsonl')]; assert $1" || fail "expected $1"
}

# refuses CODE WORDS OPTIONS...: exit code and a sentence with these words.
refuses() {
  local code="$1" words="$2"
  shift 2
  "$peel" bench allreduce "$@" >/dev/null 2>err
  [ $? -eq "$code" ] || fail "$* does not exit with $code"
  grep -q -- "$words" err || fail "$* says: $(cat err)"
}

every=dense,packed,sketch,split,gather,auto
bench 12 --workers 2,3 --elements 10007 --density 0.05 --strategy "$every"
expect 'all(r["chosen"] == r["strategy"] for r in reports if r["strategy"] != "auto")'
expect 'all(r["baseline"] == "dense" for r in reports)'
bench 12 --elements 2^14 --density 0.3 --overlap independent,full --strategy "$every" --pattern runs:16
bench 12 --elements 2^14 --density 0.1,1 --values real --strategy "$every"
bench 4 --elements 4099 --density 0.1 --type float64,bfloat16,int32,int64 --strategy split
bench 1 --elements 2^14 --chunk-bytes 8192 --link 1gbit --strategy packed
expect 'abs(reports[0]["link_bits"] - 1e9) < 1'
bench 5 --view sparse --pattern rows:64 --elements 2^18 --density 0.05 --strategy packed,sketch,split,gather,auto
expect 'all(r["baseline"] == "allgatherv" and r["grain"] == 64 for r in reports)'

# Links of threads are limited in user space, and no sum is faster than its link.
bench 6 --elements 2^16 --density 0.05,0.9 --rate 50mbit --values real --strategy packed,split,auto --drain-bytes 1000
expect 'all(r["rate_bits"] == 5e7 and r["seconds"] >= 8 * r["bytes_sent"] / r["rate_bits"] for r in reports)'
expect 'all(r["baseline_seconds"] >= 8 * r["dense_bytes"] / r["rate_bits"] for r in reports)'

# Independent supports share little, full ones everything: so everybody's items are about W times as many.
bench 2 --elements 2^16 --density 0.01 --overlap independent,full --strategy gather --grain 1
expect '3 < reports[1]["bytes_sent"] / reports[0]["bytes_sent"] < 4.5'

refuses 2 "at least 1" --workers 0
refuses 2 "one of auto, dense" --strategy fast
refuses 2 "independent, full" --overlap 0.5
refuses 2 "power of two" --grain 3
if [ ! -e /dev/nvidia0 ]; then refuses 1 "GPU\|came without\|needs NCCL" --transport nccl; fi
refuses 2 "floating-point type" --values real --type int32
refuses 2 "links of its own" --transport switch --rate 200mbit
refuses 1 "at least one byte" --rate 1bit

[ "$failures" -eq 0 ] && echo "all passed"
exit $((failures != 0))
