"""Drives exchanges beside the training loop.

Torch wants the collectives of a group issued in the same order by every worker, while several arrays are under way and
complete in different orders on different workers. So there are two lanes, each a thread with a process group of its
own. The n-th array to be submitted goes to lane n mod 2, which drives one exchange after another; and an exchange hands
out its collectives in an order that does not depend on what completed first. Whoever submits never waits.

Lanes, and not one group on which arrays alternate: with a fixed alternation the second round of an array waits until
the next array exists, which during a backward pass may be long.

Through a switch, a lane has a job of its own there instead, unless the switch has no place for it. Arrays that are summed
on a GPU share one group of NCCL, which wants all collectives in one order: the lanes take turns there, in the order in which
arrays were submitted, while they open and encode as they can.

Lanes of a set of workers are shared by all their states, and end with the process group. A task ends in one of four ways:

    summed    its future has the result.
    refused   workers differ, or one of them could not take part: all hear of it in the opening, in step, and go on.
    failed    a worker is gone or failed on the way. The first to notice says so in the store, everybody's lanes end, and
              all tasks that they have or are given fail, until somebody was told of it. The next task makes new lanes,
              which all workers join; a worker that had another number of sums in the old ones is told there.
    closed    the lanes ended before its turn came.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.util import Finalize
from typing import Protocol, TypeVar

import torch

from . import _core
from ._link import LinkFacts
from ._rendezvous import Failure, Left, Pulse, Round, error_of, kind_of, rounds
from ._sides import Side, Sides
from ._store import Store
from .errors import Error, Misuse, NotFinite, TimedOut, TransportFailed

_LANES = 2
_PATIENCE = 2.0  # seconds, at the end of lanes
_LATER = 5.0  # seconds more for a transport that has a time-out itself
_SLICE = 0.5  # seconds after which a lane that waits looks whether another worker has failed
_OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)


class FailedHere(TransportFailed):
    """This worker alone failed; the others are told."""

    reason = "it failed"  # as in "Worker 2 cannot take part: it failed."


class Overdue(TimedOut):
    """A collective took longer than its task's time-out."""


