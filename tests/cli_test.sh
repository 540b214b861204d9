#!/usr/bin/env bash
# The program from outside: files, pipes, what it refuses, and its exit codes. PEEL is the program under test. Arrays
# are written and read by a few lines of Python, without NumPy.
set -u

data="$(cd "$(dirname "$0")/data" && pwd)"
. "$(dirname "$0")/program.sh"
export NO_COLOR=1  # terminal_test.sh looks at colours

cat > array.py <<'PY'
"""array.py make FILE TYPE SEED: a sparse vector; mask FILE SEED; sum OUT A B...: their exact sum; same A B."""
import random, struct, sys

CODES = {"<f4": "f", "<f8": "d", "|i1": "b", "<i2": "h", "<i4": "i", "<i8": "q", "|b1": "?", "<f2": "e", "<V2": "H"}

def save(path, descr, values, shape=None, version=1, fortran=False):
    text = repr({"descr": descr, "fortran_order": fortran, "shape": shape or (len(values),)}).encode()
    size = struct.calcsize("<H" if version == 1 else "<I")
    text += b" " * (-(8 + size + len(text) + 1) % 64) + b"\n"
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    data = struct.pack(f"<{len(values)}{CODES[descr]}", *values)
    open(path, "wb").write(b"\x93NUMPY" + bytes([version, 0]) + length + text + data)

def load(path):
    raw = open(path, "rb").read()
    assert raw[:6] == b"\x93NUMPY", path
    start = 8 + (2 if raw[6] == 1 else 4)
    length = struct.unpack("<H" if raw[6] == 1 else "<I", raw[8:start])[0]
    header = eval(raw[start:start + length])
    code = CODES[header["descr"]]
    values = struct.unpack(f"<{(len(raw) - start - length) // struct.calcsize('<' + code)}{code}", raw[start + length:])
    assert header["shape"] == (len(values),), (path, header)
    return header["descr"], values

def sparse(seed, size=5003):
    rng = random.Random(seed)
    values = [0] * size
    for _ in range(20):  # runs, at the same places for all seeds in part
        start = random.Random(seed % 2 + rng.randrange(10)).randrange(size)
        for i in range(start, min(size, start + 16)):
            values[i] = rng.randrange(-8, 9)
    return values

command, arguments = sys.argv[1], sys.argv[2:]
if command == "make":
    save(arguments[0], arguments[1], sparse(int(arguments[2])))
elif command == "mask":
    save(arguments[0], "|b1", [x != 0 for x in sparse(int(arguments[1]))])
elif command == "shaped":  # FILE VERSION FORTRAN: 0..59 as 3 x 4 x 5
    shape, fortran = (3, 4, 5), arguments[2] == "fortran"
    cells = [(i, j, k) for i in range(3) for j in range(4) for k in range(5)]
    if fortran:
        cells.sort(key=lambda c: c[::-1])
    save(arguments[0], "<i4", [i * 20 + j * 5 + k for i, j, k in cells], shape, int(arguments[1]), fortran)
elif command == "values":  # FILE TYPE VALUE...
    number = float if arguments[1][1] == "f" else int
    save(arguments[0], arguments[1], [number(x) for x in arguments[2:]])
elif command == "sum":
    loaded = [load(path) for path in arguments[1:]]
    save(arguments[0], loaded[0][0], [sum(x) for x in zip(*(values for _, values in loaded))])
elif command == "same":
    (a, x), (b, y) = load(arguments[0]), load(arguments[1])
    wrong = [i for i in range(max(len(x), len(y))) if i >= min(len(x), len(y)) or x[i] != y[i]]
    sys.exit(f"{a} and {b}, {len(x)} and {len(y)} values, {len(wrong)} wrong" if a != b or wrong else 0)
PY
array() { python3 array.py "$@" || fail "array.py $*"; }

checks=0
pass() { checks=$((checks + 1)); }

