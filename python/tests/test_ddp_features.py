"""Features of DistributedDataParallel and of training loops, with the hook against without it."""

import contextlib
import io
import pathlib
from typing import Any

import peelreduce
import pytest
import torch
import torch.distributed as dist
from ratings import Ratings
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers

_ROWS = 500
_SEVERAL_BUCKETS = {"bucket_cap_mb": 0.01}
Options = dict[str, Any] | None  # of DDPState; plain DDP if there are none


def _batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(_ROWS, (16,), generator=draw), torch.randn(16, generator=draw)


def _made(options: Options, module: torch.nn.Module | None = None, **kwargs: Any) -> DistributedDataParallel:
    if module is None:
        torch.manual_seed(7)
        module = Ratings(_ROWS)
    model = DistributedDataParallel(module, **{**_SEVERAL_BUCKETS, **kwargs})
    if options is not None:
        model.register_comm_hook(peelreduce.DDPState(**options), peelreduce.allreduce_hook)
    return model


def _weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().double().flatten() for parameter in model.parameters()])


def _gradients(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.double().flatten() for parameter in model.parameters()])


def _check_equal(got: torch.Tensor, expected: torch.Tensor, size: int) -> None:
    """The sum of two is the same in either order."""
    if size == 2:
        assert torch.equal(got, expected)
    else:
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-6)


