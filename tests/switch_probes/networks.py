"""Hosts of probes that are network namespaces."""

import os
import unittest

import playground
from playground import Probe

import hosts  # bench/network, which playground puts on the path
from hosts import RigError, call, remove

BASE = f"{hosts.PREFIX}{os.getpid()}"  # what is left of a run that was killed, the next one removes


def why_impossible():
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        hosts.remove_orphans()
        call("ip", "netns", "add", f"{BASE}-try")
        call("ip", "-n", f"{BASE}-try", "link", "add", "one", "type", "veth", "peer", "name", "two")
    except (RigError, OSError) as error:
        return f"this machine does not allow network namespaces: {error}"
    finally:
        try:
            remove([f"{BASE}-try"])
        except (RigError, OSError):
            pass
    return None


IMPOSSIBLE = why_impossible()


@unittest.skipIf(IMPOSSIBLE, IMPOSSIBLE)
class NetworkProbe(Probe):
    def host(self, name):
        name = f"{BASE}-{name}"
        call("ip", "netns", "add", name)
        self.addCleanup(remove, [name])
        call("ip", "-n", name, "link", "set", "lo", "up")
        return name

    def link(self, one, other, device, addresses, mtu):
        """A virtual link of that name at both ends, with these addresses."""
        call("ip", "-n", one, "link", "add", device, "type", "veth", "peer", "name", device, "netns", other)
        for end, mine in zip((one, other), addresses):
            for address in mine:
                call("ip", "-n", end, "address", "add", f"{address}/24", "dev", device)
            call("ip", "-n", end, "link", "set", device, "mtu", str(mtu), "up")

    def hosts(self, count, mtu):
        """Around a bridge, in whose namespace the switch is."""
        made = hosts.Hosts(count, mtu)
        made.__enter__()
        self.addCleanup(made.close)
        return made

    def xdp_options(self, net):
        """Of a switch in the kernel, at the ports of these hosts."""
        tried = self.run_peel("switch", "--plane", "xdp", "--interface", "lo", "--listen", "127.0.0.1:0", "--secret-file",
                              str(self.secret_file), "--mtu", "9000")
        if "came without" in tried.stderr:
            self.skipTest("this build has no xdp plane")
        net.take_redirects()
        return ("--plane", "xdp", "--interface", ",".join(net.ports))

    @staticmethod
    def inside(host):
        return ("ip", "netns", "exec", host)

    def end(self, switch):
        switch.terminate()
        self.assertEqual(switch.wait(playground.PATIENCE), 0, switch.log())
