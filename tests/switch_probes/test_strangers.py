"""Strangers: what they send again, what they flood with, what they get back, and what a bad network does."""

import json
import socket
import struct
import subprocess
import sys

import playground
from playground import SOURCE, Probe
from relay import Relay

import wire  # bench/network, which playground puts on the path

ELSEWHERE = "127.0.0.9"
UDP_SEGMENT = 103  # sends one buffer as many datagrams; Python has no name for it


class Strangers(Probe):
    def send_from_elsewhere(self, switch, packets):
        """What comes back for each."""
        replies = []
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind((ELSEWHERE, 0))
            stranger.settimeout(0.02)
            for port, packet in packets:
                stranger.sendto(packet, ("127.0.0.1", port))
                came = []
                try:
                    while True:
                        came.append(stranger.recv(65536))
                except OSError:
                    replies.append(came)
        return replies

    def record(self, switch, action):
        """What workers or a client of the switch send."""
        with Relay("127.0.0.1", "127.0.0.2", switch.port) as relay:
            action(relay.address)
        return relay.recorded

    def test_what_was_seen_is_of_no_use_elsewhere(self):
        switch = self.start_switch()

        def ask(address):
            done = self.run_peel("switch", "status", "--connect", address, "--secret-file", str(self.secret_file))
            self.assertEqual(done.returncode, 0, done.stderr)

        seen = self.record(switch, ask)
        seen += self.record(switch, lambda address: self.assert_sums(self.workers(switch, address=address)))
        control = [(port, packet) for port, packet in seen if wire.read(packet)]
        verbs = {wire.read(packet)["verb"] for _, packet in control}
        self.assertLessEqual({wire.HELLO, wire.JOIN, wire.QUERY, wire.PROBE, wire.LEAVE}, verbs)
        some = {packet: (port, packet) for port, packet in seen}
        chosen = list(some.values())[:200]
        for (_, packet), came in zip(chosen, self.send_from_elsewhere(switch, chosen)):
            self.assertLessEqual(sum(map(len, came)), len(packet))
            for reply in came:
                told = wire.read(reply)
                self.assertTrue(told is None or told["verb"] in (wire.CHALLENGE, wire.REFUSED, wire.LEFT), told)
        status = self.status(switch)
        self.assertEqual((status["jobs_now"], status["slots_held"]), (0, 0))

    def test_signs_of_life_of_others_do_not_count(self):
        switch = self.start_switch()
        with Relay("127.0.0.1", "127.0.0.2", switch.port) as relay:
            workers = self.workers(switch, address=relay.address, repeat=10**6)
            self.await_rounds(switch)
            playground.eventually(lambda: [packet for _, packet in list(relay.recorded)
                                           if (wire.read(packet) or {}).get("verb") == wire.KEEPALIVE])
            beats = [(switch.port, packet) for _, packet in list(relay.recorded)
                     if (wire.read(packet) or {}).get("verb") == wire.KEEPALIVE][:20]
            for came in self.send_from_elsewhere(switch, beats):
                self.assertEqual(came, [])  # nothing is said to who only saw it
            self.assertTrue(all(worker.running() for worker in workers))

    def test_no_reply_is_longer_than_what_it_answers(self):
        switch = self.start_switch()
        junk = {"incarnation": 7, "challenge": 8, "cookie": 9, "workers": 2, "words": 358, "slot_count": 16,
                "name": b"x", "mac": b"m" * 16}
        for port in (switch.port, switch.port + 1):
            packets = [wire.control(verb, length=length, **junk) for verb in range(0, 20)
                       for length in (wire.CONTROL_BYTES, 169, wire.QUERY_BYTES, 8972, 65507)]
            packets += [wire.data(job=job, cookie=3, words=b"word" * words) for job in (0, 5000) for words in (1, 350)]
            packets += [packet[:length] for packet in packets[:5] for length in (1, 3, 4, 39, 40, 167)]
            replies = self.send_from_elsewhere(switch, [(port, packet) for packet in packets])
            for packet, came in zip(packets, replies):
                self.assertLessEqual(sum(map(len, came)), len(packet))
        self.assert_sums(self.workers(switch))

    def overrun(self, switch):
        """More requests than the budget has, in so few calls that no machine is too slow for it."""
        hello = wire.control(wire.HELLO, incarnation=wire.nonce())
        cut_up = [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", len(hello)))]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for _ in range(60):
                stranger.sendmsg([hello * 50], cut_up, 0, ("127.0.0.1", switch.port))

    def flood(self, kind, port):
        """One that has begun, and lasts until it is told to end."""
        flooder = subprocess.Popen(
            [sys.executable, "-B", str(SOURCE / "bench/network/flooder.py"), kind, "127.0.0.1", str(port), "--rate", "4000",
             "--announce"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(self._end, flooder)
        self.assertGreater(json.loads(flooder.stdout.readline())["sent"], 0)
        return flooder

    def test_floods_leave_sums_right_and_are_told(self):
        switch = self.start_switch()
        for kind in ("control64k", "hello", "join", "proven", "query", "probe", "keepalive", "data", "data64k", "random"):
            with self.subTest(kind):
                floods = [self.flood(kind, port) for port in (switch.port, switch.port + 1)]
                for _ in range(3):  # they last longer than that
                    self.assert_sums(self.workers(switch, job=kind, words=20000, repeat=8))
                self.status(switch)
                for flood in floods:
                    self.assertIsNone(flood.poll())
                    flood.terminate()
                    report = json.loads(flood.communicate(timeout=playground.PATIENCE)[0])
                    self.assertGreater(report["sent"], 0)
                    self.assertLessEqual(report["reply_bytes"], report["sent_bytes"])
        self.overrun(switch)
        dropped = self.status(switch)["dropped"]
        for reason in ("malformed", "unproven", "unsigned", "budget", "unread"):
            self.assertGreater(dropped[reason], 0, dropped)
        playground.eventually(lambda: "event=drops reason=budget" in switch.log(), 30)

    def test_a_network_that_loses_doubles_reorders_and_damages(self):
        switch = self.start_switch("--threads", "2")
        for options in ({"lose": 0.05}, {"double": 0.1, "hold": 0.1}, {"damage": 0.05},
                        {"lose": 0.03, "double": 0.03, "hold": 0.03, "damage": 0.03}):
            with self.subTest(options), Relay("127.0.0.1", "127.0.0.2", switch.port, lanes=2, **options) as relay:
                self.assert_sums(self.workers(switch, address=relay.address, words=20000, repeat=4,
                                              job=f"bad network {options}"[:60]))
        self.assertGreater(self.status(switch)["dropped"]["corrupt"], 0)

    def test_signed_jobs_refuse_what_others_make(self):
        """Who sits on the path can change words and make the check add up; not where jobs are signed."""
        for options, forged in ((), True), (("--sign",), False):
            switch = self.start_switch(*options)
            with Relay("127.0.0.1", "127.0.0.2", switch.port, forge=0.05) as relay:
                workers = self.workers(switch, address=relay.address, words=20000, repeat=4)
                if forged:
                    self.assertIn("results were wrong", "".join(worker.result()[1] for worker in workers))
                else:
                    self.assert_sums(workers)
                    self.assertGreater(self.status(switch)["dropped"]["corrupt"], 0)
