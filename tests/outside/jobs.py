"""Runs a function in worker processes that may break, and tells what became of each.

The store by which they meet lives in this process, as it lives in torchrun's agent and not in a worker.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

ENOUGH = 40.0  # seconds for whatever should happen, on a busy machine
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "peelreduce"])  # imported once, not by every worker


@dataclass
class Worker:
    """What a worker has of its job."""

    rank: int
    size: int
    port: int
    pipe: Connection = field(repr=False)

    def init(self, timeout: float = 60, number: int = 0, *, store_in_worker: bool = False) -> None:
        """Forms the process group; the n-th one of this process, as a notebook may. The store may live in worker 0, as
        it does without torchrun."""
        limit = timedelta(seconds=timeout)
        store = dist.TCPStore("127.0.0.1", self.port, is_master=False, timeout=limit)
        if store_in_worker and self.rank == 0:
            own = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=limit)
            store.set("port", str(own.port))
            store = own
        elif store_in_worker:
            store = dist.TCPStore("127.0.0.1", int(store.get("port")), is_master=False, timeout=limit)
        store = dist.PrefixStore(f"group {number}", store)
        dist.init_process_group(
            "gloo", store=store, rank=self.rank, world_size=self.size, timeout=timedelta(seconds=timeout)
        )

    def tell(self, what: str, *facts: Any) -> None:
        """To whoever runs the job, with the time; plain values only."""
        self.pipe.send((what, time.monotonic(), *facts))


@dataclass
class Fate:
    """What became of a worker: all that it told, in order, and how its process ended."""

    told: list[tuple[Any, ...]] = field(default_factory=list)
    exitcode: int | None = None  # None: it had to be killed

    def find(self, what: str) -> tuple[Any, ...] | None:
        """The first thing of that name that it told: the time, and the facts."""
        return next((told[1:] for told in self.told if told[0] == what), None)


def _work(function: Callable[..., Any], rank: int, size: int, port: int, pipe: Connection, arguments: tuple) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    worker = Worker(rank, size, port, pipe)
    try:
        worker.tell("returned", function(worker, *arguments))
    except BaseException as error:
        worker.tell("raised", type(error).__name__, str(error), traceback.format_exc())
        raise


class Job:
    """Worker processes under way."""

    def __init__(self, size: int, function: Callable[..., Any], *arguments: Any) -> None:
        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.fates = [Fate() for _ in range(size)]
        self._pipes: list[Connection] = []
        self.processes = []
        for rank in range(size):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            given = (function, rank, size, self._store.port, theirs, arguments)
            process = _CONTEXT.Process(target=_work, args=given)
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self.processes.append(process)

    def listen(self, rank: int) -> None:
        """Takes what a worker has told by now."""
        with contextlib.suppress(EOFError, ConnectionResetError):
            while self._pipes[rank].poll():
                self.fates[rank].told.append(self._pipes[rank].recv())

    def wait_told(self, rank: int, what: str, seconds: float = ENOUGH) -> bool:
        """Until the worker tells that, or ends, or the time is over."""
        end = time.monotonic() + seconds
        while True:
            alive = self.processes[rank].is_alive()
            self.listen(rank)
            if self.fates[rank].find(what) is not None:
                return True
            if not alive or time.monotonic() > end:
                return False
            time.sleep(0.02)

    def wait_ended(self, rank: int, seconds: float = ENOUGH) -> bool:
        """Until the worker's process ends. What it tells is taken meanwhile: a full pipe would have it wait."""
        end = time.monotonic() + seconds
        while self.processes[rank].is_alive() and time.monotonic() < end:
            self.listen(rank)
            self.processes[rank].join(0.02)
        self.listen(rank)
        self.fates[rank].exitcode = self.processes[rank].exitcode
        return self.fates[rank].exitcode is not None

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.processes[rank].pid, number)

    def kill(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()


@contextlib.contextmanager
def started(size: int, function: Callable[..., Any], *arguments: Any) -> Iterator[Job]:
    job = Job(size, function, *arguments)
    try:
        yield job
    finally:
        job.kill()


def run(size: int, function: Callable[..., Any], *arguments: Any, seconds: float = 2 * ENOUGH) -> list[Any]:
    """What function(worker, *arguments) returns on every worker; an error in one is an error here."""
    with started(size, function, *arguments) as job:
        for rank in range(size):
            ended = job.wait_ended(rank, seconds)
            fate = job.fates[rank]
            raised = fate.find("raised")
            assert raised is None, f"worker {rank}:\n{raised[3]}"
            assert ended, f"worker {rank} hangs; it told {fate.told}"
            assert fate.exitcode == 0, f"worker {rank} ended with {fate.exitcode}; it told {fate.told}"
        return [fate.find("returned")[1] for fate in job.fates]