# runs CODE WORDS -- COMMAND...: the exit code is CODE, and standard error says WORDS (a regular expression; - for
# nothing at all). A complaint is one sentence that starts with the program's name.
runs() {
  local want="$1" words="$2" code
  shift 3
  "$@" 2> stderr.txt
  code=$?
  pass
  [ "$code" = "$want" ] || fail "'$*' ended with $code, not $want: $(cat stderr.txt)"
  if [ "$words" = - ]; then
    [ ! -s stderr.txt ] || fail "'$*' said: $(cat stderr.txt)"
  else
    grep -qE -- "$words" stderr.txt || fail "'$*' said '$(cat stderr.txt)', not '$words'"
    [ "$want" = 0 ] || grep -q '^peel: ' stderr.txt || fail "'$*' did not say who complains: $(cat stderr.txt)"
  fi
}
same() { pass; python3 array.py same "$1" "$2" || fail "$1 and $2 differ"; }
same_bytes() { pass; cmp -s "$1" "$2" || fail "$1 and $2 differ"; }
absent() { pass; [ ! -e "$1" ] || fail "$1 exists"; }
exists() { pass; [ -s "$1" ] || fail "$1 is missing or empty"; }
no_litter() { pass; [ -z "$(find . -name '.peel-*')" ] || fail "partial files were left: $(find . -name '.peel-*')"; }
json() { # FILE PYTHON_CONDITION on `r`, the object of every line
  pass
  python3 -c "import json, sys
for line in open(sys.argv[1]):
    r = json.loads(line)
    assert $2, r" "$1" 2> stderr.txt || fail "$1 is not JSON with $2: $(tail -1 stderr.txt)"
}

round_trips() {
  local type codec index grain
  for type in '<f4' '<f8' '<f2' '|i1' '<i2' '<i4' '<i8'; do
    array make a.npy "$type" 1
    array make b.npy "$type" 2
    array make c.npy "$type" 3
    array sum want.npy a.npy b.npy c.npy
    for codec in packed sketch; do
      for index in auto bitmap bloom list; do
        runs 0 - -- "$peel" encode -f --codec $codec --index $index --headroom 20% a.npy b.npy c.npy
        runs 0 - -- "$peel" merge -f a.npy.peel b.npy.peel c.npy.peel -o sum.peel
        runs 0 - -- "$peel" decode -f sum.peel -o sum.npy
        same sum.npy want.npy
      done
    done
  done
  for grain in 1 2 16 64 1024; do
    runs 0 - -- "$peel" encode -f --grain $grain --codec sketch --headroom 1 a.npy b.npy c.npy
    runs 0 - -- "$peel" merge -f a.npy.peel b.npy.peel c.npy.peel -o sum.peel
    runs 0 - -- "$peel" decode -f sum.peel -o sum.npy
    same sum.npy want.npy
  done
  runs 0 - -- "$peel" encode -f --grain 16 --phase 5 a.npy b.npy
  rm -f a.npy.peel b.npy.peel c.npy.peel sum.peel sum.npy want.npy
}

names_and_overwriting() {
  array make a.npy '<f4' 1
  runs 0 - -- "$peel" encode a.npy
  exists a.npy.peel
  cp a.npy.peel before
  runs 1 'already exists.*-f' -- "$peel" encode a.npy
  same_bytes a.npy.peel before
  runs 1 'already exists' -- "$peel" decode a.npy.peel
  runs 0 - -- "$peel" encode -f a.npy
  same_bytes a.npy.peel before
  mv a.npy kept.npy
  runs 0 - -- "$peel" decode a.npy.peel
  same a.npy kept.npy
  runs 0 'a.npy : .*%.*bytes, packed' -- "$peel" encode -f -v a.npy
  runs 0 - -- "$peel" encode -f -q a.npy
  cp a.npy.peel nameless
  runs 1 'does not end in .peel' -- "$peel" decode nameless
  runs 0 - -- "$peel" decode nameless -o other.npy
  runs 1 'is a directory' -- "$peel" encode a.npy -o .
  runs 1 'cannot write into' -- "$peel" encode a.npy -o nowhere/a.peel
  runs 1 'cannot open missing.npy' -- "$peel" encode missing.npy
  runs 1 'is a directory' -- "$peel" encode .
  runs 0 - -- "$peel" encode -o /dev/null a.npy
  ln -s a.npy.peel link.peel
  runs 0 - -- "$peel" encode -f a.npy -o link.peel
  pass; [ -L link.peel ] || fail "forcing replaced a symbolic link"
  (umask 027 && "$peel" encode a.npy -o modes.peel)
  pass; [ "$(stat -c %a modes.peel)" = 640 ] || fail "a new file has permissions $(stat -c %a modes.peel), not 640"
  no_litter
}

