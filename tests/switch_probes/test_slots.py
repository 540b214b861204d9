"""What the switch has, says at its start, deals out, and writes down."""

import re

import playground
from playground import Probe, eventually


class Slots(Probe):
    def refused(self, sentence, *words):
        done = self.run_peel("switch", "--secret-file", str(self.secret_file), *words)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn(sentence, done.stderr)

    def test_memory_is_told_and_limited(self):
        switch = self.start_switch()
        self.assertIn("16384 slots of 2233 words in up to 293 MB, 512 of a job, at least 512 for each of 32 jobs",
                      switch.first_line)
        self.refused("allow it with --memory 17928", "--listen", "127.0.0.1:0", "--slots", "1048576")
        self.refused("more than --memory allows", "--listen", "127.0.0.1:0", "--memory", "100")
        self.start_switch("--memory", "12", "--slots", "8192", "--mtu", "700")

    def test_ports_that_are_not_are_refused(self):
        self.refused("listen on a lower one", "--listen", "127.0.0.1:65535")
        self.refused("listen on a lower one", "--listen", "127.0.0.1:65534", "--threads", "2")
        for port in ("", "70000", "7077x", "-1"):
            self.refused("no port from 0 to 65535", "--listen", f"127.0.0.1:{port}")

    def test_every_job_that_may_come_has_its_share(self):
        switch = self.start_switch("--slots", "64", "--job-slots", "64", "--jobs", "4")
        for number in range(4):
            self.workers(switch, job=f"job {number}", repeat=10**6)
        jobs = eventually(lambda: (now := self.status(switch)["jobs"]) and len(now) == 4 and now)
        self.assertEqual([job["slots"] for job in jobs], [16] * 4)
        code, said = playground.Worker(self, switch.address, 0, 1, job="one more").result(seconds=20)
        self.assertNotEqual(code, 0)
        self.assertIn("room", said)
        eventually(lambda: re.search(r'event=refuse job="one more" .*why="no room"', switch.log()))
        self.assertIn("slots_wanted=", switch.log())

    def test_a_benchmark_tells_that_it_got_fewer_slots(self):
        switch = self.start_switch("--slots", "64", "--job-slots", "64", "--jobs", "4")
        for slots, told in ((switch, True), (self.start_switch(), False)):
            done = self.run_peel("bench", "allreduce", "--transport", "switch", "--switch", slots.address, "--secret-file",
                                 str(self.secret_file), "--workers", "2", "--elements", "2^12", "--repeat", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("gave 16 of the 512 slots" in done.stderr, told, done.stderr)

    def test_a_second_job_of_the_same_name_leaves_the_first_alone(self):
        switch = self.start_switch()
        first = self.workers(switch, repeat=10**6)
        self.await_rounds(switch)
        for worker in self.workers(switch):
            code, said = worker.result(seconds=30)
            self.assertNotEqual(code, 0)
            self.assertIn("taken", said)
        self.assertTrue(all(worker.running() for worker in first))

    def test_names_come_out_as_text_and_never_raw(self):
        switch = self.start_switch()
        name = 'r "7" \x1b[2J=\\'
        workers = self.workers(switch, job=name, repeat=10**6)
        self.await_rounds(switch, name)
        shown = 'r "7" \\x1b[2J=\\\\'
        connect = ("switch", "status", "--connect", switch.address, "--secret-file", str(self.secret_file))
        self.assertIn(shown, self.run_peel(*connect).stdout)
        self.assertIn('name="r \\"7\\" \\\\x1b[2J=\\\\\\\\"', self.run_peel(*connect, "--prometheus").stdout)
        self.assertIn('job="r \\"7\\" \\x1b[2J=\\\\"', switch.log())
        self.assertNotIn("\x1b", switch.log())
        for line in switch.log().splitlines():
            self.assertRegex(line, r"^time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z event=\w+")
        self.assertTrue(all(worker.running() for worker in workers))
