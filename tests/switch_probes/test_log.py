"""The log: whoever reads it may stop or end, and neither holds up the switch nor ends it."""

import fcntl
import os
import pathlib
import re
import signal
import socket

import playground
from networks import NetworkProbe
from playground import Probe, eventually

import wire  # bench/network, which playground puts on the path
from switch import PORT

JOBS = 700  # each writes three lines: more than the pipe and the queue of the log hold
PIPE_BYTES = 4096


class Log(Probe):
    def start_with_pipe(self):
        reader, writer = os.pipe()
        fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        switch = self.start_switch(stderr=writer)
        os.close(writer)
        return switch, reader

    def join_and_leave(self, switch, jobs):
        """Jobs of one worker that does nothing else."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.connect(("127.0.0.1", switch.port))
            one.settimeout(0.2)
            secret = self.secret.encode()
            for number in range(jobs):
                told = {"incarnation": wire.nonce(), "workers": 1, "words": 300, "slot_count": 1, "name": b"job %d" % number}
                told["challenge"] = self.ask(one, wire.CHALLENGE, wire.HELLO, **told)["challenge"]
                admitted = self.ask(one, wire.ADMITTED, wire.JOIN, secret, **told)
                told |= {"job": admitted["job"], "cookie": admitted["cookie"]}
                self.ask(one, wire.LEFT, wire.LEAVE, secret, **told)

    @staticmethod
    def ask(one, answer, verb, secret=None, **fields):
        def once():
            one.send(wire.control(verb, secret, **fields))
            try:
                while told := wire.read(one.recv(65536)):
                    if told["verb"] == answer and told["incarnation"] == fields["incarnation"]:
                        return told
            except TimeoutError:
                return None

        return eventually(once)

    def test_a_reader_that_stops_stops_nothing(self):
        switch, reader = self.start_with_pipe()
        workers = self.workers(switch, repeat=10**6)
        self.await_rounds(switch)
        self.join_and_leave(switch, JOBS)
        self.assertTrue(all(worker.running() for worker in workers))
        rounds = self.await_rounds(switch)[0]["rounds"]
        self.await_rounds(switch, rounds=rounds + 1)
        said = b""

        def lost_lines():  # it reads on, and is told what it missed
            nonlocal said
            said += os.read(reader, 65536)
            return re.search(rb"event=lost lines=(\d+)\n", said)

        found = eventually(lost_lines)
        lines = said[:found.start()].count(b"\n")
        self.assertGreater(lines, 100)
        self.assertLess(lines + int(found[1]), 3 * JOBS + 100)
        self.assertGreater(lines + int(found[1]), 3 * JOBS)
        self.join_and_leave(switch, 1)
        eventually(lambda: b"event=end" in os.read(reader, 65536))
        os.close(reader)

    def test_a_switch_ends_though_nobody_reads_its_log(self):
        switch, reader = self.start_with_pipe()
        self.join_and_leave(switch, 100)
        switch.send_signal(signal.SIGTERM)
        self.assertEqual(switch.wait(20), 0)
        os.close(reader)

    def test_a_reader_that_ends_ends_nothing(self):
        switch, reader = self.start_with_pipe()
        os.close(reader)
        self.join_and_leave(switch, 3)
        self.assert_sums(self.workers(switch))
        self.assertIsNone(switch.poll())
        switch.send_signal(signal.SIGTERM)
        self.assertEqual(switch.wait(playground.PATIENCE), 0)


class LogOfTheKernelsPlane(NetworkProbe):
    def test_who_writes_it_has_no_privileges(self):
        net = self.hosts(1, 1500)
        switch = self.start_switch(*self.xdp_options(net), listen=f"{net.switch_address}:{PORT}",
                                   prefix=self.inside(net.switch))
        threads = list(pathlib.Path(f"/proc/{switch.pid}/task").iterdir())
        self.assertEqual(len(threads), 2)

        def bare(thread):
            told = dict(line.split(":\t", 1) for line in (thread / "status").read_text().splitlines() if ":\t" in line)
            return told["Seccomp"] == "2" and told["NoNewPrivs"] == "1" and int(told["CapBnd"], 16) == 0

        eventually(lambda: all(map(bare, threads)))
        self.end(switch)
        self.assertIn("event=stop", switch.log())
