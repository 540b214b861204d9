"""Cables between the hosts and the ports of the switch, for measuring what packets cost the switch.

    host eth0 ---- in0 ==XDP redirect== out0 ---- port0 of the switch

A veth hands the sender's own buffers to the receiver: whoever takes them into a socket finds them made, and whoever runs
an XDP program must first copy them. No card does either. Through a cable, frames come to the ports as frames, as they
come from a card: an XDP program gets them as they are, and the kernel must make its buffers for a socket. They come one
by one, too, where a veth hands over whole runs.
"""

import pathlib
import subprocess

from hosts import call

HERE = pathlib.Path(__file__).resolve().parent


class Cables:
    """Puts a cable into every link of `hosts`, which must be new. They go with the namespaces of the hosts. An XDP program
    that knows no fragments, as a cable has, takes frames of one page."""

    def __init__(self, hosts, scratch, mtu):
        self.hosts = hosts
        self.mtu = mtu
        self.namespace = hosts.cables
        call("ip", "netns", "add", self.namespace)
        for i, (host, address, port) in enumerate(zip(hosts.names, hosts.addresses, hosts.ports)):
            call("ip", "-n", hosts.switch, "link", "delete", port)
            self._link(host, "eth0", f"in{i}")
            self._link(hosts.switch, port, f"out{i}")
            call("ip", "-n", hosts.switch, "link", "set", port, "master", "bridge")
            call("ip", "-n", host, "address", "add", f"{address}/16", "dev", "eth0")
            self._redirect(f"in{i}", f"out{i}", scratch)
            self._redirect(f"out{i}", f"in{i}", scratch)

    def _link(self, namespace, device, end):
        call("ip", "-n", self.namespace, "link", "add", end, "type", "veth", "peer", "name", device, "netns", namespace)
        for where, what in ((self.namespace, end), (namespace, device)):
            call("ip", "-n", where, "link", "set", what, "mtu", str(self.mtu), "up")
            call("ip", "netns", "exec", where, "ethtool", "-K", what, "gro", "on")

    def _redirect(self, device, other, scratch):
        number = call("ip", "netns", "exec", self.namespace, "cat", f"/sys/class/net/{other}/ifindex").strip()
        program = pathlib.Path(scratch) / f"{device}.o"
        include = subprocess.run(["gcc", "-print-multiarch"], capture_output=True, text=True).stdout.strip()
        call("clang", "-O2", "-g", "-target", "bpf", f"-DOTHER_END={number}", "-idirafter", f"/usr/include/{include}",
             "-c", str(HERE / "cable.bpf.c"), "-o", str(program))
        call("ip", "-n", self.namespace, "link", "set", device, "xdpdrv", "object", str(program), "section", "xdp")

    def ends(self):
        for i in range(self.hosts.count):
            yield self.namespace, f"in{i}"
            yield self.namespace, f"out{i}"
            yield self.hosts.switch, self.hosts.ports[i]
