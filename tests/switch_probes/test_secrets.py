"""Who gets in: secrets that are weak, readable, wrong, of a tenant, or replaced while the switch runs."""

import os
import signal
import threading
import unittest

import playground
from playground import Probe, eventually


class Secrets(Probe):
    def refused(self, sentence, *words, **how):
        done = self.run_peel(*words, **how)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(sentence, done.stderr)

    def start_refused(self, sentence, *words, **how):
        self.refused(sentence, "switch", "--listen", "127.0.0.1:0", *words, **how)

    def test_weak_secrets_are_refused_by_both_sides(self):
        for weak in ("a", "letmein", "aaaaaaaaaaaaaaaaaaaaaaaaaa", "abababababababababababab",
                     "passwordpassword", "0123456789abcdef"):
            file = str(self.write("weak", weak + "\n"))
            self.start_refused("can be guessed", "--secret-file", file)
            self.refused("can be guessed", "switch", "status", "--connect", "127.0.0.1:9", "--secret-file", file)
            self.refused("can be guessed", "bench", "switch", "--switch", "127.0.0.1:9", "--secret-file", file)
            self.start_refused("can be guessed", environment={"PEEL_SWITCH_SECRET": weak})

    def test_files_that_everybody_can_read_are_refused(self):
        file = str(self.write("open", self.secret, mode=0o644))
        self.start_refused("chmod 600", "--secret-file", file)
        self.start_refused("chmod 600", "--tenants", file)
        self.refused("chmod 600", "switch", "status", "--connect", "127.0.0.1:9", "--secret-file", file)

    def test_files_that_others_can_write_are_refused(self):
        for mode in (0o620, 0o602, 0o660):
            file = str(self.write("open", self.secret, mode=mode))
            self.start_refused("chmod 600", "--secret-file", file)
            self.start_refused("chmod 600", "--tenants", file)

    @unittest.skipUnless(os.geteuid() == 0, "only root can give files away")
    def test_files_of_other_users_are_refused(self):
        file = self.write("foreign", self.secret)
        os.chown(file, 12345, -1)
        self.start_refused("belongs to another user", "--secret-file", str(file))
        self.start_refused("belongs to another user", "--tenants", str(file))
        self.refused("belongs to another user", "bench", "switch", "--switch", "127.0.0.1:9", "--secret-file", str(file))

    def test_files_that_the_group_can_read_are_taken(self):
        switch = self.start_switch(keys=("--secret-file", str(self.write("group", self.secret, mode=0o640))))
        self.assert_sums(self.workers(switch))

    def test_comments_are_no_secrets(self):
        comment = "# secret of the switch, ask ops"
        file = self.write("commented", f"{comment}\n{self.secret}\n")
        switch = self.start_switch(keys=("--secret-file", str(file)))
        self.assert_sums(self.workers(switch, secret_file=file))
        done = self.run_peel("switch", "status", "--connect", switch.address,
                             environment={"PEEL_SWITCH_SECRET": comment})
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("another secret", done.stderr)

    def test_blanks_around_a_secret_do_not_count(self):
        switch = self.start_switch(keys=("--secret-file", str(self.write("blanks", f"  {self.secret}\n"))))
        done = self.run_peel("switch", "status", "--connect", switch.address,
                             environment={"PEEL_SWITCH_SECRET": f" \t{self.secret} "})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_empty_files_and_none_are_refused(self):
        self.start_refused("needs a secret", "--secret-file", str(self.write("empty", "\n \r\n")))
        self.start_refused("cannot read", "--secret-file", str(self.folder / "nowhere"))
        self.start_refused("names no tenant", "--tenants", str(self.write("nobody", "# nobody\n")))
        self.start_refused("line 2: a tenant is", "--tenants",
                           str(self.write("short", f"a- {self.secret}\nlonely\n")))
        self.start_refused("line 1: This secret", "--tenants", str(self.write("weak", "a- guess\n")))

    def test_line_ends_of_any_system_are_forgiven(self):
        switch = self.start_switch(keys=("--secret-file", str(self.write("crlf", f"\r\n{self.secret} \r\n"))))
        self.assert_sums(self.workers(switch))

    def test_another_secret_is_named_in_time(self):
        switch = self.start_switch()
        other = self.write("other", "another secret of 32 characters\n")
        self.refused("another secret", "switch", "status", "--connect", switch.address, "--secret-file", str(other))
        code, said = playground.Worker(self, switch.address, 0, 1, secret_file=other).result(seconds=20)
        self.assertNotEqual(code, 0)
        self.assertIn("secret", said)
        eventually(lambda: 'why="wrong secret"' in switch.log())
        self.refused("did not answer", "switch", "status", "--connect", f"127.0.0.1:{playground.free_ports(1)}",
                     "--timeout", "0.3", "--secret-file", str(self.secret_file))

    def test_a_secret_is_replaced_without_a_gap(self):
        switch = self.start_switch()
        old, new = self.secret_file.read_text(), "the secret that comes after it\n"
        fresh = self.write("new", new)
        staying = self.workers(switch, job="stays", repeat=100000)
        self.await_rounds(switch, "stays")

        def replace(text):
            lines = switch.log().count("event=reload")
            self.secret_file.write_text(text)
            switch.send_signal(signal.SIGHUP)
            eventually(lambda: switch.log().count("event=reload") > lines)

        replace(old + new)  # both
        keep = self.write("old", old)
        self.assert_sums(self.workers(switch, job="by the old", secret_file=keep))
        self.assert_sums(self.workers(switch, job="by the new", secret_file=fresh))
        replace(new)
        self.assertIn("another secret", self.run_peel("switch", "status", "--connect", switch.address,
                                                      "--secret-file", str(keep)).stderr)
        self.assert_sums(self.workers(switch, job="by the new alone", secret_file=fresh))
        replace("weak\n")  # the last good ones stay
        self.assertIn("failed=", switch.log())
        self.assert_sums(self.workers(switch, job="still", secret_file=fresh))
        self.assertTrue(all(worker.running() for worker in staying))  # who is in stays in

    def test_a_secret_that_comes_by_a_pipe_is_read_once(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe, 0o600)
        writer = threading.Thread(target=pipe.write_text, args=(self.secret_file.read_text(),))
        writer.start()
        switch = self.start_switch(keys=("--secret-file", str(pipe)))
        writer.join()
        switch.send_signal(signal.SIGHUP)
        eventually(lambda: "event=reload" in switch.log())
        self.assertIn("not a plain file", switch.log())
        self.assert_sums(self.workers(switch, job="goes on"))

    def test_tenants_see_and_enter_only_their_jobs(self):
        vision, other = "the secret of vision 0123", "the secret of all others 4567"
        tenants = self.write("tenants", f"# who may what\nvision-  {vision}\r\n*\t{other}\n")
        vision_file, other_file = self.write("vision", vision), self.write("others", other)
        switch = self.start_switch(keys=("--tenants", str(tenants)))
        self.workers(switch, job="vision-7", secret_file=vision_file, repeat=100000)
        self.workers(switch, job="speech 1", secret_file=other_file, repeat=100000)
        self.secret_file = other_file
        eventually(lambda: len(self.status(switch)["jobs"]) == 2)
        self.secret_file = vision_file
        self.assertEqual([job["name"] for job in self.status(switch, "--jobs", "vision-")["jobs"]], ["vision-7"])
        for job, wrong in (("vision-8", other_file), ("speech 2", vision_file)):
            code, said = playground.Worker(self, switch.address, 0, 1, job=job, secret_file=wrong).result(seconds=20)
            self.assertNotEqual(code, 0)
            self.assertIn("secret", said)
        self.refused("another secret", "switch", "status", "--connect", switch.address, "--secret-file",
                     str(vision_file))

    def test_one_kind_of_secrets_at_a_time(self):
        done = self.run_peel("switch", "--tenants", str(self.secret_file), "--secret-file", str(self.secret_file))
        self.assertEqual(done.returncode, 2, done.stderr)
