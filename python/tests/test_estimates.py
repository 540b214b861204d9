"""Estimates of a fixed size: that they train, how buckets share their bytes, and what is told of them."""

import copy
import io
import logging
from typing import Any

import peelreduce
import pytest
import torch
import torch.distributed as dist
from peelreduce._tasks import Estimate
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers


def _dense_model() -> torch.nn.Module:
    """Of 17,226 parameters, none of whose gradients is zero."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(64, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10)]
    return torch.nn.Sequential(*layers)


def _dense_batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    teacher = torch.Generator().manual_seed(99)
    first, second = (torch.randn(64, 32, generator=teacher), torch.randn(32, 10, generator=teacher))
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(1000 * step + rank))
    return x, (torch.tanh(x @ first / 4) @ second).argmax(1)


def _flat(tensors: Any) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in tensors])


def _train_dense(
    rank: int, size: int, options: dict[str, Any], momentum: float, steps: int
) -> tuple[list[float], torch.Tensor, dict[str, Any]]:
    model = DistributedDataParallel(_dense_model())
    state = peelreduce.DDPState(**options)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 if momentum else 0.3, momentum=momentum)
    losses = []
    for step in range(steps):
        x, y = _dense_batch(rank, step)
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / size)
    return losses, _flat(model.parameters()), state.stats()


_slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("share", "momentum"),
    [(0.02, 0.9), pytest.param(0.02, 0.0, marks=_slow), pytest.param(0.1, 0.9, marks=_slow), pytest.param(0.1, 0.0, marks=_slow)],
)
def test_a_small_share_of_a_dense_model_trains(share: float, momentum: float) -> None:
    """Without feedback and a bound, the noise of 2% is several times as long as the gradient, and training diverges."""
    (exact, _, _), _ = run_workers(2, _train_dense, {}, momentum, 200)
    (losses, first, stats), (_, second, _) = run_workers(2, _train_dense, {"estimate": share}, momentum, 200)
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()
    (bucket,) = stats["buckets"].values()
    assert bucket["last"]["lost"] > 0
    assert 0.5 < bucket["last"]["estimate_error"] < 1
    start, end = (sum(exact[some]) / 20 for some in (slice(20), slice(-20, None)))
    assert max(losses) < 1.2 * max(exact)
    learned = (start - sum(losses[-20:]) / 20) / (start - end)
    assert learned > 0.7, learned


class Words(torch.nn.Module):
    """A language model whose gradient is sparse as a whole, and dense in the layers behind the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(16_000, 32)
        self.recurrent = torch.nn.LSTM(32, 32, batch_first=True)
        self.out = torch.nn.Linear(32, 8)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.recurrent(self.words(words))[0][:, -1])


def _words_batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randint(16_000, (8, 6), generator=draw)
    return words, words[:, 0] % 8


