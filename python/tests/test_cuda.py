"""Tensors of a GPU, which several workers may share: summed by way of host memory if their group has Gloo alone, and on
the device if it has NCCL. More workers than GPUs need NCCL 2.30 for that (LD_PRELOAD=.../libnccl.so.2)."""

import ctypes
import functools
import logging
import os
import time
from collections.abc import Callable
from typing import Any

import peelreduce
import pytest
import torch
import torch.distributed as dist
from peelreduce import _gpu, _tasks
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64]


def _in_nccl_group(rank: int, size: int, backend: str, function: Callable[..., Any], *arguments: Any) -> Any:
    os.environ["NCCL_MULTI_RANK_GPU_ENABLE"] = "1"
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    group = dist.new_group(backend=backend)
    return function(rank, size, group, *arguments)


def _nccl_version() -> int:
    """Of the library that is loaded; torch tells the one that it was built with."""
    version = ctypes.c_int()
    ctypes.CDLL("libnccl.so.2").ncclGetVersion(ctypes.byref(version))
    return version.value


def run_over_nccl(
    size: int, function: Callable[..., Any], *arguments: Any, backend: str = "cpu:gloo,cuda:nccl"
) -> list[Any]:
    """function(rank, size, group, *arguments) in every worker, or a reason why not."""
    if _gpu.missing:
        pytest.skip(_gpu.missing)
    gpus, version = torch.cuda.device_count(), _nccl_version()
    if size > gpus and version < 23000:
        pytest.skip(f"{size} workers on {gpus} GPUs need NCCL 2.30, and this is {version // 10000}.{version // 100 % 100}")
    return run_workers(size, _in_nccl_group, backend, function, *arguments)


