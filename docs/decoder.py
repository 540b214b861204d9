#!/usr/bin/env python3
"""Decodes one PeelReduce message: decoder.py IN.peel OUT.npy

Written from docs/format.md, whose sections it names. Slow. Verifies the checksum where the module xxhash is installed.
"""
import math, struct, sys

NPY = ["<f4", "<f8", "<f2", "<V2", "|i1", "<i2", "<i4", "<i8"]  # by element type
BFLOAT16, INT8, INT64 = 3, 4, 7
PACKED, SKETCH, BITMAP, BLOOM, LIST = 0, 1, 1, 2, 3
NATIVE, FIXED32, FIXED64, FLOAT32 = 1, 2, 3, 4
M32, M64, GOLDEN, MIX = 2**32 - 1, 2**64 - 1, 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93

def require(condition, sentence):
    if not condition:
        raise ValueError(sentence)

def parse(data):  # 2. Serialised message
    require(len(data) >= 136 and data[:4] == b"PEEL", "not a message")
    version, first, second, checksum = struct.unpack("<IQQQ", data[4:32])
    require(version in (1, 2, 3), "another version of the format")
    plan, held = Plan(data[32:128]), 0
    if version == 3:
        require(second == 0 and len(data) == 128 + first, "a wrong length")
        words, held, flags = parse_header(plan, data[128:])
        body, flag_word = 168, struct.pack("<Q", flags)
    else:  # 17. Versions
        body, words, flag_word = (128 if version == 1 else 136), first, b""
        require(len(data) == body + 8 * words + second, "a wrong length")
        held = int.from_bytes(data[128:body], "little")
    try:
        from xxhash import xxh3_64_intdigest
        require(xxh3_64_intdigest(data[32:], xxh3_64_intdigest(data[:24])) == checksum, "a wrong checksum")
    except ImportError:
        print("decoder: no module xxhash, so the checksum was not verified", file=sys.stderr)
    require(held <= (plan.workers if plan.fixed and not plan.integer else 2**63 - 1), "too many workers")
    index = data[body:body + 8 * words] + flag_word
    return plan, struct.unpack(f"<{len(index) // 8}Q", index), data[body + 8 * words:]

def parse_header(plan, message):  # 2.1 Item message: index words, workers, flags
    require(len(message) >= 40 and message[:2] == b"IM", "no item message behind the plan")
    version, index, values, flags, zero, length, items, held, count = struct.unpack("<4BH4Q", message[2:40])
    sketch = plan.codec == SKETCH
    require(version == 1 and values <= 1 and flags <= 1, "another version of the item message, or an unknown coding")
    require(index == {BITMAP: 2, LIST: 3, BLOOM: 4}[plan.index] and values == sketch, "an item message of another plan")
    require(length == len(message) and zero == count == 0 and (items == 0 or not sketch), "a damaged header")
    cells = plan.blocks * 3 * plan.subtable if sketch else items
    rest = length - 40 - cells * plan.grain * plan.cell_bytes
    require(rest >= 0 and rest % 8 == 0, "a wrong length")
    return rest // 8, held, flags