pipes() {
  array make a.npy '<f4' 1
  runs 0 - -- "$peel" encode -f a.npy
  "$peel" encode < a.npy - > piped.peel || fail "encode in a pipe"
  same_bytes piped.peel a.npy.peel
  cat a.npy | "$peel" encode - | cat | "$peel" decode - | cat > piped.npy || fail "pipes end to end"
  same piped.npy a.npy
  "$peel" encode -c a.npy > piped.peel || fail "encode -c"
  same_bytes piped.peel a.npy.peel
  cat a.npy.peel | "$peel" merge - a.npy.peel -c | "$peel" decode - > twice.npy || fail "merge in a pipe"
  array sum want.npy a.npy a.npy
  same twice.npy want.npy
  cat a.npy.peel | "$peel" show - > shown || fail "show in a pipe"
  # Not `head | runs`: failures would be counted in a subshell and forgotten.
  runs 1 'standard input is truncated' -- "$peel" encode - -o none.peel < <(head -c 1000 a.npy)
  runs 1 'standard input is truncated' -- "$peel" decode - -o none.npy < <(head -c 200 a.npy.peel)
  runs 1 'standard input is not a .npy file' -- "$peel" encode - -o none.peel < <(:)
  runs 1 'It is empty' -- "$peel" decode - -o none.npy < <(:)
  absent none.peel
  absent none.npy
  if [ -e /dev/full ]; then
    runs 1 'cannot write' -- "$peel" encode -o /dev/full a.npy
    runs 1 'cannot write standard output' -- "$peel" show a.npy.peel > /dev/full
  fi
  if command -v script > /dev/null; then
    runs 1 'standard output is a terminal' -- bash -c "script -qec \"'$peel' encode -c a.npy 2>&1 >/dev/tty\" /dev/null >&2"
  fi
  no_litter
}

plans() {
  array make a.npy '<f4' 1
  array make b.npy '<f4' 2
  array make long.npy '<f4' 5
  runs 0 - -- "$peel" encode -f --codec sketch --workers 3 --items 2000 a.npy
  runs 0 - -- "$peel" encode -f --like a.npy.peel b.npy
  runs 0 - -- "$peel" merge -f a.npy.peel b.npy.peel -o sum.peel
  runs 0 - -- "$peel" decode -f sum.peel -o sum.npy
  array sum want.npy a.npy b.npy
  same sum.npy want.npy
  runs 0 - -- "$peel" encode -f --codec packed b.npy
  runs 1 'different plans.*codecs sketch and packed.*--like a.npy.peel' -- "$peel" merge a.npy.peel b.npy.peel -o no.peel
  absent no.peel
  runs 1 'room for 3 workers and 4' -- "$peel" merge a.npy.peel a.npy.peel a.npy.peel a.npy.peel -o no.peel
  array values short.npy '<f4' 1 2 3
  runs 1 'has 3 float32 but a.npy.peel is a message of 5,003' -- "$peel" encode --like a.npy.peel short.npy
  runs 1 'one shape and type' -- "$peel" encode -f a.npy short.npy
  array values big.npy '<f4' 1 2 3e9
  runs 0 - -- "$peel" encode -f --codec sketch --grain 1 short.npy
  runs 1 'too large for scale' -- "$peel" encode --like short.npy.peel big.npy
  absent big.npy.peel
  array values nan.npy '<f4' 1 nan 3
  runs 1 'nan.npy: ' -- "$peel" encode --codec sketch nan.npy
  runs 0 - -- "$peel" encode --codec packed nan.npy
  runs 0 - -- "$peel" encode -f --codec sketch --grain 1 --items 4 a.npy
  runs 1 'did not peel.*--estimate' -- "$peel" decode a.npy.peel -o lost.npy
  absent lost.npy
  runs 0 'they were estimated' -- "$peel" decode a.npy.peel --estimate -o lost.npy
  runs 0 'zero in the output' -- "$peel" decode -f a.npy.peel --allow-lost -o lost.npy
  no_litter
}

