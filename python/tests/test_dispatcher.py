"""What a lane does when something goes wrong, with an exchange that does nothing else."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from peelreduce import _core
from peelreduce._dispatcher import FailedHere, InStep, Lane, Lanes, explained
from peelreduce._link import LinkFacts
from peelreduce._place import Place
from peelreduce._rendezvous import Left


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


class Wire:
    """Writes down what is done to it."""

    def __init__(self, exchange: Exchange) -> None:
        self.done: list[str] = []
        self._exchange = exchange

    def note(self, what: str) -> None:
        assert not self._exchange.is_closed
        self.done.append(what)

    def start(self, what: object) -> object:
        self.note("start")
        return SimpleNamespace(drop=lambda: self._drop(), wait=lambda seconds: self._wait())

    def _drop(self) -> bool:
        self.note("drop")
        return True

    def _wait(self) -> bool:
        self.note("wait")
        return True

    def join(self) -> None:
        self.note("join")


def _lane(note_error: Callable[[BaseException], object] = lambda error: error) -> Lane:
    transport = SimpleNamespace(rank=0, size=2, moves_buffers=True, sums_floats=True, times_out=False)
    lanes = SimpleNamespace(session=0, scratch=_core.ScratchPool(), break_down=lambda error, task: note_error(error))
    return Lane(transport, LinkFacts(1e-5, 1e9, 1e9), lanes)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("2 GiB are wanted."), "no device memory left, .* told the others: 2 GiB are wanted"),
        (MemoryError("std::bad_alloc"), "no host memory left, .* told the others: std::bad_alloc"),
        (RuntimeError("a kernel is missing"), "This worker failed, .* told the others: a kernel is missing"),
    ],
)
def test_what_fails_while_encoding_is_this_workers_own(error: Exception, told: str) -> None:
    exchange = Exchange([], error)
    with pytest.raises(FailedHere, match=told) as caught:
        _lane().drive(lambda: exchange)
    assert caught.value.__cause__ is error
    assert explained(caught.value) is caught.value
    assert exchange.is_closed


def test_memory_that_a_collective_lacks_is_this_workers_own() -> None:
    told = explained(torch.OutOfMemoryError("Tried to allocate 2 GiB."))
    assert str(told).startswith("This worker has no device memory left")


def test_an_exchange_that_never_moved_is_refused() -> None:
    with pytest.raises(InStep, match="Workers differ") as caught:
        _lane().drive(lambda: Exchange([], _core.Disagreement("Workers differ in elements.")))
    assert isinstance(caught.value.error, _core.Disagreement)


def test_the_wire_has_ended_before_memory_goes_back() -> None:
    lost = _core.Error("A worker is gone.")
    exchange = Exchange([SimpleNamespace(memory="device")], lost)
    wire = Wire(exchange)
    lane = _lane(lambda error: wire.note("abort") if error is lost else None)
    lane.side = SimpleNamespace(wire=wire)
    with pytest.raises(_core.Error, match="A worker is gone") as caught:
        lane.drive(lambda: exchange)
    assert caught.value is lost
    assert wire.done == ["start", "abort", "join", "drop"]
    assert exchange.is_closed


def test_what_is_under_way_completes_if_a_gradient_is_not_finite() -> None:
    exchange = Exchange([SimpleNamespace(memory="device")], _core.NotFinite("A worker has NaN."))
    wire = Wire(exchange)
    lane = _lane(lambda error: wire.note("abort"))
    lane.side = SimpleNamespace(wire=wire)
    with pytest.raises(_core.NotFinite):
        lane.drive(lambda: exchange)
    assert wire.done == ["start", "wait"]
    assert exchange.is_closed


def test_a_refusal_leaves_the_wire_alone() -> None:
    exchange = Exchange([], _core.Error("Workers differ in elements."))
    wire = Wire(exchange)
    lane = _lane(lambda error: wire.note("abort"))
    lane.side = SimpleNamespace(wire=wire)
    with pytest.raises(InStep):
        lane.drive(lambda: exchange)
    assert wire.done == []


def test_the_first_error_is_that_of_all_later_tasks() -> None:
    lanes = Lanes(None, None, Left(), 0)
    aborts: list[str] = []
    lanes._sides = SimpleNamespace(abort=lambda: aborts.append("abort"))
    first = _core.Error("A worker is gone.")
    assert lanes.break_down(first) is first
    assert lanes.break_down(RuntimeError("aborted")) is first
    assert lanes.is_broken
    assert aborts == ["abort"]


def test_a_tensor_is_kept_for_kernels_and_wire() -> None:
    place = Place(torch.ones(1))
    place._ready = SimpleNamespace(synchronize=lambda: None)
    place.stay("kernels", "wire")
    recorded: list[str] = []
    tensor = SimpleNamespace(record_stream=recorded.append)
    assert place.fetch(tensor) is tensor
    assert recorded == ["kernels", "wire"]
