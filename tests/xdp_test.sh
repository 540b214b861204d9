#!/usr/bin/env bash
# peel switch --plane xdp from outside, in network namespaces: workers at ports of their own get every sum right, in the
# driver and, where it takes no program, behind it; status tells of the kernel's counts; it serves without privileges; and
# nothing stays at the ports.
# Skipped, with the reason, where namespaces or XDP are not allowed at all; a kernel that takes some program must take ours.
set -u

. "$(dirname "$0")/program.sh"
packets="${SOURCE_DIR:?SOURCE_DIR must be the root of the sources}/bench/network/packets"

"$packets" --possible --links veth --plane xdp --program "$peel" >/dev/null 2>why
case $? in
  0) ;;
  3) echo "skipped: $(tr '\n' ' ' <why)"; exit 0 ;;
  *) fail "whether it is possible: $(cat why)"; exit 1 ;;
esac
grep -q "port1 is a virtual link" why || fail "no advice for virtual links: $(cat why)"

"$packets" --links veth --words 100000 --repeat 8 --program "$peel" >planes.jsonl 2>err || fail "both planes: $(cat err)"
"$packets" --links veth --plane xdp --mtu 3400 --hosts 2 --words 100000 --repeat 4 --program "$peel" >>planes.jsonl 2>err ||
  fail "large packets: $(cat err)"
python3 - <<'PY' || fail "what the planes did"
import json
runs = [json.loads(line) for line in open("planes.jsonl")]
assert [run["plane"] for run in runs] == ["udp", "xdp", "xdp"], runs
assert all(run["wrong"] == 0 for run in runs), runs
# 358 words to a packet; every packet came, some again.
assert runs[0]["rounds"] == runs[1]["rounds"] == 8 * -(-100000 // 358), runs
assert runs[2]["rounds"] == 4 * -(-100000 // 833), runs
assert all(run["packets"] >= run["hosts"] * run["rounds"] for run in runs), runs
PY

# Ports that are bridges take no program in their driver.
base="peelxdp$$"
(umask 077; echo "4f1c09d2a7b35e68" >secret)
trap 'for name in switch 0 1; do
  ip netns pids "$base-$name" 2>/dev/null | xargs -r kill 2>/dev/null
  ip netns delete "$base-$name" 2>/dev/null
done
rm -rf "$work"' EXIT
in_switch() { ip netns exec "$base-switch" "$@"; }
ip netns add "$base-switch"
ip -n "$base-switch" link set lo up
ip -n "$base-switch" address add 10.9.0.254/32 dev lo
for i in 0 1; do
  ip netns add "$base-$i"
  ip -n "$base-switch" link add "bridge$i" type bridge
  ip -n "$base-switch" address add "10.9.$((i + 1)).254/24" dev "bridge$i"
  ip -n "$base-switch" link add "port$i" type veth peer name eth0 netns "$base-$i"
  ip -n "$base-switch" link set "port$i" master "bridge$i" up
  ip -n "$base-switch" link set "bridge$i" up
  ip -n "$base-$i" link set eth0 up
  ip -n "$base-$i" address add "10.9.$((i + 1)).1/24" dev eth0
  ip -n "$base-$i" route add default via "10.9.$((i + 1)).254"
  ip netns exec "$base-$i" ethtool -K eth0 tx-udp-segmentation off
done
# listens FILE: until a switch says so there.
listens() {
  for _ in $(seq 100); do
    grep -q listening "$1" && return
    sleep 0.05
  done
  fail "it does not listen: $(cat "$1")"
}
# sums NAME ADDRESS: two workers at ports of their own.
sums() {
  local pids=() i pid
  for i in 0 1; do
    ip netns exec "$base-$i" "$peel" bench switch --switch "$2" --secret-file secret --rank "$i" --workers 2 \
      --words 100000 --repeat 4 --json - >"$1$i" 2>&1 &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid" || fail "$1: $(cat "$1"0 "$1"1)"; done
  grep -q '"wrong":0' "$1"1 || fail "$1: $(cat "$1"1)"
}
in_switch "$peel" switch --plane xdp --interface bridge0,bridge1 --listen '[::1]:7077' --secret-file secret >out 2>err &&
  fail "IPv6"
grep -q -- "--plane udp for IPv6" err || fail "IPv6: $(cat err)"
ip netns exec "$base-switch" "$peel" switch --plane xdp --interface bridge0,bridge1 --listen 10.9.0.254 --secret-file secret >out 2>err &
switch=$!
listens out
grep -q "the driver of bridge1 takes no XDP program, so it runs in generic mode" err || fail "no message: $(cat err)"
sums generic 10.9.0.254
# While it serves, no thread of it has any privilege left. Under a sanitizer, which makes system calls of its own, these are
# not filtered.
seccomp=2
[ -z "${PEEL_SANITIZED:-}" ] || seccomp=0
for task in "/proc/$switch/task"/*; do
  for line in CapInh:0000000000000000 CapPrm:0000000000000000 CapEff:0000000000000000 CapBnd:0000000000000000 \
    CapAmb:0000000000000000 NoNewPrivs:1 "Seccomp:$seccomp"; do
    tr -d '\t' <"$task/status" | grep -qx "$line" || fail "privileges: $line, but $(grep "${line%%:*}" "$task/status")"
  done
done
# It can still read its secrets again: a second one lets workers in, and the log tells of it.
mv secret old
(umask 077; echo "b2e47a90c6d1f358" >secret)
kill -HUP "$switch"
for _ in $(seq 100); do
  grep -q reload err && break
  sleep 0.05
done
grep -q reload err || fail "no line about new secrets: $(cat err)"
sums reloaded 10.9.0.254
# A switch in user space beside it, at another port of the same address: both serve at once.
ip netns exec "$base-switch" "$peel" switch --listen 10.9.0.254:7177 --secret-file secret >beside 2>&1 &
beside=$!
listens beside
(sums kernel 10.9.0.254) &
both=$!
sums user 10.9.0.254:7177
wait "$both"
grep -q '"wrong":0' kernel1 || fail "two planes: $(cat kernel1)"
kill "$beside"
wait "$beside" || fail "the switch beside it: $(cat beside)"
# Two workers at one port: both learn soon that the job cannot be.
pids=()
for i in 0 1; do
  ip netns exec "$base-0" timeout 5 "$peel" bench switch --switch 10.9.0.254 --secret-file secret --rank "$i" --workers 2 \
    --words 1000 >"worker$i" 2>&1 &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" && fail "two workers at one port"; done
for i in 0 1; do grep -q "a port of its own" "worker$i" || fail "one port, worker $i: $(cat "worker$i")"; done
# A worker that comes by no port of the switch learns it too.
in_switch timeout 5 "$peel" bench switch --switch 10.9.0.254 --secret-file secret --rank 0 --workers 2 --words 1000 \
  >elsewhere 2>&1 && fail "a worker without a port"
grep -q "a port of its own" elsewhere || fail "a worker without a port: $(cat elsewhere)"
in_switch "$peel" switch status --connect 10.9.0.254 --secret-file secret | grep -q "rounds complete" || fail "the status"
in_switch ip link show bridge0 | grep -q xdp || fail "the program is not at its port"
kill -KILL $(ip netns pids "$base-switch")
wait "$switch" 2>/dev/null
sleep 0.2
in_switch ip link show bridge0 | grep -q xdp && fail "a killed switch leaves its program behind"

[ "$failures" -eq 0 ] && echo "all passed"
exit $((failures != 0))
