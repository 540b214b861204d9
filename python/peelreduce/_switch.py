"""Performs the collectives of an exchange in host memory through a switch (`peel switch`), which adds integers and ORs.

A lane joins the switch as a worker of a job of its own, as it has a process group of its own over Gloo: a job combines
one stream of collectives.

A switch may have no place for a job, and may say so to some workers while it lets others in. So workers join in attempts:
each has as long as an attempt lasts, then tells the others by the store how it fared, and all draw the same conclusion.
Attempts are short at first, since a worker that was let in hears only at the end of one that another was refused. A worker
that gives up leaves, and the switch may tell the others so before their time is over: they are lost then, and that is no
failure if somebody says that he gave up.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count

from . import _core
from ._link import LinkFacts
from ._rendezvous import CannotConnect, Round
from .errors import Error, Misuse, TimedOut

_log = logging.getLogger("peelreduce")
_VARIABLE = "PEEL_SWITCH_SECRET"
_SLOTS = 256  # of a lane; two of them have what one communicator of the library has
_LONGEST_PREFIX = 40  # a switch takes names of 63 bytes
# Seconds of the first attempt to join, and by how much each further one is longer. Three workers on loopback join both
# lanes in 0.015 s, or hear in 0.004 s that all of them are refused; if one alone is, the others know after 1.07 s. A worker
# needs two seconds to know that its path is too narrow, so it does in the second attempt, and the others after four.
_ATTEMPT, _LONGER = 1.0, 3
_SHORTEST = 0.1  # seconds, for the last attempt
_JOINED, _LATE, _REFUSED, _LOST = "joined", "late: ", "refused: ", "lost: "  # what a worker tells of an attempt
_WORD = 2.0  # seconds in which a worker that left has told why; it takes some milliseconds
_SOMEBODY_LEFT = "a worker left before all had joined"  # as the library says; its other failures are final
_BLANKS = " \t\r\n"  # around a secret, they do not count
_MOVES_BUFFERS = ("split", "gather")


@dataclass(frozen=True)
class Switch:
    """Where a `peel switch` is, for the `transport` of DDPState and State: sums then go through it.

    It adds integers and ORs: gradients are summed as fixed-point numbers, by the strategies packed and sketch. Those of
    a GPU are copied to host memory and back.

    A switch that has no room for the workers, no port for one of them, or is being shut down, is done without: a warning
    is logged, and sums go over the process group until all states with this transport are closed, one of their sums fails,
    or reset() is called. After that the switch is asked again.

    Args:
        address: of the switch, as host:port. Workers may reach it by different ones.
        secret: what lets workers in; that of the environment variable PEEL_SWITCH_SECRET unless it is given. Blanks and
            line ends around it do not count, and while the switch has two, workers may have either.
        mtu: the most that packets to the switch may have; 0 takes that of the route, up to 9,000. All workers use the
            smallest that one of them can.
        prefix: of the names of jobs, such as "team-a/", for a switch whose secrets are by prefix. At most 40 characters.
    """

    address: str
    secret: str = field(default="", repr=False)
    mtu: int = 0
    prefix: str = ""

    def __post_init__(self) -> None:
        if not hasattr(_core, "SwitchWorker"):
            raise _core.Error("This peelreduce was built without the transport over a switch, which needs Linux.")
        secret = self.secret.strip(_BLANKS) or os.environ.get(_VARIABLE, "").strip(_BLANKS)
        object.__setattr__(self, "secret", secret)
        object.__setattr__(self, "address", self.address.strip(_BLANKS))
        if not self.secret:
            raise ValueError(f"A switch needs a secret; give the one that it was started with, or set {_VARIABLE}.")
        if len(self.prefix) > _LONGEST_PREFIX or not all("!" <= character <= "~" for character in self.prefix):
            raise ValueError(
                f"The prefix of job names has at most {_LONGEST_PREFIX} letters, digits and signs of ASCII, and no spaces; "
                f"{self.prefix!r} is not one."
            )

    def draw_job(self) -> str:
        """A name that nobody else has, so that no two runs and no two groups ever meet in one job; a number follows it."""
        return f"{self.prefix}torch/{secrets.token_hex(6)}/"

    def join(self, job: str, rank: int, size: int, *, within: float, timeout: float) -> SwitchTransport:
        """As one of several workers, all of which join this job, which is nobody else's, within so many seconds. The other
        time-out is that of its collectives."""
        worker = _core.SwitchWorker(
            address=self.address,
            secret=self.secret,
            job=job,
            rank=rank,
            size=size,
            slots=_SLOTS,
            mtu=self.mtu,
            within=within,
            timeout=timeout,
        )
        return SwitchTransport(worker, rank, size)


class Passing:
    """A collective on its way through a switch."""

    def __init__(self, passage: _core.Passage) -> None:
        self._passage = passage

    def wait(self, seconds: float) -> bool:
        return self._passage.wait(seconds)

    def drop(self) -> bool:
        self._passage.drop()
        return True


class SwitchTransport:
    """One worker of a job that nobody else uses."""

    times_out = True

    def __init__(self, worker: _core.SwitchWorker, rank: int, size: int) -> None:
        self._worker = worker
        self.rank = rank
        self.size = size
        self.slots = worker.slots  # that the switch gave
        self.moves_buffers = worker.moves_buffers
        self.sums_floats = worker.sums_floats

    def start(self, what: _core.Collective) -> Passing:
        return Passing(self._worker.start(what))

    def measure_link(self) -> LinkFacts:
        return LinkFacts(*self._worker.measure_link())

    def wait_for_long(self) -> None:
        """Its collectives keep their time-out, and say what they waited for."""

    def abort(self) -> None:
        """What is under way is not waited for: to drop it ends the job."""

    def close(self) -> None:
        """Leaves, so that the switch has its slots back."""
        self._worker.leave()


class Refused(Exception):  # noqa: N818: users do not see it, since their sums go another way
    """The switch has no place for these workers. All of them have this, and none is in."""


def join_all(switch: Switch, round_: Round, lanes: int, timeout: float) -> list[SwitchTransport]:
    """Has the workers of a round join a job for each lane. Raises Refused on all of them alike; an error that one of them
    raises, the others hear of in the round."""
    end = time.monotonic() + timeout
    told_by_all = [json.loads(one) for one in round_.collect("jobs", json.dumps([switch.draw_job(), switch.address]), timeout)]
    drawn = told_by_all[0][0]
    for attempt in count():
        jobs = [f"{drawn}{attempt * lanes + lane}" for lane in range(lanes)]  # new ones, in which nobody was before
        transports: list[SwitchTransport] = []
        told = _JOINED
        with ExitStack() as leaving:
            try:
                for job in jobs:
                    begin = time.monotonic()
                    within = min(_ATTEMPT * _LONGER**attempt, max(end - begin, _SHORTEST))
                    transports.append(switch.join(job, round_.rank, round_.size, within=within, timeout=timeout))
                    leaving.callback(transports[-1].close)
            except Error as error:
                is_over = time.monotonic() - begin >= within
                leaving.close()  # before the others go on
                told = _outcome(error, round_, f"attempts/{attempt}", is_over=is_over)
            everybody = round_.collect(f"attempts/{attempt}", told, timeout)
            if all(one == _JOINED for one in everybody):
                leaving.pop_all()
                _note_joined(switch, jobs, min(transport.slots for transport in transports))
                return transports
        for worker, one in enumerate(everybody):
            if one.startswith(_REFUSED):
                raise Refused(f"Worker {worker} was told: {one.removeprefix(_REFUSED)}")
        if time.monotonic() >= end:
            late = next(one.removeprefix(_LATE) for one in everybody if one.startswith(_LATE))
            raise TimedOut(late + _difference([address for _, address in told_by_all]))
    raise AssertionError  # attempts do not end


def _difference(addresses: list[str]) -> str:
    """What is worth knowing if workers wait for each other in vain; empty if there is nothing."""
    for worker, address in enumerate(addresses):
        if address != addresses[0]:
            return (
                f" Worker 0 went to the switch at {addresses[0]} and worker {worker} to {address}; see whether that is one "
                "switch."
            )
    return ""


def _outcome(error: Error, round_: Round, attempt: str, *, is_over: bool) -> str:
    """What a worker tells the others of an attempt that failed; raises the error if another attempt is of no use."""
    if error.code == "unsupported":
        return _REFUSED + str(error)
    if isinstance(error, TimedOut) and is_over:  # before that, it is the switch that has not answered for long
        return _LATE + str(error)
    if _SOMEBODY_LEFT in str(error) and round_.hear(attempt, (_LATE, _REFUSED), _WORD):
        return _LOST + str(error)
    if isinstance(error, Misuse):  # such as a wrong secret
        raise CannotConnect(str(error)) from error
    raise error


def _note_joined(switch: Switch, jobs: list[str], slots: int) -> None:
    names = " and ".join(jobs)
    _log.info("Sums go through the switch at %s, as its jobs %s.", switch.address, names)
    if slots < _SLOTS:
        _log.warning(
            "The switch at %s gave %d of the %d slots that each of the jobs %s asked for, so sums may be slower; start it "
            "with more --slots or fewer --jobs.",
            switch.address,
            slots,
            _SLOTS,
            names,
        )


def check_transport(transport: Switch | None, strategy: str) -> None:
    """Refuses here what every sum would be refused for."""
    if transport is None:
        return
    if not isinstance(transport, Switch):
        name = type(transport).__name__
        raise TypeError(f"A transport is a peelreduce.Switch, or None for the process group, not {name}.")
    if strategy in _MOVES_BUFFERS:
        raise ValueError(
            f'A switch adds and ORs, and cannot move buffers as "{strategy}" does; use "auto", "packed" or "sketch".'
        )
