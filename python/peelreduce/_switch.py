"""Performs the collectives of an exchange in host memory through a switch (`peel switch`), which adds integers and ORs.

A lane joins the switch as a worker of a job of its own, as it has a process group of its own over Gloo: a job combines
one stream of collectives.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from . import _core
from ._link import LinkFacts

_VARIABLE = "PEEL_SWITCH_SECRET"
_SLOTS = 256  # of a lane; two of them have what one communicator of the library has
_MOVES_BUFFERS = ("split", "gather")


@dataclass(frozen=True)
class Switch:
    """Where a `peel switch` is, for the `transport` of DDPState and State: sums then go through it.

    It adds integers and ORs: gradients are summed as fixed-point numbers, by the strategies packed and sketch. Those of
    a GPU are copied to host memory and back.

    Args:
        address: of the switch, as host:port.
        secret: what lets workers in; that of the environment variable PEEL_SWITCH_SECRET unless it is given.
        mtu: of packets to the switch, the same on all workers; 0 takes that of the route, up to 9,000.
    """

    address: str
    secret: str = field(default="", repr=False)
    mtu: int = 0

    def __post_init__(self) -> None:
        if not hasattr(_core, "SwitchWorker"):
            raise _core.Error("This peelreduce was built without the transport over a switch, which needs Linux.")
        if not self.secret:
            object.__setattr__(self, "secret", os.environ.get(_VARIABLE, ""))
        if not self.secret:
            raise ValueError(f"A switch needs a secret; give the one that it was started with, or set {_VARIABLE}.")

    def fingerprint(self) -> str:
        """The same for all workers that were told the same."""
        told = repr((self.address, self.secret, self.mtu))
        return hashlib.blake2s(told.encode(), digest_size=8).hexdigest()

    def join(self, job: str, rank: int, size: int, timeout: float) -> SwitchTransport:
        """As one of several workers, all of which join this job, which is nobody else's."""
        worker = _core.SwitchWorker(
            address=self.address,
            secret=self.secret,
            job=job,
            rank=rank,
            size=size,
            slots=_SLOTS,
            mtu=self.mtu,
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
