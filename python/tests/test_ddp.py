"""Training with the hook against training without it."""

import contextlib
import io
import os
import pathlib
import random
import signal
import time

import peelreduce
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from workers import run_until_told, run_workers, tell_error

_slow = pytest.mark.slow


class Recommender(torch.nn.Module):
    """Embeddings whose gradient is mostly zero, and layers whose is not; several buckets of equal size."""

    def __init__(self, sparse: bool = False) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(3000, 16, sparse=sparse)
        self.items = torch.nn.Embedding(3000, 16)
        self.layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
        self.unused = torch.nn.Linear(5, 5)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.layers(torch.cat([self.users(users), self.items(items)], dim=1)).squeeze(1)


def _batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    users = torch.randint(3000, (32,), generator=draw)
    items = torch.randint(3000, (32,), generator=draw)
    return users, items, torch.randn(32, generator=draw)


def _train(
    rank: int, size: int, options: dict | None, steps: int = 6, delays: bool = False, kwargs: dict | None = None
) -> tuple:
    torch.manual_seed(7)
    model = DistributedDataParallel(
        Recommender(), bucket_cap_mb=0.1, **(kwargs if kwargs is not None else {"find_unused_parameters": True})
    )
    state = None
    if options is not None:
        state = peelreduce.DDPState(**options)
        model.register_comm_hook(state, peelreduce.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    draw = random.Random(rank)
    for step in range(steps):
        users, items, target = _batch(rank, step)
        if delays:
            time.sleep(draw.uniform(0, 0.02))
        loss = torch.nn.functional.mse_loss(model(users, items), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = torch.cat([p.detach().flatten() for p in model.module.parameters()])
    return losses, weights, None if state is None else state.stats()


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=_slow)])
def test_dense_is_what_plain_ddp_does(size: int) -> None:
    plain = run_workers(size, _train, None)
    ours = run_workers(size, _train, {"strategy": "dense"})
    for (_, expected, _), (_, got, _) in zip(plain, ours, strict=True):
        assert torch.equal(expected, got)


@pytest.mark.parametrize("strategy", ["packed", "split", "gather", "auto"])
def test_with_two_workers_every_bit_is_that_of_plain_ddp(strategy: str) -> None:
    plain = run_workers(2, _train, None)
    ours = run_workers(2, _train, {"strategy": strategy}, 6, True)
    for (_, expected, _), (_, got, stats) in zip(plain, ours, strict=True):
        assert torch.equal(expected, got)
        assert stats["steps"] == 6
        assert stats["bytes_sent"] < stats["dense_bytes"]


@pytest.mark.parametrize(
    "strategy", [pytest.param("packed", marks=_slow), "split", pytest.param("sketch", marks=_slow), "auto"]
)
def test_with_four_workers_the_sum_is_within_rounding(strategy: str) -> None:
    plain = run_workers(4, _train, None)
    ours = run_workers(4, _train, {"strategy": strategy}, 6, True)
    for (_, expected, _), (_, got, _) in zip(plain, ours, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)
    assert all(torch.equal(ours[0][1], weights) for _, weights, _ in ours)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"find_unused_parameters": True, "gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True, "static_graph": True, "gradient_as_bucket_view": True},
    ],
)
def test_options_of_ddp_do_not_matter(kwargs: dict) -> None:
    plain = run_workers(2, _train, None, 5, False, kwargs)
    ours = run_workers(2, _train, {}, 5, True, kwargs)
    for (_, expected, _), (_, got, _) in zip(plain, ours, strict=True):
        assert torch.equal(expected, got)


def test_split_gives_the_same_bits_in_every_run() -> None:
    first = run_workers(4, _train, {"strategy": "split"}, 5, True)
    second = run_workers(4, _train, {"strategy": "split"}, 5, True)
    assert torch.equal(first[0][1], second[3][1])


def _resume(rank: int, size: int, strategy: str, interrupted: bool) -> torch.Tensor:
    torch.manual_seed(7)
    module = Recommender()
    steps = range(8)
    saved = None
    for part in ([steps[:4], steps[4:]] if interrupted else [steps]):
        model = DistributedDataParallel(module, bucket_cap_mb=0.1, find_unused_parameters=True)
        state = peelreduce.DDPState(strategy=strategy)
        if saved is not None:
            memory = io.BytesIO()
            torch.save(saved, memory)
            memory.seek(0)
            state.load_state_dict(torch.load(memory))  # as plain values, or torch refuses
            assert state.state_dict()["buckets"] == saved["buckets"]
        model.register_comm_hook(state, peelreduce.allreduce_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in part:
            users, items, target = _batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(users, items), target).backward()
            optimizer.step()
            reports = [one["last"] for one in state.stats()["buckets"].values()]
            assert not any(report["reset"] for report in reports)
        saved = state.state_dict()
        assert saved["step"] == part[-1] + 1
        assert all(report["step"] >= len(part) for report in reports)
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize(("size", "strategy"), [(2, "auto"), pytest.param(4, "split", marks=_slow)])
def test_a_resumed_run_equals_one_that_was_not_interrupted(size: int, strategy: str) -> None:
    whole = run_workers(size, _resume, strategy, False)
    resumed = run_workers(size, _resume, strategy, True)
    assert torch.equal(whole[0], resumed[0])


