"""Death is noticed, and a pause is not taken for it. Before there were signs of life, it took the whole time-out: 30 s."""

import signal
import subprocess
import sys
import time

from networks import NetworkProbe
from playground import Probe, Worker, eventually, free_ports, slow

from switch import PORT  # bench/network, which playground puts on the path

SOON = 8  # seconds: below the silence that counts as death without further proof, with room for a busy machine
SOON_OF_MANY = SOON  # by ICMP alone it takes longer
MANY = 8  # workers of one host. Its ICMP alone tells of six at once, and then of one a second


def assert_takes(probe, limit, measure):
    """Four of five times. Once more where they do not, since other work on the machine comes and goes."""
    for _ in range(2):
        times = sorted(measure() for _ in range(5))
        if times[3] < limit:
            return
    probe.fail(f"it took {times} seconds, and may take {limit}")


class Deaths(Probe):
    def start_job(self, *options, count=2):
        switch = self.start_switch(*options)
        workers = self.workers(switch, count, repeat=10**6)
        self.await_rounds(switch)
        return switch, workers

    def assert_fails_soon(self, worker, words):
        began = time.monotonic()
        code, said = worker.result()
        self.assertLess(time.monotonic() - began, SOON, said)
        self.assertNotEqual(code, 0)
        self.assertIn(words, said)

    def test_a_worker_that_is_killed_is_noticed_by_its_job_alone(self):
        switch, (first, second) = self.start_job()
        others = self.workers(switch, job="another", repeat=10**6)
        self.await_rounds(switch, "another")
        second.process.kill()
        self.assert_fails_soon(first, "gone")
        self.assertTrue(all(other.running() for other in others))
        rounds = self.await_rounds(switch, "another")[0]["rounds"]
        self.await_rounds(switch, "another", rounds + 1)
        eventually(lambda: "event=death job=probe" in switch.log())

    def test_a_switch_that_is_killed_is_noticed(self):
        switch, workers = self.start_job()
        switch.kill()
        for worker in workers:
            self.assert_fails_soon(worker, "switch")

    def test_a_switch_that_is_told_to_end_tells_its_workers(self):
        switch, workers = self.start_job()
        switch.send_signal(signal.SIGTERM)
        for worker in workers:
            self.assert_fails_soon(worker, "shut down")
        self.assertEqual(switch.wait(20), 0)
        for event in ("drain", "stop"):
            self.assertIn(f"event={event}", switch.log())

    def test_an_idle_switch_ends_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            switch = self.start_switch()
            switch.send_signal(number)
            self.assertEqual(switch.wait(20), 0)

    def test_half_joined_workers_give_their_slots_back(self):
        switch = self.start_switch()
        alone = self.workers(switch, count=2)[:1]
        for worker in self.workers(switch, count=3, job="half")[:2]:
            eventually(lambda: "job=half" in switch.log())
            worker.process.kill()
        alone[0].process.kill()
        eventually(lambda: self.status(switch)["slots_held"] == 0, SOON + 7)

    def test_a_restarted_worker_gets_its_name_back(self):
        switch, (first, second) = self.start_job()
        second.process.kill()
        first.result()
        self.assert_sums(self.workers(switch))

    def test_workers_of_the_other_family_are_noticed_as_well(self):
        switch = self.start_switch(listen=f"[::]:{free_ports(5)}")
        switch.address = f"127.0.0.1:{switch.port}"
        first, second = self.workers(switch, repeat=10**6)
        self.await_rounds(switch)
        second.process.kill()
        self.assert_fails_soon(first, "gone")
        eventually(lambda: "event=death job=probe" in switch.log())

    def test_a_switch_that_is_killed_while_workers_join_is_noticed(self):
        switch = self.start_switch()
        worker = Worker(self, switch.address, 0, 2)
        eventually(lambda: "event=join" in switch.log())
        switch.kill()
        self.assert_fails_soon(worker, "The switch at")

    def test_a_switch_that_ends_while_workers_join_tells_them(self):
        switch = self.start_switch()
        worker = Worker(self, switch.address, 0, 2)
        eventually(lambda: "event=join" in switch.log())
        switch.send_signal(signal.SIGTERM)
        self.assert_fails_soon(worker, "shut down")
        self.assertEqual(switch.wait(20), 0)

    def test_a_job_is_restarted_at_once_with_another_number_of_workers(self):
        for before, after in ((3, 2), (2, 3)):
            switch, workers = self.start_job(count=before)
            for worker in workers:
                worker.process.kill()
            self.assert_sums(self.workers(switch, after))

    def seconds_to_end(self, worker, words, strike):
        began = time.monotonic()
        strike()
        code, said = worker.result()
        took = time.monotonic() - began
        self.assertNotEqual(code, 0)
        self.assertIn(words, said)
        return took

    @slow
    def test_a_worker_that_is_killed_is_noticed_within_two_seconds(self):
        def measure():
            _, (first, second) = self.start_job()
            return self.seconds_to_end(first, "gone", second.process.kill)

        assert_takes(self, 2, measure)

    @slow
    def test_a_switch_that_is_killed_is_noticed_within_two_seconds(self):
        def measure():
            switch, (first, _) = self.start_job()
            return self.seconds_to_end(first, "switch", switch.kill)

        assert_takes(self, 2, measure)

    @slow
    def test_a_sum_that_stands_still_ends_with_the_switch_within_half_a_second(self):
        def measure():
            switch, (first, second) = self.start_job()
            second.process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)  # the other one waits for it now
            took = self.seconds_to_end(first, "shut down", lambda: switch.send_signal(signal.SIGTERM))
            second.process.kill()
            return took

        assert_takes(self, 0.5, measure)

    @slow
    def test_a_worker_that_is_stopped_for_five_seconds_is_no_alarm(self):
        self.pause(lambda switch, workers: workers[1].process)

    @slow
    def test_a_switch_that_is_stopped_for_five_seconds_is_no_alarm(self):
        self.pause(lambda switch, workers: switch)

    def pause(self, choose):
        switch, workers = self.start_job()
        stopped = choose(switch, workers)
        stopped.send_signal(signal.SIGSTOP)
        time.sleep(5)
        stopped.send_signal(signal.SIGCONT)
        time.sleep(1)
        self.assertTrue(all(worker.running() for worker in workers))
        rounds = self.await_rounds(switch)[0]["rounds"]
        self.await_rounds(switch, rounds=rounds + 1)