formats() {
  local version order bad empty
  array shaped plain.npy 1 c
  runs 0 - -- "$peel" encode plain.npy
  for version in 1 2 3; do
    for order in c fortran; do
      array shaped shaped.npy $version $order
      runs 0 - -- "$peel" encode -f shaped.npy
      same_bytes shaped.npy.peel plain.npy.peel
    done
  done
  array values raw.npy '<V2' 16256 0 49152
  runs 1 '--type bfloat16' -- "$peel" encode raw.npy
  runs 0 - -- "$peel" encode --type bfloat16 raw.npy
  runs 0 - -- "$peel" decode raw.npy.peel -o raw2.npy
  same raw2.npy raw.npy
  array values one.npy '<f8' 2.5
  python3 - <<'PY'
def header(text, version=1, magic=b"\x93NUMPY", data=b""):
    length = len(text).to_bytes(2 if version == 1 else 4, "little")
    return magic + bytes([version, 0]) + length + text + data
plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }\n"
bad = {
    "magic": header(b"{}", magic=b"\x93NUMPX"),
    "version": header(b"{}", version=9),
    "endless": header((plain % "9223372036854775807,").encode()),
    "product": header((plain % "4294967296, 4294967296, 4294967296").encode()),
    "digits": header((plain % ("9" * 400)).encode()),
    "dimensions": header((plain % ("1," * 100)).encode()),
    "negative": header((plain % "-1,").encode()),
    "long": header(b"", version=2)[:8] + b"\xff\xff\xff\xff",
    "unclosed": header(b"{'descr': '<f4"),
    "twice": header((plain % "1,").encode() * 2, data=b"1234"),
    "nokey": header(b"{'descr': '<f4', 'fortran_order': False}", data=b"1234"),
    "records": header(b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", data=b"1234"),
    "bigendian": header((plain % "1,").replace("<", ">").encode(), data=b"1234"),
    "complex": header((plain % "1,").replace("f4", "c8").encode(), data=b"12345678"),
    "nodescr": header((plain % "1,").replace("<f4", "").encode(), data=b"1234"),
    "short": header((plain % "2,").encode(), data=b"1234"),
    "trailing": header((plain % "1,").encode(), data=b"12345"),
    "text": b"hello, this is text",
    "tiny": b"\x93",
}
for name, content in bad.items():
    open(f"bad_{name}.npy", "wb").write(content)
for name, shape in {"empty": "0,", "scalar": "", "hollow": "3, 0, 7"}.items():
    open(f"{name}.npy", "wb").write(header((plain % shape).encode(), data=b"\0\0\x80?" if name == "scalar" else b""))
PY
  for bad in bad_*.npy; do
    runs 1 "$bad" -- "$peel" encode "$bad"
    absent "$bad.peel"
  done
  array values want.npy '<f4'
  for empty in empty hollow; do
    runs 0 - -- "$peel" encode $empty.npy
    runs 0 - -- "$peel" decode -f $empty.npy.peel -o none.npy
    same none.npy want.npy
  done
  array values want.npy '<f4' 1
  runs 0 - -- "$peel" encode scalar.npy
  runs 0 - -- "$peel" decode -f scalar.npy.peel -o one.npy
  same one.npy want.npy
  array mask mask.npy 1
  runs 1 'peel inspect' -- "$peel" encode mask.npy
}

