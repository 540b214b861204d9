"""The codec as operators of torch: for those who move messages themselves, and for torch.compile.

With a plan for sketches, such as
make_plan(x.numel(), codec="sketch", expected_items=items, workers=4, scale=fit_scale(largest, 4)), four workers sum by

    index, payload = ops.encode(x, plan)
    dist.all_reduce(index, dist.ReduceOp.BOR)
    dist.all_reduce(payload, dist.ReduceOp.SUM)
    total, lost = ops.decode(index, payload, plan)

A plan is everything that workers must agree on, as text: make it on one of them, or on all of them with the same
options. A message is two tensors: `index` says which items there are, `payload` holds their values. Those of a sketch
have the same sizes on all workers, and whatever combines them by bitwise OR and by SUM will do. Cells are integers
(unless they are asked to be floats), so that every order of summation gives the same bits. Packed messages are as long
as what their worker has, and only `merge` adds them up, as it does messages whose index is a list. Fixed cells have room
for as many workers as their plan: `merge` is told how many each message holds, and refuses more. A collective is not
told: do not sum more workers than the plan was made for.

An item is `grain` elements in a row. `lost` holds the numbers of those that did not peel, in increasing order: if it is
empty, nothing was lost.

Tensors are in host memory or on a GPU (where peelreduce was built with CUDA), and results are where their arguments are.
On a GPU everything happens in the current stream, with memory of torch's allocator; the processor waits for it only
where a size depends on data: `encode` of a sketch (without a list) and `merge` of sketches return at once, and values
that do not fit are an error of whoever decodes them. What merges packed messages and lists is the processor: they are
copied to host memory and back.

What does not fit its plan is a ValueError or a peelreduce.Error. Sizes that depend on data, such as that of `lost`,
compile into one graph with torch._dynamo.config.capture_dynamic_output_shape_ops. Nothing here has a gradient.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.library import custom_op, get_ctx

from . import _core, _gpu, _gpu_codec
from ._types import DTYPES, TYPES

__all__ = [
    "Facts",
    "decode",
    "decode_sparse",
    "describe",
    "encode",
    "encode_sparse",
    "facts",
    "fit_scale",
    "make_plan",
    "merge",
]

_SEED = 0x5EED
_SHORTEST_LIST = 2  # words of an index that is a list: its header and the flags


@dataclass(frozen=True)
class Facts:
    """What a plan says. Sizes of packed messages and of lists are those of the expected items."""

    elements: int
    dtype: torch.dtype
    codec: str
    index: str
    cells: str
    grain: int
    items: int  # that the array has, zero or not
    workers: int
    most_workers: int  # that a message may hold: `workers` where fixed cells would wrap, else no limit to speak of
    scale: int
    index_words: int
    payload_dtype: torch.dtype
    payload_bytes: int
    message_bytes: int
    dense_bytes: int
    error_bound: float  # the largest error of one element of the sum, before it is rounded to its type


def make_plan(
    elements: int,
    dtype: torch.dtype = torch.float32,
    *,
    codec: str = "packed",
    expected_items: int | None = None,
    workers: int = 1,
    grain: int = 1,
    index: str = "auto",
    cells: str = "auto",
    seed: int = _SEED,
    scale: int | None = None,
) -> str:
    """A plan for arrays of this length and type. To be called outside of what is compiled.

    Args:
        codec: "packed" or "sketch".
        expected_items: items in the union of all workers. It sizes sketches and Bloom filters, which need it.
        workers: how many messages are added up at most.
        grain: elements per item: 1, 2, 4 ... 1024.
        index: "auto" (the smaller one of bitmap and Bloom filter), "bitmap", "bloom" or "list".
        cells: "auto", "native" (packed only), "fixed32", "fixed64" or "float32".
        seed: of everything that is hashed.
        scale: fixed cells hold round(x * 2**scale). Floating-point values in fixed cells need it; see fit_scale.
    """
    if dtype not in TYPES:
        raise ValueError(f"peelreduce has no plans for {dtype}; convert to one of {', '.join(DTYPES)}.")
    if expected_items is None and (codec == "sketch" or index == "bloom"):
        raise ValueError("Sketches and Bloom filters are sized by expected_items; say how many the union has.")
    plan = _core.Plan.make(
        elements=_within("elements", elements, 0, 2**63),
        type=TYPES[dtype],
        codec=codec,
        expected_items=_within("expected_items", expected_items or 0, 0, 2**63),
        workers=_within("workers", workers, 1, 2**31),
        grain=_within("grain", grain, 1, 2**31),
        index=index,
        cells=cells,
        seed=_within("seed", seed, 0, 2**64 - 1),
        scale=_within("scale", scale or 0, -(2**31), 2**31 - 1),
    )
    if scale is None and dtype.is_floating_point and plan.cells in ("fixed32", "fixed64"):
        raise ValueError(f"{plan.cells} cells round floating-point values; say scale=fit_scale(largest, workers).")
    return plan.serialise().hex()


def fit_scale(largest: float, workers: int = 1, *, cells: str = "fixed32") -> int:
    """The largest scale at which values up to `largest` in magnitude fit, summed over all workers.

    Cells are fixed32, or fixed64 if elements have 8 bytes, unless the plan is told otherwise.
    """
    return _core.fit_scale(float(largest), _within("workers", workers, 1, 2**31), cells)


def facts(plan: str) -> Facts:
    """What a plan says."""
    return _facts(plan)


def describe(plan: str) -> str:
    """A plan in a few lines, for people."""
    return _opened(plan).describe()


@custom_op("peelreduce::encode", mutates_args=())
def encode(x: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    """The message of a dense tensor of any shape: its index and its payload."""
    _check(x, "x", facts(plan).dtype)
    if x.is_cuda:
        return _gpu_codec.encode(_opened(plan), x)
    flat = x.contiguous()
    threads = torch.get_num_threads()
    return _parts(_opened(plan).encode(flat.data_ptr(), flat.numel(), TYPES[flat.dtype], threads))


@encode.register_fake
def _(x: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    _check(x, "x", facts(plan).dtype)
    return _fake_message(x, plan)


@custom_op("peelreduce::encode_sparse", mutates_args=())
def encode_sparse(indices: Tensor, values: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    """The message of a coalesced COO tensor with one sparse dimension, whose rows are the items.

    `indices` are of shape (1, n) or (n,), `values` are n times `grain`.
    """
    _check_coo(indices, values, plan)
    if indices.dim() > 2 or (indices.dim() == 2 and indices.shape[0] != 1):
        raise ValueError(f"indices are item numbers in one row, not of shape {tuple(indices.shape)}; flatten them.")
    if values.is_cuda:
        return _gpu_codec.encode_sparse(_opened(plan), indices, values)
    items, flat = indices.contiguous(), values.contiguous()
    addresses = (items.data_ptr(), items.numel(), flat.data_ptr(), flat.numel())
    return _parts(_opened(plan).encode_sparse(*addresses, TYPES[flat.dtype], torch.get_num_threads()))


@encode_sparse.register_fake
def _(indices: Tensor, values: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    _check_coo(indices, values, plan)
    return _fake_message(values, plan)


@custom_op("peelreduce::merge", mutates_args=())
def merge(
    index_a: Tensor, payload_a: Tensor, index_b: Tensor, payload_b: Tensor, workers: Sequence[int], plan: str
) -> tuple[Tensor, Tensor]:
    """The sum of two messages of one plan, without decoding them.

    `workers` says how many workers' messages are added up in each of the two: [1, 1] for two that `encode` made, [2, 1]
    for the sum of those and a third. Tensors do not know, since collectives add them up as well; and fixed cells wrap
    where there are more than facts(plan).most_workers, which is therefore refused.
    """
    _check_summands((index_a, payload_a), (index_b, payload_b), workers, plan)
    if payload_a.is_cuda:
        return _merge_on_gpu((index_a, payload_a), (index_b, payload_b), workers, plan)
    return _merge_on_host((index_a, payload_a), (index_b, payload_b), workers, plan)


def _merge_on_host(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], workers: Sequence[int], plan: str
) -> tuple[Tensor, Tensor]:
    merged = _message(*a, plan, workers[0])
    _opened(plan).merge(merged, _message(*b, plan, workers[1]))
    return _parts(merged)


def _merge_on_gpu(
    a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], workers: Sequence[int], plan: str
) -> tuple[Tensor, Tensor]:
    said = facts(plan)
    if said.codec == "sketch" and said.index != "list":
        return _gpu_codec.merge(_opened(plan), a, b, workers)
    index, payload = _merge_on_host((a[0].cpu(), a[1].cpu()), (b[0].cpu(), b[1].cpu()), workers, plan)
    return index.to(a[0].device), payload.to(a[1].device)


@merge.register_fake
def _(
    index_a: Tensor, payload_a: Tensor, index_b: Tensor, payload_b: Tensor, workers: Sequence[int], plan: str
) -> tuple[Tensor, Tensor]:
    _check_summands((index_a, payload_a), (index_b, payload_b), workers, plan)
    return _fake_message(payload_a, plan)


@custom_op("peelreduce::decode", mutates_args=())
def decode(index: Tensor, payload: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    """The elements of a message, in one dimension, and the items that were lost, which are zero there."""
    _check_message(index, payload, plan)
    if payload.is_cuda:
        return _gpu_codec.decode(_opened(plan), index, payload)
    message = _message(index, payload, plan)
    said = facts(plan)
    # Elements of lost items stay as they were. Packed messages lose none, so that every element is written.
    make = torch.zeros if said.codec == "sketch" else torch.empty
    x = make(said.elements, dtype=said.dtype)
    threads = torch.get_num_threads()
    recovered = _opened(plan).decode(message, x.data_ptr(), x.numel(), TYPES[x.dtype], threads)
    return x, recovered.lost


@decode.register_fake
def _(index: Tensor, payload: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    _check_message(index, payload, plan)
    said = facts(plan)
    return payload.new_empty(said.elements, dtype=said.dtype), _fake_lost(index, plan)


@custom_op("peelreduce::decode_sparse", mutates_args=())
def decode_sparse(index: Tensor, payload: Tensor, plan: str) -> tuple[Tensor, Tensor, Tensor]:
    """The indices and values of a message as a coalesced COO tensor has them, and the items that were lost.

    Indices are of shape (1, n); values are of shape (n, grain), or (n,) if the grain is 1. Lost items are left out. An
    item that reaches over the end of the array still has `grain` values.
    """
    _check_message(index, payload, plan)
    if payload.is_cuda:
        items, values, lost = _gpu_codec.decode_sparse(_opened(plan), index, payload)
        return items.view(1, -1), values.view(_rows(items.numel(), plan)), lost
    recovered = _opened(plan).decode_sparse(_message(index, payload, plan), torch.get_num_threads())
    items = recovered.items
    return items.view(1, -1), recovered.values.view(_rows(items.numel(), plan)), recovered.lost


@decode_sparse.register_fake
def _(index: Tensor, payload: Tensor, plan: str) -> tuple[Tensor, Tensor, Tensor]:
    _check_message(index, payload, plan)
    count = get_ctx().new_dynamic_size()
    values = payload.new_empty(_rows(count, plan), dtype=facts(plan).dtype)
    return index.new_empty((1, count)), values, _fake_lost(index, plan)


@functools.lru_cache(maxsize=256)
def _opened(plan: str) -> _core.Plan:
    try:
        descriptor = bytes.fromhex(plan)
    except ValueError as error:
        raise ValueError("This text is no plan: it is not hexadecimal; pass what make_plan returned.") from error
    return _core.Plan.parse(descriptor)


@functools.lru_cache(maxsize=256)
def _facts(plan: str) -> Facts:
    opened = _opened(plan)
    return Facts(
        elements=opened.elements,
        dtype=DTYPES[opened.type],
        codec=opened.codec,
        index=opened.index,
        cells=opened.cells,
        grain=opened.grain,
        items=opened.items,
        workers=opened.workers,
        most_workers=opened.most_workers,
        scale=opened.scale,
        index_words=opened.index_words,
        payload_dtype=DTYPES[opened.payload_type],
        payload_bytes=opened.payload_bytes,
        message_bytes=opened.message_bytes,
        dense_bytes=opened.dense_bytes,
        error_bound=opened.error_bound,
    )


def _within(name: str, value: int, least: int, most: int) -> int:
    """What C++ can hold; it says itself what a plan can."""
    try:
        number = operator.index(value)
    except TypeError as error:
        raise ValueError(f"{name} must be a whole number, not {value!r}.") from error
    if not least <= number <= most:
        raise ValueError(f"{name} must be from {least} to {most}, not {number}.")
    return number


def _check(tensor: Tensor, name: str, dtype: torch.dtype) -> None:
    """What is known before there is data: fakes ask it too, so that it is an error of compiling."""
    if tensor.device.type not in ("cpu", "meta", "cuda"):
        raise ValueError(f"peelreduce.ops works on CPUs and CUDA devices; {name} is on {tensor.device}, copy it.")
    if tensor.device.type == "cuda" and _gpu.missing:
        raise ValueError(
            f"peelreduce.ops works here on tensors in host memory; {name} is on {tensor.device}, and {_gpu.missing}."
        )
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} is of layout {tensor.layout}; pass indices and values of a COO tensor instead.")
    if tensor.dtype != dtype:
        raise ValueError(f"{name} is of {tensor.dtype} where the plan asks for {dtype}; convert it or plan for it.")


def _check_message(index: Tensor, payload: Tensor, plan: str) -> None:
    _check(index, "index", torch.int64)
    _check(payload, "payload", facts(plan).payload_dtype)
    _check_device(index, payload)


def _check_summands(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor], workers: Sequence[int], plan: str) -> None:
    _check_message(*a, plan)
    _check_message(*b, plan)
    _check_device(b[1], a[1])
    if len(workers) != 2 or min(workers) < 0:
        raise ValueError(f"workers are two numbers, how many each message holds, such as [1, 1]; not {list(workers)}.")
    most = facts(plan).most_workers
    if sum(workers) > most:
        raise ValueError(
            f"The cells have room for {most} workers, and the messages hold {workers[0]} and {workers[1]}; encode with "
            "a plan for more workers."
        )


def _check_coo(indices: Tensor, values: Tensor, plan: str) -> None:
    _check(indices, "indices", torch.int64)
    _check(values, "values", facts(plan).dtype)
    _check_device(indices, values)


def _check_device(tensor: Tensor, other: Tensor) -> None:
    if tensor.device != other.device:
        raise ValueError(f"A message is on one device, not on {tensor.device} and {other.device}; copy one of its parts.")


def _message(index: Tensor, payload: Tensor, plan: str, workers: int | None = None) -> _core.Message:
    """A copy of a message, whose sizes fit the plan; one that is merged says how many workers it holds."""
    words, cells = index.contiguous(), payload.contiguous()
    return _opened(plan).message(words.data_ptr(), words.numel(), cells.data_ptr(), cells.nbytes, workers)


def _parts(message: _core.Message) -> tuple[Tensor, Tensor]:
    return message.index, message.payload


def _rows(count: int | torch.SymInt, plan: str) -> tuple[int | torch.SymInt, ...]:
    grain = facts(plan).grain
    return (count,) if grain == 1 else (count, grain)


def _fake_message(like: Tensor, plan: str) -> tuple[Tensor, Tensor]:
    """Of the sizes that the plan fixes, and otherwise of sizes that depend on data."""
    said = facts(plan)
    words = get_ctx().new_dynamic_size(min=_SHORTEST_LIST) if said.index == "list" else said.index_words
    sketch_cells = said.payload_bytes // said.payload_dtype.itemsize
    cells = sketch_cells if said.codec == "sketch" else get_ctx().new_dynamic_size()
    return like.new_empty(words, dtype=torch.int64), like.new_empty(cells, dtype=said.payload_dtype)


def _fake_lost(index: Tensor, plan: str) -> Tensor:
    return index.new_empty(get_ctx().new_dynamic_size() if facts(plan).codec == "sketch" else 0)