class InStep(Exception):  # noqa: N818: it is no error but the way one travels
    """An error that all workers have at the same point of the same task, so that the lanes may go on."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class Pending(Protocol):
    """A collective under way."""

    def wait(self, seconds: float) -> bool: ...  # False if it is still under way then
    def drop(self) -> bool: ...  # False if its memory is still in use


class Transport(Protocol):
    """What a lane needs of what connects the workers."""

    rank: int
    size: int
    moves_buffers: bool
    sums_floats: bool
    times_out: bool  # by itself, and says then what it waited for

    def start(self, what: _core.Collective) -> Pending: ...
    def measure_link(self) -> LinkFacts: ...
    def wait_for_long(self) -> None: ...  # until then collectives have the time-out that it was made with
    def abort(self) -> None: ...  # has what is under way end, from any thread
    def close(self) -> None: ...


class Connect(Protocol):
    """Makes the transports of all lanes, in a round that all workers have joined."""

    def __call__(self, round_: Round, lanes: int, timeout: float) -> list[Transport]: ...


class Group(Protocol):
    """The workers of a process group; see _workers."""

    rank: int
    size: int
    store: Store
    backends: str  # as torch.distributed.get_backend_config tells them
    host: str  # where others reach this one


Result = TypeVar("Result")
UnderWay = deque[tuple[_core.Collective, Pending]]
_kept: list[object] = []  # memory that a collective which did not end may still write to


class Lane:
    """What a task drives its exchange with."""

    def __init__(self, transport: Transport, link: LinkFacts, lanes: Lanes) -> None:
        self.transport = transport
        self.link = link
        self._lanes = lanes
        self.side: Side | None = None  # where the task at hand is summed: on a GPU, or in host memory
        self.task: Task | None = None  # at hand
        self.world = _core.World(
            transport.rank,
            transport.size,
            latency_s=link.latency_s,
            bytes_per_second=link.bytes_per_second,
            copy_bytes_per_second=link.copy_bytes_per_second,
            moves_buffers=transport.moves_buffers,
            sums_floats=transport.sums_floats,
            session=lanes.session,
            scratch=lanes.scratch,
        )

    @property
    def session(self) -> int:
        return self._lanes.session

    def begin(self, task: Task) -> None:
        self.task = task
        self.world = self.world.numbered(task.number)

    @property
    def device_world(self) -> _core.World:
        """Of the task at hand, on its GPU, which the lanes share."""
        assert self.side is not None
        return self.side.world.numbered(self.task.number if self.task is not None else 0)

    def drive(self, begin: Callable[[], _core.Exchange]) -> None:
        """Performs everything that an exchange asks for. Throws if a worker is gone or stands still, and on all workers
        NotFinite if the transport adds integers and a gradient is not finite; it may be partly summed then."""
        self._drive(begin, lambda exchange: exchange.finished)

    def agree(self, begin: Callable[[], _core.Exchange]) -> None:
        """Performs the opening of a dense exchange, in host memory, and no more: throws InStep on all workers if they
        are not about to do the same."""
        self._drive(begin, lambda exchange: exchange.finished or exchange.moving)

    def refuse(self, core: _core.State, sentence: str) -> None:
        """Tells the others in the opening that this worker cannot take part; throws InStep."""
        self._drive(lambda: _core.Exchange.refusing(core, self.world, sentence), lambda exchange: exchange.finished)

    def _drive(self, begin: Callable[[], _core.Exchange], is_over: Callable[[_core.Exchange], bool]) -> None:
        try:
            exchange = begin()
        except Error as error:  # a world of one has nobody to tell
            raise InStep(error) from error
        under_way: UnderWay = deque()
        try:
            while not is_over(exchange):
                while (what := self._next(exchange, under_way)) is not None:
                    under_way.append((what, self._begin(what)))
                if under_way:
                    what, pending = under_way[0]
                    self._await(pending)
                    under_way.popleft()
                    _complete(exchange, what, under_way)
        except (NotFinite, InStep):
            raise  # on every worker, and nothing is under way
        except BaseException as error:
            self._leave_wire(error)
            raise
        finally:
            if all([pending.drop() for _, pending in under_way]):
                exchange.close()  # or the state would be in use for as long as somebody keeps the traceback
            else:
                _kept.append((exchange, list(under_way), self.task))

    def _next(self, exchange: _core.Exchange, under_way: UnderWay) -> _core.Collective | None:
        """What it encodes takes memory of this worker, which may not be there."""
        try:
            return exchange.next()
        except NotFinite:
            while under_way:  # on every worker the same, so it completes
                self._await(under_way[0][1])
                under_way.popleft()
            raise
        except Error as error:
            raise _told(error, exchange, under_way) from error
        except Exception as local:
            raise failed_here(local) from local

    def _await(self, pending: Pending) -> None:
        """Until it is complete, another worker has failed, or the time-out is over."""
        timeout = self.task.timeout if self.task is not None else _PATIENCE
        limit = timeout + (_LATER if self.transport.times_out else 0)
        begin = time.monotonic()
        noted = False
        while not _of_collective(lambda: pending.wait(min(_SLICE, timeout / 4))):
            self._lanes.raise_failure()
            waited = time.monotonic() - begin
            if waited > limit:
                raise Overdue(f"A collective did not end within {limit:g} s.")
            if not noted:
                self._lanes.note_waiting(self.task)
                noted = True
        if noted:
            self._lanes.note_moving(self.task)

    def _leave_wire(self, error: BaseException) -> None:
        """Before memory goes back to which the wire of a GPU or a transport may write."""
        self._lanes.break_down(error, self.task)
        if self.side is not None:
            with contextlib.suppress(Exception):  # the error counts more
                self.side.wire.join()

    def _begin(self, what: _core.Collective) -> Pending:
        if what.memory == "host":
            return _of_collective(lambda: self.transport.start(what))
        assert self.side is not None
        self.take_turn()
        return _of_collective(lambda: self.side.wire.start(what))

    def take_turn(self) -> None:
        """Before anything is put on the wire of a GPU."""
        if self.task is not None and self.task.turn is not None:
            self.task.turn.wait()  # an earlier task never waits for a later one, and has time-outs


class Task:
    """Something to do on a lane. Exactly one of run() and fail() is called, on the lane's thread."""

    timeout = 60.0  # seconds for which it waits for a collective

    def __init__(self) -> None:
        self.number = 0  # among those of its lanes, from 1; the same on every worker
        self.after: threading.Event | None = None  # it uses what an earlier task, on whichever lane, uses until then
        self.done = threading.Event()
        self.device: torch.device | None = None  # of a GPU, if it may be summed there
        self.turn: threading.Event | None = None  # the wire of that GPU is an earlier task's until then
        self.lanes: Lanes | None = None  # that have it

    def enter(self) -> None:
        """It will be done: whatever comes later may wait for it."""

    def prepare(self, side: Side | None) -> None:
        """What needs no other worker. `side` is where it will be summed; None in host memory."""

    def refuse(self, lane: Lane, error: BaseException) -> None:
        """prepare() failed. Tells the others in step (InStep), or raises the error, which ends the lanes."""
        raise error

    def run(self, lane: Lane) -> None:
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        raise NotImplementedError

    def note_told(self) -> None:
        """Whoever submitted it has heard of its error."""
        if self.lanes is not None:
            self.lanes.is_told = True


