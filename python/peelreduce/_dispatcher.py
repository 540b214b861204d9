"""Drives exchanges beside the training loop.

Torch wants the collectives of a group issued in the same order by every worker, while several arrays are under way and
complete in different orders on different workers. So there are two lanes, each a thread with a process group of its
own. Array number n of a group goes to lane n mod 2, which drives one exchange after another; and an exchange hands out
its collectives in an order that does not depend on what completed first. Whoever submits never waits.

Lanes, and not one group on which arrays alternate: with a fixed alternation the second round of an array waits until
the next array exists, which during a backward pass may be long.
"""

from __future__ import annotations

import atexit
import itertools
import queue
import threading
from collections import deque

import torch.distributed as dist

from . import _core
from ._link import LinkFacts, measure_link
from ._transport import Pending, Transport, make_transport

_LANES = 2
_PATIENCE = 2.0  # seconds, at the end of the process


class Lane:
    """What a task drives its exchange with."""

    def __init__(self, transport: Transport, link: LinkFacts) -> None:
        self.transport = transport
        self.world = _core.World(
            transport.rank,
            transport.size,
            latency_s=link.latency_s,
            bytes_per_second=link.bytes_per_second,
            copy_bytes_per_second=link.copy_bytes_per_second,
        )

    def drive(self, exchange: _core.Exchange) -> None:
        """Performs everything that the exchange asks for. Throws if a worker is gone or stands still."""
        under_way: deque[tuple[_core.Collective, Pending]] = deque()
        try:
            while not exchange.finished:
                while (what := exchange.next()) is not None:
                    under_way.append((what, self.transport.start(what)))
                if under_way:
                    what, pending = under_way.popleft()
                    pending.wait()
                    exchange.complete(what)
        except _core.Error as error:
            if exchange.moving:
                raise
            exchange.close()  # or the state would be in use for as long as somebody keeps the traceback
            raise Refused(str(error)) from error


class Refused(_core.Error):
    """The workers disagree, or one was called wrongly: all of them hear of it before any data moves."""


class Task:
    """Something to do on a lane. Exactly one of run() and fail() is called, on the lane's thread."""

    def run(self, lane: Lane) -> None:
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        raise NotImplementedError


class Dispatcher:
    """Two lanes over one set of workers, made when the first task comes."""

    def __init__(self, group: dist.ProcessGroup | None, timeout: float) -> None:
        self._group = group
        self._timeout = timeout
        self._queues: list[queue.SimpleQueue[Task | None]] = [queue.SimpleQueue() for _ in range(_LANES)]
        self._turns = itertools.count()
        self._lanes: list[Lane] = []
        self._threads: list[threading.Thread] = []
        self._made = threading.Event()
        self._error: BaseException | None = None
        self._started = False
        self._lock = threading.Lock()

    def submit(self, task: Task) -> None:
        """Every worker submits the same tasks in the same order."""
        with self._lock:
            if not self._started:
                self._started = True
                atexit.register(self.close)
                for number in range(_LANES):
                    thread = threading.Thread(target=self._run, args=(number,), name=f"peelreduce-{number}", daemon=True)
                    self._threads.append(thread)
                    thread.start()
            self._queues[next(self._turns) % _LANES].put(task)

    def close(self) -> None:
        """Has the threads end after what was submitted. A thread that is still there when the interpreter goes may take
        the process with it, but one that waits for a worker that is gone is not waited for long."""
        for tasks in self._queues:
            tasks.put(None)
        for thread in self._threads:
            thread.join(_PATIENCE)

    def _make_lanes(self) -> None:
        try:
            transports = [make_transport(self._group, self._timeout) for _ in range(_LANES)]
            link = measure_link(transports[0])
            self._lanes = [Lane(transport, link) for transport in transports]
        except BaseException as error:  # noqa: BLE001: whatever it is, tasks hear of it
            self._error = error
        self._made.set()

    def _run(self, number: int) -> None:
        tasks = self._queues[number]
        while (task := tasks.get()) is not None:
            if number == 0 and not self._made.is_set():
                self._make_lanes()
            self._made.wait()  # bounded: what lane 0 does while this one waits has time-outs
            self._perform(task, number)

    def _perform(self, task: Task, number: int) -> None:
        if self._error is None:
            try:
                task.run(self._lanes[number])
                return
            except Refused as error:  # on every worker, so the lanes are in step and go on
                task.fail(error)
                return
            except BaseException as error:  # noqa: BLE001: the thread must live on to fail what comes later
                self._error = error
        task.fail(_explained(self._error))


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, _core.Error):
        return error
    explained = _core.Error(
        f"A collective failed: {error}. A worker is gone, stands still, or called with other arrays; see its log, and "
        "start the job again."
    )
    explained.__cause__ = error
    return explained


