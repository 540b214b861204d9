"""Random schedules of sums over workers of which some fail, at every step: every future completes, within the time-out,
exactly once, on every worker that lives; no sum is wrong; and workers that are all there go on afterwards.

PEEL_SCHEDULES sets how many the slow test runs. Each is drawn from its number, so one that fails can be run again alone:
PEEL_SCHEDULE=1234.
"""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import peelreduce
import pytest
import torch
from in_process import Driver, Network, ThreadedDriver, within

_TIMEOUT = 0.4
_LONG = 60.0  # where nothing is expected to time out, however busy this machine is
_KINDS = (
    "none", "none", "local", "out of memory", "transport", "die", "stall", "late", "skip", "other length", "empty",
    "one closes", "one resets",
)  # fmt: skip
_SIZES = (64, 5000)


@dataclass
class Schedule:
    """What happens: one worker has one trouble, at one of its sums."""

    workers: int
    sums: int
    kind: str
    victim: int
    at: int  # sum
    step: int  # collective of that sum, for what happens on the wire
    depth: int  # sums that are submitted before the first is waited for
    retries: bool  # workers submit what failed again, as they please


def draw(number: int) -> Schedule:
    rng = random.Random(number)
    workers, sums = rng.choice((2, 3, 4)), rng.randint(2, 6)
    return Schedule(
        workers, sums, rng.choice(_KINDS), rng.randrange(workers), rng.randrange(sums), rng.randint(1, 4), rng.randint(1, 4),
        rng.random() < 0.4,
    )  # fmt: skip


def gradient(number: int, worker: int, index: int, length: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1000 * number + 10 * index + worker)
    values = torch.randint(-8, 8, (length,), generator=rng).float()
    return values * (torch.rand(length, generator=rng) < 0.05)


class Worker:
    """One worker's program: it submits its sums in order, a few at a time, and notes what became of them."""

    def __init__(self, number: int, schedule: Schedule, network: Network, rank: int) -> None:
        self.number = number
        self.schedule = schedule
        self.network = network
        self.rank = rank
        self.is_victim = False
        self.outcomes: list[tuple[int, object]] = []
        self.error: BaseException | None = None
        self._retried: set[int] = set()
        self._current = -1  # sum whose collectives are counted
        self._steps = 0
        self.driver: Driver = ThreadedDriver(network, rank, _LONG, self._on_start)

    def begin(self) -> None:
        self.is_victim = self.rank == self.schedule.victim
        self.driver.timeout = _LONG if self.schedule.kind in ("none", "late") else _TIMEOUT

    def length(self, index: int) -> int:
        length = _SIZES[(self.number + index) % len(_SIZES)]
        hit = self.is_victim and index == self.schedule.at
        if hit and self.schedule.kind == "other length":
            return length + 1
        return 0 if hit and self.schedule.kind == "empty" else length

    def tensor(self, index: int) -> torch.Tensor:
        return gradient(self.number, self.rank, index, self.length(index))

    def run(self) -> None:
        try:
            self._run()
        except BaseException as error:  # noqa: BLE001: the test tells
            self.error = error

    def _run(self) -> None:
        waiting: list[tuple[int, torch.futures.Future]] = []
        for index in range(self.schedule.sums):
            hit = self.is_victim and index == self.schedule.at
            if hit and self.schedule.kind == "skip":
                continue
            if hit and self.schedule.kind == "late":
                time.sleep(_TIMEOUT / 2)
            waiting.append((index, self.driver.submit(self.tensor(index), self._fault if hit else None)))
            self._after(hit)
            if len(waiting) >= self.schedule.depth:
                self._wait(*waiting.pop(0))
            if self.rank in self.network.dead:
                return
        for one in waiting:
            self._wait(*one)

    def _after(self, hit: bool) -> None:
        if hit and self.schedule.kind == "one resets":
            self.driver.reset()
        if hit and self.schedule.kind == "one closes":
            self.driver.close()
            raise StopIteration

    def _fault(self) -> None:
        kind = self.schedule.kind
        self._current, self._steps = self.schedule.at, 0
        if kind == "local":
            raise ValueError("this worker's own trouble")
        if kind == "out of memory":
            raise MemoryError("std::bad_alloc")
        if kind == "stall":
            time.sleep(3 * _TIMEOUT)

    def _on_start(self, rank: int) -> None:
        if not self.is_victim or self._current < 0 or self.schedule.kind not in ("transport", "die"):
            return
        self._steps += 1
        if self._steps == self.schedule.step:
            if self.schedule.kind == "die":
                self.network.die(self.rank)
            raise RuntimeError("Connection reset by peer")

    def _wait(self, index: int, future: torch.futures.Future) -> None:
        if self.rank in self.network.dead:
            return
        assert within(_LONG, future.done), f"sum {index} of worker {self.rank} is stuck"
        try:
            self.outcomes.append((index, future.value()))
        except peelreduce.Error as error:
            self.outcomes.append((index, error))
            self.driver.note_told()
            if self.schedule.retries and index not in self._retried:
                self._retried.add(index)
                self._wait(index, self.driver.submit(self.tensor(index), None))


