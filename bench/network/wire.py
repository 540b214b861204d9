"""Packets of the switch protocol, for those who play strangers: docs/switch-protocol.md in Python."""

import hashlib
import hmac
import os
import struct

MAGIC, VERSION = 0x4C50, 2
DATA, RESULT, REFUSAL, CONTROL = 1, 2, 3, 4
(HELLO, CHALLENGE, JOIN, ADMITTED, REFUSED, LEAVE, LEFT, QUERY, STATUS, PROBE, PROBED, KEEPALIVE, STATE,
 PING) = range(1, 15)
BAD_CHALLENGE, BAD_SECRET = 6, 10
CONTROL_BYTES, QUERY_BYTES, MAC_BYTES = 168, 1400, 16

FIELDS = ("magic version kind verb reason job incarnation challenge cookie joined gone sequence worker workers words "
          "slot_count lanes flags data_port silence life_port zero key name mac").split()
LAYOUT = struct.Struct("<HBBBBHQQQQQQBBHHBBHHHH16s64s16s")
HEADER = struct.Struct("<HBBHBBIIQIHHQ")
assert LAYOUT.size == CONTROL_BYTES and HEADER.size == 40


def control(verb, secret=None, length=CONTROL_BYTES, **fields):
    """A control packet, signed if there is a secret, with zeros behind it."""
    values = {**{field: 0 for field in FIELDS}, "key": b"", "name": b"", "mac": b"", "magic": MAGIC, "version": VERSION,
              "kind": CONTROL, "verb": verb, **fields}
    packet = LAYOUT.pack(*(values[field] for field in FIELDS))
    if secret is not None:
        packet = packet[:-MAC_BYTES] + hmac.digest(secret, packet, hashlib.sha256)[:MAC_BYTES]
    return packet.ljust(length, b"\0")


def read(packet):
    """The fields of a control packet; nothing if it is none."""
    if len(packet) < CONTROL_BYTES or packet[3] != CONTROL:
        return None
    return dict(zip(FIELDS, LAYOUT.unpack(packet[:CONTROL_BYTES])))


def nonce():
    return int.from_bytes(os.urandom(8), "little")


def data(job=0, worker=0, operation=0, slot=0, turn=0, cookie=0, tag=0, words=b""):
    header = HEADER.pack(MAGIC, VERSION, DATA, job, worker, operation, slot, turn, cookie, tag, len(words) // 4, 0, 0)
    return with_check(header + words)


def with_check(packet):
    """Data or a result, with a check that adds up. In jobs that are signed, it does not."""
    packet = packet[:32] + bytes(8) + packet[40:]
    check = sum(word * ((1 << 20) + i) for i, word in enumerate(struct.unpack(f"<{len(packet) // 4}I", packet)))
    return packet[:32] + struct.pack("<Q", check % (1 << 64)) + packet[40:]