def _gradient(seed: int, shape: tuple[int, ...], dtype: torch.dtype, density: float = 0.02) -> torch.Tensor:
    """Whole numbers, so that every order gives the same sum."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randint(-8, 8, shape, generator=draw).to(dtype)
    return values * (torch.rand(shape, generator=draw) < density).to(dtype)


class Recommender(torch.nn.Module):
    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(20_000, 32, sparse=sparse)
        self.items = torch.nn.Embedding(5_000, 32)
        self.network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.network(torch.cat([self.users(users), self.items(items)], dim=1)).squeeze(1)


def _train(rank: int, size: int, options: dict | None, sparse: bool) -> tuple[torch.Tensor, dict]:
    return _train_in(rank, size, dist.group.WORLD, options, sparse)


def _train_in(
    rank: int, size: int, group: dist.ProcessGroup, options: dict | None, sparse: bool
) -> tuple[torch.Tensor, dict]:
    torch.manual_seed(5)
    model = DistributedDataParallel(Recommender(sparse).cuda(), bucket_cap_mb=1, process_group=group)
    state = peelreduce.DDPState(group, **(options or {}))
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


@functools.cache
def _plain_ddp() -> list[torch.Tensor]:
    return [weights for weights, _ in run_workers(2, _train, None, False)]


@pytest.mark.parametrize("strategy", ["auto", "dense", "split", "packed"])
def test_training_gives_the_bits_of_plain_ddp(strategy: str) -> None:
    ours = run_workers(2, _train, {"strategy": strategy}, False)
    for expected, (got, stats) in zip(_plain_ddp(), ours, strict=True):
        assert torch.equal(expected, got)
        assert strategy == "dense" or stats["bytes_sent"] < stats["dense_bytes"]
        assert {one["last"]["memory"] for one in stats["buckets"].values()} == {"host"}


@pytest.mark.parametrize("strategy", ["auto", "dense", "split", "packed", "gather"])
def test_training_on_the_device_gives_the_bits_of_plain_ddp(strategy: str) -> None:
    ours = run_over_nccl(2, _train_in, {"strategy": strategy}, False)
    for expected, (got, stats) in zip(_plain_ddp(), ours, strict=True):
        assert torch.equal(expected, got)
        assert strategy == "dense" or stats["bytes_sent"] < stats["dense_bytes"]
        assert {one["last"]["memory"] for one in stats["buckets"].values()} == {"device"}


def _train_with_the_backend(rank: int, size: int, group: dist.ProcessGroup, sparse: bool) -> tuple[torch.Tensor, dict]:
    weights, _ = _train_in(rank, size, group, None, sparse)
    return weights, group.stats()


@pytest.mark.parametrize("sparse", [False, True])
def test_training_with_the_backend_gives_the_bits_of_plain_ddp(sparse: bool) -> None:
    ours = run_over_nccl(2, _train_with_the_backend, sparse, backend="peel")
    for expected, (got, stats) in zip(_plain_ddp(), ours, strict=True):
        if sparse:
            torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)
        else:
            assert torch.equal(expected, got)
        assert stats
        for kind, one in stats.items():
            assert one["last"]["memory"] == ("host" if "sparse" in kind else "device")
        totals = [one["totals"] for one in stats.values()]
        assert sum(one["bytes_sent"] for one in totals) < sum(one["dense_bytes"] for one in totals)


def _perform_with_the_backend(rank: int, size: int, group: dist.ProcessGroup) -> None:
    own = _gradient(rank, (1 << 20,), torch.float32).cuda()
    whole = sum(_gradient(one, (1 << 20,), torch.float32) for one in range(size)).cuda()
    work = dist.all_reduce(own, group=group, async_op=True)
    assert torch.equal(work.get_future().wait()[0], whole)
    own = _gradient(rank, (1 << 20,), torch.float32).cuda()
    share = torch.empty(own.numel() // size, device="cuda")
    dist.reduce_scatter_tensor(share, own, group=group)
    assert torch.equal(share, whole.chunk(size)[rank])
    assert torch.equal(own, _gradient(rank, (1 << 20,), torch.float32).cuda())  # the input is kept
    for tensor in (torch.ones(3).cuda(), torch.ones(1 << 20, dtype=torch.int64).cuda(), torch.ones(1 << 20)):
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, torch.full_like(tensor, size))
    dist.broadcast(own, group=group, group_src=0)
    assert torch.equal(own, _gradient(0, (1 << 20,), torch.float32).cuda())
    dist.barrier(group=group)


def test_collectives_of_the_backend_on_the_device() -> None:
    run_over_nccl(2, _perform_with_the_backend, backend="peel")


def test_sparse_gradients_stay_sparse() -> None:
    ours = run_workers(2, _train, {}, True)
    for expected, (got, _) in zip(_plain_ddp(), ours, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)


def _sum_beside_computing(rank: int, size: int, group: dist.ProcessGroup | None = None) -> None:
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
            peelreduce.all_reduce(tensor, group=group, async_op=True, state=state)
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


@pytest.mark.parametrize("size", [1, 2])
def test_sums_on_the_device_keep_their_place_in_the_stream(size: int) -> None:
    run_over_nccl(size, _sum_beside_computing)


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


def _sum_all(rank: int, size: int, group: dist.ProcessGroup) -> None:
    for strategy in ("auto", "dense", "packed", "split", "gather"):
        for dtype in TYPES:
            for shape in [(0,), (1,), (50_001,)]:
                state = peelreduce.State(strategy=strategy)
                for step in range(3):
                    tensor = _gradient(10 * step + rank, shape, dtype).cuda()
                    peelreduce.all_reduce(tensor, group=group, state=state)
                    expected = sum(_gradient(10 * step + worker, shape, dtype) for worker in range(size))
                    assert torch.equal(tensor.cpu(), expected), (strategy, dtype, shape, step)
                assert tensor.numel() == 0 or state.report()["memory"] == "device"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_type_is_summed_on_the_device(size: int) -> None:
    run_over_nccl(size, _sum_all)


def _sum_many(rank: int, size: int, group: dist.ProcessGroup) -> None:
    """An odd number of arrays, so that each changes lanes; one of them in host memory, one sparse."""
    shape = (200_003,)
    states = [peelreduce.State(strategy="split" if n == 0 else "auto") for n in range(5)]
    held = []
    for step in range(6):
        tensors = [_gradient(100 * step + 10 * n + rank, shape, torch.float32) for n in range(5)]
        tensors = [x if n == 3 else x.cuda().to_sparse() if n == 4 else x.cuda() for n, x in enumerate(tensors)]
        works = [
            peelreduce.all_reduce(x, group=group, async_op=True, state=s) for x, s in zip(tensors, states, strict=True)
        ]
        for n, (work, x) in enumerate(zip(works, tensors, strict=True)):
            work.wait()
            expected = sum(_gradient(100 * step + 10 * n + worker, shape, torch.float32) for worker in range(size))
            assert torch.equal((x.to_dense() if x.is_sparse else x).cpu(), expected), (step, n)
        del works, tensors, x, work
        torch.cuda.synchronize()
        held.append(torch.cuda.memory_allocated())
    memories = ["device"] * 3 + ["host"] * 2
    assert [state.report()["memory"] for state in states] == memories
    assert states[0].report()["bytes_sent"] < states[0].report()["dense_bytes"] or size == 1
    assert held[-1] <= 1.1 * held[-3] + (1 << 20)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_many_are_under_way_at_once(size: int) -> None:
    run_over_nccl(size, _sum_many)


def _sketch(rank: int, size: int, group: dist.ProcessGroup) -> None:
    state = peelreduce.State(strategy="sketch")
    for step in range(3):
        values = [_gradient(10 * step + w, (100_000,), torch.float32, 0.01) / 7 for w in range(size)]
        tensor = values[rank].cuda()
        peelreduce.all_reduce(tensor, dist.ReduceOp.AVG, group=group, state=state)
        exact = sum(one.double() for one in values) / size
        bound = state.report()["error_bound"] + exact.abs() * 2**-23
        assert state.report()["strategy"] == "sketch"
        assert bool(((tensor.cpu().double() - exact).abs() <= bound).all())


def test_a_sketch_on_the_device_keeps_its_bound() -> None:
    run_over_nccl(2, _sketch)


def _average_and_refuse(rank: int, size: int, group: dist.ProcessGroup) -> None:
    transposed = torch.arange(12.0, device="cuda").reshape(3, 4).t()
    peelreduce.all_reduce(transposed, dist.ReduceOp.AVG, group=group)
    assert torch.equal(transposed.cpu(), torch.arange(12.0).reshape(3, 4).t())
    x = torch.ones(100 + rank, device="cuda")
    with pytest.raises(RuntimeError, match="elements"):  # the same sentence everywhere, and nothing has changed
        peelreduce.all_reduce(x, group=group)
    assert torch.equal(x.cpu(), torch.ones(100 + rank))
    x = torch.ones(100, device="cuda")
    peelreduce.all_reduce(x, group=group)  # a refusal is not the end
    assert torch.equal(x.cpu(), torch.full((100,), float(size)))
    mixed = torch.ones(100, device="cuda" if rank == 0 else "cpu")
    with pytest.raises(RuntimeError, match="memory"):
        peelreduce.all_reduce(mixed, group=group)


def test_misuse_gets_a_sentence() -> None:
    run_over_nccl(2, _average_and_refuse)


def _shard(rank: int, size: int, group: dist.ProcessGroup, options: dict | None) -> tuple[torch.Tensor, list[dict]]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Embedding(20_000, 8), torch.nn.Flatten(), torch.nn.Linear(32, 10)).cuda()
    mesh = DeviceMesh.from_group(group, "cuda")
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    scatters = [] if options is None else peelreduce.apply_fsdp(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        draw = torch.Generator().manual_seed(100 * step + rank)
        optimizer.zero_grad()
        model(torch.randint(20_000, (6, 4), generator=draw).cuda()).pow(2).mean().backward()
        optimizer.step()
    weights = torch.cat([p.full_tensor().detach().flatten() for p in model.parameters()]).cpu()
    return weights, [scatter.state.report() for scatter in scatters]


@functools.cache
def _plain_fsdp() -> torch.Tensor:
    return run_over_nccl(2, _shard, None)[0][0]


@pytest.mark.parametrize("strategy", ["auto", "dense", "split"])
def test_shards_are_those_of_plain_fsdp(strategy: str) -> None:
    plain = _plain_fsdp()
    ours = run_over_nccl(2, _shard, {"strategy": strategy})
    assert torch.equal(plain, ours[0][0])
    reports = ours[1][1]
    assert {report["memory"] for report in reports} == {"device"}
    assert strategy != "split" or any(report["bytes_sent"] < report["dense_bytes"] for report in reports)


def _say_which_way(rank: int, size: int) -> list[str]:
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())
    logging.getLogger("peelreduce").addHandler(listener)
    state = peelreduce.State()
    peelreduce.all_reduce(torch.ones(10, device="cuda"), state=state)
    assert state.report()["memory"] == "host"
    return said


def test_the_way_through_host_memory_is_told() -> None:
    for said in run_workers(2, _say_which_way):
        assert len(said) == 1
        assert said[0].startswith("Tensors of cuda:0 are summed by way of host memory. Worker 0 says: ")


def _fail_on_a_device(rank: int, size: int, group: dist.ProcessGroup) -> tuple[str, float]:
    """One worker has no memory for its tensor, and another sum follows."""
    state = peelreduce.State()
    for _ in range(2):
        peelreduce.all_reduce(torch.ones(1000, device="cuda"), group=group, state=state)
    fetch = _tasks.Sum._fetch

    def failing(self: _tasks.Sum) -> None:
        raise torch.OutOfMemoryError("Tried to allocate 2 GiB.")

    if rank == 1:
        _tasks.Sum._fetch = failing
    begin = time.monotonic()
    with pytest.raises(peelreduce.Error) as caught:
        peelreduce.all_reduce(torch.ones(1000, device="cuda"), group=group, state=state)
    seconds = time.monotonic() - begin
    _tasks.Sum._fetch = fetch
    x = torch.ones(1000, device="cuda")
    peelreduce.all_reduce(x, group=group, state=state)
    assert torch.equal(x.cpu(), torch.full((1000,), float(size)))
    return str(caught.value), seconds


def test_a_worker_without_device_memory_tells_the_others() -> None:
    told = run_over_nccl(2, _fail_on_a_device)
    assert "Worker 1 cannot take part: it has no device memory left" in told[0][0]
    assert told[1][0].startswith("This worker has no device memory left")
    assert all(seconds < 10 for _, seconds in told)


def _connect_again_on_a_device(rank: int, size: int, group: dist.ProcessGroup) -> None:
    """After a failure of all lanes the next sum has a communicator of its own."""
    run = _tasks.Sum.run

    def failing(self: _tasks.Sum, lane: object) -> None:
        raise RuntimeError("a bug")

    for _ in range(3):
        x = torch.ones(1000, device="cuda")
        peelreduce.all_reduce(x, group=group)
        assert torch.equal(x.cpu(), torch.full((1000,), float(size)))
        if rank == 0:
            _tasks.Sum.run = failing
        with pytest.raises(peelreduce.TransportFailed):
            peelreduce.all_reduce(torch.ones(1000, device="cuda"), group=group)
        _tasks.Sum.run = run


def test_workers_connect_again_on_a_device() -> None:
    run_over_nccl(2, _connect_again_on_a_device)