class Lanes:
    """Two lanes that all workers made in one round, from their first task to their first failure."""

    def __init__(self, group: Group, connect: Connect, left: Left, first_round: int) -> None:
        self._group = group
        self._connect = connect
        self._left = left
        self._first_round = first_round
        self.round: Round | None = None  # that all workers have joined
        self.submitted = 0
        self.is_told = False  # somebody heard of the failure
        self._queues: list[queue.SimpleQueue[Task | None]] = [queue.SimpleQueue() for _ in range(_LANES)]
        self._lanes: list[Lane] = []
        self._transports: list[Transport] = []
        self.scratch = _core.ScratchPool()  # of both lanes, and of all states
        self._sides = Sides(group, self.scratch)
        self._last_on_device: threading.Event | None = None
        self._made = threading.Event()
        self._error: BaseException | None = None
        self._is_closed = False
        self._lock = threading.Lock()  # of the error, and what follows from it
        self._pulse: Pulse | None = None
        self._running = _LANES  # threads
        self._failed = 0  # tasks, but for those that all workers refused together
        self._threads = [
            threading.Thread(target=self._run, args=(number,), name=f"peelreduce-{number}", daemon=True)
            for number in range(_LANES)
        ]

    @property
    def is_broken(self) -> bool:
        return self._error is not None

    @property
    def session(self) -> int:
        assert self.round is not None
        return self.round.number

    @property
    def threads(self) -> list[threading.Thread]:
        return self._threads

    def left(self) -> Left:
        """What this worker tells of these lanes when it makes the next ones. Sums for which the workers did not meet count
        too, except before the first meeting: then perhaps only some of the workers were meant to call."""
        if self.round is not None:
            return Left(self.round.number, self.submitted, self._failed)
        return self._left if self._left.round < 0 else replace(self._left, unmet=self._left.unmet + self.submitted)

    def next_round(self) -> int:
        return self._first_round if self.round is None else self.round.number + 1

    def submit(self, task: Task) -> None:
        if self.submitted == 0:
            self._start()
        task.enter()
        task.lanes = self
        if task.device is not None:
            self._sides.note(task.device)
            task.turn, self._last_on_device = self._last_on_device, task.done
        place = self.submitted % _LANES
        self.submitted += 1
        task.number = self.submitted
        self._queues[place].put(task)

    def _start(self) -> None:
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:  # the system has no more threads to give
            self._error, self.is_told = failed_here(error), True
            self._running = sum(thread.ident is not None for thread in self._threads)
            raise self._error from error

    def close(self) -> None:
        """Has the threads end after what was submitted; lanes that are still being made are given up. One that waits for a
        worker that is gone is not waited for long."""
        if self._is_closed:
            return
        self._is_closed = True
        for tasks in self._queues:
            tasks.put(None)
        self._join()

    def abandon(self) -> None:
        """After close(): has what is still under way fail. A thread that wakes up after the interpreter has gone would take
        the process with it."""
        if any(thread.is_alive() for thread in self._threads):
            with self._lock:
                if self._error is None:
                    self._error = TransportFailed("The lanes ended, with their process or group, before this sum had.")
                    self._abort()
            self._join()

    def _join(self) -> None:
        end = time.monotonic() + _PATIENCE
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(end - time.monotonic(), 0))

    def trim(self) -> None:
        self.scratch.trim()
        self._sides.trim()

    def break_down(self, error: BaseException, task: Task | None = None) -> BaseException:
        """Ends what is under way here, and tells the other workers. Returns the error that this worker raises: the first
        one that any of them told, but for what happened here alone."""
        with self._lock:
            if self._error is None:
                if not isinstance(error, Error):  # not of a collective, so of this worker
                    error = failed_here(error)
                told: BaseException = error
                with contextlib.suppress(Exception):  # such as a lack of memory or threads, which must not hide the error
                    told = self._explain(error, task)
                self._error = error if isinstance(error, FailedHere) else told
                self._abort()
            return self._error

    def raise_failure(self) -> None:
        """What another lane or another worker told."""
        if self._error is not None:
            raise self._error
        failure = None if self.round is None else self.round.failure()
        if failure is not None:
            raise error_of(failure)

    def note_waiting(self, task: Task | None) -> None:
        if self.round is not None and task is not None:
            self.round.note_waiting(task.number)

    def note_moving(self, task: Task | None) -> None:
        if self.round is not None and task is not None:
            self.round.note_moving(task.number)

    def _explain(self, error: BaseException, task: Task | None) -> BaseException:
        """The failure of all workers, to which this one has told its own."""
        if self.round is None:  # nobody to tell
            return error
        told = self.round.failure()
        if told is None:
            kind, sentence = self._diagnose(error, task)
            told = self.round.fail(Failure(kind, self.round.rank, sentence))
        found = error_of(told)
        found.__cause__ = error
        return found

    def _diagnose(self, error: BaseException, task: Task | None) -> tuple[str, str]:
        """What this worker tells all of them."""
        assert self.round is not None
        again = "See its log. The next sum connects anew, once all workers call it again."
        if isinstance(error, FailedHere):
            return "failed", f"Worker {self.round.rank} failed in a sum: {error.reason}. {again}"
        gone = self._who_is_gone(is_sure=not isinstance(error, TimedOut))
        if gone:
            return "transport", f"{gone}, so the sum cannot be made. {again}"
        if isinstance(error, Overdue) and task is not None:
            late = self.round.who_is_late(task.number)
            who = late or "Which worker stands still is not known"
            return "timed_out", f"A sum stood still for {task.timeout:g} s. {who}. {again}"
        return kind_of(error), str(error)

    def _who_is_gone(self, *, is_sure: bool) -> str:
        """A process that ends closes its connections in any order, so one that seems well is asked again."""
        assert self.round is not None
        for _ in range(4 if is_sure else 1):
            gone = self.round.who_is_gone()
            if gone:
                return gone
            time.sleep(0.1 if is_sure else 0)
        return ""

    def _abort(self) -> None:
        self._sides.abort()
        for transport in self._transports:
            with contextlib.suppress(Exception):  # the error that led here counts more
                transport.abort()

    def _make(self, timeout: float) -> None:
        try:
            self._pulse = Pulse(self._group.host)
            self.round = self._meet(timeout)
            self._transports = list(self._connect(self.round, _LANES, timeout))
            link = self._transports[0].measure_link()
            for transport in self._transports:
                transport.wait_for_long()
            self._lanes = [Lane(transport, link, self) for transport in self._transports]
        except BaseException as error:  # noqa: BLE001: whatever it is, tasks hear of it
            self.break_down(explained(error))
        finally:
            self._made.set()

    def _meet(self, timeout: float) -> Round:
        assert self._pulse is not None
        store = self._group.store
        for found in rounds(store, self._group.rank, self._group.size, self._first_round):
            self._first_round = found.number + 1  # it is decided when this one is asked again
            found.join(self._left, self._pulse.address)
            if found.await_fate(timeout, lambda: self._is_closed):
                return found
        raise AssertionError  # rounds do not end

    def _run(self, number: int) -> None:
        task = self._queues[number].get()
        if task is not None and number == 0:
            self._make(task.timeout)
        with torch.no_grad():
            while task is not None:
                self._made.wait()  # what lane 0 does meanwhile has time-outs
                try:
                    if task.after is not None:
                        task.after.wait()  # an earlier task never waits for a later one, and has time-outs
                    self._perform(task, number)
                finally:
                    task.done.set()
                del task  # or the last tensor would live until the next one comes
                task = self._queues[number].get()
        self._end()

    def _end(self) -> None:
        """The last thread to end closes what all of them used."""
        with self._lock:
            self._running -= 1
            if self._running != 0:
                return
        if self.round is not None:
            self.round.note_closed()
        for transport in self._transports:
            with contextlib.suppress(Exception):  # nobody is left to hear of it
                transport.close()
        self._lanes.clear()
        self._transports.clear()
        self.scratch.trim()  # whoever keeps a task of these lanes keeps them
        self._sides.close()
        if self._pulse is not None:
            self._pulse.close()

    def _perform(self, task: Task, number: int) -> None:
        error = self._error
        if error is None:
            lane = self._lanes[number]
            lane.begin(task)
            try:
                self._prepare(task, lane)
                task.run(lane)
                return
            except InStep as told:  # on every worker, so the lanes are in step and go on
                task.fail(told.error)
                return
            except BaseException as failed:  # noqa: BLE001: the thread must live on to fail what comes later
                error = self.break_down(failed, task)
            finally:
                lane.task = lane.side = None
        with self._lock:
            self._failed += 1
        task.fail(error)

    def _prepare(self, task: Task, lane: Lane) -> None:
        if task.device is not None:
            lane.side = _of_collective(lambda: self._sides.side_of(task.device, self.round, task.timeout))
        try:
            task.prepare(lane.side)
        except BaseException as local:  # noqa: BLE001: whatever it is, the others hear of it
            error = failed_here(local)
            try:
                task.refuse(lane, error)
            except InStep:
                raise InStep(error) from local