def _train_unevenly(rank: int, options: Options, batches: list[int], sparse: bool, **kwargs: Any) -> torch.Tensor:
    torch.manual_seed(7)
    model = _made(options, Ratings(_ROWS, sparse), **kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for step in range(batches[rank]):
            rows, target = _batch(rank, step)
            optimizer.zero_grad()
            mse_loss(model(rows), target).backward()
            optimizer.step()
    return _weights(model)


def _join(rank: int, size: int) -> None:
    for batches, sparse, kwargs in (
        ([3, 7, 5], False, {}),
        ([6, 1, 2], False, {"find_unused_parameters": True}),
        ([0, 4, 4], False, {}),  # it joins before DDP has formed its final buckets
        ([2, 5, 4], True, {}),
    ):
        plain = _train_unevenly(rank, None, batches, sparse, **kwargs)
        for strategy in ("auto", "split"):
            ours = _train_unevenly(rank, {"strategy": strategy}, batches, sparse, **kwargs)
            _check_equal(ours, plain, size)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_workers_may_have_different_numbers_of_batches(size: int) -> None:
    run_workers(size, _join)


def _curve(rank: int, options: Options) -> tuple[list[float], torch.Tensor]:
    model = _made(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(30):
        rows, target = _batch(rank, step % 3)
        loss = mse_loss(model(rows), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, _weights(model)


def _compare_curves(rank: int, size: int) -> None:
    plain, plain_weights = _curve(rank, None)
    assert sum(plain[-3:]) < 0.9 * sum(plain[:3])  # it learns, or curves would say little
    for strategy in ("auto", "packed", "split"):
        ours, weights = _curve(rank, {"strategy": strategy})
        if size == 2:
            assert ours == plain
            assert torch.equal(weights, plain_weights)
        else:
            assert ours == pytest.approx(plain, rel=1e-5)


@pytest.mark.parametrize("size", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_loss_curve_is_that_of_plain_ddp(size: int) -> None:
    run_workers(size, _compare_curves)


def _scaled(rank: int, options: Options, dtype: torch.dtype) -> tuple[torch.Tensor, list[float], list[bool]]:
    model = _made(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    scales, skipped = [], []
    for step in range(9):
        rows, target = _batch(rank, step)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=dtype):
            loss = mse_loss(model(rows).float(), target)
        scaler.scale(loss * float("inf") if (step, rank) in ((2, 1), (6, 0)) else loss).backward()
        before = _weights(model)
        scaler.step(optimizer)
        scaler.update()
        skipped.append(torch.equal(before, _weights(model)))
        scales.append(scaler.get_scale())
    return _weights(model), scales, skipped


def _skip_steps(rank: int, size: int) -> torch.Tensor:
    for dtype in (torch.bfloat16, torch.float16):
        plain, plain_scales, plain_skipped = _scaled(rank, None, dtype)
        assert plain_skipped == [step in (2, 6) for step in range(9)]
        for strategy in ("auto", "packed", "split", "sketch"):
            ours, scales, skipped = _scaled(rank, {"strategy": strategy}, dtype)
            assert (scales, skipped) == (plain_scales, plain_skipped), strategy
            assert torch.equal(ours, plain), strategy
    return plain


def test_every_worker_skips_the_step_in_which_one_overflows() -> None:
    first, second = run_workers(2, _skip_steps)
    assert torch.equal(first, second)


def _differ_in_buckets(rank: int, size: int) -> None:
    """DDP itself refuses parameters of different shapes when it is made, but not this."""
    megabytes = 0.001 if rank == 1 else 25  # several buckets, or one
    model = _made({"timeout": 5}, bucket_cap_mb=megabytes, find_unused_parameters=True)
    rows, target = _batch(rank, 0)
    with pytest.raises(RuntimeError, match="Workers differ in elements: it is 4241 on worker 0 and 241 on worker 1"):
        mse_loss(model(rows), target).backward()


def test_workers_with_different_buckets_are_told() -> None:
    run_workers(3, _differ_in_buckets)


def _differ_in_arrays(rank: int, size: int) -> None:
    state = peelreduce.State(timeout=10)
    other = rank == 1
    for length, dtype, word in (
        (11 if other else 10, torch.float32, "elements"),
        (10, torch.int32 if other else torch.float32, "type"),
    ):
        with pytest.raises(peelreduce.Error, match=f"Workers differ in {word}: .* on worker 0 and .* on worker 1"):
            peelreduce.all_reduce(torch.ones(length, dtype=dtype), state=state)
    x = torch.ones(10)
    peelreduce.all_reduce(x, state=state)
    assert torch.equal(x, torch.full((10,), float(size)))


def test_workers_with_different_arrays_are_told_and_can_go_on() -> None:
    run_workers(3, _differ_in_arrays)


def _share_a_state(rank: int, size: int) -> None:
    state = peelreduce.DDPState()
    models = [_made(None), _made(None)]
    for model in models:
        model.register_comm_hook(state, peelreduce.allreduce_hook)
    with pytest.raises(RuntimeError, match="can only be called once"):
        models[0].register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
    rows, target = _batch(rank, 0)
    mse_loss(models[0](rows), target).backward()
    with pytest.raises(ValueError, match="make a DDPState for each DistributedDataParallel"):
        mse_loss(models[1](rows), target).backward()
    plain = _made(None)
    for step in range(3):
        rows, target = _batch(rank, step)
        for model in (plain, models[0]):  # it still serves the first
            model.zero_grad()
            mse_loss(model(rows), target).backward()
        assert torch.equal(_gradients(models[0]), _gradients(plain))


def test_a_state_serves_one_model() -> None:
    run_workers(2, _share_a_state)


def _two_models(rank: int, options: Options) -> torch.Tensor:
    """In one backward pass, whose buckets interleave, and in two."""
    torch.manual_seed(7)
    models = [_made(options, Ratings(_ROWS)) for _ in range(2)]
    optimizer = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
    for step in range(6):
        rows, target = _batch(rank, step)
        losses = [mse_loss(model(rows), target) for model in models]
        optimizer.zero_grad()
        if step % 2 == 0:
            sum(losses).backward()
        else:
            for loss in losses:
                loss.backward()
        optimizer.step()
    return torch.cat([_weights(model) for model in models])


def _train_two_models(rank: int, size: int) -> None:
    assert torch.equal(_two_models(rank, {}), _two_models(rank, None))


def test_two_models_are_trained_at_once() -> None:
    run_workers(2, _train_two_models)


def _accumulate(rank: int, options: Options, keep: bool, **kwargs: Any) -> torch.Tensor:
    model = _made(options, **kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        rows, target = _batch(rank, step)
        with model.no_sync() if step % 3 != 0 else contextlib.nullcontext():  # a static graph begins with a sum
            mse_loss(model(rows), target).backward()
        if step % 3 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=not keep)
    return _weights(model)


def _accumulate_in_every_way(rank: int, size: int) -> None:
    for kwargs in ({"static_graph": True}, {"gradient_as_bucket_view": True}):
        for keep in (False, True):
            plain = _accumulate(rank, None, keep, **kwargs)
            for strategy in ("auto", "split"):
                assert torch.equal(_accumulate(rank, {"strategy": strategy}, keep, **kwargs), plain), (kwargs, keep)


def test_accumulation_goes_with_static_graphs_and_views_of_buckets() -> None:
    run_workers(2, _accumulate_in_every_way)


class Mixed(torch.nn.Module):
    """Parameters of several types, which DDP never puts into one bucket."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(_ROWS, 8)
        self.wide = torch.nn.Linear(8, 24, dtype=torch.float64)
        self.narrow = torch.nn.Linear(24, 1, dtype=torch.bfloat16)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.wide(self.rows(rows).double()).bfloat16()).squeeze(1)


def _train_mixed(rank: int, options: Options, module: torch.nn.Module) -> torch.Tensor:
    model = _made(options, module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        rows, target = _batch(rank, step)
        optimizer.zero_grad()
        mse_loss(model(rows).float(), target).backward()
        optimizer.step()
    return _weights(model)


def _mix_types(rank: int, size: int) -> None:
    for make in (Mixed, lambda: Ratings(_ROWS).bfloat16(), lambda: Ratings(_ROWS).double()):
        trained = []
        for options in (None, {}, {"strategy": "packed"}, {"strategy": "split"}):
            torch.manual_seed(7)
            trained.append(_train_mixed(rank, options, make()))
        assert all(torch.equal(one, trained[0]) for one in trained)


def test_parameters_may_be_of_several_types() -> None:
    run_workers(2, _mix_types)


def _train_in_a_part(rank: int, size: int) -> None:
    group = dist.new_group([0, 2])
    if rank != 1:
        curves = []
        for options in (None, {"process_group": group}, {"process_group": group, "strategy": "packed"}):
            model = _made(options, process_group=group)
            for step in range(4):
                rows, target = _batch(rank, step)
                mse_loss(model(rows), target).backward()
            curves.append(_gradients(model))
        assert torch.equal(curves[1], curves[0])
        assert torch.equal(curves[2], curves[0])
    everybody = torch.ones(10)
    peelreduce.all_reduce(everybody)
    assert torch.equal(everybody, torch.full((10,), 3.0))


def test_a_model_may_belong_to_a_part_of_the_workers() -> None:
    run_workers(3, _train_in_a_part)


def _through_a_file(saved: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def _train_with_reload(rank: int, options: dict[str, Any], reload: bool) -> torch.Tensor:
    model = _made(None)
    state = peelreduce.DDPState(**options)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        rows, target = _batch(rank, step)
        optimizer.zero_grad()
        mse_loss(model(rows), target).backward()
        optimizer.step()
        assert not any(one["last"]["reset"] for one in state.stats()["buckets"].values())
        if reload and step == 4:
            saved = state.state_dict()
            loaded = _through_a_file(saved)
            assert loaded["step"] == saved["step"] == 5
            assert loaded["buckets"] == saved["buckets"]
            state.load_state_dict(loaded)
            again = state.state_dict()
            assert again["buckets"] == saved["buckets"]
            assert again["sparsifier"].keys() == saved["sparsifier"].keys()
            assert bool(again["sparsifier"]) == ("sparsifier" in options)
            for key, memory in saved["sparsifier"].items():
                assert torch.equal(again["sparsifier"][key]["waiting"], memory["waiting"])
    assert state.stats()["steps"] == 8
    return _weights(model)


def _reload(rank: int, size: int) -> None:
    for options in ({"strategy": "split"}, {"sparsifier": peelreduce.TopK(0.1)}):
        assert torch.equal(_train_with_reload(rank, options, True), _train_with_reload(rank, options, False))


def test_a_state_survives_a_file() -> None:
    run_workers(3, _reload)


# Written by the release before whatever changes the format next (tests/data/README.md): it is read, or refused in a
# sentence.
_SAVED = pathlib.Path(__file__).resolve().parents[2] / "tests/data/ddp_state_format2.pt"


def _go_on_from_a_file(rank: int, size: int) -> None:
    saved = torch.load(_SAVED, weights_only=True)
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.EmbeddingBag(40, 4), torch.nn.Linear(4, 2)))
    state = peelreduce.DDPState(sparsifier=peelreduce.TopK(0.1))
    state.load_state_dict(saved)
    again = state.state_dict()
    assert again["step"] == 3
    assert again["buckets"] == saved["buckets"]
    (key,) = saved["sparsifier"]
    assert torch.equal(again["sparsifier"][key]["waiting"], saved["sparsifier"][key]["waiting"])
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    for _ in range(2):  # DDP has the buckets that were saved from its second step on
        model(torch.randint(40, (2, 3))).sum().backward()
    assert state.step == 5
    last = state.stats()["buckets"][key]["last"]
    assert last["step"] == 3, "the two steps that were saved, and this one"
    assert not last["reset"]


def test_a_saved_state_of_format_2_goes_on() -> None:
    run_workers(2, _go_on_from_a_file)


def test_a_saved_state_of_another_format_is_refused() -> None:
    saved = torch.load(_SAVED, weights_only=True)
    for format_number in (1, 3, None):
        with pytest.raises(ValueError, match=r"not a state_dict of peelreduce\.DDPState.*start anew"):
            peelreduce.DDPState().load_state_dict({**saved, "format": format_number})


def _waits_or_was_sent(rank: int, size: int) -> None:
    """Over the first steps, in which DDP puts parameters into other buckets than before."""
    model = _made(None)
    state = peelreduce.DDPState(sparsifier=peelreduce.TopK(0.05))
    came = torch.zeros((), dtype=torch.float64)

    def record(state: peelreduce.DDPState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        came.add_(bucket.buffer().double().sum())
        return peelreduce.allreduce_hook(state, bucket)

    model.register_comm_hook(state, record)
    sent = torch.zeros((), dtype=torch.float64)
    compositions = set()
    for step in range(5):
        rows, target = _batch(rank, step)
        model.zero_grad()
        mse_loss(model(rows), target).backward()
        sent += _gradients(model).sum()  # averages, so every worker has its share of the sum
        memory = state.state_dict()["sparsifier"]
        compositions.add(tuple(memory))
        total = torch.stack([came, sent, sum(one["waiting"].double().sum() for one in memory.values())])
        dist.all_reduce(total)
        torch.testing.assert_close(total[0], total[1] + total[2], rtol=1e-5, atol=1e-6)
    assert len(compositions) > 1


def test_what_waits_moves_along_when_buckets_are_formed_anew() -> None:
    run_workers(2, _waits_or_was_sent)
