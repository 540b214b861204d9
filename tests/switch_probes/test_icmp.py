"""ICMP that a stranger forges, who sees no packet of a job but knows or guesses ports: it ends nobody, and slows nobody."""

import pathlib
import subprocess
import sys

import playground
from networks import NetworkProbe
from playground import Worker

from hosts import call  # bench/network, which playground puts on the path
from switch import PORT

FORGER = str(pathlib.Path(__file__).with_name("forger.py"))
SILENCE_S = 4  # workers whose signs of life do not get out are dead after that
FORGING_S = 6


class ForgedIcmp(NetworkProbe):
    def start(self, plane, mtu):
        """A job of a worker in each host but the last, which is the stranger's."""
        self.net = self.hosts(3, mtu)
        options = ("--silence", str(SILENCE_S))
        if plane == "xdp":
            options += self.xdp_options(self.net)
        self.switch = self.start_switch(*options, listen=f"{self.net.switch_address}:{PORT}",
                                        prefix=self.inside(self.net.switch))
        self.sum_in_job("first")
        return self.await_progress("first")

    def sum_in_job(self, job):
        self.running = [Worker(self, self.switch.address, rank, 2, job=job, words=20000, repeat=10**6,
                               prefix=self.inside(host)) for rank, host in enumerate(self.net.names[:2])]

    def await_progress(self, job, more=20):
        """Its record, when it has combined some more."""
        where = {"prefix": self.inside(self.net.switch)}
        rounds = self.await_rounds(self.switch, job, **where)[0]["rounds"]
        return self.await_rounds(self.switch, job, rounds + more, **where)[0]

    def ports_of(self, host):
        """UDP ports that are open there: of data and of signs of life."""
        lines = call(*self.inside(host), "cat", "/proc/net/udp").splitlines()[1:]
        return [int(line.split()[1].split(":")[1], 16) for line in lines]

    def forge(self, *options):
        """At all hosts at once, about all their ports."""
        here = self.net.switch_address
        workers = list(zip(self.net.names[:2], self.net.addresses[:2]))
        targets = {here: [f"{PORT}>10.9.9.9:40000"]}
        for host, address in workers:
            ports = self.ports_of(host)
            self.assertGreaterEqual(len(ports), 2, "of data and of signs of life")
            lanes = (PORT, PORT + 1)
            targets[address] = [f"{port}>{here}:{lane}" for port in ports for lane in lanes]
            targets[here] += [f"{lane}>{address}:{port}" for port in ports for lane in lanes]
        forgers = [subprocess.Popen([*self.inside(self.net.names[2]), sys.executable, "-B", FORGER, victim, *quotes, *options],
                                    stdout=subprocess.PIPE, text=True) for victim, quotes in targets.items()]
        for forger in forgers:
            self.addCleanup(playground.Probe._end, forger)
        for forger in forgers:
            self.assertGreater(int(forger.communicate(timeout=playground.PATIENCE)[0]), 1000)

    def assert_unharmed(self, job):
        self.assertIsNone(self.switch.poll(), self.switch.log())
        for worker in self.running:
            self.assertTrue(worker.running(), worker.running() or worker.result())
        self.await_progress(job)
        for event in ("death", "silence", "leave"):
            self.assertNotIn(f"event={event}", self.switch.log())

    def fragments(self):
        """Packets that some host cut up, so far."""
        total = 0
        for host in (self.net.switch, *self.net.names[:2]):
            names, values = (line.split() for line in call(*self.inside(host), "cat", "/proc/net/snmp").splitlines()
                             if line.startswith("Ip:"))
            total += int(values[names.index("FragCreates")])
        return total

    def all_kinds(self, plane):
        self.start(plane, 1500)
        self.forge("--seconds", str(FORGING_S))
        self.assert_unharmed("first")
        self.sum_in_job("second")
        self.await_progress("second")
        self.end(self.switch)

    def fragmentation_needed(self, plane):
        before = self.start(plane, 9000)
        self.forge("--needed")
        cut_up = self.fragments()
        self.assert_unharmed("first")
        self.sum_in_job("second")
        after = self.await_progress("second")
        self.assertEqual(after["words"], before["words"], "the second job has smaller packets")
        self.assertEqual(self.fragments(), cut_up, "packets are cut up")
        self.end(self.switch)

    def test_all_kinds_leave_a_job_alone(self):
        self.all_kinds("udp")

    def test_all_kinds_leave_a_job_of_the_kernels_plane_alone(self):
        self.all_kinds("xdp")

    def test_fragmentation_needed_makes_no_packet_smaller(self):
        self.fragmentation_needed("udp")

    def test_fragmentation_needed_stops_no_job_of_the_kernels_plane(self):
        self.fragmentation_needed("xdp")
