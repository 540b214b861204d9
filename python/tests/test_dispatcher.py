"""What a lane does when something goes wrong, with an exchange that does nothing else."""

from types import SimpleNamespace

import pytest
import torch
from peelreduce import _core
from peelreduce._dispatcher import FailedHere, Lane, Refused, _failed_collective
from peelreduce._link import LinkFacts


class Exchange:
    """Asks for collectives on a device, one after another, and fails when there is none left."""

    def __init__(self, asks: list[object], error: Exception) -> None:
        self._asks = asks
        self._error = error
        self.finished = False
        self.moving = bool(asks)
        self.is_closed = False

    def next(self) -> object:
        if not self._asks:
            raise self._error
        return self._asks.pop(0)

    def close(self) -> None:
        self.is_closed = True


def _lane() -> Lane:
    return Lane(SimpleNamespace(rank=0, size=2), LinkFacts(1e-5, 1e9, 1e9))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("2 GiB are wanted."), "no device memory left, .* in vain: 2 GiB are wanted"),
        (MemoryError("std::bad_alloc"), "no host memory left, .* in vain: std::bad_alloc"),
        (RuntimeError("a kernel is missing"), "This worker failed, .* in vain: a kernel is missing"),
    ],
)
def test_what_fails_while_encoding_is_this_workers_own(error: Exception, told: str) -> None:
    exchange = Exchange([], error)
    with pytest.raises(FailedHere, match=told) as caught:
        _lane().drive(lambda: exchange)
    assert caught.value.__cause__ is error
    assert _failed_collective(caught.value) is caught.value
    assert exchange.is_closed


def test_memory_that_a_collective_lacks_is_this_workers_own() -> None:
    told = _failed_collective(torch.OutOfMemoryError("Tried to allocate 2 GiB."))
    assert str(told).startswith("This worker has no device memory left")


def test_an_exchange_that_never_moved_is_refused() -> None:
    with pytest.raises(Refused, match="Workers differ"):
        _lane().drive(lambda: Exchange([], _core.Error("Workers differ in elements.")))
