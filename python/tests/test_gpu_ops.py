"""The operators on tensors of a GPU, against those on tensors in host memory: the same messages and the same results."""

from typing import Any

import peelreduce
import pytest
import torch
from peelreduce import _gpu, ops
from test_ops import ELEMENTS, LARGEST, PLANS, TYPES, _gradient, _plan
from torch.library import opcheck

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
    pytest.mark.skipif(bool(_gpu.missing), reason=_gpu.missing),
]


def _equal(on_gpu: tuple[torch.Tensor, ...], on_host: tuple[torch.Tensor, ...]) -> bool:
    return all(a.is_cuda and torch.equal(a.cpu(), b) for a, b in zip(on_gpu, on_host, strict=True))


def _there(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(tensor.cuda() for tensor in tensors)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("grain", [1, 4, 64])
@pytest.mark.parametrize("codec", ["packed", "sketch"])
def test_messages_are_those_of_the_host(codec: str, grain: int, dtype: torch.dtype) -> None:
    x = _gradient(1, dtype)
    scale = ops.fit_scale(LARGEST) if codec == "sketch" and dtype.is_floating_point else None
    plan = ops.make_plan(ELEMENTS, dtype, codec=codec, expected_items=ELEMENTS // grain, grain=grain, scale=scale)
    message = ops.encode(x.cuda(), plan)
    assert _equal(message, ops.encode(x, plan))
    decoded, lost = ops.decode(*message, plan)
    assert torch.equal(decoded.cpu(), x)
    assert lost.numel() == 0


@pytest.mark.parametrize("name", PLANS)
def test_everything_is_as_on_the_host(name: str) -> None:
    plan = _plan(name)
    gradients = [_gradient(seed) for seed in range(3)]
    on_host = [ops.encode(x, plan) for x in gradients]
    on_gpu = [ops.encode(x.cuda(), plan) for x in gradients]
    for a, b in zip(on_gpu, on_host, strict=True):
        assert _equal(a, b)
    total = ops.merge(*ops.merge(*on_gpu[0], *on_gpu[1], [1, 1], plan), *on_gpu[2], [2, 1], plan)
    assert _equal(on_gpu[0], on_host[0])
    assert _equal(total, ops.merge(*ops.merge(*on_host[0], *on_host[1], [1, 1], plan), *on_host[2], [2, 1], plan))
    decoded, lost = ops.decode(*total, plan)
    assert torch.equal(decoded.cpu(), sum(gradients))
    assert lost.numel() == 0
    assert _equal(ops.decode_sparse(*on_gpu[0], plan), ops.decode_sparse(*on_host[0], plan))
    indices, values, _ = ops.decode_sparse(*on_gpu[0], plan)
    assert _equal(ops.encode_sparse(indices, values, plan), on_host[0])
    odd = torch.cat([on_gpu[0][0][:1], on_gpu[0][0]])[1:]  # not aligned to 16 bytes
    assert torch.equal(ops.decode(odd, on_gpu[0][1], plan)[0].cpu(), gradients[0])


@pytest.mark.parametrize("index", ["bitmap", "list"])
def test_lost_items_are_those_of_the_host(index: str) -> None:
    x = _gradient(4, density=0.4)
    plan = ops.make_plan(ELEMENTS, codec="sketch", expected_items=50, scale=0, index=index)
    message = ops.encode(x, plan)
    assert _equal(ops.decode(*_there(*message), plan), ops.decode(*message, plan))
    assert _equal(ops.decode_sparse(*_there(*message), plan), ops.decode_sparse(*message, plan))


def test_nothing_at_all_is_encoded() -> None:
    plan = ops.make_plan(0)
    message = ops.encode(torch.empty(0, device="cuda"), plan)
    assert [part.numel() for part in message] == [1, 0]
    assert [part.numel() for part in ops.decode(*message, plan)] == [0, 0]


def test_what_was_put_on_a_stream_before_comes_first() -> None:
    plan = _plan("sketch")
    busy = torch.randn(3000, 3000, device="cuda")
    x = _gradient(1)
    for _ in range(5):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(5):
                busy = (busy @ busy).clamp(-1, 1)
            late = x.cuda(non_blocking=True) + 0 * busy[0, 0]
            decoded, _ = ops.decode(*ops.encode(late, plan), plan)
            assert torch.equal(decoded.cpu(), x)


def test_a_sketch_is_encoded_without_waiting() -> None:
    plan, x = _plan("sketch"), _gradient(1).cuda()
    ops.encode(x, plan)  # the first call loads kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        index, payload = ops.encode(x, plan)
        ops.merge(index, payload, index, payload, [1, 1], plan)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", PLANS)
def test_torch_checks_the_operators(name: str) -> None:
    plan = _plan(name)
    a, b = ops.encode(_gradient(5).cuda(), plan), ops.encode(_gradient(6).cuda(), plan)
    indices, values, _ = ops.decode_sparse(*a, plan)
    calls: list[tuple[Any, tuple[Any, ...]]] = [
        (ops.encode, (_gradient(5).cuda(), plan)),
        (ops.encode_sparse, (indices, values, plan)),
        (ops.merge, (*a, *b, [1, 1], plan)),
        (ops.decode, (*a, plan)),
        (ops.decode_sparse, (*a, plan)),
    ]
    for operator, arguments in calls:
        opcheck(operator, arguments)


def test_a_sum_compiles_to_one_graph() -> None:
    plan = _plan("sketch")

    def total(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return ops.decode(*ops.merge(*ops.encode(2 * x, plan), *ops.encode(y, plan), [1, 1], plan), plan)

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch._dynamo.reset()
        compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
        x, y = _gradient(7).clamp(-4, 4), _gradient(8)
        decoded, _ = compiled(x.cuda(), y.cuda())
    assert torch.equal(decoded.cpu(), 2 * x + y)


def test_misuse_is_refused() -> None:
    plan = _plan("sketch")
    index, payload = ops.encode(_gradient(1).cuda(), plan)
    with pytest.raises(ValueError, match="room for 3 workers, and the messages hold 2 and 2"):
        ops.merge(index, payload, index, payload, [2, 2], plan)
    with pytest.raises(ValueError, match="one device, not on cuda:0 and cpu"):
        ops.decode(index, payload.cpu(), plan)
    with pytest.raises(peelreduce.Error, match="words where the plan asks for"):
        ops.decode(index[1:], payload, plan)
    with pytest.raises(peelreduce.Error, match="did not fit scale"):
        ops.decode(*ops.encode(1000 * _gradient(1).cuda(), plan), plan)
    with pytest.raises(peelreduce.Error, match="fit scale|NaN or infinite"):
        ops.decode(*ops.encode(torch.full((ELEMENTS,), float("nan"), device="cuda"), plan), plan)
    rows = ops.make_plan(400, grain=4)
    items, values = torch.tensor([5, 1, 7], device="cuda"), torch.ones(3, 4, device="cuda")
    with pytest.raises(peelreduce.Error, match="must increase"):
        ops.encode_sparse(items, values, rows)
    with pytest.raises(peelreduce.Error, match="values for 3 items; the plan has 4 for each"):
        ops.encode_sparse(items, values[:2], rows)
