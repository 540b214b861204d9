#!/usr/bin/env bash
# peel bench codec from outside: the fields that other tools read, every pattern, what it refuses, and its exit codes.
set -u

. "$(dirname "$0")/program.sh"

# bench LINES OPTIONS...: the sweep has that many configurations, none of them wrong, and all the fields.
bench() {
  local lines="$1"
  shift
  "$peel" bench codec --repeat 1 "$@" --json - >out.jsonl 2>err || { fail "bench $*: $(cat err)"; return; }
  python3 - "$lines" <<'PY' || fail "bench $*"
import json, sys
FIELDS = """elements items density pattern codec cells view index grain phase backend threads workers encode_s decode_s
memcpy_s message_bytes index_bytes payload_bytes dense_bytes lower_bound_bytes rounds lost wrong""".split()
reports = [json.loads(line) for line in open("out.jsonl")]
assert len(reports) == int(sys.argv[1]), f"{len(reports)} configurations"
for report in reports:
    missing = [field for field in FIELDS if report.get(field) is None]
    assert not missing, f"fields {missing} are missing"
    assert report["wrong"] == 0, report
    assert report["message_bytes"] == report["index_bytes"] + report["payload_bytes"], report
PY
}

# expect PYTHON: a fact about `reports`, the last sweep.
expect() {
  python3 -c "import json; reports = [json.loads(line) for line in open('out.jsonl')]; assert $1" 2>/dev/null ||
    fail "expected $1"
}

# refuse CODE WORDS OPTIONS...: exit code CODE and a sentence with these words.
refuse() {
  local code="$1" words="$2"
  shift 2
  "$peel" bench codec --elements 1000 --repeat 1 "$@" >out 2>err
  local got=$?
  [ "$got" = "$code" ] || fail "bench $* ended with $got instead of $code"
  grep -q -- "$words" err || fail "bench $* said: $(cat err)"
}

bench 48 --elements 20011 --density 0.02,50% --pattern uniform,runs:9,rows:48,stride:33 --codec packed,sketch \
  --workers 1,2,4
expect "all(abs(r['density'] - (0.02 if i < 6 else 0.5)) < 0.01 for i, r in enumerate(reports[:12]))"
bench 16 --elements 2^14 --density 0.05 --pattern rows:16 --codec packed,sketch --index bitmap,list --view dense,sparse \
  --backend auto,reference --workers 3 --threads 2
expect "all(r['grain'] == 16 and r['phase'] == 0 for r in reports if r['codec'] == 'packed' and r['index'] == 'bitmap')"
bench 6 --elements 20011 --density 0.05 --index bitmap,bloom,list --grain 8 --phase 3 --workers 2 --codec packed,sketch
expect "[r['index'] for r in reports] == ['bitmap', 'bloom', 'list'] * 2"
for type in float64 float16 bfloat16 int8 int16 int32 int64; do
  bench 8 --elements 5003 --density 0.05 --type "$type" --codec packed,sketch --grain 1,4 --view dense,sparse --workers 3
done
bench 4 --elements 5003 --density 0.05 --codec sketch --cells fixed32,fixed64 --view dense,sparse --workers 5
bench 1 --elements 5003 --density 0.05 --codec sketch --cells float32 --workers 5
bench 1 --elements 2^40 --density 1e-8 --pattern rows:64 --grain 1024 --view sparse --index list
bench 3 --elements 0,1,2 --density 1

# A payload that is too small loses items, which an estimate then fills in; neither is wrong.
bench 2 --elements 2^16 --density 0.1 --codec sketch --grain 1 --payload-ratio auto,0.08 --workers 2
expect "reports[0]['lost'] == 0 < reports[1]['lost'] and reports[1]['payload_bytes'] <= 0.09 * 2**18"
bench 2 --elements 2^16 --density 0.1 --codec sketch --grain 1 --payload-ratio 0.08 --workers 2 --view dense,sparse \
  --estimate
expect "all(0 < r['mean_relative_error'] <= r['max_relative_error'] for r in reports)"

