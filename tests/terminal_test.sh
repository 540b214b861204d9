#!/usr/bin/env bash
# What people see of the program: text that fits 80 columns, colours and progress on a terminal, and neither of them
# anywhere else.
set -u

here="$(cd "$(dirname "$0")" && pwd)"
. "$here/program.sh"
unset NO_COLOR PEEL_SWITCH_SECRET
export TERM=xterm

# fits WORDS OPTIONS...: the program ends well, says WORDS, and no line of what it prints is wider than 80 columns.
fits() {
  local words="$1" wide
  shift
  "$peel" "$@" >shown 2>err || fail "peel $*: $(cat err)"
  grep -q -- "$words" shown || fail "peel $* says nothing of '$words': $(cat shown)"
  wide="$(awk 'length > 80' shown)"
  [ -z "$wide" ] || fail "peel $* prints lines of more than 80 columns: $wide"
}

python3 - <<'PY'
import random, struct
for worker in range(2):
    rng = random.Random(worker)
    values = [rng.randrange(1, 9) if rng.random() < 0.1 else 0 for _ in range(50021)]
    text = repr({"descr": "<f4", "fortran_order": False, "shape": (len(values),)}).encode().ljust(117) + b"\n"
    name = f"gradient_of_worker_{worker}_after_step_1200_of_the_second_run.npy"
    open(name, "wb").write(b"\x93NUMPY\x01\0" + struct.pack("<H", 118) + text + struct.pack(f"<{len(values)}f", *values))
PY
cp gradient_of_worker_0_*.npy a.npy
cp gradient_of_worker_1_*.npy b.npy
"$peel" encode -q --codec sketch a.npy b.npy || fail "encode"

fits 'lower bound' inspect gradient_*.npy
fits 'fingerprint' show a.npy.peel b.npy.peel
fits 'It pays' plan --elements 2^26 --density 1% --workers 4 --bandwidth 10gbit
fits 'It does not pay' plan --elements 2^26 --density 0.9 --workers 4 --bandwidth 1000gbit
fits 'times as fast' plan --elements 1e12 --density 1e-7 --workers 4096 --bandwidth 1mbit --type bfloat16 --grain 1024
fits 'packed native' bench codec --elements 20011 --density 0.02 --codec packed,sketch --grain 16 --phase 5 --repeat 1
fits 'second_run.npy, ' bench codec --pattern "npy:$(echo gradient_of_worker_0_*.npy)" --codec packed,sketch --repeat 1
fits 'estimated' bench codec --elements 2^16 --density 0.1 --codec sketch --grain 1 --payload-ratio 0.08 --estimate --repeat 1
fits 'independent; dense: ' bench allreduce --elements 20011 --density 0.05 --overlap independent,full \
  --strategy dense,packed,sketch,split,gather,auto --warmup 1 --repeat 1
fits 'self-check' doctor
PEEL_MODULES="/a/folder/$(printf 'with-a-long-name/%.0s' 1 2 3 4 5 6)" fits 'missing' doctor
for path in '' encode merge decode show plan inspect bench 'bench codec' 'bench allreduce' demo doctor completion; do
  # shellcheck disable=SC2086
  fits Usage $path --help
done

# Words that pay are green, headings bold and failures red, on a terminal and nowhere else.
escape="$(printf '\033')"
on_terminal() { python3 "$here/on_terminal.py" "$@"; }
plan=(plan --elements 2^26 --density 1% --workers 4 --bandwidth 10gbit)
on_terminal "$peel" "${plan[@]}" >shown || fail "plan on a terminal"
grep -q "${escape}\[1mstrategy" shown || fail "a heading is not bold: $(cat -v shown)"
grep -q "${escape}\[32m.*It pays" shown || fail "what pays is not green: $(cat -v shown)"
on_terminal "$peel" show absent.peel >shown
grep -q "${escape}\[31mpeel:" shown || fail "a failure is not red: $(cat -v shown)"
NO_COLOR=1 on_terminal "$peel" "${plan[@]}" >shown
! grep -q "$escape" shown || fail "NO_COLOR has colours: $(cat -v shown)"
TERM=dumb on_terminal "$peel" "${plan[@]}" >shown
! grep -q "$escape" shown || fail "a dumb terminal has colours: $(cat -v shown)"
"$peel" "${plan[@]}" >shown
! grep -q "$escape" shown || fail "a pipe has colours: $(cat -v shown)"

