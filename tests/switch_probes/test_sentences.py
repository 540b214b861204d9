"""Whatever keeps a worker out is named in one sentence within five seconds, and what should work does by then."""

import time

from networks import NetworkProbe
from playground import Probe, Worker, slow

from hosts import call  # bench/network, which playground puts on the path

LIMIT_S = 5


def assert_says(probe, worker, began, words):
    code, said = worker.result()
    probe.assertLess(time.monotonic() - began, LIMIT_S, said)
    probe.assertNotEqual(code, 0)
    probe.assertIn(words, said)


@slow
class Sentences(Probe):
    def test_a_wrong_secret(self):
        switch = self.start_switch()
        other = self.write("other", "another secret of 32 characters\n")
        began = time.monotonic()
        for worker in self.workers(switch, secret_file=other):
            assert_says(self, worker, began, "another secret")

    def test_exhausted_slots(self):
        switch = self.start_switch("--jobs", "1")
        self.workers(switch, job="first", repeat=10**6)
        self.await_rounds(switch, "first")
        began = time.monotonic()
        for worker in self.workers(switch, job="second"):
            assert_says(self, worker, began, "no room for another job")


@slow
class SentencesOfPaths(NetworkProbe):
    def test_several_addresses(self):
        switch_host, worker_host = self.host("switch"), self.host("0")
        self.link(switch_host, worker_host, "eth0", (["10.78.1.254", "10.78.1.253"], ["10.78.1.1"]), 1500)
        switch = self.start_switch(listen=":7077", prefix=self.inside(switch_host))
        began = time.monotonic()
        self.assert_sums(self.workers(switch, address="10.78.1.253:7077", prefix=self.inside(worker_host)))
        self.assertLess(time.monotonic() - began, LIMIT_S)

    def test_a_path_that_carries_too_little(self):
        switch_host, router, worker_host = self.host("switch"), self.host("router"), self.host("0")
        self.link(worker_host, router, "left", (["10.78.1.1"], ["10.78.1.254"]), 9000)
        self.link(router, switch_host, "right", (["10.78.2.1"], ["10.78.2.254"]), 400)
        call(*self.inside(router), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        call("ip", "-n", worker_host, "route", "add", "default", "via", "10.78.1.254")
        call("ip", "-n", switch_host, "route", "add", "default", "via", "10.78.2.1")
        switch = self.start_switch(listen="10.78.2.254:7077", prefix=self.inside(switch_host))
        began = time.monotonic()
        worker = Worker(self, switch.address, 0, 2, prefix=self.inside(worker_host))
        assert_says(self, worker, began, "no packet of 576 bytes gets there and back")