# A GPU is measured where there is one; elsewhere a sentence says what is missing.
if "$peel" doctor --json - | python3 -c 'import json, sys; sys.exit(not json.load(sys.stdin)["gpus"])'; then
  bench 12 --backend cuda --elements 50021 --density 0.02,30% --codec packed,sketch --workers 1,2,3
  expect "all(r['backend'] == 'cuda' and r['share'] > 0 and r['roofline_s'] > 0 and r['gpu'] for r in reports)"
  bench 4 --backend cuda --elements 2^16 --density 0.05 --pattern rows:16 --codec packed,sketch --index bitmap,bloom \
    --cold-l2
  expect "all(r['cold_l2'] and r['lost'] == 0 for r in reports)"
  refuse 2 "dense" --backend cuda --view sparse
else
  refuse 1 "GPU\\|came without" --backend cuda
fi

# The same seed, the same gradients and messages.
"$peel" bench codec --elements 20011 --repeat 1 --seed 7 --workers 2 --json a.jsonl || fail "a file for JSON"
"$peel" bench codec --elements 20011 --repeat 1 --seed 7 --workers 2 --json b.jsonl || fail "a file for JSON"
python3 - <<'PY' || fail "runs with the same seed differ"
import json
a, b = (json.load(open(name)) for name in ("a.jsonl", "b.jsonl"))
assert all(a[key] == b[key] for key in a if not key.endswith("_s")), (a, b)
PY

# Saved gradients and masks, one file per worker; their names may stand among other patterns.
python3 - <<'PY'
import random, struct
def save(name, descr, code, values):
    text = repr({"descr": descr, "fortran_order": False, "shape": (len(values),)}).encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    data = struct.pack(f"<{len(values)}{code}", *values)
    open(name, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data)
for worker in range(4):
    rng = random.Random(worker)
    values = [rng.gauss(0, 10 ** rng.uniform(-12, 0)) if rng.random() < 0.1 else 0.0 for _ in range(3001)]
    save(f"m{worker}.npy", "|b1", "?", [x != 0 for x in values])
    save(f"f{worker}.npy", "<f4", "f", values)
    save(f"h{worker}.npy", "<f2", "e", values)
    save(f"d{worker}.npy", "<f8", "d", values)
save("nan.npy", "<f4", "f", [0.0, 1.0, float("nan")] * 500 + [float("inf")])
save("int.npy", "<i4", "i", [1, 2, 3])
PY
bench 4 --elements 3000 --pattern npy:m0.npy,m1.npy,m2.npy,m3.npy,uniform --codec packed,sketch
expect "[r['workers'] for r in reports] == [4, 4, 1, 1] and [r['elements'] for r in reports] == [3001] * 2 + [3000] * 2"
for kind in f h d; do
  bench 12 --pattern "npy:${kind}0.npy,${kind}1.npy,${kind}2.npy,${kind}3.npy" --workers 1,2,4 --codec packed \
    --cells native,fixed32 --view dense,sparse
  bench 12 --pattern "npy:${kind}0.npy,${kind}1.npy,${kind}2.npy,${kind}3.npy" --workers 1,2,4 --codec sketch \
    --cells fixed32,fixed64 --view dense,sparse
done
bench 1 --pattern npy:nan.npy --codec packed
refuse 1 "Element 2 " --pattern npy:nan.npy --codec sketch
refuse 1 "int.npy holds int32" --pattern npy:int.npy
refuse 1 "different types" --pattern npy:f0.npy,h1.npy
refuse 1 "same number" --pattern npy:f0.npy,nan.npy
refuse 2 "5 workers need as many files" --pattern npy:f0.npy --workers 5
refuse 1 "cannot open" --pattern npy:absent.npy

refuse 2 "is not a pattern" --pattern zigzag
refuse 2 "at least 1" --pattern runs:0
refuse 2 "do not fit" --pattern runs:1001
refuse 2 "does not fit" --pattern stride:1001
refuse 2 "power of two" --grain 3
refuse 2 "below the grain" --grain 4 --phase 4
refuse 2 "leave out --phase" --phase 4
refuse 2 "share such as" --density 1.5
refuse 2 "payload-ratio" --payload-ratio none --codec sketch
refuse 2 "only a sketch" --payload-ratio 0.1 --codec packed
refuse 2 "view" --view sideways
refuse 2 "at least 1" --workers 0
refuse 2 "is not exact in bfloat16" --type bfloat16 --workers 300

[ "$failures" = 0 ] || exit 1
echo "all passed"