# Progress: what is done, its share and, once that can be known, the time left. The line is cleared in the end.
on_terminal "$peel" encode -f a.npy b.npy >shown || fail "encode on a terminal"
grep -q 'a.npy : planning *[0-9]*%' shown || fail "no progress of encode: $(cat -v shown)"
on_terminal "$peel" merge -f a.npy.peel b.npy.peel -o sum.peel >shown || fail "merge on a terminal"
grep -q 'merging *[0-9]*%' shown || fail "no progress of merge: $(cat -v shown)"
on_terminal "$peel" decode -f sum.peel -o sum.npy >shown || fail "decode on a terminal"
grep -q 'decoding *[0-9]*%' shown || fail "no progress of decode: $(cat -v shown)"
on_terminal "$peel" inspect a.npy b.npy >shown || fail "inspect on a terminal"
grep -q 'reading *[0-9]*%' shown || fail "no progress of inspect: $(cat -v shown)"
on_terminal "$peel" bench allreduce --elements 2^16 --warmup 1 --repeat 1 >shown || fail "bench allreduce on a terminal"
grep -q 'uniform, 4 workers *[0-9]*%' shown || fail "no progress of bench allreduce: $(cat -v shown)"
tail -n 1 shown | grep -q 'ok' || fail "progress hides the last row: $(cat -v shown)"
on_terminal --until ' left' "$peel" bench codec --elements 2^24 --repeat 1000 >shown ||
  fail "bench codec never says how long it takes: $(cat -v shown)"
TERM=dumb on_terminal "$peel" inspect a.npy b.npy >shown || fail "inspect on a dumb terminal"
! grep -q '%.*reading\|reading.*%' shown || fail "a dumb terminal shows progress: $(cat -v shown)"
"$peel" bench codec --elements 2^16 --repeat 1 >/dev/null 2>err || fail "bench codec"
[ ! -s err ] || fail "progress goes into a pipe: $(cat -v err)"

# A switch with a job that waits for its second worker.
if "$peel" switch --help >/dev/null 2>&1; then
  (umask 077 && echo "a secret that nobody guesses" >secret)
  "$peel" switch --listen 127.0.0.1:0 --secret-file secret >out 2>log &
  switch=$!
  trap 'kill "$switch" "${worker:-}" 2>/dev/null; rm -rf "$work"' EXIT
  for _ in $(seq 600); do
    if grep -q listening out || ! kill -0 "$switch" 2>/dev/null; then break; fi
    sleep 0.05
  done
  address="$(sed -nE 's/^listening on ([0-9.:]+),.*/\1/p' out)"
  access=(--switch "$address" --secret-file secret)
  "$peel" bench switch "${access[@]}" --job "a job whose name is long" --workers 2 --rank 0 >/dev/null 2>&1 &
  worker=$!
  for _ in $(seq 600); do
    "$peel" switch status --connect "$address" --secret-file secret --json >status.json || break
    if grep -q '"jobs_now":1' status.json; then break; fi
    sleep 0.05
  done
  fits 'a job whose nam\.\. ' switch status --connect "$address" --secret-file secret
  "$peel" switch status --json status.file --connect "$address" --secret-file secret || fail "the status in a file"
  grep -q '"jobs_now":1' status.file || fail "the status in a file: $(cat status.file)"
  kill "$worker"
  wait "$worker" 2>/dev/null
  fits 'collectives' bench switch "${access[@]}" --words 4096 --repeat 4
  on_terminal "$peel" bench switch "${access[@]}" --words 4096 --repeat 4 >shown || fail "bench switch on a terminal"
  grep -q 'words each *[0-9]*%' shown || fail "no progress of bench switch: $(cat -v shown)"
  kill "$switch"
  wait "$switch"
fi

[ "$failures" -eq 0 ] && echo "all passed"
exit $((failures != 0))
