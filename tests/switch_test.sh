#!/usr/bin/env bash
# peel switch from outside: it serves workers of peel bench allreduce, tells how it is doing in three formats, lets nobody
# in without the secret, and ends when it is told to.
set -u

. "$(dirname "$0")/program.sh"

if ! "$peel" switch --help >/dev/null 2>&1; then
  echo "skipped: this build has no switch"
  exit 0
fi
umask 077
echo "a secret that nobody guesses" >secret
echo "another one that nobody guesses" >wrong
unset PEEL_SWITCH_SECRET

# Three ports in a row: one for control packets, and one for each of two threads. Below those that the kernel gives to
# others; another test may take them in between, so the start is tried again.
start_switch() {
  port="$(python3 -c '
import random
lowest = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
print(random.randrange(10000, (lowest if lowest > 20000 else 65535) - 3))')"
  address="127.0.0.1:$port"
  "$peel" switch --listen "$address" --threads 2 --secret-file secret >out 2>err &
  switch=$!
  for _ in $(seq 1200); do
    grep -q listening out && return 0
    kill -0 "$switch" 2>/dev/null || return 1
    sleep 0.05
  done
  return 1
}
trap 'kill "$switch" 2>/dev/null; rm -rf "$work"' EXIT
for _ in 1 2 3 4 5; do
  start_switch && break
  grep -q "Choose another address" err || break
done
grep -q "listening on $address" out || fail "the switch does not start: $(cat err)"

"$peel" bench allreduce --transport switch --switch "$address" --secret-file secret --workers 3 --elements 2^18 \
  --density 0.02 --strategy packed,sketch,auto --warmup 1 --repeat 2 --json - >floats.jsonl || fail "sums of floats"
"$peel" bench allreduce --transport switch --switch "$address" --secret-file secret --workers 2 --elements 2^18 \
  --type int32,int64,int16 --strategy dense --mtu 1500 --warmup 1 --repeat 2 --json - >integers.jsonl || fail "integers"
"$peel" switch status --connect "$address" --secret-file secret --json - >status.json || fail "the status as JSON"
python3 - <<'PY' || fail "what the switch did"
import json
reports = [json.loads(line) for name in ("floats", "integers") for line in open(name + ".jsonl")]
assert len(reports) == 6 and all(r["transport"] == "switch" for r in reports), reports
assert all(r["wrong"] == 0 and r["lost"] == 0 for r in reports), reports
status = json.load(open("status.json"))
assert status["rounds"] > 1000 and status["jobs_now"] == 0 and status["slots_held"] == 0, status
assert status["combined"] >= 2 * status["rounds"], status
assert status["dropped"]["corrupt"] == 0 and status["dropped"]["forged"] == 0, status
PY
"$peel" switch status --connect "$address" --secret-file secret | grep -q "rounds complete" || fail "the status as a table"
PEEL_SWITCH_SECRET="a secret that nobody guesses" "$peel" switch status --connect "$address" --prometheus >metrics || fail "Prometheus text"
grep -qE '^peel_switch_dropped_packets_total\{reason="corrupt"\} 0$' metrics || fail "metrics: $(cat metrics)"

# refuses CODE WORDS OPTIONS...
refuses() {
  local code="$1" words="$2"
  shift 2
  "$peel" "$@" >/dev/null 2>refusal
  [ $? -eq "$code" ] || fail "$* does not exit with $code"
  grep -q -- "$words" refusal || fail "$* says: $(cat refusal)"
}
refuses 1 "another secret" switch status --connect "$address" --timeout 5 --secret-file wrong
refuses 1 "did not answer" switch status --connect 127.0.0.1:9 --timeout 0.2 --secret-file secret
refuses 1 "needs a secret" switch status --connect "$address"
refuses 1 "Choose another address" switch --listen "$address" --secret-file secret
refuses 2 "" switch --plane p4
refuses 2 "needs the ports" switch --plane xdp --secret-file secret
refuses 2 "is for --plane xdp" switch --interface lo --secret-file secret
refuses 1 "needs the IPv4 address\|came without" switch --plane xdp --interface lo --secret-file secret
grep -q "came without" refusal ||
  refuses 2 "at most 3400" switch --plane xdp --interface lo --mtu 9000 --secret-file secret
refuses 1 "adds integers only" bench allreduce --transport switch --switch "$address" --secret-file secret --strategy dense

kill -TERM "$switch"
wait "$switch"
[ $? -eq 0 ] || fail "SIGTERM does not end it well"

[ "$failures" -eq 0 ] && echo "all passed"
exit $((failures != 0))
