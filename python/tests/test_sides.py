"""Who sums tensors of GPUs where: what workers tell each other, without a GPU."""

import torch.distributed as dist
from peelreduce import _gpu, _sides
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
