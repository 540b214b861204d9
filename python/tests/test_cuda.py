"""Tensors of a GPU, which several workers share here."""

import peelreduce
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


class Recommender(torch.nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(20_000, 32, sparse=sparse)
        self.items = torch.nn.Embedding(5_000, 32)
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([self.users(users), self.items(items)], dim=1)).squeeze(1)


def _train(rank: int, size: int, options: dict | None, sparse: bool) -> tuple[torch.Tensor, dict]:
    torch.manual_seed(5)
    model = DistributedDataParallel(Recommender(sparse).cuda(), device_ids=[0], bucket_cap_mb=1)
    state = peelreduce.DDPState(**(options or {}))
    if options is not None:
        model.register_comm_hook(state, peelreduce.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        draw = torch.Generator().manual_seed(100 * step + rank)
        users, items = torch.randint(20_000, (64,), generator=draw), torch.randint(5_000, (64,), generator=draw)
        optimizer.zero_grad()
        model(users.cuda(), items.cuda()).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.module.parameters()]).cpu(), state.stats()


@pytest.mark.parametrize("strategy", ["auto", "dense", "split", "packed"])
def test_training_gives_the_bits_of_plain_ddp(strategy: str) -> None:
    plain = run_workers(2, _train, None, False)
    ours = run_workers(2, _train, {"strategy": strategy}, False)
    for (expected, _), (got, stats) in zip(plain, ours, strict=True):
        assert torch.equal(expected, got)
        assert strategy == "dense" or stats["bytes_sent"] < stats["dense_bytes"]


def test_sparse_gradients_stay_sparse() -> None:
    plain = run_workers(2, _train, None, False)
    ours = run_workers(2, _train, {}, True)
    for (expected, _), (got, _) in zip(plain, ours, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)


def _sum_beside_computing(rank: int, size: int) -> None:
    """Values are ready late and used at once: only streams keep order."""
    busy = torch.randn(2000, 2000, device="cuda")
    states = [peelreduce.State() for _ in range(4)]
    for step in range(20):
        tensors = []
        for number in range(4):
            for _ in range(5):
                busy = (busy @ busy).clamp(-1, 1)
            tensors.append(torch.zeros(300_000, device="cuda"))
            tensors[-1][step :: 1000] = float(rank + number + 1)
        works = [
            peelreduce.all_reduce(tensor, async_op=True, state=state)
            for tensor, state in zip(tensors, states, strict=True)
        ]
        doubled = []
        for work, tensor in zip(works, tensors, strict=True):
            work.wait()
            doubled.append(2 * tensor)
        for number, got in enumerate(doubled):
            expected = torch.zeros(300_000)
            expected[step::1000] = 2.0 * sum(worker + number + 1 for worker in range(size))
            assert torch.equal(got.cpu(), expected)


def test_sums_keep_their_place_in_the_stream() -> None:
    run_workers(2, _sum_beside_computing)


def _sum_of_one(rank: int, size: int) -> None:
    dist.destroy_process_group()
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.arange(1000.0, device="cuda")
    peelreduce.all_reduce(tensor)
    assert torch.equal(tensor.cpu(), torch.arange(1000.0))
    coo = torch.eye(5, device="cuda").to_sparse()
    peelreduce.all_reduce(coo)
    assert torch.equal(coo.to_dense().cpu(), torch.eye(5))


def test_a_group_of_nccl_will_do() -> None:
    run_workers(1, _sum_of_one)
