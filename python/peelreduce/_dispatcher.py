"""Drives exchanges beside the training loop.

Torch wants the collectives of a group issued in the same order by every worker, while several arrays are under way and
complete in different orders on different workers. So there are two lanes, each a thread with a process group of its
own. The n-th array to be submitted goes to lane n mod 2, which drives one exchange after another; and an exchange hands
out its collectives in an order that does not depend on what completed first. Whoever submits never waits.

Lanes, and not one group on which arrays alternate: with a fixed alternation the second round of an array waits until
the next array exists, which during a backward pass may be long.

Through a switch, a lane has a job of its own there instead. Arrays that are summed on a GPU share one group of NCCL, which
wants all collectives in one order: the lanes take turns there, in the order in which arrays were submitted, while they
open and encode as they can.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable
from multiprocessing.util import Finalize
from typing import Protocol

import torch
import torch.distributed as dist

from . import _core
from ._link import LinkFacts
from ._sides import Side, Sides
from ._switch import Switch, SwitchTransport
from ._transport import Transport, make_transport, reserve_names

_LANES = 2
_PATIENCE = 2.0  # seconds, at the end of the process
_OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)


class Refused(_core.Error):
    """The workers disagree, or one was called wrongly: all of them hear of it before any data moves."""


class FailedHere(_core.Error):
    """This worker alone failed; the others know nothing of it."""


class Pending(Protocol):
    """A collective under way."""

    def wait(self) -> None: ...
    def drop(self) -> None: ...


UnderWay = deque[tuple[_core.Collective, Pending]]


class Lane:
    """What a task drives its exchange with."""

    def __init__(
        self, transport: Transport | SwitchTransport, link: LinkFacts, note_error: Callable[[BaseException], object]
    ) -> None:
        self.transport = transport
        self._note_error = note_error  # has collectives of all lanes end
        self.side: Side | None = None  # where the task at hand is summed: on a GPU, or in host memory
        self.turn: threading.Event | None = None  # of the task at hand, on that GPU
        self.world = _core.World(
            transport.rank,
            transport.size,
            latency_s=link.latency_s,
            bytes_per_second=link.bytes_per_second,
            copy_bytes_per_second=link.copy_bytes_per_second,
            moves_buffers=transport.moves_buffers,
            sums_floats=transport.sums_floats,
        )

    def drive(self, begin: Callable[[], _core.Exchange]) -> None:
        """Performs everything that an exchange asks for. Throws if a worker is gone or stands still, and on all workers
        NotFinite if the transport adds integers and a gradient is not finite; it may be partly summed then."""
        self._drive(begin, lambda exchange: exchange.finished)

    def agree(self, begin: Callable[[], _core.Exchange]) -> None:
        """Performs the opening of a dense exchange, in host memory, and no more: throws Refused on all workers if they
        are not about to do the same."""
        self._drive(begin, lambda exchange: exchange.finished or exchange.moving)

    def _drive(self, begin: Callable[[], _core.Exchange], is_over: Callable[[_core.Exchange], bool]) -> None:
        try:
            exchange = begin()
        except _core.Error as error:  # a world of one has nobody to tell
            raise Refused(str(error)) from error
        under_way: UnderWay = deque()
        try:
            while not is_over(exchange):
                while (what := _next(exchange, under_way)) is not None:
                    under_way.append((what, self._begin(what)))
                if under_way:
                    what, pending = under_way[0]
                    pending.wait()
                    under_way.popleft()
                    exchange.complete(what)
        except _core.NotFinite:
            raise  # on every worker, and nothing is under way
        except BaseException as error:
            if isinstance(error, _core.Error) and not (under_way or exchange.moving or isinstance(error, FailedHere)):
                raise Refused(str(error)) from error
            self._leave_wire(error)
            raise
        finally:
            for _, pending in under_way:
                pending.drop()
            exchange.close()  # or the state would be in use for as long as somebody keeps the traceback

    def _leave_wire(self, error: BaseException) -> None:
        """Before memory goes back to which the wire of a GPU may write."""
        self._note_error(error)
        if self.side is not None:
            with contextlib.suppress(Exception):  # the error counts more
                self.side.wire.join()

    def _begin(self, what: _core.Collective) -> Pending:
        if what.memory == "host":
            return self.transport.start(what)
        assert self.side is not None
        self.take_turn()
        return self.side.wire.start(what)

    def take_turn(self) -> None:
        """Before anything is put on the wire of a GPU."""
        if self.turn is not None:
            self.turn.wait()  # an earlier task never waits for a later one, and has time-outs


class Task:
    """Something to do on a lane. Exactly one of run() and fail() is called, on the lane's thread."""

    def __init__(self) -> None:
        self.after: threading.Event | None = None  # it uses what an earlier task, on whichever lane, uses until then
        self.done = threading.Event()
        self.device: torch.device | None = None  # of a GPU, if it may be summed there
        self.turn: threading.Event | None = None  # the wire of that GPU is an earlier task's until then

    def prepare(self, side: Side | None) -> None:
        """What needs no other worker. `side` is where it will be summed; None in host memory."""

    def run(self, lane: Lane) -> None:
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        raise NotImplementedError


