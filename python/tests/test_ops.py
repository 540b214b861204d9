"""The codec as operators: exact round trips, sums, fakes, and refusals."""

import contextlib
from typing import Any

import peelreduce
import pytest
import torch
import torch.distributed as dist
from peelreduce import _gpu, ops
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from workers import run_workers

ELEMENTS = 5003  # the last item is a partial one
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32]
LARGEST = 8
SKETCH = {"codec": "sketch", "expected_items": 600, "workers": 3, "scale": ops.fit_scale(LARGEST, 3)}
PLANS: dict[str, dict[str, Any]] = {
    "packed": {},
    "packed list": {"index": "list"},
    "packed bloom": {"index": "bloom", "expected_items": 300},
    "packed grain": {"grain": 16},
    "sketch": SKETCH,
    "sketch list": SKETCH | {"index": "list"},
    "sketch bloom": SKETCH | {"index": "bloom"},
    "sketch grain": SKETCH | {"grain": 16},
}


def _gradient(seed: int, dtype: torch.dtype = torch.float32, density: float = 0.02) -> torch.Tensor:
    """Whole numbers, so that every order gives the same sum."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randint(-LARGEST, LARGEST + 1, (ELEMENTS,), generator=draw).to(dtype)
    return values * (torch.rand(ELEMENTS, generator=draw) < density).to(dtype)


def _plan(name: str) -> str:
    return ops.make_plan(ELEMENTS, **PLANS[name])


def _equal(a: tuple[torch.Tensor, ...], b: tuple[torch.Tensor, ...]) -> bool:
    return all(torch.equal(*pair) for pair in zip(a, b, strict=True))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("grain", [1, 4, 64])
@pytest.mark.parametrize("codec", ["packed", "sketch"])
def test_what_is_encoded_is_decoded(codec: str, grain: int, dtype: torch.dtype) -> None:
    x = _gradient(1, dtype)
    scale = ops.fit_scale(LARGEST) if codec == "sketch" and dtype.is_floating_point else None
    items = ELEMENTS // grain
    plan = ops.make_plan(ELEMENTS, dtype, codec=codec, expected_items=items, grain=grain, scale=scale)
    index, payload = ops.encode(x, plan)
    said = ops.facts(plan)
    assert index.dtype == torch.int64
    assert payload.dtype == said.payload_dtype
    assert (said.elements, said.dtype, said.codec, said.grain) == (ELEMENTS, dtype, codec, grain)
    if codec == "sketch":
        assert (index.numel(), payload.nbytes) == (said.index_words, said.payload_bytes)
    decoded, lost = ops.decode(index, payload, plan)
    assert decoded.dtype == dtype
    assert torch.equal(decoded, x)
    assert lost.shape == (0,)
    assert lost.dtype == torch.int64


def test_any_shape_and_stride_is_encoded() -> None:
    x = _gradient(2)[:5000].view(50, 100)
    plan = ops.make_plan(5000)
    assert torch.equal(ops.decode(*ops.encode(x, plan), plan)[0].view_as(x), x)
    assert torch.equal(ops.decode(*ops.encode(x.t(), plan), plan)[0].view(100, 50), x.t())
    negated = (1j * x).conj().imag  # torch negates it when it is read
    assert negated.is_neg()
    assert torch.equal(ops.decode(*ops.encode(negated, plan), plan)[0].view_as(x), -x)


def test_nothing_at_all_is_encoded() -> None:
    plan = ops.make_plan(0)
    message = ops.encode(torch.empty(0), plan)
    assert [part.numel() for part in message] == [1, 0]
    assert [part.numel() for part in ops.decode(*message, plan)] == [0, 0]
    assert [tuple(part.shape) for part in ops.decode_sparse(*message, plan)] == [(1, 0), (0,), (0,)]


@pytest.mark.parametrize("name", PLANS)
def test_three_messages_are_merged_to_their_sum(name: str) -> None:
    plan = _plan(name)
    gradients = [_gradient(seed) for seed in range(3)]
    first, *others = [ops.encode(x, plan) for x in gradients]
    before = tuple(part.clone() for part in first)
    total = first
    for held, message in enumerate(others, 1):
        total = ops.merge(*total, *message, [held, 1], plan)
    decoded, lost = ops.decode(*total, plan)
    assert torch.equal(decoded, sum(gradients))
    assert lost.numel() == 0
    assert _equal(before, first)


@pytest.mark.parametrize("grain", [1, 16])
@pytest.mark.parametrize("codec", ["packed", "sketch"])
def test_coo_tensors_are_encoded_and_decoded(codec: str, grain: int) -> None:
    dense = _gradient(3)[:4800].view(300, 16) if grain == 16 else _gradient(3)
    coo = dense.to_sparse(1)
    options = PLANS["sketch"] if codec == "sketch" else {}
    plan = ops.make_plan(dense.numel(), grain=grain, **options)
    message = ops.encode_sparse(coo.indices(), coo.values(), plan)
    assert _equal(message, ops.encode(dense, plan))
    assert _equal(message, ops.encode_sparse(coo.indices()[0], coo.values(), plan))
    indices, values, lost = ops.decode_sparse(*message, plan)
    assert torch.equal(indices, coo.indices())
    assert torch.equal(values, coo.values())
    assert lost.numel() == 0
    again = torch.sparse_coo_tensor(indices, values, coo.shape, is_coalesced=True, check_invariants=True)
    assert torch.equal(again.to_dense(), dense)


def test_lost_items_are_named_and_zero() -> None:
    x = _gradient(4, density=0.4)
    plan = ops.make_plan(ELEMENTS, codec="sketch", expected_items=50, scale=0, index="bitmap")
    message = ops.encode(x, plan)
    decoded, lost = ops.decode(*message, plan)
    assert lost.numel() > 0
    assert torch.equal(lost, lost.unique())
    expected = x.clone()
    expected[lost] = 0
    assert torch.equal(decoded, expected)
    assert x[lost].all()
    indices, values, lost_again = ops.decode_sparse(*message, plan)
    assert torch.equal(lost_again, lost)
    found = torch.sparse_coo_tensor(indices, values, (ELEMENTS,), check_invariants=True)
    assert torch.equal(found.to_dense(), expected)


def test_rounding_stays_within_the_bound() -> None:
    gradients = [_gradient(seed) / 7 for seed in range(3)]
    largest = max(x.abs().max().item() for x in gradients)
    plan = ops.make_plan(ELEMENTS, codec="sketch", expected_items=600, workers=3, scale=ops.fit_scale(largest, 3))
    messages = [ops.encode(x, plan) for x in gradients]
    total = ops.merge(*ops.merge(*messages[0], *messages[1], [1, 1], plan), *messages[2], [2, 1], plan)
    error = ops.decode(*total, plan)[0].double() - sum(x.double() for x in gradients)
    bound = ops.facts(plan).error_bound
    assert 0 < bound < 1e-6
    assert error.abs().max() <= bound + largest * 3 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("codec", ["packed", "sketch"])
def test_more_workers_than_there_is_room_for_are_refused(codec: str) -> None:
    x = torch.zeros(100)
    x[7] = LARGEST
    scale = ops.fit_scale(LARGEST, 2)
    plan = ops.make_plan(100, codec=codec, expected_items=4, workers=2, cells="fixed32", scale=scale)
    assert ops.facts(plan).most_workers == 2
    one = ops.encode(x, plan)
    two = ops.merge(*one, *one, [1, 1], plan)
    assert torch.equal(ops.decode(*two, plan)[0], 2 * x)
    for left, right, workers in [(two, one, [2, 1]), (one, two, [1, 2]), (two, two, [2, 2])]:
        with pytest.raises(ValueError, match=f"room for 2 workers.* hold {workers[0]} and {workers[1]}"):
            ops.merge(*left, *right, workers, plan)
        with pytest.raises(ValueError, match="room for 2 workers"), FakeTensorMode(allow_non_fake_inputs=True):
            ops.merge(*left, *right, workers, plan)
    for wrong in ([1], [1, 1, 0], [2, -1]):
        with pytest.raises(ValueError, match="two numbers"):
            ops.merge(*one, *one, wrong, plan)


def test_native_values_have_room_for_any_number_of_workers() -> None:
    plan = ops.make_plan(100, workers=1)
    x = torch.zeros(100)
    x[7] = 1
    total = ops.encode(x, plan)
    for doubled in range(10):
        total = ops.merge(*total, *total, [2**doubled, 2**doubled], plan)
    assert ops.decode(*total, plan)[0][7] == 1024
    with pytest.raises(ValueError, match="encode with a plan for more workers"):
        ops.merge(*total, *total, [2**62, 2**62], plan)


def _sum_by_collectives(rank: int, size: int) -> None:
    for dtype in (torch.float32, torch.float64, torch.int32):
        cells = "fixed64" if dtype == torch.float64 else "fixed32"
        scale = ops.fit_scale(LARGEST, size, cells=cells) if dtype.is_floating_point else None
        plan = ops.make_plan(ELEMENTS, dtype, codec="sketch", expected_items=400, workers=size, scale=scale)
        index, payload = ops.encode(_gradient(rank, dtype), plan)
        dist.all_reduce(index, dist.ReduceOp.BOR)
        dist.all_reduce(payload, dist.ReduceOp.SUM)
        total, lost = ops.decode(index, payload, plan)
        assert lost.numel() == 0
        assert torch.equal(total, sum(_gradient(worker, dtype) for worker in range(size)))


def test_collectives_of_torch_sum_sketches() -> None:
    run_workers(2, _sum_by_collectives)


def _calls(name: str) -> list[tuple[Any, tuple[Any, ...]]]:
    """Every operator with arguments."""
    plan = _plan(name)
    a, b = ops.encode(_gradient(5), plan), ops.encode(_gradient(6), plan)
    indices, values, _ = ops.decode_sparse(*a, plan)
    return [
        (ops.encode, (_gradient(5), plan)),
        (ops.encode_sparse, (indices, values, plan)),
        (ops.merge, (*a, *b, [1, 1], plan)),
        (ops.decode, (*a, plan)),
        (ops.decode_sparse, (*a, plan)),
    ]


@pytest.mark.parametrize("name", PLANS)
def test_torch_checks_the_operators(name: str) -> None:
    for operator, arguments in _calls(name):
        opcheck(operator, arguments)


def test_sizes_that_a_plan_fixes_are_static() -> None:
    fixed = {"sketch": [ops.encode, ops.encode_sparse, ops.merge], "packed": [ops.decode]}
    for name, operators in fixed.items():
        for operator, arguments in _calls(name):
            if operator in operators:
                opcheck(operator, arguments, test_utils="test_aot_dispatch_static")


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["packed", "packed list", "sketch", "sketch grain"])
def test_a_sum_compiles_to_one_graph(name: str, backend: str) -> None:
    plan = _plan(name)

    def total(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        merged = ops.merge(*ops.encode(2 * x, plan), *ops.encode(y, plan), [1, 1], plan)
        decoded, lost = ops.decode(*merged, plan)
        return decoded + 1, lost

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch._dynamo.reset()
        compiled = torch.compile(total, fullgraph=True, backend=backend)
        x, y = _gradient(7).clamp(-4, 4), _gradient(8)
        decoded, lost = compiled(x, y)
    assert torch.equal(decoded, 2 * x + y + 1)
    assert lost.numel() == 0


def test_a_plan_says_what_it_is() -> None:
    plan = _plan("sketch grain")
    said = ops.facts(plan)
    assert (said.items, said.workers, said.cells, said.scale) == (313, 3, "fixed32", SKETCH["scale"])
    assert said.message_bytes == 8 * said.index_words + said.payload_bytes
    assert said.dense_bytes == 4 * ELEMENTS
    assert ops.describe(plan).startswith("sketch of 5003 float32, 3 workers")
    assert plan == _plan("sketch grain") != ops.make_plan(ELEMENTS, grain=16, **SKETCH, seed=1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"elements": -1}, "elements must be from 0"),
        ({"elements": 1.5}, "elements must be a whole number"),
        ({"elements": 2**50}, "split the array"),
        ({"dtype": torch.complex64}, "no plans for torch.complex64"),
        ({"codec": "zip"}, "packed, sketch"),
        ({"index": "tree"}, "bitmap, bloom, list"),
        ({"cells": "tiny"}, "native, fixed32"),
        ({"grain": 3}, "power of two"),
        ({"workers": 0}, "workers must be from 1"),
        ({"seed": -1}, "seed must be from 0"),
        ({"codec": "sketch"}, "sized by expected_items"),
        ({"codec": "sketch", "expected_items": 9}, "say scale=fit_scale"),
        ({"scale": 3}, "leave it 0"),
        ({"codec": "sketch", "expected_items": 9, "cells": "native"}, "native values are for packed"),
    ],
)
def test_impossible_plans_are_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises((ValueError, peelreduce.Error), match=sentence):
        ops.make_plan(**({"elements": 100} | options))


def test_impossible_scales_are_refused() -> None:
    with pytest.raises(peelreduce.Error, match="NaN or infinity"):
        ops.fit_scale(float("inf"))
    with pytest.raises(peelreduce.Error, match="Only fixed32 and fixed64"):
        ops.fit_scale(1.0, cells="native")
    with pytest.raises(ValueError, match="workers must be from 1"):
        ops.fit_scale(1.0, 0)


def test_text_that_is_no_plan_is_refused() -> None:
    good = _plan("sketch")
    damaged = good[:8] + "ff" + good[10:]  # the element type
    wrong = {"plan": "not hexadecimal", "": "96 bytes", good[2:]: "96 bytes", damaged: "unknown type"}
    for text, sentence in wrong.items():
        for operator, arguments in _calls("sketch"):
            with pytest.raises((ValueError, peelreduce.Error), match=sentence):
                operator(*arguments[:-1], text)


def test_tensors_of_another_kind_are_refused() -> None:
    plan = _plan("sketch")
    index, payload = ops.encode(_gradient(1), plan)
    with pytest.raises(ValueError, match=r"x is of torch.float64 where the plan asks for torch.float32"):
        ops.encode(_gradient(1).double(), plan)
    with pytest.raises(ValueError, match="pass indices and values of a COO tensor"):
        ops.encode(_gradient(1).to_sparse(), plan)
    with pytest.raises(peelreduce.Error, match="make a plan for this length"):
        ops.encode(_gradient(1)[1:], plan)
    with pytest.raises(ValueError, match=r"index is of torch.int32"):
        ops.decode(index.int(), payload, plan)
    with pytest.raises(ValueError, match=r"payload is of torch.float32 where the plan asks for torch.int32"):
        ops.decode(index, payload.float(), plan)
    with pytest.raises(ValueError, match=r"one device, not on meta and cpu"):
        ops.decode(index.to("meta"), payload, plan)


def test_fakes_of_gpus_stay_there_or_are_refused() -> None:
    plan = _plan("sketch")
    with FakeTensorMode():
        x = torch.empty(ELEMENTS, device="cuda")
        if _gpu.missing:
            with pytest.raises(ValueError, match=r"in host memory; x is on cuda"):
                ops.encode(x, plan)
            return
        index, payload = ops.encode(x, plan)
        assert (index.device, payload.device) == (x.device, x.device)


def test_wrong_coo_tensors_are_refused() -> None:
    plan = ops.make_plan(400, grain=4)
    items, values = torch.tensor([1, 5, 7]), torch.ones(3, 4)
    for wrong, sentence in [
        ([5, 1, 7], "must increase"),
        ([1, 5, 5], "must increase"),
        ([1, 5, 100], "past the end"),
        ([-1, 5, 7], "Item -1 is negative"),
    ]:
        with pytest.raises(peelreduce.Error, match=sentence):
            ops.encode_sparse(torch.tensor(wrong), values, plan)
    for count in (0, 1, 2, 4):
        with pytest.raises(peelreduce.Error, match="values for 3 items; the plan has 4 for each"):
            ops.encode_sparse(items, torch.ones(count, 4), plan)
    with pytest.raises(peelreduce.Error, match="13 values for 3 items"):
        ops.encode_sparse(items, torch.ones(13), plan)
    with pytest.raises(ValueError, match="flatten them"):
        ops.encode_sparse(items.expand(2, 3), values, plan)
    with pytest.raises(ValueError, match=r"indices is of torch.int32"):
        ops.encode_sparse(items.int(), values, plan)


@pytest.mark.parametrize("name", PLANS)
def test_messages_of_another_size_are_refused(name: str) -> None:
    plan = _plan(name)
    index, payload = ops.encode(_gradient(1), plan)
    longer = [torch.cat([part, part[-1:]]) for part in (index, payload)]
    wrong = [(index[:0], payload), (index[:1], payload), (index[1:], payload), (longer[0], payload)]
    wrong += [(index, payload[:0]), (index, payload[1:]), (index, longer[1]), (index, payload[ops.facts(plan).grain :])]
    for message in wrong:
        for decode in (ops.decode, ops.decode_sparse):
            with pytest.raises(peelreduce.Error):
                decode(*message, plan)
        for pair in ((*message, index, payload), (index, payload, *message)):
            with pytest.raises(peelreduce.Error):
                ops.merge(*pair, [1, 1], plan)


@pytest.mark.parametrize("name", PLANS)
def test_damaged_messages_do_no_harm(name: str) -> None:
    plan = _plan(name)
    index, payload = ops.encode(_gradient(1), plan)
    draw = torch.Generator().manual_seed(9)
    for _ in range(50):
        damaged = index.clone()
        damaged[torch.randint(index.numel(), (1,), generator=draw)] ^= 1 << int(torch.randint(63, (1,), generator=draw))
        for decode in (ops.decode, ops.decode_sparse):
            with contextlib.suppress(peelreduce.Error):
                *_, lost = decode(damaged, payload, plan)
                assert lost.numel() <= ops.facts(plan).items


def test_values_that_do_not_fit_are_refused() -> None:
    plan = _plan("sketch")
    with pytest.raises(peelreduce.Error, match="did not fit scale"):
        ops.decode(*ops.encode(1000 * _gradient(1), plan), plan)
    with pytest.raises(peelreduce.Error, match="is NaN or infinite"):
        ops.encode(torch.full((ELEMENTS,), float("nan")), plan)
