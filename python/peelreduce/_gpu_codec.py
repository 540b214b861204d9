"""The verbs of the codec on tensors of a GPU: in the current stream, with memory of torch's allocator.

A verb is put on the stream and reports to a status there. It is read, which waits for the stream, where sizes of results
depend on it or where it may hold an error: in all cases but `encode` of a sketch without a list and `merge`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _core, _gpu
from ._types import DTYPES, TYPES

_ALIGNMENT = 16  # of messages, in bytes


class _Call:
    """A verb on one message: memory to work in, and the status."""

    def __init__(self, index: Tensor, payload: Tensor, room: Any) -> None:
        self.index, self.payload = index, payload
        self.items = room.items  # that there is room for
        self._workspace = torch.empty(room.workspace_bytes, dtype=torch.uint8, device=index.device)
        self._status = torch.empty(_gpu.module().STATUS_BYTES, dtype=torch.uint8, device=index.device)
        self.work = _gpu.module().Work(
            index=index.data_ptr(),
            index_words=index.numel(),
            payload=payload.data_ptr(),
            payload_bytes=payload.nbytes,
            items=room.items,
            workspace=self._workspace.data_ptr(),
            workspace_bytes=room.workspace_bytes,
            status=self._status.data_ptr(),
            stream=torch.cuda.current_stream(index.device).cuda_stream,
        )

    def status(self) -> Any:
        """Waits for the verb."""
        on_host = self._status.cpu()
        return _gpu.module().Status.read(on_host.data_ptr())


def _new_message(plan: _core.Plan, device: torch.device, items: int) -> _Call:
    room = _gpu.module().room_for(plan, items)
    dtype = DTYPES[plan.payload_type]
    index = torch.empty(room.index_words, dtype=torch.int64, device=device)
    payload = torch.empty(room.payload_bytes // dtype.itemsize, dtype=dtype, device=device)
    return _Call(index, payload, room)


def _opened(plan: _core.Plan, index: Tensor, payload: Tensor, items: int) -> _Call:
    """A message that came as tensors."""
    _gpu.module().check_sizes(plan, index.numel(), payload.nbytes)
    return _Call(_aligned(index), _aligned(payload), _gpu.module().room_for(plan, items))


def _aligned(tensor: Tensor) -> Tensor:
    whole = tensor.contiguous()
    return whole if whole.data_ptr() % _ALIGNMENT == 0 else whole.clone()


def encode(plan: _core.Plan, x: Tensor) -> tuple[Tensor, Tensor]:
    flat = x.contiguous()
    array = (flat.data_ptr(), flat.numel(), TYPES[flat.dtype])
    return _encode(plan, x.device, -1, lambda work: _gpu.module().encode(plan, *array, work))


def encode_sparse(plan: _core.Plan, indices: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    items, flat = indices.contiguous(), values.contiguous()
    array = (items.data_ptr(), items.numel(), flat.data_ptr(), flat.numel(), TYPES[flat.dtype])
    return _encode(plan, values.device, items.numel(), lambda work: _gpu.module().encode_sparse(plan, *array, work))


def _encode(plan: _core.Plan, device: torch.device, items: int, put: Callable[[Any], None]) -> tuple[Tensor, Tensor]:
    """With room for so many items, and for those of the plan; again where that was too little."""
    with torch.cuda.device(device):
        call = _new_message(plan, device, max(items, _planned(plan)))
        put(call.work)
        if plan.codec == "sketch" and plan.index != "list":
            return call.index, call.payload  # that values do not fit is told by the index, to whoever decodes it
        status = call.status()
        while status.lacks_room and call.items < plan.items:
            call = _new_message(plan, device, max(items, _more(plan, call, status)))
            put(call.work)
            status = call.status()
        status.check(plan)
        index = call.index[: status.index_words]
        return index, call.payload if plan.codec == "sketch" else call.payload[: status.items * plan.grain]


def _planned(plan: _core.Plan) -> int:
    return _gpu.module().room_for(plan, -1).items


def _more(plan: _core.Plan, call: _Call, status: Any) -> int:
    """For how many items to make room where there was not enough: for those that were counted, if that went so far."""
    return status.items if status.items > call.items else plan.items


def merge(
    plan: _core.Plan, into: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor], workers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Of sketches whose index is no list; `workers` says how many each of the two holds."""
    with torch.cuda.device(into[0].device):
        sum_ = _opened(plan, into[0].clone(), into[1].clone(), 0)
        added = _opened(plan, *other, 0)
        _gpu.module().merge(plan, sum_.work, added.work, *workers)
        return sum_.index, sum_.payload


def decode(plan: _core.Plan, index: Tensor, payload: Tensor) -> tuple[Tensor, Tensor]:
    """The elements, and lost items, whose elements are zero."""
    x = torch.empty(plan.elements, dtype=DTYPES[plan.type], device=index.device)
    array = (x.data_ptr(), x.numel(), TYPES[x.dtype])

    def put(call: _Call, lost: Tensor) -> None:
        if plan.codec == "sketch":
            x.zero_()  # elements of lost items stay as they were
        _gpu.module().decode(plan, call.work, *array, lost.data_ptr(), lost.numel())

    _, lost = _decode(plan, index, payload, put)
    return x, lost


def decode_sparse(plan: _core.Plan, index: Tensor, payload: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Items in increasing order, their values one after another, and lost items."""
    items = torch.empty(0, dtype=torch.int64, device=index.device)
    values = torch.empty(0, dtype=DTYPES[plan.type], device=index.device)

    def put(call: _Call, lost: Tensor) -> None:
        nonlocal items, values
        if items.numel() < call.items:
            items, values = items.new_empty(call.items), values.new_empty(call.items * plan.grain)
        array = (items.data_ptr(), values.data_ptr(), call.items, TYPES[values.dtype])
        _gpu.module().decode_sparse(plan, call.work, *array, lost.data_ptr(), lost.numel())

    recovered, lost = _decode(plan, index, payload, put)
    return items[:recovered], values[: recovered * plan.grain], lost


def _decode(
    plan: _core.Plan, index: Tensor, payload: Tensor, put: Callable[[_Call, Tensor], None]
) -> tuple[int, Tensor]:
    """How many items were recovered, and the others. Again where there was too little room for either."""
    sketch = plan.codec == "sketch"
    with torch.cuda.device(index.device):
        call = _opened(plan, index, payload, _planned(plan) if sketch else payload.numel() // plan.grain)
        lost = torch.empty(call.items if sketch else 0, dtype=torch.int64, device=index.device)
        put(call, lost)
        status = call.status()
        while sketch and (status.lacks_room and call.items < plan.items or status.lost > lost.numel()):
            if status.lacks_room:
                call = _opened(plan, index, payload, _more(plan, call, status))
            lost = lost.new_empty(max(call.items, status.lost))
            put(call, lost)
            status = call.status()
        status.check(plan)
        return status.recovered, lost[: status.lost].sort().values