class Dispatcher:
    """Two lanes over one set of workers, made when the first task comes."""

    def __init__(self, group: dist.ProcessGroup, timeout: float, switch: Switch | None = None) -> None:
        self._group = group
        self._timeout = timeout
        self._switch = switch
        self._names: list[str] = []
        self._queues: list[queue.SimpleQueue[Task | None]] = [queue.SimpleQueue() for _ in range(_LANES)]
        self._turns = itertools.count()
        self._lanes: list[Lane] = []
        self._threads: list[threading.Thread] = []
        self._sides = Sides(group, timeout)
        self._last_on_device: threading.Event | None = None
        self._made = threading.Event()
        self._error: BaseException | None = None
        self._process = os.getpid()
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, task: Task) -> None:
        """Every worker submits the same tasks in the same order."""
        with self._lock:
            refusal = self._refusal()
            if refusal is not None:
                task.done.set()  # nobody waits for it
                raise _core.Error(refusal)
            if not self._threads:
                self._start()
            if self._switch is not None:
                task.device = None  # a switch reaches host memory only
            if task.device is not None:
                self._sides.note(task.device)
                task.turn, self._last_on_device = self._last_on_device, task.done
            self._queues[next(self._turns) % _LANES].put(task)

    def _refusal(self) -> str | None:
        if self._closed or os.getpid() != self._process:
            return (
                "These lanes have ended, with their process or before it; submit from the process that made them, and "
                "before it ends."
            )
        if threading.current_thread() in self._threads:
            return (
                "A sum was submitted by a callback of another one, whose order differs from worker to worker; submit it "
                "from the thread that trains."
            )
        return None

    def _start(self) -> None:
        self._names = reserve_names(self._group, _LANES)  # here, where all workers do the same in the same order
        _close_at_exit.add(self)
        Finalize(None, _close_all, exitpriority=0)  # of a process that multiprocessing started, which has no atexit
        for number in range(_LANES):
            thread = threading.Thread(target=self._run, args=(number,), name=f"peelreduce-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Has the threads end after what was submitted. A thread that is still there when the interpreter goes may take
        the process with it, but one that waits for a worker that is gone is not waited for long."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        for tasks in self._queues:
            tasks.put(None)
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_PATIENCE)

    def _make_lanes(self) -> None:
        try:
            make = make_transport if self._switch is None else self._switch.join
            transports = [make(self._group, name, self._timeout) for name in self._names]
            link = transports[0].measure_link()
            self._lanes = [Lane(transport, link, self._note_error) for transport in transports]
        except BaseException as error:  # noqa: BLE001: whatever it is, tasks hear of it
            self._error = _failed_collective(error)
        self._made.set()

    def _run(self, number: int) -> None:
        if number == 0:
            self._make_lanes()
        self._made.wait()  # what lane 0 does meanwhile has time-outs
        with torch.no_grad():
            while (task := self._queues[number].get()) is not None:
                if task.after is not None:
                    task.after.wait()  # an earlier task never waits for a later one, and has time-outs
                self._perform(task, number)
                task.done.set()
                del task  # or the last tensor would live until the next one comes
        if self._lanes:
            self._lanes[number].transport.close()

    def _perform(self, task: Task, number: int) -> None:
        error = self._error or self._prepare(task, number)
        if error is None:
            try:
                task.run(self._lanes[number])
                return
            except Refused as refused:  # on every worker, so the lanes are in step and go on
                task.fail(refused)
                return
            except BaseException as failed:  # noqa: BLE001: the thread must live on to fail what comes later
                error = failed
        task.fail(self._note_error(error))

    def _note_error(self, error: BaseException) -> BaseException:
        """The first one is that of all later tasks, and ends what is under way on a device. Returns it explained."""
        explained = _failed_collective(error)
        if self._error is None:
            self._error = explained
            self._sides.abort()
        return explained

    def _prepare(self, task: Task, number: int) -> BaseException | None:
        """What went wrong, if anything."""
        lane = self._lanes[number]
        try:
            lane.turn = task.turn
            lane.side = None if task.device is None else self._sides.side_of(task.device, self._names[0])
        except BaseException as failed:  # noqa: BLE001: as above
            return _failed_collective(failed)
        try:
            task.prepare(lane.side)
        except BaseException as local:  # noqa: BLE001: as above
            return _failed_here(local)
        return None


def _next(exchange: _core.Exchange, under_way: UnderWay) -> _core.Collective | None:
    """What it encodes takes memory of this worker, which may not be there."""
    try:
        return exchange.next()
    except _core.NotFinite:
        while under_way:  # on every worker the same, so it completes
            under_way[0][1].wait()
            under_way.popleft()
        raise
    except _core.Error:
        raise
    except Exception as local:
        raise _failed_here(local) from local


def _failed_here(local: BaseException) -> FailedHere:
    what = "failed"
    if isinstance(local, _OUT_OF_MEMORY):
        what = f"has no {'host' if isinstance(local, MemoryError) else 'device'} memory left"
    explained = FailedHere(f"This worker {what}, so the others will wait in vain: {local}")
    explained.__cause__ = local
    return explained


def _failed_collective(error: BaseException) -> BaseException:
    if isinstance(error, _core.Error):
        return error
    if isinstance(error, _OUT_OF_MEMORY):
        return _failed_here(error)
    if isinstance(error, ValueError) and error.__context__ is not None:
        error = error.__context__  # torch wanted to log it, and does not know groups of ours
    explained = _core.Error(
        f"A collective failed: {error}. A worker is gone, stands still, or called with other arrays; see its log, and "
        "start the job again."
    )
    explained.__cause__ = error
    return explained


_close_at_exit: weakref.WeakSet[Dispatcher] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for dispatcher in list(_close_at_exit):
        dispatcher.close()
