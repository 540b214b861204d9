"""`peel switch` in the namespace of the bridge, as long as the context lasts. With the plane xdp it runs at the ports of
the bridge; data packets then never get to the bridge, and results pass no queue on their way out: they are as many as the
hosts' own packets, which do."""

import json
import pathlib
import secrets
import subprocess
import sys

from hosts import RigError

PORT = 7077  # of control packets; behind it there is one for each thread
PORTS = (PORT, PORT + 16)


class Switch:
    def __init__(self, program, hosts, scratch, mtu, plane="udp", options=()):
        self.program = program
        self.prefix = ["ip", "netns", "exec", hosts.switch, program, "switch"]
        self.address = f"{hosts.switch_address}:{PORT}"
        self.secret_file = pathlib.Path(scratch) / "secret"
        self.secret_file.touch(0o600)
        self.secret_file.write_text(secrets.token_hex() + "\n")
        self.log_file = pathlib.Path(scratch) / "log"
        self.plane = ["--mtu", str(mtu)] if plane == "udp" else ["--plane", plane, "--interface", ",".join(hosts.ports)]
        self.plane += options
        if plane == "xdp":
            hosts.take_redirects()
        # What workers need to find it.
        self.options = ["--switch", self.address, "--secret-file", str(self.secret_file)]

    def __enter__(self):
        with open(self.log_file, "w") as log:
            self.process = subprocess.Popen(
                [*self.prefix, "--listen", self.address, *self.plane, "--secret-file", str(self.secret_file)],
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
        started = self.process.stdout.readline().startswith("listening")
        # What it says to people, without the events that it logs.
        said = [line for line in self.log_file.read_text().splitlines(True) if not line.startswith("time=")]
        print(*said, sep="", end="", file=sys.stderr)
        if not started:
            self.process.wait()
            raise RigError("peel switch did not start; see what it says above")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def status(self, *options, host=None):
        """As a host sees it; the switch's own, unless one is named."""
        prefix = ["ip", "netns", "exec", host, self.program, "switch"] if host else self.prefix
        done = subprocess.run([*prefix, "status", "--connect", self.address, "--secret-file", str(self.secret_file),
                               *options], capture_output=True, text=True)
        return done.stdout + done.stderr

    def status_json(self, host=None):
        said = self.status("--json", "-", host=host)
        try:
            return json.loads(said)
        except ValueError:
            raise RigError(f"peel switch status failed: {said.strip()}") from None