def _resume_top_k(rank: int, size: int, options: dict, interrupted: bool) -> torch.Tensor:
    """Over DDP's first step, which has other buckets than those after it."""
    torch.manual_seed(7)
    module = Recommender()
    steps = range(8)
    saved = None
    for part in ([steps[:4], steps[4:]] if interrupted else [steps]):
        model = DistributedDataParallel(module, bucket_cap_mb=0.1, find_unused_parameters=False, static_graph=True)
        sparsifier = peelreduce.TopK(0.05, momentum=0.5)
        state = peelreduce.DDPState(sparsifier=sparsifier, **options)
        if saved is not None:
            saved.seek(0)
            state.load_state_dict(torch.load(saved))
        model.register_comm_hook(state, peelreduce.allreduce_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = set()
        for step in part:
            users, items, target = _batch(rank, step)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(users, items), target).backward()
            optimizer.step()
            seen.add(tuple(state.stats()["buckets"]))
        assert len(seen) > 1, "buckets were not formed anew"
        saved = io.BytesIO()
        torch.save(state.state_dict(), saved)
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize(("size", "options"), [(2, {}), pytest.param(3, {"strategy": "split"}, marks=_slow)])
def test_a_resumed_selection_equals_one_that_was_not_interrupted(size: int, options: dict) -> None:
    whole = run_workers(size, _resume_top_k, options, False)
    resumed = run_workers(size, _resume_top_k, options, True)
    assert torch.equal(whole[0], resumed[0])


def _train_sparse(rank: int, size: int, hook: bool) -> tuple:
    torch.manual_seed(7)
    model = DistributedDataParallel(Recommender(sparse=True), find_unused_parameters=True)
    state = peelreduce.DDPState()
    if hook:
        model.register_comm_hook(state, peelreduce.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        users, items, target = _batch(rank, step)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(users, items), target).backward()
        assert model.module.users.weight.grad.is_sparse
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.module.parameters()]), state.stats()


def test_sparse_gradients_stay_sparse() -> None:
    plain = run_workers(2, _train_sparse, False)
    ours = run_workers(2, _train_sparse, True)
    assert torch.equal(plain[0][0], ours[0][0])
    assert ours[0][1]["bytes_sent"] < ours[0][1]["dense_bytes"]


def _wrapped(rank: int, size: int) -> float:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_wrapper

    torch.manual_seed(7)
    model = DistributedDataParallel(Recommender(), find_unused_parameters=True)
    model.register_comm_hook(peelreduce.DDPState(), bf16_compress_wrapper(peelreduce.allreduce_hook))
    users, items, target = _batch(rank, 0)
    torch.nn.functional.mse_loss(model(users, items), target).backward()
    gradient = model.module.layers[0].weight.grad
    assert torch.equal(gradient, gradient.bfloat16().float())
    return gradient.norm().item()


def test_composes_with_wrappers_of_torch() -> None:
    norms = run_workers(2, _wrapped)
    assert norms[0] == norms[1] != 0


def _accumulate(rank: int, size: int, hook: bool) -> torch.Tensor:
    torch.manual_seed(7)
    model = DistributedDataParallel(Recommender(), find_unused_parameters=True)
    if hook:
        model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
    for step in range(6):
        users, items, target = _batch(rank, step)
        with model.no_sync() if step % 3 != 2 else contextlib.nullcontext():
            torch.nn.functional.mse_loss(model(users, items), target).backward()
    return torch.cat([p.grad.flatten() for p in model.module.parameters() if p.grad is not None])


def test_no_sync_accumulates() -> None:
    assert torch.equal(run_workers(2, _accumulate, False)[0], run_workers(2, _accumulate, True)[1])


def _not_finite(rank: int, size: int) -> bool:
    model = DistributedDataParallel(Recommender(), find_unused_parameters=True)
    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
    for step in range(2):
        users, items, target = _batch(rank, step)
        loss = torch.nn.functional.mse_loss(model(users, items), target)
        (loss * (float("inf") if rank == 1 and step == 1 else 1)).backward()
    return bool(torch.isfinite(model.module.layers[0].weight.grad).all())


def test_a_gradient_that_is_not_finite_reaches_every_worker() -> None:
    assert run_workers(3, _not_finite) == [False, False, False]


def _misuse(rank: int, size: int) -> None:
    with pytest.raises(TypeError, match="buckets of DistributedDataParallel, not Tensor"):
        peelreduce.allreduce_hook(peelreduce.DDPState(), torch.zeros(3))
    with pytest.raises(TypeError, match="DDPState, not NoneType"):
        peelreduce.allreduce_hook(None, None)
    with pytest.raises(peelreduce.Error, match='strategy "fast" is unknown'):
        peelreduce.DDPState(strategy="fast")
    with pytest.raises(ValueError, match="timeout must be positive"):
        peelreduce.DDPState(timeout=0)
    with pytest.raises(ValueError, match="start anew"):
        peelreduce.DDPState().load_state_dict({})


def test_misuse_gets_a_sentence() -> None:
    run_workers(1, _misuse)


def _die(rank: int, size: int, folder: str) -> None:
    """Worker 2 dies; worker 0 ends all when everybody has heard of it."""
    model = DistributedDataParallel(Recommender(), find_unused_parameters=True)
    model.register_comm_hook(peelreduce.DDPState(timeout=5), peelreduce.allreduce_hook)
    for step in range(3):
        users, items, target = _batch(rank, step)
        if rank == 2 and step == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        begin = time.monotonic()
        try:
            torch.nn.functional.mse_loss(model(users, items), target).backward()
        except RuntimeError as error:
            tell_error(rank, folder, time.monotonic() - begin, error)


def test_a_worker_that_is_gone_is_an_error_within_the_timeout(tmp_path: pathlib.Path) -> None:
    errors = run_until_told(_die, str(tmp_path))
    for seconds, error in errors:
        assert seconds < 30  # the time-out is 5
        assert "Worker 2 is gone" in error