def check(number: int) -> None:
    schedule = draw(number)
    network = Network(schedule.workers)
    workers = [Worker(number, schedule, network, rank) for rank in range(schedule.workers)]
    _check_that_they_go_on(number, schedule, workers)  # they have met, so later sums are counted
    for worker in workers:
        worker.begin()
    threads = [threading.Thread(target=worker.run, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * _LONG)
        assert not thread.is_alive(), f"schedule {number}, {schedule}: a worker is stuck"
    for worker in workers:
        if worker.error is not None and not isinstance(worker.error, StopIteration):
            raise AssertionError(f"schedule {number}, {schedule}, worker {worker.rank}") from worker.error
    _check_outcomes(number, schedule, workers)
    if not network.dead and schedule.kind != "one closes":
        _check_that_they_go_on(number, schedule, workers)
    for worker in workers:
        worker.driver.close()
        for task in worker.driver.tasks:
            assert task.done.wait(_LONG)
            assert task.completions == 1, f"schedule {number}, {schedule}: completed {task.completions} times"


def _check_outcomes(number: int, schedule: Schedule, workers: list[Worker]) -> None:
    # A worker that leaves a sum out is at another place of the program, which only lengths tell.
    is_shifted = schedule.kind == "skip"
    for worker in workers:
        for index, outcome in worker.outcomes:
            if isinstance(outcome, peelreduce.Error):
                assert schedule.kind not in ("none", "late"), f"schedule {number}, {schedule}: {outcome}"
                assert str(outcome).endswith("."), outcome
            elif not is_shifted:
                expected = sum(one.tensor(index) for one in workers)
                assert torch.equal(outcome, expected), f"schedule {number}, {schedule}: sum {index} is wrong"


def _check_that_they_go_on(number: int, schedule: Schedule, workers: list[Worker]) -> None:
    for worker in workers:
        worker.is_victim = False
        worker.driver.reset()
        worker.driver.timeout = _LONG
    futures = [worker.driver.submit(torch.full((8,), float(worker.rank)), None) for worker in workers]
    for future in futures:
        assert within(_LONG, future.done), f"schedule {number}, {schedule}: stuck after a reset"
        assert torch.equal(future.value(), torch.full((8,), float(sum(range(schedule.workers))))), f"{number}"


def _run(numbers: range) -> None:
    if "PEEL_SCHEDULE" in os.environ:
        check(int(os.environ["PEEL_SCHEDULE"]))
        return
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(check, numbers):
            pass


def test_every_future_completes_once_on_every_worker() -> None:
    _run(range(200))


@pytest.mark.slow
def test_every_future_of_many_schedules_completes_once_on_every_worker() -> None:
    _run(range(200, 200 + int(os.environ.get("PEEL_SCHEDULES", "1000"))))