class Dispatcher:
    """The lanes of one set of workers over one transport, made when the first task comes and again after a failure."""

    def __init__(self, group: Group, connect: Connect) -> None:
        self._group = group
        self._connect = connect
        self._lanes: Lanes | None = None
        self._left = Left()
        self._next_round = 0
        self._users = 0  # states that were not closed
        self._process = os.getpid()
        self._is_closed = False
        self._lock = threading.Lock()
        _close_all_at_exit(self)

    def submit(self, task: Task) -> None:
        """Every worker submits the same tasks in the same order."""
        with self._lock:
            self.check()
            if self._lanes is not None and self._lanes.is_broken and self._lanes.is_told:
                self._leave()
            if self._lanes is None:
                self._lanes = Lanes(self._group, self._connect, self._left, self._next_round)
            self._lanes.submit(task)

    def begin_step(self) -> None:
        """What is submitted from now on comes after an earlier failure, of which whoever submits has been told."""
        if self._lanes is not None and self._lanes.is_broken:
            self._lanes.is_told = True

    def acquire(self) -> None:
        """For a state, which may be closed."""
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Ends the lanes with the last state that was not closed. Every worker closes the same states."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._leave()

    def trim(self) -> None:
        """Frees the memory that the lanes keep for the sums to come."""
        if os.getpid() != self._process:
            return  # the lanes are another process's
        with self._lock:
            if self._lanes is not None:
                self._lanes.trim()

    def reset(self) -> None:
        """Ends the lanes, and what is under way with them. The next task makes new ones, with workers that were reset too."""
        with self._lock:
            if self._lanes is not None:
                self._lanes.break_down(Misuse("peelreduce.reset() was called before this sum had ended."))
                self._leave()
            self._left = Left(reset=True)

    def abort(self) -> None:
        """For good, with what is under way."""
        with self._lock:
            if self._lanes is not None:
                self._lanes.break_down(TransportFailed("The process group was aborted before this sum had ended."))
        self.close()

    def close(self) -> None:
        """For good."""
        if os.getpid() != self._process:
            return  # the lanes are another process's
        with self._lock:
            self._is_closed = True
            lanes = self._lanes
            self._leave()
        if lanes is not None:
            lanes.abandon()

    def _leave(self) -> None:
        lanes, self._lanes = self._lanes, None
        if lanes is not None:
            lanes.close()
            self._group.store.rest()
            self._left, self._next_round = lanes.left(), lanes.next_round()

    def check(self) -> None:
        """Raises if nothing may be submitted here now."""
        if self._is_closed or os.getpid() != self._process:
            raise Misuse(
                "These lanes have ended, with their process group or with their process; submit from the process that "
                "made them, to a process group that was not destroyed."
            )
        if self._lanes is not None and threading.current_thread() in self._lanes.threads:
            raise Misuse(
                "A sum was submitted by a callback of another one, whose order differs from worker to worker; submit it "
                "from the thread that trains."
            )


