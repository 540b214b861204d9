"""How workers meet to make lanes, and how they hear of each other's failures: by the store of their process group.

Lanes are made in rounds. A round is numbered by the store, never by a count of one process: workers that were alone with
a sum, that failed or that were reset find each other again whatever they did before. All workers join a round, or one
that has waited too long declares it dead and everybody goes on to the next; which of the two happened is one value in the
store that is set once, so no worker can believe otherwise.

Who joins a round says where it left the round before: a worker that has had more sums there than another is at another
place of the program, and a sum of theirs would be wrong. So they are told to start from a common place and to reset.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed as dist

from . import _core
from .errors import Disagreement, TimedOut, TransportFailed

_SLICE = 1.0  # seconds for which the store is waited for at a time, so that closing does not take longer
_PROBE = 0.5  # seconds in which a living process answers


@dataclass(frozen=True)
class Left:
    """Where a worker was when it left the lanes it had before."""

    round: int = -1  # -1: it had none
    sums: int = 0  # that it submitted there
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


_KINDS: dict[str, type[_core.Error]] = {
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
        self._socket.listen(64)
        self.address = self._socket.getsockname()[:2]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()


def _answers(address: tuple[str, int] | None) -> bool:
    if address is None:
        return True
    try:
        socket.create_connection(address, timeout=_PROBE).close()
    except (ConnectionRefusedError, ConnectionResetError, TimeoutError):
        return False
    except OSError:
        return True  # this host cannot ask, which says nothing about that worker
    return True


class Round:
    """One meeting of all workers, and what they tell each other until its lanes end."""

    def __init__(self, store: dist.Store, number: int, rank: int, size: int) -> None:
        self.number = number
        self.rank = rank
        self.size = size
        self.store = dist.PrefixStore(str(number), store)
        self._addresses: list[tuple[str, int] | None] = []

    # ---- meeting

    def join(self, left: Left, pulse: tuple[str, int] | None) -> None:
        """Says that this worker is there. The last one to come decides."""
        self.store.set(f"join/{self.rank}", json.dumps({"left": asdict(left), "pulse": pulse}))
        if self.store.add("joined", 1) == self.size:
            self._decide(Fate(self._verdict(), []))

    def fate(self) -> Fate | None:
        """None while it is open."""
        return Fate(**json.loads(self.store.get("fate"))) if self.store.check(["fate"]) else None

    def await_fate(self, timeout: float, is_closed: Callable[[], bool]) -> bool:
        """True when all workers are there; raises what everybody raises, and names those who did not come. False: they
        had given this worker up before it came, so it goes on to the next round."""
        end = time.monotonic() + timeout
        while (fate := self.fate()) is None:
            if is_closed():
                self._decide(Fate(f"Worker {self.rank} closed its lanes before they were made.", []))
            elif time.monotonic() > end:
                missing = self._missing()
                self._decide(Fate(f"{_workers(missing)} did not call within {timeout:g} s.", missing))
            else:
                seconds = min(_SLICE, max(end - time.monotonic(), 0.01))
                with contextlib.suppress(RuntimeError):  # nobody has decided yet
                    self.store.wait(["fate"], timedelta(seconds=seconds))
        if not fate.why:
            self._addresses = [one["pulse"] and tuple(one["pulse"]) for one in self._records()]
            return True
        if self.rank in fate.missing:
            return False
        if fate.why.startswith(_OUT_OF_STEP):
            raise Disagreement(fate.why)
        raise TimedOut(
            f"Workers did not meet for a sum: {fate.why} Every worker of a process group must take part in its sums; see the "
            "log of that worker, and call again on all of them."
        )

    def _decide(self, fate: Fate) -> None:
        """The first one to decide has decided."""
        self.store.compare_set("fate", "", json.dumps(asdict(fate)))

    def _records(self) -> list[dict]:
        return [json.loads(one) for one in self.store.multi_get([f"join/{worker}" for worker in range(self.size)])]

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
        return [worker for worker in range(self.size) if not self.store.check([f"join/{worker}"])]

    # ---- failures

    def fail(self, failure: Failure) -> Failure:
        """The first failure of all workers, which may be another one than this."""
        with contextlib.suppress(RuntimeError):  # the store may be what has failed
            found = self.store.compare_set("failed", "", json.dumps(asdict(failure)))
            return Failure(**json.loads(found))
        return failure

    def failure(self) -> Failure | None:
        with contextlib.suppress(RuntimeError):
            if self.store.check(["failed"]):
                return Failure(**json.loads(self.store.get("failed")))
        return None

    def note_waiting(self, sums: int) -> None:
        """This worker has waited for long in that sum, so it is not the one that others wait for."""
        with contextlib.suppress(RuntimeError):
            self.store.set(f"waiting/{self.rank}/{sums}", "")

    def note_closed(self) -> None:
        with contextlib.suppress(RuntimeError):
            self.store.set(f"closed/{self.rank}", "")

    def who_is_gone(self) -> str:
        """Workers whose process has ended, or whose lanes have, in words; empty if there is none."""
        others = [worker for worker in range(self.size) if worker != self.rank]
        dead: list[int] = []
        threads = [
            threading.Thread(target=lambda w=worker: _answers(self._addresses[w]) or dead.append(w), daemon=True)
            for worker in others
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if dead:
            return f"{_workers(sorted(dead))} is gone" if len(dead) == 1 else f"{_workers(sorted(dead))} are gone"
        with contextlib.suppress(RuntimeError):
            closed = [worker for worker in others if self.store.check([f"closed/{worker}"])]
            if closed:
                return f"{_workers(closed)} closed its lanes (close(), reset(), or the end of its process group)"
        return ""

    def who_is_late(self, sums: int) -> str:
        """Workers that do not wait in this sum, in words; empty if that is not known."""
        late: list[int] = []
        with contextlib.suppress(RuntimeError):
            for worker in range(self.size):
                if worker != self.rank and not self.store.check([f"waiting/{worker}/{sums}"]):
                    late.append(worker)
        return _workers(late) if late else ""


_OUT_OF_STEP = "Workers are at different places of the program."


def _place(left: Left) -> str:
    if left.reset:
        return "was reset"
    if left.round < 0:
        return "has had no sums"
    return f"left round {left.round} after {left.sums} sums"


def _workers(ranks: list[int]) -> str:
    """As in "Worker 2" or "Workers 0 and 3"."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"Worker {names[0]}"
    return f"Workers {', '.join(names[:-1])} and {names[-1]}"


def error_of(failure: Failure) -> _core.Error:
    return _KINDS[failure.kind](failure.sentence)


def rounds(store: dist.Store, rank: int, size: int, first: int) -> Iterator[Round]:
    """Rounds that nobody has decided yet."""
    number = first
    while True:
        found = Round(store, number, rank, size)
        if found.fate() is None:
            yield found
        number += 1
