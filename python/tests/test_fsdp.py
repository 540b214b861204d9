"""FSDP2 with our reduce-scatter against FSDP2 without it."""

import peelreduce
import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from workers import run_workers


def _train(rank: int, size: int, ours: bool) -> tuple:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(2000, 8), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    scatters = peelreduce.apply_fsdp(model) if ours else []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        draw = torch.Generator().manual_seed(100 * step + rank)
        rows = torch.randint(2000, (6, 4), generator=draw)
        optimizer.zero_grad()
        model(rows).pow(2).mean().backward()
        optimizer.step()
    weights = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])
    return weights, [scatter.state.report() for scatter in scatters]


def test_shards_are_those_of_plain_fsdp() -> None:
    plain = run_workers(2, _train, False)
    ours = run_workers(2, _train, True)
    assert torch.equal(plain[0][0], ours[0][0])
    reports = ours[1][1]
    assert len(reports) == 2
    assert any(report["bytes_sent"] < report["dense_bytes"] for report in reports)


def _train_replicas(rank: int, size: int, ours: bool) -> torch.Tensor:
    """Two replicas of two shards each."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(2000, 8), torch.nn.Flatten(), torch.nn.Linear(32, 10))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for module in (model[0], model):
        fully_shard(module, mesh=mesh["shard"] if ours else mesh)
    if ours:
        peelreduce.apply_fsdp(model, replicas=mesh["replicate"].get_group())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        draw = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randint(2000, (6, 4), generator=draw)).pow(2).mean().backward()
        optimizer.step()
    return torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()])


@pytest.mark.slow
def test_hybrid_shards_are_those_of_torch() -> None:
    plain = run_workers(4, _train_replicas, False)
    ours = run_workers(4, _train_replicas, True)
    for weights in ours:
        assert torch.equal(weights, ours[0])
        torch.testing.assert_close(weights, plain[0], rtol=1e-6, atol=1e-7)


def _misuse(rank: int, size: int) -> None:
    with pytest.raises(ValueError, match="call fully_shard first"):
        peelreduce.apply_fsdp(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match='"auto", "dense" or "split", not "sketch"'):
        peelreduce.apply_fsdp(torch.nn.Linear(2, 2), strategy="sketch")


def test_misuse_gets_a_sentence() -> None:
    run_workers(1, _misuse)
