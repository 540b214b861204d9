"""As test_schedules, with processes over Gloo: every sum of every worker that lives ends within its time-out, no sum is
wrong, and workers that are all there go on.

PEEL_PROCESS_SCHEDULES and PEEL_KILL_SCHEDULES set how many run.
"""

from __future__ import annotations

import os
import pathlib
import random
import signal
import time

import peelreduce
import pytest
import torch
import torch.distributed as dist
from peelreduce import _tasks
from torch.nn.parallel import DistributedDataParallel
from workers import run_until_told, run_workers, tell_error

_TIMEOUT = 2.0
_LIMIT = 30.0  # seconds for what should take the time-out: this machine may be busy
_KINDS = ("none", "local", "on the way", "stall", "late", "other length", "empty", "one resets", "wrong type")
_SIZE = 3


def _gradient(number: int, worker: int, index: int) -> torch.Tensor:
    rng = torch.Generator().manual_seed(1000 * number + 10 * index + worker)
    length = (64, 30_000)[(number + index) % 2]
    return torch.randint(-8, 8, (length,), generator=rng).float() * (torch.rand(length, generator=rng) < 0.05)


def _fails(self: _tasks.Sum, *arguments: object) -> None:
    raise RuntimeError("this worker's own trouble")


def _sums(rank: int, number: int, rng: random.Random) -> None:
    """A few sums, in one of which one worker has trouble."""
    kind, sums, depth = rng.choice(_KINDS), rng.randint(2, 4), rng.randint(1, 3)
    victim, at = rng.randrange(_SIZE), rng.randrange(sums)
    timeout = _LIMIT if kind in ("none", "late") else _TIMEOUT
    state = {64: peelreduce.State(timeout=timeout), 30_000: peelreduce.State(timeout=timeout)}
    waiting: list[tuple[int, torch.Tensor, peelreduce.Work]] = []
    fetch, run = _tasks.Sum._fetch, _tasks.Sum.run

    def wait() -> None:
        index, x, work = waiting.pop(0)
        begin = time.monotonic()
        try:
            work.wait()
        except peelreduce.Error as error:
            assert kind not in ("none", "late"), f"schedule {number}: {error}"
            assert str(error).endswith("."), error
        else:
            assert torch.equal(x, sum(_gradient(number, worker, index) for worker in range(_SIZE))), (number, kind, index)
        assert time.monotonic() - begin < 2 * _LIMIT

    for index in range(sums):
        x = _gradient(number, rank, index)
        hit = rank == victim and index == at
        chosen = state[x.numel()]
        if hit and kind == "late":
            time.sleep(0.3)
        if hit and kind == "stall":
            time.sleep(1.5 * _TIMEOUT)
        if hit and kind in ("local", "on the way"):
            setattr(_tasks.Sum, "_fetch" if kind == "local" else "run", _fails)
        if hit and kind in ("other length", "empty"):
            x = x[: 0 if kind == "empty" else -1].clone()
        if hit and kind == "wrong type":
            with pytest.raises(TypeError):
                peelreduce.all_reduce(x.to(torch.complex64), state=chosen)
            continue
        waiting.append((index, x, peelreduce.all_reduce(x, state=chosen, async_op=True)))
        if hit and kind in ("local", "on the way"):
            waiting[-1][2]._done.wait(_LIMIT)
            _tasks.Sum._fetch, _tasks.Sum.run = fetch, run
        if hit and kind == "one resets":
            peelreduce.reset()
        while len(waiting) >= depth:
            wait()
    while waiting:
        wait()


def _work(rank: int, size: int, first: int, count: int) -> None:
    for number in range(first, first + count):
        _sums(rank, number, random.Random(number))
        dist.barrier()
        peelreduce.reset()
        x = torch.full((8,), float(rank))
        peelreduce.all_reduce(x, state=peelreduce.State(timeout=_LIMIT))
        assert torch.equal(x, torch.full((8,), float(sum(range(size))))), number


def _many(count: int) -> None:
    for first in range(0, count, 25):
        run_workers(_SIZE, _work, first, min(25, count - first), seconds=1200)


@pytest.mark.slow
def test_sums_of_processes_end() -> None:
    _many(int(os.environ.get("PEEL_PROCESS_SCHEDULES", "30")))


def _train_until_killed(rank: int, size: int, folder: str, number: int) -> None:
    """One worker ends, stops or leaves somewhere in its steps: not in the first two, where DDP itself broadcasts its
    buckets and a worker that stops is not ours to notice."""
    rng = random.Random(number)
    how, after, delay = rng.choice(("kill", "stop", "exit")), 2 + rng.randrange(4), rng.uniform(0, 0.05)
    model = DistributedDataParallel(torch.nn.Embedding(2000, 16), bucket_cap_mb=0.02)
    model.register_comm_hook(peelreduce.DDPState(timeout=_TIMEOUT), peelreduce.allreduce_hook)
    if rank == 2:
        import threading

        def end() -> None:
            time.sleep(delay)
            if how == "exit":
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

        ends = threading.Thread(target=end, daemon=True)
    for step in range(10_000):
        if rank == 2 and step == after:
            ends.start()
        begin = time.monotonic()
        try:
            model.zero_grad()
            model(torch.randint(2000, (20,))).sum().backward()
        except RuntimeError as error:
            tell_error(rank, folder, time.monotonic() - begin, error)


def _kill(tmp_path: pathlib.Path, numbers: range) -> None:
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        for seconds, told in run_until_told(_train_until_killed, str(folder), number):
            assert "Worker 2" in told, told
            assert seconds < _LIMIT


@pytest.mark.slow
def test_workers_that_end_are_named(tmp_path: pathlib.Path) -> None:
    _kill(tmp_path, range(int(os.environ.get("PEEL_KILL_SCHEDULES", "10"))))