def one_line(what: object) -> str:
    return " ".join(str(what).split()).rstrip(".")


def failed_here(local: BaseException) -> FailedHere:
    if isinstance(local, FailedHere):
        return local
    what = "failed"
    if isinstance(local, _OUT_OF_MEMORY):
        what = f"has no {'host' if isinstance(local, MemoryError) else 'device'} memory left"
    error = FailedHere(f"This worker {what}, and has told the others: {one_line(local)}.")
    error.reason = f"it {what}: {one_line(local)}"
    error.__cause__ = local
    return error


def _complete(exchange: _core.Exchange, what: _core.Collective, under_way: UnderWay) -> None:
    try:
        exchange.complete(what)
    except Error as error:
        raise _told(error, exchange, under_way) from error


def _told(error: Error, exchange: _core.Exchange, under_way: UnderWay) -> Exception:
    """What an exchange raises before anything moves, it raises on all workers."""
    return error if under_way or exchange.moving else InStep(error)


def _of_collective(perform: Callable[[], Result]) -> Result:
    """What goes wrong in it is told in the library's words."""
    try:
        return perform()
    except Error:
        raise
    except Exception as error:
        raise explained(error) from error


def explained(error: BaseException) -> BaseException:
    """What a collective failed with, as an error of the library."""
    if isinstance(error, Error):
        return error
    if isinstance(error, _OUT_OF_MEMORY):
        return failed_here(error)
    if isinstance(error, ValueError) and error.__context__ is not None:
        error = error.__context__  # torch wanted to log it, and does not know groups of ours
    found = TransportFailed(
        f"A collective failed: {one_line(error)}. A worker is gone, stands still, or called with other arrays; see its log."
    )
    found.__cause__ = error
    return found


_close_at_exit: weakref.WeakSet[Dispatcher] = weakref.WeakSet()
_finalized: set[int] = set()  # processes that multiprocessing will have close them, since it runs no atexit


def _close_all_at_exit(dispatcher: Dispatcher) -> None:
    _close_at_exit.add(dispatcher)
    if os.getpid() not in _finalized:
        _finalized.add(os.getpid())
        Finalize(None, _close_all, exitpriority=0)


@atexit.register
def _close_all() -> None:
    for dispatcher in list(_close_at_exit):
        dispatcher.close()
