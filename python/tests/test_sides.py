"""Who sums tensors of GPUs where: what workers tell each other, without a GPU."""

import pytest
import torch
import torch.distributed as dist
from peelreduce import _gpu, _sides
from peelreduce._dispatcher import Dispatcher, Task
from workers import run_workers


def _ask(rank: int, size: int) -> list[str]:
    store = dist.PrefixStore("ask", dist.distributed_c10d._get_default_store())
    return _sides._ask_all(store, rank, size, f"worker {rank} cannot" if rank == 1 else "yes", 30)


def test_all_workers_hear_all_answers() -> None:
    assert run_workers(3, _ask) == 3 * [["yes", "worker 1 cannot", "yes"]]


def _obstacle(rank: int, size: int) -> str:
    return _sides.obstacle(dist.group.WORLD)


def test_a_group_without_nccl_is_an_obstacle() -> None:
    expected = _gpu.missing or "the process group has no NCCL"
    assert run_workers(1, _obstacle)[0].startswith(expected)


def test_what_there_is_can_be_told() -> None:
    assert _gpu.about().startswith("no: " if _gpu.missing else "built with CUDA ")


FIRST, SECOND = torch.device("cuda", 1), torch.device("cuda", 0)


def test_the_first_device_to_be_submitted_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever lane comes first to a task."""
    side = object()
    monkeypatch.setattr(_sides.Sides, "_decide", lambda self, device, name: side if device == FIRST else None)
    monkeypatch.setattr(Dispatcher, "_start", lambda self: None)
    dispatcher = Dispatcher(None, 30)
    for device in (FIRST, SECOND):
        task = Task()
        task.device = device
        dispatcher.submit(task)
    assert dispatcher._sides.side_of(SECOND, "name") is None
    assert dispatcher._sides.side_of(FIRST, "name") is side