class DeathsOfManyOnOneHost(NetworkProbe):
    def start(self, plane="udp", count=MANY, partners=True):
        """A switch, and workers of the first host in a job each; with partners, which are on the second one."""
        self.net = self.hosts(2, 1500)
        options = self.xdp_options(self.net) if plane == "xdp" else ()
        self.switch = self.start_switch(*options, listen=f"{self.net.switch_address}:{PORT}",
                                        prefix=self.inside(self.net.switch))
        sides = [[Worker(self, self.switch.address, rank, 1 + partners, job=f"job{number}", words=200, repeat=10**7,
                         prefix=self.inside(host)) for number in range(count)]
                 for rank, host in enumerate(self.net.names[:1 + partners])]
        for number in range(count):
            self.await_rounds(self.switch, f"job{number}", prefix=self.inside(self.net.switch))
        time.sleep(3)  # each side has tried the other's TCP port by then
        return sides

    def seconds_to_end(self, workers, words, strike):
        """Until the last one ended, and said so."""
        began = time.monotonic()
        strike()
        eventually(lambda: not any(worker.running() for worker in workers))
        took = time.monotonic() - began
        for worker in workers:
            code, said = worker.result()
            self.assertNotEqual(code, 0)
            self.assertIn(words, said)
        return took

    def kill_workers(self, plane="udp"):
        first, second = self.start(plane)
        took = self.seconds_to_end(second, "gone", lambda: [worker.process.kill() for worker in first])
        self.assertEqual(self.switch.log().count("event=death"), MANY, self.switch.log())
        self.end(self.switch)
        self.net.close()
        return took

    def kill_switch(self, plane="udp", count=MANY):
        (workers,) = self.start(plane, count, partners=False)
        took = self.seconds_to_end(workers, "nobody listens", self.switch.kill)
        self.net.close()
        return took

    def end_switch(self, plane="udp"):
        """While its sums stand still, since one worker of each job is stopped."""
        first, second = self.start(plane, count=2)
        for worker in first:
            worker.process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        took = self.seconds_to_end(second, "shut down", lambda: self.switch.send_signal(signal.SIGTERM))
        self.assertEqual(self.switch.wait(20), 0, self.switch.log())
        for worker in first:
            worker.process.kill()
        self.net.close()
        return took

    def test_workers_that_are_killed_are_noticed(self):
        self.assertLess(self.kill_workers(), SOON_OF_MANY)

    def test_workers_that_are_killed_are_noticed_by_the_kernels_plane(self):
        self.assertLess(self.kill_workers("xdp"), SOON_OF_MANY)

    def test_a_switch_that_is_killed_is_noticed_by_all(self):
        self.assertLess(self.kill_switch(count=2 * MANY), SOON_OF_MANY)

    def test_a_switch_of_the_kernels_plane_that_is_killed_is_noticed_by_all(self):
        self.assertLess(self.kill_switch("xdp"), SOON_OF_MANY)

    def test_a_switch_of_the_kernels_plane_that_is_told_to_end_tells_its_workers(self):
        self.assertLess(self.end_switch("xdp"), SOON_OF_MANY)

    def test_a_port_of_tcp_that_is_taken_is_done_without(self):
        """The switch says so, and ICMP alone tells of deaths."""
        net = self.hosts(1, 1500)
        listen = f"{net.switch_address}:{PORT}"
        holder = subprocess.Popen(
            [*self.inside(net.switch), sys.executable, "-c",
             f"import socket, time; s = socket.create_server(('{net.switch_address}', {PORT})); print(); time.sleep(600)"],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(self._end, holder)
        holder.stdout.readline()
        switch = self.start_switch(listen=listen, prefix=self.inside(net.switch))
        first, second = (Worker(self, switch.address, rank, 2, repeat=10**7, prefix=self.inside(net.names[0]))
                         for rank in range(2))
        self.await_rounds(switch, prefix=self.inside(net.switch))
        self.assertIn("event=no_tcp", switch.log())
        second.process.kill()
        self.assertIn("gone", first.result()[1])

    @slow
    def test_workers_that_are_killed_are_noticed_within_two_seconds(self):
        for plane in ("udp", "xdp"):
            with self.subTest(plane):
                assert_takes(self, 2, lambda: self.kill_workers(plane))

    @slow
    def test_a_switch_that_is_killed_is_noticed_by_all_within_two_seconds(self):
        for plane in ("udp", "xdp"):
            with self.subTest(plane):
                assert_takes(self, 2, lambda: self.kill_switch(plane))

    @slow
    def test_a_switch_that_is_told_to_end_tells_its_workers_within_half_a_second(self):
        for plane in ("udp", "xdp"):
            with self.subTest(plane):
                assert_takes(self, 0.5, lambda: self.end_switch(plane))

    @slow
    def test_workers_that_are_stopped_for_five_seconds_are_no_alarm(self):
        for plane in ("udp", "xdp"):
            with self.subTest(plane):
                first, second = self.start(plane)
                self.pause([worker.process for worker in first], first + second)

    @slow
    def test_a_switch_that_is_stopped_for_five_seconds_is_no_alarm(self):
        for plane in ("udp", "xdp"):
            with self.subTest(plane):
                (workers,) = self.start(plane, partners=False)
                self.pause([self.switch], workers)

    def pause(self, processes, workers):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for process in processes:
                process.send_signal(number)
            time.sleep(5)
        self.assertTrue(all(worker.running() for worker in workers))
        for event in ("death", "silence"):
            self.assertNotIn(f"event={event}", self.switch.log())
        for process in [worker.process for worker in workers] + [self.switch]:
            process.kill()
            process.wait()
        self.net.close()