class Plan:
    def __init__(self, raw):  # 3. Plan descriptor
        (version, self.type, self.codec, self.cells, self.index, self.elements, expected, self.seed, self.workers,
         self.scale, self.grain, phase, self.blocks, self.subtable, self.rows, self.hashes) = struct.unpack(
             "<I4B3QIi4IQI", raw[:68])
        require(version == 1 and self.type < 8 and self.codec < 2 and 1 <= self.cells <= 4 and 1 <= self.index <= 3,
                "another version of the plan, or unknown kinds")
        require(self.elements <= 2**43 and 1 <= self.workers < 2**31 - 1 and abs(self.scale) <= 900,
                "an impossible number")
        require(self.grain in [2**k for k in range(11)] and phase < self.grain, "an impossible grain")
        self.integer, self.fixed = self.type >= INT8, self.cells in (FIXED32, FIXED64)
        require({NATIVE: self.codec == PACKED, FIXED32: self.type != INT64, FIXED64: True,
                 FLOAT32: not self.integer}[self.cells], "cells that cannot hold these elements")
        require(self.scale == 0 or (self.fixed and not self.integer), "a scale where there is none")
        # 4. Derived numbers
        self.lead = -phase % self.grain
        self.items = -(-(self.elements + self.lead) // self.grain) if self.elements else 0
        self.element_bytes = int(NPY[self.type][2])
        self.cell_bytes = {NATIVE: self.element_bytes, FIXED32: 4, FIXED64: 8, FLOAT32: 4}[self.cells]
        if self.codec == SKETCH:
            require(1 <= self.blocks <= 2**21 and 1 <= self.subtable <= 21845, "an impossible sketch")
            self.group, bits = max(1, 8 // self.grain), (self.subtable**3).bit_length() - 1
            ids = -(-(-(-self.items // self.group)) // self.blocks) * self.group
            require(ids <= 2**32, "an impossible sketch")
            self.bits = bits if 4 <= bits < 32 and ids <= 2**bits else 32
        require(self.codec == SKETCH or self.blocks == self.subtable == 0, "stray bytes in the plan")
        require(1 <= self.rows <= 2**34 + 64 and 1 <= self.hashes <= 63 if self.index == BLOOM
                else self.rows == self.hashes == 0, "an impossible filter")
        require(expected <= self.items and not any(raw[68:]), "stray bytes in the plan")

def read_index(plan, words):  # 6. Index: the numbers of the items, increasing
    require(words and words[-1] == 0, "flags: a value overflowed on some worker (1), or unknown")
    words = words[:-1]
    if plan.index == LIST:
        return read_list(words, plan.items)
    if plan.index == BLOOM:
        require(len(words) == plan.rows * 8, "a wrong length of the index")
        words = [word for run in range(-(-plan.items // 512)) for word in read_run(plan, words, run)]
    else:
        require(len(words) == -(-plan.items // 64), "a wrong length of the index")
        require(plan.items % 64 == 0 or words[-1] >> (plan.items % 64) == 0, "items past the end")
    return [i for i in range(plan.items) if words[i // 64] >> (i % 64) & 1]

def read_run(plan, rows, run):  # 6.3 Bloom filter: the bits of 512 items
    state, bits = mix64(plan.seed ^ ((run + 1) * GOLDEN & M64)), [M64] * 8
    for _ in range(plan.hashes):
        state = (state * MIX + GOLDEN) & M64
        row, swap, turn = state * plan.rows >> 64, state >> 24 & 7, state >> 16 & 63
        for w in range(8):
            there = rows[row * 8 + (w ^ swap)]
            bits[w] &= there >> turn | there << (64 - turn)
    return bits

def read_list(words, positions):  # 6.4 List
    require(words and words[0] % 2**63 <= positions, "an impossible list")
    count = words[0] % 2**63
    following, coded, start = 0, set(), 1 - -count // 512
    require(start <= len(words), "a list that ends early")
    for chunk in range(start - 1):
        base, r, length = (words[1 + chunk] >> at & 2**size - 1 for at, size in ((0, 43), (43, 6), (49, 15)))
        size, codes = min(512, count - chunk * 512), words[start:start + length]
        require(base == following and r <= 48 and len(codes) == length, "an impossible chunk")
        bits = "".join(f"{word:064b}"[::-1] for word in codes)  # lowest first
        highs = bits[size * r:].split("1")
        require(len(highs) == size + 1 and len(highs[-1]) < 64, "a chunk that has more or fewer codes")
        for i in range(size):
            following += int("0" + bits[i * r:i * r + r][::-1], 2) + (len(highs[i]) << r) + 1
            coded.add(following - 1)
        require(following <= positions, "a list that leaves the array")
        start += length
    require(start == len(words), "words after the list")
    return [i for i in range(positions) if (i in coded) != (words[0] >= 2**63)]

def mix64(x):  # 7.1 Mixing
    x = (x ^ x >> 32) * MIX & M64
    x = (x ^ x >> 32) * MIX & M64
    return x ^ x >> 32

def mix32(x):
    x = (x ^ x >> 16) * 0x85EBCA6B & M32
    x = (x ^ x >> 13) * 0xC2B2AE35 & M32
    return x ^ x >> 16

def place_of(plan, item):  # 7.2 Item to block and local id
    stripe, slot = divmod(item // plan.group, plan.blocks)
    rotation = mix32(stripe & M32 ^ plan.seed >> 32) * plan.blocks >> 32
    return (slot + rotation) % plan.blocks, stripe * plan.group + item % plan.group

def cells_of(plan, block, local):  # 7.3 Local id to cells and signs; cells are numbered through the payload
    key = mix64(plan.seed + GOLDEN * (block + 1) & M64) & M32
    mask, half = 2**plan.bits - 1, (plan.bits + 1) // 2
    y = (local ^ key) & mask
    y = (y ^ y >> half) * 0x85EBCA6B & mask
    y = (y ^ y >> half) * 0xC2B2AE35 & mask
    y ^= y >> half
    first = (y << (32 - plan.bits)) * plan.subtable
    second = (first & M32) * plan.subtable
    width = M32 // plan.subtable + 1
    room = max(0, plan.subtable**2 - width) if plan.bits == 32 else 0
    h = y * 0x9E3779B1 & M32
    h = (h ^ h >> 15) * 0x85EBCA6B & M32
    h = (h ^ h >> 13) * 0xC2B2AE35 & M32
    third = min((second & M32) + (h * room >> 32), M32) * plan.subtable
    cells = [(block * 3 + j) * plan.subtable + (digit >> 32) for j, digit in enumerate((first, second, third))]
    signs = ((y ^ key >> 7) * 0x9E3779B1 & M32) >> 29
    return cells, [-1 if signs >> j & 1 else 1 for j in range(3)]

def in_cell(plan, value):  # 8. Values: the arithmetic of one counter
    if plan.cells == FLOAT32:
        return struct.unpack("<f", pack_float("f", value))[0]
    half = 1 << (8 * plan.cell_bytes - 1)
    return (value + half) % (2 * half) - half

def pack_float(code, value):
    try:
        return struct.pack("<" + code, value)
    except OverflowError:
        return struct.pack("<" + code, math.copysign(math.inf, value))

def to_element(plan, value):  # 8. Values: a counter back to the bytes of an element
    if plan.integer:
        return value.to_bytes(8, "little", signed=True)[:plan.element_bytes]
    value = math.ldexp(float(value), -plan.scale) if plan.fixed else value
    if plan.type != BFLOAT16:
        return pack_float("fde"[plan.type], value)
    if math.isfinite(value):  # eight bits, rounded to even, are a float32 that ends in two zero bytes
        exponent = max(math.frexp(value)[1] - 1, -126)
        value = math.ldexp(round(math.ldexp(value, 7 - exponent)), exponent - 7)
    return pack_float("f", value)[2:]

def peel(plan, items, counters):  # 10. Peeling: {item: its counters}
    inside, values, size = [set() for _ in counters[::plan.grain]], {}, 3 * plan.subtable
    place = {item: cells_of(plan, *place_of(plan, item)) for item in items}
    for item in items:
        for cell in place[item][0]:
            inside[cell].add(item)
    for first in range(0, plan.blocks * size, size):
        progress = len(set().union(*inside[first:first + size])) <= size
        while progress:
            progress = False
            for start in range(first, first + size, plan.subtable):
                for cell in [c for c in range(start, start + plan.subtable) if len(inside[c]) == 1]:
                    (item,), progress = inside[cell], True
                    cells, signs = place[item]
                    sign, lanes = signs[cells.index(cell)], counters[cell * plan.grain:(cell + 1) * plan.grain]
                    values[item] = [in_cell(plan, sign * value) for value in lanes]
                    for other, sign in zip(cells, signs):
                        inside[other].remove(item)
                        for lane, value in enumerate(values[item], other * plan.grain):
                            counters[lane] = in_cell(plan, counters[lane] - sign * value)
    require(not plan.fixed or all(inside[i // plan.grain] or not counter for i, counter in enumerate(counters)),
            "cells are left over: index and payload do not belong together")
    return values

def decode(data):  # 5. Items and elements, 9. Payload
    plan, words, payload = parse(data)
    items, grain = read_index(plan, words), plan.grain
    count = grain * (plan.blocks * 3 * plan.subtable if plan.codec == SKETCH else len(items))
    require(len(payload) == count * plan.cell_bytes, "a wrong length of the payload")
    part = lambda array, i, size: array[i * size:(i + 1) * size]
    if plan.cells == NATIVE:
        parts = {item: part(payload, i, grain * plan.element_bytes) for i, item in enumerate(items)}
    else:
        counters = list(struct.unpack(f"<{count}{'  iqf'[plan.cells]}", payload))
        packed = {item: part(counters, i, grain) for i, item in enumerate(items)}
        values = peel(plan, items, counters) if plan.codec == SKETCH else packed
        parts = {item: b"".join(to_element(plan, value) for value in lanes) for item, lanes in values.items()}
    lanes = b"".join(parts.get(item, bytes(grain * plan.element_bytes)) for item in range(plan.items))
    first, end = plan.lead * plan.element_bytes, (plan.lead + plan.elements) * plan.element_bytes
    return plan, lanes[first:end], len(items) - len(parts)

if __name__ == "__main__":
    plan, elements, lost = decode(open(sys.argv[1], "rb").read())
    head = f"{{'descr': '{NPY[plan.type]}', 'fortran_order': False, 'shape': ({plan.elements},), }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    open(sys.argv[2], "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + elements)
    sys.exit(f"decoder: {lost} items were lost and are zero in the output" if lost else 0)
