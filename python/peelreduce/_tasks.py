"""One array to be summed, as a task for a lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import _core
from ._dispatcher import Lane, Task

TYPES = {
    torch.float32: "float32",
    torch.float64: "float64",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.int8: "int8",
    torch.int16: "int16",
    torch.int32: "int32",
    torch.int64: "int64",
}


def check_tensor(tensor: torch.Tensor) -> None:
    """Refuses what cannot be summed, before anything is submitted."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"peelreduce sums tensors, not {type(tensor).__name__}.")
    if tensor.dtype not in TYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in TYPES)
        raise TypeError(f"peelreduce does not sum {tensor.dtype}; convert to one of {known}.")
    if tensor.device.type != "cpu":
        raise ValueError(f"This build of peelreduce sums tensors in host memory; this one is on {tensor.device}.")
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        raise ValueError(f"peelreduce sums dense tensors and sparse COO tensors, not {tensor.layout}.")


def make_core_state(tensor: torch.Tensor, *, strategy: str, timeout: float, threads: int, name: str) -> _core.State:
    """A state for tensors like this one."""
    options: dict[str, Any] = {"strategy": strategy, "timeout": timeout, "threads": threads, "name": name}
    if tensor.is_sparse:
        rows = tensor.shape[: tensor.sparse_dim()].numel()
        options["grain"] = tensor.numel() // max(rows, 1)
        options["elements"] = tensor.numel()
        if strategy == "dense":
            options["strategy"] = "auto"  # a sparse sum has no dense form
    elif strategy == "dense":
        options["chunk_bytes"] = max(tensor.numel() * tensor.element_size(), 1)  # in one piece, as torch sums it
    return _core.State(**options)


class Sum(Task):
    """Sums a tensor over all workers. `result` is a future that gets the sum: the tensor itself if it is dense, or if
    it is to be summed in place."""

    def __init__(
        self,
        tensor: torch.Tensor,
        state: _core.State,
        factor: float | None = None,
        *,
        in_place: bool = False,
        prepare: Callable[[torch.Tensor], None] | None = None,
    ) -> None:
        self._tensor = tensor
        self._state = state
        self._factor = factor  # values are multiplied by it first
        self._in_place = in_place
        self._prepare = prepare  # called with a dense tensor after that
        self.result: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def run(self, lane: Lane) -> None:
        self.result.set_result(self._sparse(lane) if self._tensor.is_sparse else self._dense(lane))

    def fail(self, error: BaseException) -> None:
        self.result.set_exception(error)

    def _dense(self, lane: Lane) -> torch.Tensor:
        flat = self._tensor if self._tensor.is_contiguous() else self._tensor.contiguous()
        if self._factor is not None:
            flat.mul_(self._factor)
        if self._prepare is not None:
            self._prepare(flat)
        address, count = flat.data_ptr(), flat.numel()
        lane.drive(_core.Exchange.dense(self._state, lane.world, address, count, TYPES[flat.dtype]))
        if flat is not self._tensor:
            self._tensor.copy_(flat)
        return self._tensor

    def _sparse(self, lane: Lane) -> torch.Tensor:
        own = self._tensor.coalesce()
        rows = own.indices()
        values = own.values().contiguous()
        if self._factor is not None:
            values = values * self._factor
        if rows.shape[0] != 1:  # several sparse dimensions: number their cells
            strides = torch.tensor([_product(own.shape[d + 1 : rows.shape[0]]) for d in range(rows.shape[0])])
            items = (rows * strides[:, None]).sum(0)
        else:
            items = rows[0]
        items = items.contiguous()
        summed = _core.SparseSum()
        lane.drive(
            _core.Exchange.sparse(
                self._state,
                lane.world,
                items.data_ptr(),
                items.numel(),
                values.data_ptr(),
                TYPES[values.dtype],
                summed,
            )
        )
        result = _coo(summed, own)
        return self._tensor.copy_(result) if self._in_place else result


class ReduceScatter(Task):
    """Sums a tensor over all workers; each ends with its share, in `output`. The tensor is used up."""

    def __init__(
        self, tensor: torch.Tensor, output: torch.Tensor, state: _core.State, factor: float | None = None
    ) -> None:
        self._tensor = tensor
        self._output = output
        self._state = state
        self._factor = factor
        self.result: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def run(self, lane: Lane) -> None:
        flat = self._tensor.contiguous().view(-1)
        if self._factor is not None:
            flat.mul_(self._factor)
        address, count = flat.data_ptr(), flat.numel()
        lane.drive(_core.Exchange.dense(self._state, lane.world, address, count, TYPES[flat.dtype], scatter=True))
        share = self._output.numel()
        first = lane.world.rank * share
        self.result.set_result(self._output.copy_(flat[first : first + share].view_as(self._output)))

    def fail(self, error: BaseException) -> None:
        self.result.set_exception(error)


def _product(sizes: tuple[int, ...]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _coo(summed: _core.SparseSum, like: torch.Tensor) -> torch.Tensor:
    items = summed.items.clone()
    sparse_dims = like.sparse_dim()
    values = summed.values.clone().reshape(items.numel(), *like.shape[sparse_dims:])
    indices = torch.stack(torch.unravel_index(items, like.shape[:sparse_dims]))
    return torch.sparse_coo_tensor(indices, values, like.shape, is_coalesced=True)
