"""What the probes of a switch need: a switch, workers, and what they say. PEEL is the program, SOURCE_DIR the sources."""

import contextlib
import json
import os
import pathlib
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

SOURCE = pathlib.Path(os.environ.get("SOURCE_DIR") or pathlib.Path(__file__).resolve().parents[2])
PEEL = os.environ.get("PEEL") or str(SOURCE / "build/release/peel")
sys.path.insert(0, str(SOURCE / "bench/network"))

slow = unittest.skipUnless(os.environ.get("PEEL_TEST_SLOW"), "takes longer; PEEL_TEST_SLOW=1 runs it")

PATIENCE = 60  # for anything that a busy machine may take long for, and that does not fail


def free_ports(count, host="127.0.0.1"):
    """The first of some ports in a row that nobody uses, nor gets from the kernel without having asked for it."""
    lowest = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    last = lowest if lowest > 20000 else 65535
    while True:
        port = random.randrange(10000, last - count)
        with contextlib.ExitStack() as held:
            try:
                for i in range(count):
                    held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).bind((host, port + i))
            except OSError:
                continue
            return port


def eventually(what, seconds=PATIENCE):
    """What it gives as soon as that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen")


class Worker:
    """`peel bench switch`, which verifies every result."""

    def __init__(self, probe, address, rank, workers, job="probe", words=2000, repeat=4, prefix=(), options=(),
                 secret_file=None):
        self.process = subprocess.Popen(
            [*prefix, PEEL, "bench", "switch", "--switch", address, "--secret-file",
             str(secret_file or probe.secret_file), "--job", job, "--rank", str(rank), "--workers", str(workers),
             "--words", str(words), "--repeat", str(repeat), "--json", "-", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        probe.addCleanup(self._end)

    def _end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.communicate()

    def running(self):
        return self.process.poll() is None

    def result(self, seconds=PATIENCE):
        """Exit status, and what it said."""
        out, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, out + err


class Probe(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) if hasattr(
            self, "enterContext") else self._folder()
        self.secret = secrets.token_hex(16)
        self.secret_file = self.write("secret", self.secret + "\n")
        self.switches = 0

    def _folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return pathlib.Path(folder.name)

    def write(self, name, text, mode=0o600):
        path = self.folder / name
        path.write_bytes(text.encode())
        path.chmod(mode)
        return path

    def start_switch(self, *options, listen=None, prefix=(), keys=None, stderr=None):
        """The process, with its `address`, `port` and `log`, which is empty where standard error goes elsewhere."""
        keys = ("--secret-file", str(self.secret_file)) if keys is None else keys
        for _ in range(5):  # another test may take the ports in between
            self.switches += 1
            log = self.folder / f"log{self.switches}"
            with open(log, "w") as errors:
                switch = subprocess.Popen(
                    [*prefix, PEEL, "switch", "--listen", listen or f"127.0.0.1:{free_ports(5)}", *keys, *options],
                    stdout=subprocess.PIPE, stderr=errors if stderr is None else stderr, text=True)
            self.addCleanup(self._end, switch)
            line = switch.stdout.readline()
            if line or listen or "Choose another address" not in log.read_text():
                break
        self.assertTrue(line.startswith("listening on "), f"it does not start: {line}{log.read_text()}")
        switch.first_line = line
        switch.address = line.split(",")[0].removeprefix("listening on ")
        switch.port = int(switch.address.rsplit(":", 1)[1])
        switch.log = log.read_text
        return switch

    @staticmethod
    def _end(switch):
        if switch.poll() is None:
            switch.send_signal(signal.SIGCONT)
            switch.kill()
        switch.communicate()

    def run_peel(self, *words, environment=None):
        return subprocess.run([PEEL, *words], capture_output=True, text=True, timeout=PATIENCE,
                              env={**os.environ, **(environment or {})})

    def status(self, switch, *options, prefix=()):
        done = subprocess.run([*prefix, PEEL, "switch", "status", "--connect", switch.address, "--secret-file",
                               str(self.secret_file), "--json", "-", "--timeout", "20", *options],
                              capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def workers(self, switch, count=2, address=None, **options):
        return [Worker(self, address or switch.address, rank, count, **options) for rank in range(count)]

    def assert_sums(self, workers):
        for worker in workers:
            code, said = worker.result()
            self.assertEqual(code, 0, said)
            self.assertEqual(json.loads(said)["wrong"], 0)

    def await_rounds(self, switch, job="probe", rounds=1, **how):
        """Until the job has combined something."""
        return eventually(lambda: [one for one in self.status(switch, **how)["jobs"]
                                   if one["name"] == job and one["rounds"] >= rounds])