# Every way to damage a message is an error, never a crash and never a wrong array.
corruption() {
  local codec i
  for codec in packed sketch; do
    array make a.npy '<f4' 1
    runs 0 - -- "$peel" encode -f --codec $codec a.npy
    python3 - <<'PY'
import random
whole = open("a.npy.peel", "rb").read()
rng = random.Random(7)
for i in range(24):
    at = rng.randrange(len(whole)) if i >= 12 else rng.randrange(160)
    damaged = bytearray(whole)
    damaged[at] ^= 1 << rng.randrange(8)
    open(f"damaged{i}.peel", "wb").write(damaged)
for i, length in enumerate([1, 31, 32, 127, 128, 129, len(whole) // 2, len(whole) - 1]):
    open(f"damaged{24 + i}.peel", "wb").write(whole[:length])
open("damaged32.peel", "wb").write(whole + b"x")
open("damaged33.peel", "wb").write(whole + whole)
PY
    for i in $(seq 0 33); do
      runs 1 "damaged$i.peel" -- "$peel" decode damaged$i.peel -o damaged.npy
      runs 1 "damaged$i.peel" -- "$peel" show damaged$i.peel
      runs 1 'standard input' -- "$peel" merge - a.npy.peel -o damaged.sum < <(cat damaged$i.peel)
      absent damaged.npy
      absent damaged.sum
    done
  done
  runs 1 'a.npy is not a whole message' -- "$peel" show a.npy
}

reports() {
  array make a.npy '<f4' 1
  array make b.npy '<f4' 2
  array mask mask.npy 3
  runs 0 - -- "$peel" encode -f a.npy b.npy
  "$peel" show a.npy.peel b.npy.peel > shown || fail "show"
  pass; grep -q 'fingerprint' shown || fail "show says nothing of the plan"
  "$peel" show --json - a.npy.peel b.npy.peel > shown.json || fail "show --json"
  json shown.json 'r["elements"] == 5003 and r["codec"] == "packed" and r["type"] == "float32"'
  runs 0 - -- "$peel" show --json file.json a.npy.peel
  json file.json 'r["message_bytes"] == r["index_bytes"] + r["payload_bytes"]'
  "$peel" inspect a.npy b.npy mask.npy > inspected || fail "inspect"
  pass; grep -q 'union' inspected || fail "inspect says nothing of the union"
  "$peel" inspect --json - a.npy b.npy > inspected.json || fail "inspect --json"
  json inspected.json 'len(r["workers"]) == 2 and 0 < r["density"] < 1 and len(r["sizes"]) >= 6'
  json inspected.json 'r["nonzeros"] <= sum(w["nonzeros"] for w in r["workers"])'
  json inspected.json 'round(r["runs"]["mean"] * r["runs"]["count"]) == r["nonzeros"]'
  python3 - > nonzeros <<'PY'
import struct
def values(path):
    return struct.unpack("<5003f", open(path, "rb").read()[-20012:])
print(sum(x != 0 or y != 0 for x, y in zip(values("a.npy"), values("b.npy"))))
PY
  json inspected.json "r['nonzeros'] == $(cat nonzeros)"
  array values short.npy '<f4' 1 2 3
  runs 1 'same model' -- "$peel" inspect a.npy short.npy
  "$peel" plan --elements 2^26 --density 1% --workers 4 --bandwidth 10gbit --json - > plan.json || fail "plan"
  json plan.json 'r["pays"] and r["dense_bytes"] == 2**28 and r["bandwidth_bit_s"] == 1e10'
  json plan.json 'all(c["speedup"] > 1 for c in r["choices"] if c["strategy"] == "packed")'
  json plan.json '{c["strategy"] for c in r["choices"]} == {"packed", "sketch", "split", "gather"}'
  json plan.json 'r["chosen"] in ("split", "gather") and all(c["latency_s"] > 0 for c in r["choices"])'
  "$peel" plan --elements 2^26 --density 0.9 --workers 4 --bandwidth 1000gbit > plan || fail "plan"
  pass; grep -q 'does not pay' plan || fail "plan does not say when it does not pay"
  "$peel" plan --elements 1e6 --density 0.1 --workers 1 --bandwidth 200mbit | grep -q 'nothing to exchange' ||
    fail "plan of one worker"
  "$peel" doctor > doctor || fail "doctor: $(cat doctor)"
  pass; [ "$(grep -c 'self-check.*ok$' doctor)" -ge 2 ] || fail "doctor checks nothing"
  "$peel" doctor --json - > doctor.json || fail "doctor --json"
  json doctor.json 'r["healthy"] and "reference" in r["backends"]'
  PEEL_BACKEND=reference "$peel" doctor | grep -q '^chosen *reference$' || fail "PEEL_BACKEND does not force"
  PEEL_BACKEND=nonsense runs 1 'peel: ' -- "$peel" doctor > /dev/null
}

usage() {
  runs 0 - -- "$peel" --help > /dev/null
  runs 0 - -- "$peel" --version > version
  pass; grep -qE '^peel [0-9]+\.[0-9]+' version || fail "the version is '$(cat version)'"
  for command in encode merge decode show plan inspect doctor bench demo; do
    runs 0 - -- "$peel" $command --help > /dev/null
  done
  runs 2 'subcommand' -- "$peel"
  runs 2 'peel: ' -- "$peel" frobnicate
  runs 1 "\[invalid_argument\]\$" -- "$peel" plan --elements 2^44 --density 1% --workers 4 --bandwidth 1gbit
  runs 2 'peel encode --help' -- "$peel" encode
  runs 2 'nonsense' -- "$peel" encode --codec nonsense a.npy
  runs 2 'nonsense' -- "$peel" encode --grain nonsense a.npy
  runs 2 'phase' -- "$peel" encode --phase 3 a.npy
  runs 2 'like' -- "$peel" encode --like a.npy.peel --grain 4 a.npy
  runs 2 'one output' -- "$peel" encode a.npy b.npy -o both.peel
  runs 2 'only once' -- "$peel" merge - - -o sum.peel
  runs 2 'say where' -- "$peel" merge a.npy.peel
  runs 2 'bandwidth' -- "$peel" plan --elements 10 --density 0.1 --workers 4
  runs 2 'not a share' -- "$peel" plan --elements 10 --density 1.1 --workers 4 --bandwidth 1e9
  runs 2 'not a bandwidth' -- "$peel" plan --elements 10 --density 0.1 --workers 4 --bandwidth 10gobit
  runs 2 'not a count' -- "$peel" plan --elements ten --density 0.1 --workers 4 --bandwidth 1e9
  runs 2 'power of two' -- "$peel" encode -f --grain 3 a.npy
}

# A signal in the middle of writing leaves nothing behind: the reader of the named pipe never comes.
interrupts() {
  python3 -c "import os, struct
n = 40_000_000 if os.environ.get('PEEL_TEST_SCALE') != 'small' else 8_000_000
text = repr({'descr': '<f4', 'fortran_order': False, 'shape': (n,)}).encode().ljust(117) + b'\n'
f = open('large.npy', 'wb'); f.write(b'\x93NUMPY\x01\0' + struct.pack('<H', 118) + text); f.write(b'\0\0\x80?' * n)"
  local signal pid code
  mkdir -p folder
  for signal in INT TERM HUP; do
    # Background jobs of a script ignore SIGINT; Python puts the default back.
    python3 -c 'import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])' \
      "$peel" encode large.npy -o folder/large.peel --grain 1 --index bitmap &
    pid=$!
    for _ in $(seq 200); do
      [ -z "$(find folder -name '.peel-*')" ] || break
      kill -0 $pid 2> /dev/null || break
      sleep 0.02
    done
    kill -$signal $pid 2> /dev/null
    wait $pid 2> /dev/null
    code=$?
    pass; [ $code -gt 128 ] || [ -e folder/large.peel ] || fail "SIG$signal ended it with $code"
    rm -f folder/large.peel
    pass; [ -z "$(ls -A folder)" ] || fail "SIG$signal left $(ls -A folder)"
  done
  "$peel" encode -c --grain 1 --index bitmap large.npy | head -c 100 > /dev/null
  code=${PIPESTATUS[0]}
  pass; [ "$code" = 141 ] || fail "a closed pipe ended it with $code"
}

# Whatever the tree of merges, fixed cells hold no more workers than they have room for.
worker_counts() {
  local options
  array values a.npy '<f4' 0.999 0 0 0.5
  array values b.npy '<f4' 0.999 0 0 0
  array values c.npy '<f4' 0.999 0.25 0 0
  array values want.npy '<f4' 2.997 0.25 0 0.5
  for options in '--codec sketch --headroom 100%' '--codec packed --cells fixed32'; do
    runs 0 - -- "$peel" encode -f --grain 1 $options a.npy b.npy
    runs 0 - -- "$peel" merge -f a.npy.peel b.npy.peel -o two.peel
    runs 0 - -- "$peel" encode -f --like two.peel c.npy
    runs 1 'room for 2 workers and 3 were given; encode with --workers 3' -- \
      "$peel" merge two.peel c.npy.peel -o no.peel
    runs 1 'room for 2 workers and 3 were given' -- "$peel" merge c.npy.peel two.peel -o no.peel
    runs 1 'room for 2 workers and 7 were given' -- \
      "$peel" merge two.peel two.peel c.npy.peel two.peel -o no.peel
    absent no.peel
    "$peel" show two.peel > shown || fail "show"
    pass; grep -q 'workers  *2, with room for 2' shown || fail "show does not count: $(cat shown)"
    "$peel" show --json - c.npy.peel > one.json || fail "show --json"
    json one.json 'r["held_workers"] == 1 and r["workers"] == 2'
    "$peel" merge two.peel -c | "$peel" show --json - - > two.json || fail "show --json in a pipe"
    json two.json 'r["held_workers"] == 2'
    runs 0 - -- "$peel" encode -f --grain 1 $options --workers 3 --scale 20 a.npy b.npy
    runs 0 - -- "$peel" merge -f a.npy.peel b.npy.peel -o two.peel
    runs 0 - -- "$peel" encode -f --like two.peel c.npy
    runs 0 - -- "$peel" merge -f c.npy.peel two.peel -o three.peel
    runs 0 - -- "$peel" decode -f three.peel -o three.npy
    pass
    python3 -c "import struct
got, want = (struct.unpack('<4f', open(f, 'rb').read()[-16:]) for f in ('three.npy', 'want.npy'))
assert all(abs(x - y) <= 3 * 2**-21 + 1e-6 for x, y in zip(got, want)), got" || fail "three workers are not their sum"
  done
}

old_versions() {
  local old
  cp "$data"/version1/*.peel . || fail "there are no files of version 1"
  for old in packed_bitmap packed_bloom packed_list packed_grain packed_fixed32 sketch_bitmap sketch_bloom sketch_list; do
    runs 0 - -- "$peel" decode $old.peel -o $old.npy
    same $old.npy packed_bitmap.npy
    runs 1 "$old.peel is of version 1 of the format.*encode its gradients again" -- \
      "$peel" merge $old.peel $old.peel -o no.peel
    runs 1 'version 1' -- "$peel" merge $old.peel -o no.peel
    runs 0 - -- "$peel" encode -f --like $old.peel $old.npy -o new.peel
    runs 1 "$old.peel is of version 1" -- "$peel" merge new.peel $old.peel -o no.peel
    runs 0 - -- "$peel" merge -f new.peel -o copy.peel
    same_bytes copy.peel new.peel
  done
  absent no.peel
  "$peel" show packed_fixed32.peel > shown || fail "show of version 1"
  pass; grep -q 'unknown number' shown || fail "show counts the workers of version 1: $(cat shown)"
  "$peel" show --json - packed_fixed32.peel > shown.json || fail "show --json of version 1"
  json shown.json 'r["held_workers"] is None'
}

# A small message may state a huge array: nobody writes it unasked.
sizes_beyond_the_message() {
  cp "$data/huge.peel" "$data/large.peel" . || fail "there are no messages of large arrays"
  runs 1 'huge.peel has 52 bytes and its array takes 8,589,934,592; .*--max-bytes 8589934592' -- "$peel" decode huge.peel
  runs 1 'takes 8,589,934,592' -- "$peel" decode --max-bytes 8589934591 huge.peel
  runs 1 'huge.peel has 52 bytes and reading its index takes 268,435,456; .*--max-bytes 268435456' -- \
    "$peel" merge huge.peel huge.peel -o no.peel
  absent huge
  absent no.peel
  runs 0 - -- "$peel" show huge.peel > /dev/null
  runs 1 'large.peel has 52 bytes and its array takes 134,217,728' -- "$peel" decode large.peel -o /dev/null
  runs 0 - -- "$peel" decode --max-bytes 2^27 large.peel -o /dev/null
  runs 0 - -- "$peel" merge large.peel large.peel -o two.peel
  array make a.npy '<f4' 1
  runs 0 - -- "$peel" encode a.npy
  runs 1 'a.npy.peel has .*--max-bytes 20012' -- "$peel" decode --max-bytes 20011 a.npy.peel -o b.npy
  runs 0 - -- "$peel" decode --max-bytes 20012 a.npy.peel -o b.npy
}

for part in usage round_trips names_and_overwriting pipes plans formats corruption reports worker_counts old_versions \
  sizes_beyond_the_message interrupts; do
  mkdir "$work/$part" && cp "$work/array.py" "$work/$part" && cd "$work/$part" || exit 1
  [ "$part" != usage ] || { array make a.npy '<f4' 1; array make b.npy '<f4' 2; "$peel" encode -q a.npy; }
  before=$failures
  $part
  [ "$failures" != "$before" ] || echo "ok: ${part//_/ }"
done
echo "$checks checks, $failures failures"
[ "$failures" = 0 ]
