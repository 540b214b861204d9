"""How workers meet to make lanes, and how they hear of each other's failures: by the store of their process group.

Lanes are made in rounds. The store numbers the rounds, since processes count differently once some of them were alone
with a sum, failed or were reset. Either all workers join a round, or one of them has waited too long and gives it up, and
everybody goes on to the next. Which of the two happened is one value in the store that is set once, so all workers
believe the same.

A worker that joins a round tells how it left the one before: how many sums it had submitted there, and how many of these
had failed. Workers that tell different things are at different places of the program, and a sum of theirs would be wrong.
They are told to go back to a common place and to call reset().
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

from . import _core
from ._store import Store
from .errors import Disagreement, Misuse, TimedOut, TransportFailed

_PROBE = 3.0  # seconds in which the host of a process that ended says so
_POLL = (0.002, 0.1)  # seconds between two looks at the store, at first and later


@dataclass(frozen=True)
class Left:
    """Where a worker was when it left the lanes it had before."""

    round: int = -1  # -1: it had none
    sums: int = 0  # that it submitted there
    failed: int = 0  # of these, not counting those that all workers refused together
    unmet: int = 0  # later ones, for which the workers did not meet
    reset: bool = False  # by peelreduce.reset(): it is where all workers said they would meet


@dataclass(frozen=True)
class Fate:
    """What became of a round."""

    why: str  # there are no lanes; empty: all workers are there
    missing: list[int]  # workers that were given up


@dataclass(frozen=True)
class Failure:
    """What went wrong first, as every worker tells it."""

    kind: str  # a key of _KINDS
    worker: int  # that told it
    sentence: str


class CannotConnect(Misuse):
    """Some worker was told to connect in a way that cannot be right, before anything was summed."""


_KINDS: dict[str, type[_core.Error]] = {
    "cannot_connect": CannotConnect,
    "timed_out": TimedOut,
    "transport": TransportFailed,
    "disagreement": Disagreement,
    "failed": TransportFailed,  # of one worker alone: to the others it is as good as gone
}


def kind_of(error: BaseException) -> str:
    for kind, known in _KINDS.items():
        if isinstance(error, known):
            return kind
    return "failed"


class Pulse:
    """A socket that says whether this process lives: the kernel answers for it, also while all threads are busy."""

    def __init__(self, host: str) -> None:
        self.address: tuple[str, int] | None = None  # none where the host cannot be told
        self._socket: socket.socket | None = None
        if not host:
            return
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.bind((host, 0))
        self._socket.listen(socket.SOMAXCONN)  # nobody accepts: those who ask hang up
        _pulses.add(self)
        self.address = self._socket.getsockname()[:2]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


_pulses: weakref.WeakSet[Pulse] = weakref.WeakSet()


def _close_pulses() -> None:
    """In a forked process, which is not the one that they speak for."""
    for pulse in list(_pulses):
        pulse.close()


os.register_at_fork(after_in_child=_close_pulses)


def _is_gone(address: tuple[str, int] | None) -> bool:
    """Whether its host says so. A host that says nothing may be slow."""
    if address is None:
        return False
    try:
        socket.create_connection(address, timeout=_PROBE).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True
    except OSError:
        return False
    return False


class Round:
    """One meeting of all workers, and what they tell each other until its lanes end."""

    def __init__(self, store: Store, number: int, rank: int, size: int) -> None:
        self.number = number
        self.rank = rank
        self.size = size
        self.store = store.under(str(number))
        self._addresses: list[tuple[str, int] | None] = []

    # ---- meeting

    def join(self, left: Left, pulse: tuple[str, int] | None) -> None:
        """Says that this worker is there. The last one to come decides."""
        self.store.set(f"join/{self.rank}", json.dumps({"left": asdict(left), "pulse": pulse}))
        if self.store.add("joined", 1) == self.size:
            self._decide(Fate(self._verdict(), []))

    def fate(self) -> Fate | None:
        """None while it is open."""
        found = self.store.find("fate")
        return None if found is None else Fate(**json.loads(found))

    def await_fate(self, timeout: float, is_closed: Callable[[], bool]) -> bool:
        """True when all workers are there; raises what everybody raises, and names those who did not come. False: they
        had given this worker up before it came, so it goes on to the next round."""
        end = time.monotonic() + timeout
        pauses = _pauses()
        while (fate := self.fate()) is None:
            if is_closed():
                self._decide(Fate(f"Worker {self.rank} closed its lanes before they were made.", []))
            elif time.monotonic() > end:
                missing = self._missing()
                self._decide(Fate(f"{_workers(missing)} did not call within {timeout:g} s.", missing))
            else:
                time.sleep(next(pauses))
        if not fate.why:
            self._addresses = [one["pulse"] and tuple(one["pulse"]) for one in self._records()]
            return True
        if self.rank in fate.missing:
            return False
        if fate.why.startswith(_OUT_OF_STEP):
            raise Disagreement(fate.why)
        raise TimedOut(
            f"Workers did not meet for a sum: {fate.why} Every worker of a process group must take part in its sums, and in the "
            "same way (transport=); see the log of that worker, and call again on all of them."
        )

    def _decide(self, fate: Fate) -> None:
        """The first one to decide has decided."""
        self.store.set_once("fate", json.dumps(asdict(fate)))

    def _records(self) -> list[dict]:
        return [json.loads(one) for one in self.store.get_all([f"join/{worker}" for worker in range(self.size)])]

    def _verdict(self) -> str:
        """Why workers that are all there cannot go on together; empty if they can."""
        places = [Left(**one["left"]) for one in self._records()]
        for worker, place in enumerate(places):
            first = places[0]
            if place == first or (place.reset and first.reset):
                continue
            return (
                f"{_OUT_OF_STEP} Worker 0 {_place(first)} and worker {worker} {_place(place)}. Go back to a step that all "
                "workers have, call peelreduce.reset() on every worker, and go on from there."
            )
        return ""

    def _missing(self) -> list[int]:
        return [worker for worker in range(self.size) if self.store.find(f"join/{worker}") is None]

    def hear(self, what: str, beginnings: tuple[str, ...], seconds: float) -> bool:
        """Whether another worker says something that begins so, within that time. Raises its failure if it has one."""
        end = time.monotonic() + seconds
        others = [worker for worker in range(self.size) if worker != self.rank]
        pauses = _pauses()
        while True:
            if any((self.store.find(f"{what}/{worker}") or "").startswith(beginnings) for worker in others):
                return True
            failure = self.failure()
            if failure is not None:
                raise error_of(failure)
            if time.monotonic() > end:
                return False
            time.sleep(next(pauses))

    def collect(self, what: str, own: str, timeout: float) -> list[str]:
        """What every worker says. By the store, since a worker that sums something else now would take collectives amiss."""
        self.store.set(f"{what}/{self.rank}", own)
        end = time.monotonic() + timeout
        told: list[str] = []
        pauses = _pauses()
        while len(told) < self.size:
            found = self.store.find(f"{what}/{len(told)}")
            if found is not None:
                told.append(found)
                continue
            failure = self.failure()
            if failure is not None:
                raise error_of(failure)
            if time.monotonic() > end:
                raise TimedOut(f"Worker {len(told)} did not answer within {timeout:g} s while workers connected.")
            time.sleep(next(pauses))
        return told

    # ---- failures

    def fail(self, failure: Failure) -> Failure:
        """The first failure of all workers, which may be another one than this."""
        with contextlib.suppress(RuntimeError):  # the store may be what has failed
            return Failure(**json.loads(self.store.set_once("failed", json.dumps(asdict(failure)))))
        return failure

    def failure(self) -> Failure | None:
        with contextlib.suppress(RuntimeError):
            found = self.store.find("failed")
            return None if found is None else Failure(**json.loads(found))
        return None

    def note_waiting(self, number: int) -> None:
        """This worker has waited for long in that sum, so it is not the one that others wait for."""
        with contextlib.suppress(RuntimeError):
            self.store.set(_waiting(self.rank, number), str(number))

    def note_moving(self, number: int) -> None:
        """What this worker waited for in that sum has come."""
        with contextlib.suppress(RuntimeError):
            self.store.set(_waiting(self.rank, number), f"{_CAME} {number}")

    def note_closed(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.store.set(f"closed/{self.rank}", "")

    def who_is_gone(self) -> str:
        """Workers whose process has ended, or whose lanes have, in words; empty if there is none."""
        others = [worker for worker in range(self.size) if worker != self.rank]
        with ThreadPoolExecutor(min(len(others), 32) or 1) as pool:
            gone = list(pool.map(lambda worker: _is_gone(self._addresses[worker]), others))
        dead = [worker for worker, is_gone in zip(others, gone, strict=True) if is_gone]
        if dead:
            return f"{_workers(dead)} {'is' if len(dead) == 1 else 'are'} gone"
        with contextlib.suppress(RuntimeError):
            closed = [worker for worker in others if self.store.find(f"closed/{worker}") is not None]
            if closed:
                return f"{_workers(closed)} closed the lanes (close(), reset(), or the end of the process group)"
        return ""

    def who_is_late(self, number: int) -> str:
        """Whom this sum waits for, in words; empty if that is not known.

        A worker that waits is not to blame, in whichever sum: one that stops in the middle of a sum leaves the others
        behind in sums of different numbers."""
        others = [worker for worker in range(self.size) if worker != self.rank]
        with contextlib.suppress(RuntimeError):
            notes = {worker: [self.store.find(_waiting(worker, lane)) or "" for lane in range(2)] for worker in others}
            moving = [worker for worker in others if not any(note.isdigit() for note in notes[worker])]
            came = [worker for worker in moving if f"{_CAME} {number}" in notes[worker]]
            absent = [worker for worker in moving if worker not in came]
            elsewhere = [worker for worker in others if str(number) not in notes[worker]]
            if absent or not came:
                late = absent or elsewhere
                return f"{_workers(late)} did not come to it" if late else ""
            return f"{_workers(came)} stopped in the middle of it"
        return ""


_CAME = "came"  # to that sum, and waits no more


def _waiting(worker: int, number: int) -> str:
    """A key for each lane, of which there are two: what was there before is replaced."""
    return f"waiting/{worker}/{number % 2}"


def _pauses() -> Iterator[float]:
    """Between two looks: short at first, while workers come at about the same time."""
    pause, longest = _POLL
    while True:
        yield pause
        pause = min(2 * pause, longest)


_OUT_OF_STEP = "Workers are at different places of the program."


def _place(left: Left) -> str:
    if left.reset:
        return "was reset"
    if left.round < 0:
        return "has had no sums"
    return f"left round {left.round} after {left.sums} sums, of which {left.failed} failed, and {left.unmet} more alone"


def _workers(ranks: list[int]) -> str:
    """As in "Worker 2" or "Workers 0 and 3"."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"Worker {names[0]}"
    return f"Workers {', '.join(names[:-1])} and {names[-1]}"


def error_of(failure: Failure) -> _core.Error:
    return _KINDS[failure.kind](failure.sentence)


def rounds(store: Store, rank: int, size: int, first: int) -> Iterator[Round]:
    """Rounds that nobody has decided yet."""
    number = first
    while True:
        found = Round(store, number, rank, size)
        if found.fate() is None:
            yield found
        number += 1
