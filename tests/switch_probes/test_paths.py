"""Paths: hosts with several addresses, routers with a smaller MTU, workers with different ones. In network namespaces."""

import playground
from networks import NetworkProbe
from playground import Worker

from hosts import call  # bench/network, which playground puts on the path


class Paths(NetworkProbe):
    def test_replies_come_from_the_address_that_was_asked(self):
        switch_host, worker_host = self.host("switch"), self.host("0")
        self.link(switch_host, worker_host, "eth0", (["10.78.1.254", "10.78.1.253"], ["10.78.1.1"]), 1500)
        for options in ((), ("--threads", "2")):
            switch = self.start_switch(*options, listen=":7077", prefix=self.inside(switch_host))
            for address in ("10.78.1.253", "10.78.1.254"):
                self.assert_sums(self.workers(switch, address=f"{address}:7077", prefix=self.inside(worker_host)))
                switch.address = f"{address}:7077"
                self.status(switch, prefix=self.inside(worker_host))
            self.end(switch)

    def test_a_router_with_a_smaller_mtu_that_says_nothing(self):
        switch_host, router, worker_host = self.host("switch"), self.host("router"), self.host("0")
        self.link(worker_host, router, "left", (["10.78.1.1"], ["10.78.1.254"]), 9000)
        self.link(router, switch_host, "right", (["10.78.2.1"], ["10.78.2.254"]), 1400)
        # The switch's own end would send more, too: only the path is narrow.
        call("ip", "-n", switch_host, "link", "set", "right", "mtu", "9000")
        call(*self.inside(router), "sysctl", "-qw", "net.ipv4.ip_forward=1")
        call("ip", "-n", worker_host, "route", "add", "default", "via", "10.78.1.254")
        call("ip", "-n", switch_host, "route", "add", "default", "via", "10.78.2.1")
        nft = (*self.inside(router), "nft")
        call(*nft, "add", "table", "inet", "quiet")
        call(*nft, "add", "chain", "inet", "quiet", "out", "{ type filter hook output priority 0 ; }")
        call(*nft, "add", "rule", "inet", "quiet", "out", "icmp", "type", "destination-unreachable", "drop")
        switch = self.start_switch(listen="10.78.2.254:7077", prefix=self.inside(switch_host))
        workers = self.workers(switch, prefix=self.inside(worker_host), repeat=10**6, words=20000)
        job = self.await_rounds(switch, prefix=self.inside(switch_host), rounds=100)[0]
        self.assertLessEqual(job["words"], (1400 - 28 - 40) // 4)
        self.assertGreaterEqual(job["words"], (1280 - 28 - 40) // 4)
        self.assertTrue(all(worker.running() for worker in workers))
        self.status(switch, prefix=self.inside(worker_host))  # whose question is too long for this path at first

    def test_workers_with_different_mtus_in_any_order(self):
        switch_host = self.host("switch")
        worker_hosts = []
        for i, mtu in enumerate((9000, 1500, 4000)):
            worker_hosts.append(self.host(str(i)))
            self.link(switch_host, worker_hosts[i], f"eth{i}", ([f"10.78.{i}.254"], [f"10.78.{i}.1"]), mtu)
        switch = self.start_switch(listen=":7077", prefix=self.inside(switch_host))
        switch.address = "127.0.0.1:7077"
        for number, order in enumerate(((0, 1, 2), (1, 2, 0), (2, 0, 1))):
            job = f"order {number}"
            workers = []
            for rank in order:
                workers.append(Worker(self, f"10.78.{rank}.254:7077", rank, 3, job=job, words=20000, repeat=10**6,
                                      prefix=self.inside(worker_hosts[rank])))
                playground.eventually(lambda: any(
                    f'job="{job}"' in line and f"worker={rank} " in line for line in switch.log().splitlines()))
            seen = self.await_rounds(switch, job, prefix=self.inside(switch_host))[0]
            self.assertEqual(seen["words"], (1500 - 28 - 40) // 4)
            self.assertTrue(all(worker.running() for worker in workers))
            for worker in workers:
                worker.process.kill()
