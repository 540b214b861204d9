"""peelreduce.all_reduce against torch.distributed.all_reduce."""

import peelreduce
import pytest
import torch
import torch.distributed as dist
from workers import run_workers

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64]


def _sparse_values(rank: int, dtype: torch.dtype, shape: tuple[int, ...], density: float = 0.02) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rank)
    values = torch.randint(-8, 8, shape, generator=draw).to(dtype)
    return values * (torch.rand(shape, generator=draw) < density).to(dtype)


def _sum_all_types(rank: int, size: int) -> None:
    for dtype in TYPES:
        for shape in [(0,), (1,), (50_001,), (300, 77)]:
            tensor = _sparse_values(rank, dtype, shape)
            expected = sum(_sparse_values(worker, dtype, shape) for worker in range(size))
            assert peelreduce.all_reduce(tensor) is None
            assert torch.equal(tensor, expected), (dtype, shape)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_sums_every_type_and_shape(size: int) -> None:
    run_workers(size, _sum_all_types)


def _sum_many_at_once(rank: int, size: int) -> None:
    tensors = [_sparse_values(rank + 10 * n, torch.float32, (20_000,)) for n in range(8)]
    states = [peelreduce.State() for _ in tensors]
    for _ in range(3):
        inputs = [tensor.clone() for tensor in tensors]
        works = [peelreduce.all_reduce(x, async_op=True, state=s) for x, s in zip(inputs, states, strict=True)]
        for n, (work, x) in enumerate(zip(works, inputs, strict=True)):
            assert work.wait()
            assert work.is_completed()
            assert torch.equal(x, sum(_sparse_values(w + 10 * n, torch.float32, (20_000,)) for w in range(size)))
    assert states[0].report()["bytes_sent"] < states[0].report()["dense_bytes"]


def test_many_are_under_way_at_once() -> None:
    run_workers(3, _sum_many_at_once)


def _average(rank: int, size: int) -> None:
    tensor = torch.full((100,), float(rank))
    peelreduce.all_reduce(tensor, dist.ReduceOp.AVG)
    expected = torch.full((100,), float(rank))
    dist.all_reduce(expected)
    assert torch.equal(tensor, torch.full((100,), sum(float(w) * (1.0 / size) for w in range(size))))
    transposed = torch.arange(12.0).reshape(3, 4).t()
    peelreduce.all_reduce(transposed)
    assert torch.equal(transposed, size * torch.arange(12.0).reshape(3, 4).t())


def test_averages_and_takes_tensors_that_are_not_contiguous() -> None:
    run_workers(2, _average)


def _sum_coo(rank: int, size: int) -> None:
    for dims, shape in [(1, (1000, 8)), (1, (5000,)), (2, (60, 70, 4))]:
        dense = [
            _sparse_values(w, torch.float32, shape[:dims], 0.05).reshape(*shape[:dims], *[1] * (len(shape) - dims))
            * torch.ones(shape)
            for w in range(size)
        ]
        tensor = dense[rank].to_sparse(dims)
        peelreduce.all_reduce(tensor)
        assert tensor.is_sparse
        assert tensor.is_coalesced()
        assert torch.equal(tensor.to_dense(), sum(dense))
        assert tensor._nnz() <= sum(one.to_sparse(dims)._nnz() for one in dense)
        twice = torch.sparse_coo_tensor([[3, 3, 7]], [1.0, 2.0, 4.0], (10,))  # not coalesced
        peelreduce.all_reduce(twice)
        assert torch.equal(twice.to_dense(), size * torch.tensor([0, 0, 0, 3.0, 0, 0, 0, 4.0, 0, 0]))


@pytest.mark.parametrize("size", [2, 4])
def test_sums_sparse_tensors(size: int) -> None:
    run_workers(size, _sum_coo)


def _refuse(rank: int, size: int) -> None:
    with pytest.raises(TypeError, match="convert to one of float32"):
        peelreduce.all_reduce(torch.zeros(3, dtype=torch.complex64))
    with pytest.raises(TypeError, match="sums tensors, not list"):
        peelreduce.all_reduce([1.0])
    with pytest.raises(ValueError, match="it has no"):
        peelreduce.all_reduce(torch.zeros(3), dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="averages"):
        peelreduce.all_reduce(torch.zeros(3, dtype=torch.int32), dist.ReduceOp.AVG)
    with pytest.raises(peelreduce.Error, match='strategy "fast" is unknown; it is one of auto'):
        peelreduce.State(strategy="fast")
    x = torch.ones(100 + rank)
    with pytest.raises(RuntimeError, match="elements"):  # the same sentence everywhere, and nothing has changed
        peelreduce.all_reduce(x)
    assert torch.equal(x, torch.ones(100 + rank))
    x = torch.ones(100)
    peelreduce.all_reduce(x)  # a refusal is not the end
    assert torch.equal(x, torch.full((100,), float(size)))


def test_misuse_gets_a_sentence() -> None:
    run_workers(2, _refuse)
