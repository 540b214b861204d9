#!/usr/bin/env bash
# docs/decoder.py, written from docs/format.md, decodes what the program encodes, byte for byte; and the examples and
# test vectors of that page are true. Needs python3 without NumPy.
set -u

peel="${PEEL:?PEEL must be the path of the program}"
docs="${SOURCE_DIR:-$(cd "$(dirname "$0")/.." && pwd)}/docs"
if ! command -v python3 >/dev/null; then
  echo "skipped: there is no python3"
  exit 0
fi
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export PYTHONDONTWRITEBYTECODE=1

cat > array.py <<'PY'
"""array.py FILE TYPE SEED: 3001 elements in runs, 7% of them not zero."""
import random, struct, sys

path, descr, seed = sys.argv[1:]
code = {"<f4": "f", "<f8": "d", "<f2": "e", "<V2": "H", "|i1": "b", "<i2": "h", "<i4": "i", "<i8": "q"}[descr]
draw = random.Random(seed)
values = [0] * 3001
for _ in range(40):
    start = draw.randrange(3001)
    for i in range(start, min(3001, start + draw.randrange(1, 12))):
        bits = struct.unpack("<I", struct.pack("<f", draw.gauss(0, 1)))[0]
        values[i] = bits >> 16 if code == "H" else draw.gauss(0, 1) if code in "fde" else draw.randrange(-128, 128)
head = repr({"descr": descr, "fortran_order": False, "shape": (3001,)}).encode()
head += b" " * (-(len(head) + 11) % 64) + b"\n"
body = struct.pack(f"<3001{code}", *values)
open(path, "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + body)
PY

failures=0
fail() { echo "FAILED: $*" >&2; failures=$((failures + 1)); }

# agree TYPE OPTION...: two workers' messages and their sum decode to the same bytes here and there.
agree() {
  local type="$1" file
  shift
  python3 array.py a.npy "$type" 1 && python3 array.py b.npy "$type" 2 || { fail "array.py $type"; return; }
  "$peel" encode -q -f "$@" a.npy b.npy && "$peel" merge -q -f a.npy.peel b.npy.peel -o sum.peel ||
    { fail "$type $*: not encoded"; return; }
  for file in a.npy.peel sum.peel; do
    rm -f ours.npy theirs.npy
    "$peel" decode -q -f "$file" -o ours.npy || fail "$type $*: $file: the program refuses it"
    python3 "$docs/decoder.py" "$file" theirs.npy 2>log || fail "$type $*: $file: $(tail -n 1 log)"
    cmp -s ours.npy theirs.npy || fail "$type $*: $file decodes to something else"
  done
}

agree '<f4' --index bitmap --grain 1
agree '<f4' --index list --grain 1
agree '<f4' --index bloom --grain 1
agree '<f4' --index bitmap --grain 4 --phase 3
agree '<f4' --codec sketch --index bitmap --grain 1
agree '<f4' --codec sketch --index bitmap --grain 1 --seed 12345678901234567890
agree '<f4' --codec sketch --index bloom --grain 4 --phase 3
agree '<f4' --codec sketch --index list --grain 1 --cells fixed64
# Float cells round in the order of peeling, and the reference keeps that of the page.
PEEL_BACKEND=reference agree '<f4' --codec sketch --index bitmap --grain 8 --phase 5 --cells float32
agree '<f8' --codec sketch
agree '<f2' --codec packed --cells fixed32
agree '<V2' --type bfloat16 --codec sketch
agree '|i1' --codec sketch --grain 2 --phase 1
agree '<i2' --codec packed --cells fixed32 --index bloom --grain 1
agree '<i4' --codec packed
agree '<i8' --codec sketch --grain 1

# What older versions wrote.
for file in "$docs"/../tests/data/version[12]/*.peel; do
  case "$file" in *overfull*) continue ;; esac
  rm -f ours.npy theirs.npy
  "$peel" decode -q -f "$file" -o ours.npy || fail "$file: the program refuses it"
  python3 "$docs/decoder.py" "$file" theirs.npy 2>log || fail "$file: $(tail -n 1 log)"
  cmp -s ours.npy theirs.npy || fail "$file decodes to something else"
done

# A damaged sketch: the checksum finds it, and without one the cells that are left over.
"$peel" encode -q -f --codec sketch --index bitmap --grain 1 a.npy -o whole.peel
python3 - <<'PY'
data = bytearray(open("whole.peel", "rb").read())
data[-1] ^= 1
open("broken.peel", "wb").write(data)
PY
if python3 "$docs/decoder.py" broken.peel theirs.npy 2>/dev/null; then fail "the decoder takes a damaged message"; fi
if "$peel" decode -q -f broken.peel -o ours.npy 2>/dev/null; then fail "the program takes a damaged message"; fi

# What stands on the page itself.
python3 - "$docs" "$peel" <<'PY' || fail "docs/format.md"
import re, struct, subprocess, sys
docs, peel = sys.argv[1:]
sys.path.insert(0, docs)
import decoder

page = open(f"{docs}/format.md").read()
tiny = [0, 0, 0, 1.0, -2.5, 0, 0, 0, 0, 0.5, 0, 0]
dumps = {}
for title, text in re.findall(r"^## (\d+)\. .*?\n(.*?)(?=^## |\Z)", page, re.M | re.S):
    lines = re.findall(r"^    0x([0-9a-f]{4}) ((?: +[0-9a-f]{2})+)", text, re.M)
    if lines:
        assert [int(at, 16) for at, _ in lines] == list(range(0, 16 * len(lines), 16)), title
        dumps[title] = bytes.fromhex("".join(octets for _, octets in lines))
assert sorted(dumps) == ["13", "14"], sorted(dumps)
for title, data in dumps.items():
    assert data[4] == 3, f"section {title} shows another version"
    plan, elements, lost = decoder.decode(data)
    assert lost == 0 and list(struct.unpack("<12f", elements)) == tiny, title
    open("page.peel", "wb").write(data)
    subprocess.run([peel, "decode", "-q", "-f", "page.peel", "-o", "page.npy"], check=True)
    assert open("page.npy", "rb").read()[-48:] == bytes(elements), title

class Plan:
    seed, group, blocks, subtable, bits, rows, hashes = 0x0123456789ABCDEF, 2, 5, 2000, 32, 1000, 3

cells = r"(\d+), (\d+), (\d+)"
rows = re.findall(rf"^\| (\d+) \| \d+ \| \d+ \| (\d+) \| (\d+) \| \w+ \| \w+ \| {cells} \| (\d) \|$", page, re.M)
assert len(rows) == 6, rows
for row in rows:
    item, block, local, *cells, signs = map(int, row)
    assert decoder.place_of(Plan, item) == (block, local), row
    there, signed = decoder.cells_of(Plan, block, local)
    assert [c - (block * 3 + j) * 2000 for j, c in enumerate(there)] == cells, row
    assert sum(1 << j for j in range(3) if signed[j] < 0) == signs, row
assert f"mix64(1) = {decoder.mix64(1):016X}" in page and f"mix32(1) = {decoder.mix32(1):08X}" in page
PY

[ "$failures" -eq 0 ] || exit 1
echo "16 kinds of messages, 11 each of versions 1 and 2, a damaged one and the examples of docs/format.md"
