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


def _sketch(rank: int, size: int) -> None:
    def gradient(worker: int, step: int) -> torch.Tensor:
        draw = torch.Generator().manual_seed(100 * step + worker)
        return torch.randn(100_000, generator=draw) * (torch.rand(100_000, generator=draw) < 0.01)

    state = peelreduce.State(strategy="sketch")
    for step in range(3):
        tensor = gradient(rank, step)
        peelreduce.all_reduce(tensor, state=state)
        exact = sum(gradient(worker, step).double() for worker in range(size))
        report = state.report()
        assert report["strategy"] == "sketch"
        assert 0 < report["error_bound"] < 1e-6
        rounding = exact.abs() * 2**-24  # of the sum to its type
        assert bool(((tensor.double() - exact).abs() <= report["error_bound"] + rounding).all())


@pytest.mark.parametrize("size", [2, 4])
def test_a_sketch_keeps_its_bound(size: int) -> None:
    run_workers(size, _sketch)


def _average(rank: int, size: int) -> None:
    tensor = torch.full((100,), float(rank))
    peelreduce.all_reduce(tensor, dist.ReduceOp.AVG)
    assert torch.equal(tensor, torch.full((100,), sum(float(w) * (1.0 / size) for w in range(size))))
    transposed = torch.arange(12.0).reshape(3, 4).t()
    peelreduce.all_reduce(transposed)
    assert torch.equal(transposed, size * torch.arange(12.0).reshape(3, 4).t())


def test_averages_and_takes_tensors_that_are_not_contiguous() -> None:
    run_workers(2, _average)


def _sum_coo(rank: int, size: int) -> None:
    shapes = [(1, (1000, 8)), (1, (5000,)), (2, (60, 70, 4)), (1, (50, 3)), (1, (200, 100)), (1, (40, 300)), (1, (9, 4096))]
    for dims, shape in [*shapes, (1, (0, 4)), (1, (4, 0))]:
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


def _sum_pieces(rank: int, size: int) -> None:
    """Rows of which a worker has only some values."""
    dense = [_sparse_values(w, torch.float32, (300, 100), 0.02) for w in range(size)]
    tensor = dense[rank].to_sparse(1)
    peelreduce.all_reduce(tensor)
    assert torch.equal(tensor.to_dense(), sum(dense))


def test_sums_rows_that_are_partly_zero() -> None:
    run_workers(3, _sum_pieces)


def _sum_one_shape(rank: int, size: int) -> None:
    for _ in range(20):
        tensors = [torch.full((1000,), float(10 * n + rank)) for n in range(4)]
        works = [peelreduce.all_reduce(tensor, async_op=True) for tensor in tensors]  # all share one default state
        for n, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
            work.wait()
            assert torch.equal(tensor, torch.full((1000,), float(sum(10 * n + w for w in range(size)))))


def test_tensors_of_one_shape_may_be_under_way_at_once() -> None:
    run_workers(2, _sum_one_shape)


def _sum_over_many_groups(rank: int, size: int) -> None:
    pair = dist.new_group([0, 1])
    for attempt in range(6):
        states = [peelreduce.State(timeout=30 + 10 * attempt + n) for n in range(2)]  # which does not matter
        tensors = [torch.full((100,), 1.0), torch.full((100,), 100.0)]
        works = [peelreduce.all_reduce(x, async_op=True, state=s) for x, s in zip(tensors, states, strict=True)]
        for work in works:
            work.wait()
        assert [x[0].item() for x in tensors] == [size, 100.0 * size]
    if rank < 2:
        x = torch.ones(10)
        peelreduce.all_reduce(x, group=pair)
        assert x[0].item() == 2
    later = dist.new_group(list(range(size)))  # torch's own numbering is as it was
    y = torch.ones(1)
    dist.all_reduce(y, group=later)
    assert y.item() == size


def test_groups_of_ours_do_not_disturb_each_other_or_those_of_torch() -> None:
    run_workers(3, _sum_over_many_groups)


def _average_parameters(rank: int, size: int) -> None:
    parameter = torch.nn.Parameter(torch.full((4, 3), float(rank)))
    with torch.no_grad():
        peelreduce.all_reduce(parameter, dist.ReduceOp.AVG)
        transposed = parameter.t()
        peelreduce.all_reduce(transposed)
    assert torch.equal(parameter.detach(), torch.full((4, 3), size * sum(range(size)) / size))


def test_averages_parameters() -> None:
    run_workers(2, _average_parameters)


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
    with pytest.raises(ValueError, match="sum a clone"):
        peelreduce.all_reduce(torch.ones(1).expand(5))
    x = torch.ones(100 + rank)
    with pytest.raises(RuntimeError, match="elements"):  # the same sentence everywhere, and nothing has changed
        peelreduce.all_reduce(x)
    assert torch.equal(x, torch.ones(100 + rank))
    x = torch.ones(100)
    peelreduce.all_reduce(x)  # a refusal is not the end
    assert torch.equal(x, torch.full((100,), float(size)))


def test_misuse_gets_a_sentence() -> None:
    run_workers(2, _refuse)


def _fail_alone(rank: int, size: int) -> None:
    work = peelreduce.all_reduce(torch.ones(10), async_op=True)
    with pytest.raises(RuntimeError, match="callback"):
        work.get_future().then(lambda _: peelreduce.all_reduce(torch.ones(3))).wait()
    x = torch.ones(10)
    peelreduce.all_reduce(x)
    assert torch.equal(x, torch.ones(10))


def test_a_callback_that_sums_is_refused() -> None:
    run_workers(1, _fail_alone)
