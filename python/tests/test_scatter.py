"""How a GPU's reduce-scatter begins, with host memory and Gloo in the place of the device."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from peelreduce._core import ScratchPool
from peelreduce._dispatcher import InStep, Lane
from peelreduce._link import LinkFacts
from peelreduce._tasks import ArrayState, ReduceScatter
from peelreduce._transport import make_transport
from peelreduce._whole_sums import WholeSums
from workers import run_workers


class Scatters:
    """In the place of a wire."""

    def __init__(self) -> None:
        self.count = 0

    def scatter(self, data: torch.Tensor, output: torch.Tensor, *, average: bool) -> None:
        self.count += 1
        dist.all_reduce(data)
        share = output.numel()
        output.copy_(data[dist.get_rank() * share :][:share])


def _lane() -> Lane:
    store = dist.PrefixStore("lane", dist.distributed_c10d._get_default_store())
    transport = make_transport(store, dist.get_rank(), dist.get_world_size(), 30)
    lane = Lane(transport, LinkFacts(1e-5, 1e9, 1e9), SimpleNamespace(session=0, scratch=ScratchPool()))
    lane.side = SimpleNamespace(world=lane.world, wire=Scatters())
    return lane


def _scatter(
    lane: Lane,
    share: int,
    whole: WholeSums,
    *,
    dtype: torch.dtype = torch.float32,
    state: ArrayState | None = None,
) -> torch.Tensor:
    tensor = torch.arange(lane.world.size * share).to(dtype)
    memory = state or ArrayState(tensor, average=False, strategy="auto")
    task = ReduceScatter(tensor, torch.empty(share, dtype=dtype), memory, whole, 30)
    task._fetch()
    task.run(lane)
    return task.result.value()


def _agree(rank: int, size: int) -> None:
    lane = _lane()
    expected = size * torch.arange(size * 10.0)[10 * rank :][:10]
    assert torch.equal(_scatter(lane, 10, WholeSums("dense")), expected)
    assert lane.side.wire.count == 1
    with pytest.raises(InStep, match=f"Workers differ in elements: it is {10 * size} on worker 0"):
        _scatter(lane, 10 + rank, WholeSums("dense"))
    with pytest.raises(InStep, match="Workers differ in strategy: it is dense on worker 0 and auto on worker 1"):
        _scatter(lane, 10, WholeSums("dense" if rank == 0 else "auto"))
    assert torch.equal(_scatter(lane, 10, WholeSums("dense")), expected)  # a refusal is not the end
    assert lane.side.wire.count == 2


@pytest.mark.parametrize("size", [2, 3])
def test_workers_agree_before_they_scatter(size: int) -> None:
    run_workers(size, _agree)


def _scatter_short_integers(rank: int, size: int) -> None:
    lane = _lane()
    whole = WholeSums("auto")
    for _ in range(5):
        got = _scatter(lane, 10, whole, dtype=torch.int16)
        assert torch.equal(got, size * torch.arange(size * 10, dtype=torch.int16)[10 * rank :][:10])
    assert lane.side.wire.count == 0  # NCCL would not add them
    assert [whole.pay() for _ in range(33)] == 32 * [False] + [True]  # of other types


def test_short_integers_are_summed_as_a_whole() -> None:
    run_workers(2, _scatter_short_integers)


def _report(rank: int, size: int) -> None:
    lane = _lane()
    state = ArrayState(torch.empty(size * 10), average=False, strategy="auto")
    assert state.last() == {}
    _scatter(lane, 10, WholeSums("split"), state=state)  # a sum of the whole
    of_sum, before = state.last(), state.facts()["totals"]
    for step in (2, 3):
        _scatter(lane, 10, WholeSums("dense"), state=state)
        last = state.last()
        assert last.keys() == of_sum.keys()
        assert (last["step"], last["workers"], last["strategy"], last["memory"]) == (step, size, "dense", "device")
        assert last["bytes_sent"] == last["dense_bytes"] == (size - 1) * 10 * 4
        assert last["union_elements"] == size * 10
        assert last["total_s"] == 0
    totals = state.facts()["totals"]
    assert totals.keys() == before.keys()
    assert totals["steps"] == 3
    assert totals["bytes_sent"] == before["bytes_sent"] + 2 * (size - 1) * 10 * 4
    assert totals["total_s"] == before["total_s"]
    _scatter(lane, 10, WholeSums("split"), state=state)
    assert state.last()["step"] == 4
    assert state.facts()["totals"]["bytes_sent"] == totals["bytes_sent"] + state.last()["bytes_sent"]


def test_a_scatter_has_a_report_of_its_own() -> None:
    run_workers(2, _report)
