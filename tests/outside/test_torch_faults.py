"""Training processes that lose a worker, over Gloo and through a switch: every survivor gets an error in time."""

from __future__ import annotations

import os
import pathlib
import resource
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jobs
import peelreduce
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

_SIZE = 3
_VICTIM = 1
_SURVIVORS = [rank for rank in range(_SIZE) if rank != _VICTIM]
_TIMEOUT = 3.0
_LONG_TIMEOUT = 300.0  # where an error, or none, is to come long before it
_FAULTS = ("kill", "stop", "pause", "raise", "exit", "memory")  # pause: stopped, and continued within the time-out
_OWN_STAGES = ("before", "between", "destroy")  # between two calls of the worker's own
_INNER_STAGES = ("meeting", "opening", "data")  # inside a sum
_ELEMENTS = 1_000_000


def _strike(worker: jobs.Worker, fault: str, *, inside: bool) -> None:
    worker.tell("struck")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault in ("stop", "pause"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "raise":
        raise RuntimeError("this worker has a bug")
    if fault == "exit":
        os._exit(0) if inside else sys.exit(0)
    if fault == "memory":
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(), resource.RLIM_INFINITY))


class _Trap:
    """Breaks the worker in the n-th collective from now on that torch is asked for, whoever asks."""

    def __init__(self, worker: jobs.Worker, fault: str) -> None:
        self._worker = worker
        self._fault = fault
        self._left = 0

    def set(self, number: int) -> None:
        self._left = number
        for name in ("all_reduce", "all_to_all_single", "all_gather_into_tensor"):
            setattr(dist, name, self._wrapped(getattr(dist, name)))

    def _wrapped(self, collective: Any) -> Any:
        def perform(*arguments: Any, **others: Any) -> Any:
            self._left -= 1
            begun = collective(*arguments, **others) if self._left == 0 and others.get("async_op") else None
            if self._left == 0:
                _strike(self._worker, self._fault, inside=True)
            return begun if begun is not None else collective(*arguments, **others)

        return perform


def _gradient(rank: int) -> torch.Tensor:
    x = torch.zeros(_ELEMENTS)
    x[rank::50] = 0.5
    return x


def _take_steps(worker: jobs.Worker, fault: str, stage: str, switch: str) -> None:
    victim = worker.rank == _VICTIM
    trap = _Trap(worker, fault)
    worker.init()
    transport = peelreduce.Switch(switch, secret="a secret that nobody guesses") if switch else None
    # Who raises is missed at once, if the others had met it before.
    is_long = fault == "pause" or (fault == "raise" and stage != "before")
    state = peelreduce.State(timeout=_LONG_TIMEOUT if is_long else _TIMEOUT, transport=transport)
    if victim and stage == "before":
        _strike(worker, fault, inside=False)
    if victim and stage == "meeting":
        trap.set(6)  # of those that measure the link
    try:
        for step in range(3):
            if victim and step == 1:
                if stage == "between":
                    _strike(worker, fault, inside=False)
                if stage in ("opening", "data"):
                    trap.set(1 if stage == "opening" else 2)
            # Larger ones from step to step, so that memory is needed.
            peelreduce.all_reduce(torch.cat([_gradient(worker.rank)] * (step + 1)), state=state)
        worker.tell("finished")
    except peelreduce.Error as error:
        worker.tell("error", type(error).__name__, str(error))
        if not victim:
            raise
    if victim and stage == "destroy":
        _strike(worker, fault, inside=False)
    dist.destroy_process_group()
    worker.tell("destroyed")


def _check(fault: str, stage: str, switch: str) -> None:
    with jobs.started(_SIZE, _take_steps, fault, stage, switch) as job:
        context = f"{fault} {stage}: {[fate.told for fate in job.fates]}"
        assert job.wait_told(_VICTIM, "struck"), f"the fault never came: {context}"
        if fault == "pause":
            time.sleep(0.5)
            job.signal(_VICTIM, signal.SIGCONT)
        for rank in _SURVIVORS:
            assert job.wait_ended(rank), f"worker {rank} hangs: {fault} {stage}: {job.fates}"
        if fault == "stop":
            job.signal(_VICTIM, signal.SIGCONT)  # it finds that the others are gone
        assert job.wait_ended(_VICTIM), f"the victim hangs: {fault} {stage}: {job.fates}"
        struck = job.fates[_VICTIM].find("struck")[0]
        well = fault == "pause" or stage == "destroy"
        if fault == "memory" and job.fates[_VICTIM].find("finished") is not None:
            well = True  # what it had was enough
        for rank in _SURVIVORS:
            fate = job.fates[rank]
            if well:
                assert fate.find("finished") is not None and fate.exitcode == 0, f"{fault} {stage}: {fate}"
                continue
            told = fate.find("error")
            assert told is not None, f"worker {rank} got no error of ours: {fault} {stage}: {fate}"
            assert told[0] - struck < jobs.ENOUGH, f"worker {rank} was told late: {fault} {stage}: {fate}"
            assert told[2].endswith("."), f"worker {rank}: {fault} {stage}: {fate}"


def _check_all(stage: str, switch: str) -> None:
    """All faults at one stage, side by side: most of the time they wait."""
    with ThreadPoolExecutor(3) as pool:
        for checked in [pool.submit(_check, fault, stage, switch) for fault in _FAULTS]:
            checked.result()


@pytest.mark.parametrize("stage", _OWN_STAGES + _INNER_STAGES)
def test_gloo_tells_the_survivors(stage: str) -> None:
    _check_all(stage, "")


@pytest.mark.parametrize("stage", _OWN_STAGES)
def test_a_switch_tells_the_survivors(stage: str, switch: str) -> None:
    _check_all(stage, switch)


def _train(worker: jobs.Worker, fault: str, victim: int, timeout: float = _LONG_TIMEOUT) -> None:
    worker.init(store_in_worker=True)
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(2000, 32), torch.nn.Linear(32, 1)))
    model.register_comm_hook(peelreduce.DDPState(timeout=timeout), peelreduce.allreduce_hook)
    for step in range(4):
        if worker.rank == victim and step == 2:
            _strike(worker, fault, inside=False)
        try:
            model(torch.arange(16) + 100 * worker.rank).sum().backward()
        except RuntimeError as error:
            worker.tell("error", str(error))
            raise
    dist.destroy_process_group()


@pytest.mark.parametrize(("fault", "victim"), [("kill", 1), ("raise", 1), ("exit", 1), ("kill", 0)])
def test_a_worker_that_leaves_training_is_missed_at_once(fault: str, victim: int) -> None:
    """While the others wait in backward(), long before the time-out; also the one in which the store lives."""
    with jobs.started(_SIZE, _train, fault, victim) as job:
        for rank in range(_SIZE):
            assert job.wait_ended(rank), f"worker {rank} hangs: {job.fates}"
            assert rank == victim or job.fates[rank].find("error") is not None, job.fates


def test_a_stopped_worker_in_which_the_store_lives_keeps_nobody_waiting() -> None:
    """Whoever asks a store in a stopped process waits for it without a limit, unless somebody else asks for him."""
    with jobs.started(_SIZE, _train, "stop", 0, _TIMEOUT) as job:
        for rank in (1, 2):
            assert job.wait_ended(rank), f"worker {rank} hangs: {job.fates}"
            assert job.fates[rank].find("error") is not None, job.fates
