#!/usr/bin/env bash
# bench/network/run, in short: sums on rate-limited links are right, bytes and fields are there, and neither a finished
# run nor an interrupted one leaves anything behind. Skipped where namespaces cannot be made.
set -u

peel="${PEEL:?PEEL must be the path of the program}"
run="${SOURCE_DIR:?SOURCE_DIR must be the root of the sources}/bench/network/run"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

if ! "$run" --possible --program "$peel" 2>why; then
  echo "skipped: $(cat why)"
  exit 0
fi

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# left PID: what a run with this process id has left: namespaces, processes in them, files.
left() {
  ip netns list | grep "^peelnet$1-"
  ls -d "${TMPDIR:-/tmp}/peelnet-$1-"* 2>/dev/null
}

# A slow link: then a busy machine can still fill it.
"$run" --check --hosts 3 --rate 100mbit --program "$peel" --elements 2^18 --density 0.02,0.5 \
  --strategy dense,packed,sketch,split,gather,auto --warmup 2 --repeat 2 >out.jsonl 2>err &
pid=$!
wait "$pid" || fail "the run: $(cat err)"
[ -z "$(left "$pid")" ] || fail "a finished run left $(left "$pid")"
python3 - <<'PY' || fail "the results"
import json
FIELDS = """hosts rate_bits link_share transport elements density pattern overlap strategy chosen grain seconds baseline
baseline_seconds speedup bytes_sent dense_bytes rounds lost wrong repaired rescaled encode_s wire_s decode_s algbw busbw
workspace_bytes""".split()
reports = [json.loads(line) for line in open("out.jsonl")]
assert len(reports) == 12, f"{len(reports)} configurations"
for report in reports:
    missing = [field for field in FIELDS if report.get(field) is None]
    assert not missing, f"fields {missing} are missing"
    assert report["hosts"] == 3 and report["rate_bits"] == 1e8, report
    assert report["wrong"] == 0 and report["lost"] == 0, report
    assert set(report["baselines"]) == {"mpi-default", "mpi-ring"}, report
    # What is sent takes its time: the links are really limited, and a burst does not help.
    assert report["seconds"] >= 8 * report["bytes_sent"] / report["rate_bits"], report
    assert 0 < report["link_share"] <= 1, report
PY

# Through a switch, with the same fields. Baselines are MPI's in the same run.
"$run" --transport switch --check --hosts 3 --rate 100mbit --program "$peel" --elements 2^18 --density 0.02 \
  --warmup 2 --repeat 2 >switch.jsonl 2>err || fail "the run through a switch: $(cat err)"
"$run" --transport switch --check --hosts 3 --rate 100mbit --program "$peel" --elements 2^18 --type int32 \
  --strategy dense --warmup 1 --repeat 2 >>switch.jsonl 2>err || fail "the dense run through a switch: $(cat err)"
python3 - <<'PY' || fail "the results through a switch"
import json
first = json.loads(open("out.jsonl").readline())
reports = [json.loads(line) for line in open("switch.jsonl")]
assert len(reports) == 4, f"{len(reports)} configurations"
for report in reports:
    assert set(report) == set(first), set(report) ^ set(first)
    assert report["transport"] == "switch" and report["wrong"] == 0 and report["lost"] == 0, report
    assert set(report["baselines"]) == {"mpi-default", "mpi-ring"}, report
# A dense array crosses each link once in each direction: it cannot be faster than the rate.
dense = reports[3]
assert dense["seconds"] >= 4 * 8 * 2**18 / 1e8, dense
PY

# Interrupted in the middle, by the terminal (to the run alone: it passes the interrupt on) and by a supervisor.
for signal in INT TERM; do
  # A shell starts what runs behind it with interrupts ignored; python3 gives them back.
  python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
os.execv(sys.argv[1], sys.argv[1:])' \
    "$run" --check --hosts 2 --rate 100mbit --program "$peel" --elements 2^22 --repeat 1000 >/dev/null 2>err &
  pid=$!
  for _ in $(seq 100); do
    ip netns pids "peelnet$pid-0" 2>/dev/null | grep -q . && break
    sleep 0.1
  done
  sleep 1
  kill "-$signal" "$pid"
  wait "$pid"
  code=$?
  [ "$code" -eq $((128 + $(kill -l "$signal"))) ] || fail "SIG$signal gives the exit code $code: $(cat err)"
  [ -z "$(left "$pid")" ] || fail "SIG$signal left $(left "$pid")"
done

# What a run leaves that was killed outright, the next one removes.
"$run" --check --hosts 2 --rate 100mbit --program "$peel" --elements 2^22 --repeat 1000 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do
  ip netns list | grep -q "^peelnet$pid-1" && break
  sleep 0.1
done
kill -KILL "$pid"
wait "$pid" 2>/dev/null
"$run" --possible --program "$peel" || fail "cannot run after a killed run"
[ -z "$(left "$pid")" ] || fail "the next run did not remove $(left "$pid")"

[ "$failures" -eq 0 ] && echo "network_test: passed"
exit $((failures != 0))
