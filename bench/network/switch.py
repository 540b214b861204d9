"""`peel switch` in the namespace of the bridge, as long as the context lasts. With the plane xdp it runs at the ports of
the bridge; data packets then never get to the bridge, and results pass no queue on their way out: they are as many as the
hosts' own packets, which do."""

import json
import pathlib
import secrets
import subprocess

from hosts import RigError

PORT = 7077


class Switch:
    def __init__(self, program, hosts, scratch, mtu, plane="udp", options=()):
        self.program = program
        self.prefix = ["ip", "netns", "exec", hosts.switch, program, "switch"]
        self.address = f"{hosts.switch_address}:{PORT}"
        self.secret_file = pathlib.Path(scratch) / "secret"
        self.secret_file.write_text(secrets.token_hex() + "\n")
        self.plane = ["--mtu", str(mtu)] if plane == "udp" else ["--plane", plane, "--interface", ",".join(hosts.ports)]
        self.plane += options
        if plane == "xdp":
            hosts.take_redirects()
        # What workers need to find it.
        self.options = ["--switch", self.address, "--secret-file", str(self.secret_file)]

    def __enter__(self):
        self.process = subprocess.Popen(
            [*self.prefix, "--listen", self.address, *self.plane, "--secret-file", str(self.secret_file)],
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        if not self.process.stdout.readline().startswith("listening"):
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

    def status(self, *options):
        done = subprocess.run([*self.prefix, "status", "--connect", self.address, "--secret-file",
                               str(self.secret_file), *options], capture_output=True, text=True)
        return done.stdout + done.stderr

    def status_json(self):
        return json.loads(self.status("--json", "-"))