def _train_words(rank: int, size: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    torch.manual_seed(3)
    model = DistributedDataParallel(Words(), bucket_cap_mb=0.01)
    state = peelreduce.DDPState(**options)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    rows = []
    for step in range(6):
        words, y = _words_batch(rank, step)
        model.zero_grad()
        cross_entropy(model(words), y).backward()
        rows.append({key: one["last"] for key, one in state.stats()["buckets"].items()})
    return rows


def test_buckets_share_bytes_by_their_unions() -> None:
    """By their lengths, nine tenths of the layers behind the embedding would be estimated."""
    rows = run_workers(2, _train_words, {"estimate": 0.1})[0]
    assert len(rows[-1]) > 1
    assert any("words.weight" in key for key in rows[-1])
    for step, row in enumerate(rows):
        assert all(one["lost"] == 0 for one in row.values()), (step, row)
    for row in rows[2:]:
        assert all(one["strategy"] == "sketch" for one in row.values())
        sent, dense = (sum(one[name] for one in row.values()) for name in ("bytes_sent", "dense_bytes"))
        assert sent < 0.15 * dense


def _watch_missed(rank: int, size: int, sparsifier: peelreduce.TopK | None) -> None:
    """What came is what was applied, and what waits on any worker; over buckets formed anew. The gradient is the same in
    every step, so that what waits never points against it."""
    model = DistributedDataParallel(_dense_model(), bucket_cap_mb=0.02)
    state = peelreduce.DDPState(estimate=0.05, sparsifier=sparsifier)
    came = torch.zeros((), dtype=torch.float64)

    def record(state: peelreduce.DDPState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        came.add_(bucket.buffer().double().sum())
        return peelreduce.allreduce_hook(state, bucket)

    model.register_comm_hook(state, record)
    applied = torch.zeros((), dtype=torch.float64)
    x, y = _dense_batch(rank, 0)
    for step in range(6):
        model.zero_grad()
        cross_entropy(model(x), y).backward()
        applied += _flat(one.grad for one in model.parameters()).double().sum()
        saved = state.state_dict()
        missed = sum(one.double().sum() for one in saved["missed"].values())
        waiting = sum((one["waiting"].double().sum() for one in saved["sparsifier"].values()), torch.zeros(()))
        total = torch.stack([came, applied, missed, waiting.double()])
        dist.all_reduce(total)
        torch.testing.assert_close(total[0], total[1:].sum(), rtol=1e-4, atol=1e-4)
        lost = sum(one["last"]["lost"] for one in state.stats()["buckets"].values())
        assert (lost > 0) == (step >= 2), "new buckets are summed exactly"
        assert (missed != 0) == (step >= 2)


@pytest.mark.parametrize("sparsifier", [None, peelreduce.TopK(0.5)])
def test_what_was_not_applied_waits(sparsifier: peelreduce.TopK | None) -> None:
    run_workers(3, _watch_missed, sparsifier)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_what_waits_is_dropped_where_it_points_against_the_gradient(dtype: torch.dtype) -> None:
    estimate = Estimate(0, {"missed": torch.tensor([1.0, -2.0], dtype=dtype)})
    for gradient, expected in (([1.0, 0.0], [2.0, -2.0]), ([-1.0, 0.0], [-1.0, 0.0]), ([0.0, 0.0], [1.0, -2.0])):
        x = torch.tensor(gradient, dtype=dtype)
        estimate.add_missed(x)
        assert x.tolist() == expected


def _warnings(rank: int, size: int, share: float) -> list[str]:
    heard: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    logging.getLogger("peelreduce").addHandler(Listener(logging.WARNING))
    _train_dense(rank, size, {"estimate": share}, 0.0, 110)
    return heard


@pytest.mark.slow
def test_a_share_that_is_too_small_is_warned_of() -> None:
    (heard, _) = run_workers(2, _warnings, 0.02)
    assert len(heard) == 2  # once in a hundred steps
    assert "Use a larger share than estimate=0.02." in heard[0]
    assert "of bucket 4.bias..0.weight missed 9" in heard[0]
    assert run_workers(2, _warnings, 1.5) == [[], []]


def _reload_estimates(rank: int, size: int, reload: bool) -> tuple[torch.Tensor, list[int]]:
    """In the same buckets, so that all is as if nothing had happened."""
    model = DistributedDataParallel(_dense_model(), bucket_cap_mb=0.02)
    state = peelreduce.DDPState(estimate=0.05)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        x, y = _dense_batch(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
        if reload and step == 4:
            file = io.BytesIO()
            torch.save(state.state_dict(), file)
            file.seek(0)
            loaded = torch.load(file, weights_only=True)
            assert loaded["missed"].keys() == loaded["estimate_bytes"].keys() == loaded["buckets"].keys()
            state.load_state_dict(loaded)
            again = state.state_dict()
            assert again["estimate_bytes"] == loaded["estimate_bytes"]
            assert all(torch.equal(again["missed"][key], one) for key, one in loaded["missed"].items())
    return _flat(model.parameters()), sorted(state.state_dict()["estimate_bytes"].values())


def test_estimates_survive_a_file() -> None:
    whole = run_workers(2, _reload_estimates, False)
    reloaded = run_workers(2, _reload_estimates, True)
    assert torch.equal(whole[0][0], whole[1][0])
    assert torch.equal(reloaded[0][0], whole[0][0])
    assert reloaded[0][1] == reloaded[1][1] == whole[0][1]


def _load_on_one(rank: int, size: int) -> str:
    model = DistributedDataParallel(_dense_model())
    state = peelreduce.DDPState(estimate=0.05, timeout=20)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    x, y = _dense_batch(rank, 0)
    for _ in range(3):
        cross_entropy(model(x), y).backward()
    saved = state.state_dict()
    model = DistributedDataParallel(_dense_model())
    state = peelreduce.DDPState(estimate=0.05, timeout=20)
    if rank == 0:
        state.load_state_dict(saved)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    cross_entropy(model(x), y).backward()  # in buckets of which nobody knows anything
    with pytest.raises(RuntimeError, match="Workers differ in estimate bytes") as raised:
        cross_entropy(model(x), y).backward()
    return str(raised.value)


def test_a_state_that_one_worker_loaded_is_told() -> None:
    first, second = run_workers(2, _load_on_one)
    assert "estimate bytes" in first
    assert "estimate bytes" in second


def _load_selection_on_one(rank: int, size: int) -> torch.Tensor:
    saved = None
    for _ in range(2):
        model = DistributedDataParallel(_dense_model(), bucket_cap_mb=0.02)
        state = peelreduce.DDPState(sparsifier=peelreduce.TopK(0.1), timeout=20)
        if saved is not None and rank == 0:
            state.load_state_dict(saved)
        model.register_comm_hook(state, peelreduce.allreduce_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            x, y = _dense_batch(rank, step)
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
        saved = state.state_dict()
    return _flat(model.parameters())


def test_a_selection_that_one_worker_loaded_is_harmless() -> None:
    first, second = run_workers(2, _load_selection_on_one)
    assert torch.equal(first, second)
    assert torch.isfinite(first).all()


def test_a_state_is_copied_and_described() -> None:
    state = peelreduce.DDPState(estimate=0.1, sparsifier=peelreduce.TopK(0.5))
    assert repr(state) == "<peelreduce.DDPState(strategy='auto', estimate=0.1, sparsifier=TopK): 0 steps, 0 buckets>"
    other = copy.deepcopy(state)
    assert repr(other) == repr(state)
    assert other.sparsifier is not state.sparsifier


def _copy(rank: int, size: int) -> None:
    model = DistributedDataParallel(_dense_model())
    state = peelreduce.DDPState(sparsifier=peelreduce.TopK(0.1))
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    x, y = _dense_batch(rank, 0)
    for _ in range(3):
        cross_entropy(model(x), y).backward()
    assert "3 steps, 1 buckets" in repr(state)
    other = copy.deepcopy(state)
    ours, theirs = state.state_dict(), other.state_dict()
    assert theirs["step"] == 3
    assert theirs["buckets"] == ours["buckets"]
    (key,) = ours["sparsifier"]
    assert key == "4.bias..0.weight"
    assert list(state.stats()["buckets"]) == [key]
    assert torch.equal(theirs["sparsifier"][key]["waiting"], ours["sparsifier"][key]["waiting"])
    cross_entropy(model(x), y).backward()  # the copy has memory of its own
    assert not torch.equal(other.state_dict()["sparsifier"][key]["waiting"], state.state_dict()["sparsifier"][key]["waiting"])


def test_a_copy_has_what_was_learned_and_what_waits() -> None:
    run_workers(2, _copy)
