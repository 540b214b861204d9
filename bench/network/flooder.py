#!/usr/bin/env python3
"""A stranger without the secret, who sends packets to a port until he is told to stop.

    flooder.py KIND ADDRESS PORT --rate 4000 [--spoof 10.77.1.1,10.77.1.2]

Then it prints one JSON line: what it sent, what came back, in packets and bytes. With --announce, there is a line before it
as soon as the first packets are out. With --spoof (root), packets have these source addresses in turn, so that nothing comes
back. Kinds:

    control64k  64 KiB that begin like a JOIN             data64k    64 KiB that begin like data
    hello       HELLO, each from a new incarnation        data       data of jobs that are not
    join        JOIN with any challenge and MAC           probe      PROBE with any challenge and MAC, 1,400 bytes
    proven      JOIN with a right challenge, any MAC      query      QUERY with any challenge and MAC
    keepalive   KEEPALIVE of jobs that are not            random     random bytes, 1 to 1,400
"""

import argparse
import json
import os
import random
import signal
import socket
import struct
import sys
import time

import wire

LONGEST = 65507
VARIANTS = 64  # packets of a kind that are sent in turn, made beforehand


def make(kind):
    junk = {"incarnation": wire.nonce(), "challenge": wire.nonce(), "cookie": wire.nonce(), "workers": 2, "words": 358,
            "slot_count": 16, "name": b"flood %d" % random.randrange(1000), "mac": os.urandom(wire.MAC_BYTES)}
    if kind == "random":
        return os.urandom(random.randint(1, 1400))
    if kind in ("data", "data64k"):
        packet = wire.data(job=random.randrange(8), cookie=wire.nonce(), slot=random.randrange(64),
                           words=os.urandom(4 * 350))
        return packet if kind == "data" else packet.ljust(LONGEST, b"\1")
    verb, length = {"control64k": (wire.JOIN, LONGEST), "hello": (wire.HELLO, wire.CONTROL_BYTES),
                    "join": (wire.JOIN, wire.CONTROL_BYTES), "proven": (wire.JOIN, wire.CONTROL_BYTES),
                    "query": (wire.QUERY, wire.QUERY_BYTES), "probe": (wire.PROBE, 1400),
                    "keepalive": (wire.KEEPALIVE, wire.CONTROL_BYTES)}[kind]
    return wire.control(verb, length=length, **junk)


KINDS = ("control64k", "hello", "join", "proven", "query", "probe", "keepalive", "data", "data64k", "random")


class Straight:
    """Sends from its own address, and counts what comes back."""

    def __init__(self, address, port):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        self.socket.setblocking(False)
        self.target = (address, port)
        self.sent = self.sent_bytes = self.replies = self.reply_bytes = 0

    def send(self, packet):
        try:
            self.socket.sendto(packet, self.target)
        except OSError:
            return
        self.sent += 1
        self.sent_bytes += len(packet)

    def receive(self):
        """The last reply, if there is one."""
        last = None
        while True:
            try:
                last = self.socket.recv(65536)
            except ConnectionError:
                continue
            except OSError:
                return last
            self.replies += 1
            self.reply_bytes += len(last)


class Spoofed:
    """Sends with the addresses of others. Fragments are the kernel's to make, which it does not here."""

    def __init__(self, address, port, sources):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
        self.target, self.address, self.port = (address, 0), socket.inet_aton(address), port
        self.sources = [socket.inet_aton(source) for source in sources]
        self.sent = self.sent_bytes = self.replies = self.reply_bytes = 0

    def send(self, packet):
        source = self.sources[self.sent % len(self.sources)]
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 28 + len(packet), 0, 0, 64, socket.IPPROTO_UDP, 0, source,
                           self.address)
        udp = struct.pack(">HHHH", random.randrange(1024, 65536), self.port, 8 + len(packet), 0)
        try:
            self.socket.sendto(head + udp + packet, self.target)
        except OSError:
            return
        self.sent += 1
        self.sent_bytes += len(packet)

    def receive(self):
        return None


def prove(path):
    """A JOIN that holds the challenge that the switch sent here, for the incarnation that asked."""
    incarnation = wire.nonce()
    for _ in range(20):
        path.send(wire.control(wire.HELLO, incarnation=incarnation))
        time.sleep(0.02)
        reply = wire.read(path.receive() or b"")
        if reply and reply["verb"] == wire.CHALLENGE:
            return wire.control(wire.JOIN, incarnation=incarnation, challenge=reply["challenge"], workers=2, words=358,
                                slot_count=16, name=b"proven", mac=os.urandom(wire.MAC_BYTES))
    return make("join")  # nobody is there


def flood(path, kind, rate, stopped, announce=False):
    packets = [make(kind) for _ in range(VARIANTS)]
    tried = 0
    renew = began = time.monotonic()
    while not stopped():
        if kind == "proven" and time.monotonic() >= renew:
            packets, renew = [prove(path)], time.monotonic() + 5  # a challenge holds for ten seconds
        due = int((time.monotonic() - began) * rate) - tried
        for _ in range(min(due, 64)):
            path.send(packets[tried % len(packets)])
            tried += 1
        path.receive()
        if announce and path.sent:
            print(json.dumps({"kind": kind, "sent": path.sent}), flush=True)
            announce = False
        if due < 64:
            time.sleep(0.001)
    seconds = time.monotonic() - began
    time.sleep(0.1)
    path.receive()
    return {"kind": kind, "sent": path.sent, "sent_bytes": path.sent_bytes, "replies": path.replies,
            "reply_bytes": path.reply_bytes, "seconds": round(seconds, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("address")
    parser.add_argument("port", type=int)
    parser.add_argument("--rate", type=float, default=4000, help="packets a second (default 4000)")
    parser.add_argument("--seconds", type=float, default=1e9, help="how long, unless it is told to stop (SIGTERM)")
    parser.add_argument("--announce", action="store_true", help="print a line when the first packets are out")
    parser.add_argument("--spoof", metavar="ADDRESSES", help="that packets come from, as in 10.77.1.1,10.77.1.2")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    if options.spoof:
        path = Spoofed(options.address, options.port, options.spoof.split(","))
    else:
        path = Straight(options.address, options.port)
    print(json.dumps(flood(path, options.kind, options.rate, lambda: told or time.monotonic() > end, options.announce)),
          flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
