"""Hosts that are network namespaces: each has one link to a bridge, shaped in both directions.

    host 0 --veth-- +--------+ --veth-- host 1
                    | bridge |
    host 2 --veth-- +--------+ --veth-- host 3

The bridge lives in a namespace of its own, the "switch", so nothing of this shows in the network of the machine, and
any number of runs may use the same addresses at once. Names carry the process id of the run: what a run that was
killed outright has left behind is recognised and removed by the next one.
"""

import glob
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

PREFIX = "peelnet"
QUEUE_BYTES = 64 << 20  # more than the TCP windows of ten senders: a full queue would drop, and measure TCP instead
MTU = 9000  # as in clusters. At 1500 headers take 4.4% of the rate, and two cores barely keep up
# Above the burst, tbf cuts packets up one by one: dense all-reduce takes twice as long then. Close below it, every
# packet waits for a full bucket, and a timer that is late loses tokens. 1 gbit, 2 cores: best from 16 to 28 thousand.
PACKET_BYTES = 24000
# What a link that was idle has saved up passes faster than the rate, so a burst is as small as it can be: a packet, and
# what a timer that is late by so much would lose. More than 64 KiB never helped.
LATE_S = 330e-6
LARGEST_BURST_BYTES = 64 << 10
# Reno is in every kernel and may be chosen in a namespace; without drops it differs from others only in being steady
# (the machine's default may be BBR, whose probing made times vary by 20%). The buffers are Linux's defaults.
TCP = ("net.ipv4.tcp_congestion_control=reno", "net.ipv4.tcp_rmem=4096 131072 6291456",
       "net.ipv4.tcp_wmem=4096 16384 4194304")


def burst_bytes(rate_bits):
    return min(LARGEST_BURST_BYTES, int(PACKET_BYTES + LATE_S * rate_bits / 8))


class RigError(Exception):
    """A sentence that says what to do."""


def call(*words):
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise RigError(f"'{' '.join(words)}' failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def namespaces():
    return [line.split()[0] for line in call("ip", "netns", "list").splitlines() if line.strip()]


def kill_all_in(namespace):
    """Ends the processes in a namespace, or it would live on without a name."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for _ in range(10):
            pids = call("ip", "netns", "pids", namespace).split()
            if not pids:
                return
            for pid in pids:
                try:
                    os.kill(int(pid), number)
                except ProcessLookupError:
                    pass
            time.sleep(0.05)


def remove(names):
    for namespace in names:
        try:
            kill_all_in(namespace)
            call("ip", "netns", "delete", namespace)
        except RigError:
            pass  # somebody else removed it


def remove_orphans():
    """Removes the namespaces of runs that no longer exist."""
    owners = ((name, re.match(rf"{PREFIX}(\d+)-", name)) for name in namespaces())
    gone = [(name, owner[1]) for name, owner in owners if owner and not os.path.exists(f"/proc/{owner[1]}")]
    remove([name for name, _ in gone])
    for owner in {owner for _, owner in gone}:
        for scratch in glob.glob(os.path.join(tempfile.gettempdir(), f"peelnet-{owner}-*")):
            shutil.rmtree(scratch, ignore_errors=True)


class Hosts:
    """Use as a context: the namespaces are gone when it ends, however it ends."""

    def __init__(self, count, mtu=MTU):
        self.count = count
        self.mtu = mtu
        base = f"{PREFIX}{os.getpid()}"
        self.switch = f"{base}-switch"
        self.switch_address = "10.77.255.254"
        self.names = [f"{base}-{i}" for i in range(count)]
        self.ports = [f"port{i}" for i in range(count)]
        self.addresses = [f"10.77.{i // 200}.{i % 200 + 1}" for i in range(count)]
        self.cables = f"{base}-cables"  # only where cable.py makes it

    def __enter__(self):
        try:
            remove_orphans()
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        mine = set([*self.names, self.switch, self.cables])
        remove([name for name in namespaces() if name in mine])

    def _build(self):
        call("ip", "netns", "add", self.switch)
        call("ip", "-n", self.switch, "link", "add", "bridge", "mtu", str(self.mtu), "type", "bridge")
        call("ip", "-n", self.switch, "address", "add", f"{self.switch_address}/16", "dev", "bridge")
        for device in ("lo", "bridge"):
            call("ip", "-n", self.switch, "link", "set", device, "up")
        for name, address, port in zip(self.names, self.addresses, self.ports):
            call("ip", "netns", "add", name)
            call("ip", "-n", self.switch, "link", "add", port, "type", "veth",
                 "peer", "name", "eth0", "netns", name)
            call("ip", "-n", self.switch, "link", "set", port, "master", "bridge")
            call("ip", "-n", name, "address", "add", f"{address}/16", "dev", "eth0")
            call("ip", "-n", name, "link", "set", "lo", "up")
            call("ip", "netns", "exec", name, "sysctl", "-qw", *TCP)
        for namespace, device in self.ends():
            call("ip", "-n", namespace, "link", "set", device, "mtu", str(self.mtu),
                 "gso_max_size", str(PACKET_BYTES), "up")

    def ends(self):
        """Both ends of every link: what leaves the host, and what leaves the bridge towards it."""
        for name, port in zip(self.names, self.ports):
            yield name, "eth0"
            yield self.switch, port

    def shape(self, rate_bits):
        for namespace, device in self.ends():
            call("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf",
                 "rate", f"{int(rate_bits)}bit", "burst", str(burst_bytes(rate_bits)), "limit", str(QUEUE_BYTES))

    def take_redirects(self):
        """Lets the hosts receive what an XDP program redirects to them: a veth does so where it collects packets."""
        if not shutil.which("ethtool"):
            raise RigError("ethtool was not found; install it")
        for name in self.names:
            call("ip", "netns", "exec", name, "ethtool", "-K", "eth0", "gro", "on")

    def lose(self, share, first, last):
        """Loses this share of the UDP packets to and from these ports, where they arrive. Many kernels have no netem."""
        if not shutil.which("nft"):
            raise RigError("nft was not found; install nftables")
        chance = ("numgen", "random", "mod", "100000", "<", str(round(share * 100000)))
        for namespace, field in ((self.switch, "dport"), *((name, "sport") for name in self.names)):
            nft = ("ip", "netns", "exec", namespace, "nft")
            call(*nft, "add", "table", "inet", PREFIX)
            call(*nft, "add", "chain", "inet", PREFIX, "lose", "{ type filter hook input priority 0 ; }")
            call(*nft, "flush", "chain", "inet", PREFIX, "lose")
            call(*nft, "add", "rule", "inet", PREFIX, "lose", "udp", field, f"{first}-{last}", *chance, "drop")

    def dropped(self):
        """Packets that a queue refused so far; 0, or the figures are about TCP's recovery."""
        total = 0
        for namespace, device in self.ends():
            found = re.search(r"dropped (\d+)", call("tc", "-n", namespace, "-s", "qdisc", "show", "dev", device))
            total += int(found[1]) if found else 0
        return total
