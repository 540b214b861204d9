"""One array to be summed, as a task for a lane."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from . import _core
from ._dispatcher import FailedHere, Lane, Task, one_line
from ._place import Place
from ._sides import Side
from ._types import TYPES
from ._whole_sums import WholeSums
from .errors import NotFinite

_LONGEST_GRAIN = 1024
# A collective of torch takes milliseconds when workers share cores, so chunks are longer than other transports have them.
# examples/ncf.py --full (buckets of 16, 42 and 58 MB), four workers on two cores and 1 gbit: 403 ms a step with 1 chunk
# in a bucket, 420 with 2, 442 with 4, 827 with 32.
_CHUNK_BYTES = 64 << 20
# Seconds in which a link carries an array so fast that the way through a lane takes longer. Two workers on two cores, over
# loopback, 1% not zero: 1 MiB took 3.5 ms instead of the 1.3 of Gloo, 4 MiB 4.3 instead of 5.1.
_AT_ONCE = 2e-3
_DENSE = 0.9  # of the elements, in the union: then no strategy sends less by more than a tenth
_SPARSE_CHUNK = 1 << 30  # of a sparse gradient, in items


def check_tensor(tensor: torch.Tensor) -> None:
    """Refuses what cannot be summed, before anything is submitted."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"peelreduce sums tensors, not {type(tensor).__name__}.")
    if isinstance(tensor, DTensor):
        raise TypeError(
            "peelreduce sums plain tensors, and this is a DTensor; sum its part on this worker (tensor.to_local()), or "
            "have torch do it (tensor.redistribute)."
        )
    if tensor.dtype not in TYPES:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in TYPES)
        raise TypeError(f"peelreduce does not sum {tensor.dtype}; convert to one of {known}.")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"peelreduce sums tensors of processors and of CUDA devices; this one is on {tensor.device}.")
    if tensor.layout not in (torch.strided, torch.sparse_coo):
        raise ValueError(f"peelreduce sums dense tensors and sparse COO tensors, not {tensor.layout}.")
    if tensor.layout == torch.strided and any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    ):
        raise ValueError("Elements of this tensor share memory (it was expanded); sum a clone of it.")


class ArrayState:
    """The memory of arrays of one kind, which are summed one after another."""

    def __init__(self, tensor: torch.Tensor, *, average: bool, strategy: str, **others: Any) -> None:
        options: dict[str, Any] = {"average": average, "strategy": strategy, **others}
        self.elements = tensor.numel()
        if tensor.is_sparse:
            options["grain"] = _grain(tensor)
            options["elements"] = tensor.numel()
            options["chunk_bytes"] = _SPARSE_CHUNK
            if strategy == "dense":
                options["strategy"] = "auto"  # a sparse sum has no dense form
        else:
            nbytes = max(tensor.numel() * tensor.element_size(), 1)
            whole = strategy == "dense"  # in one piece, as torch sums it
            options["chunk_bytes"] = nbytes if whole else _CHUNK_BYTES
        self._options = options
        self.nbytes = tensor.numel() * tensor.element_size()
        self.union_bytes: int | None = None  # of the last union, once there was one
        self.core = _core.State(**options)
        self.average = average
        # Totals of arrays that NCCL scattered: the core knows nothing of them.
        self._scattered = Counter(steps=0, bytes_sent=0, dense_bytes=0, items=0)
        # The last report and the totals with it, as JSON, those of scattered arrays, and where the sum was made; a lane
        # replaces them as a whole.
        self._reports = ("{}", self.core.totals(), Counter(self._scattered), "")
        self._last: threading.Event | None = None

    def restore(self, saved: bytes) -> None:
        """What core.serialise() gave."""
        self.core.restore(saved)
        self._note_union()

    def _note_union(self) -> None:
        elements = self.core.union_elements
        self.union_bytes = None if elements is None else elements * self.nbytes // max(self.elements, 1)

    def scattering(self, workers: int) -> _core.State:
        """By what workers agree that NCCL scatters an array: dense, in chunks of a share, as no sum of the whole is."""
        options = {"strategy": "dense", "chunk_bytes": max(self.nbytes // workers, 1)}
        return _core.State(**{**self._options, **options})

    def note_report(self, memory: str) -> None:
        """On the lane, where nobody else uses the core."""
        self._note_union()
        self._note(self.core.last(), memory)

    def note_scattered(self, workers: int) -> None:
        """An array that NCCL scattered. Nobody waited for that, so times are not known."""
        sent = (workers - 1) * (self.nbytes // workers)
        self._scattered.update(steps=1, bytes_sent=sent, dense_bytes=sent, items=self.elements)
        report = json.loads(_core.State().last())  # of a dense sum that did nothing
        report["step"] = json.loads(self.core.last())["step"]
        report.update(workers=workers, rounds=1, bytes_sent=sent, dense_bytes=sent)
        report.update(items=self.elements, union_elements=self.elements)
        self._note(json.dumps(report), "device")

    def _note(self, report: str, memory: str) -> None:
        self._reports = (report, self.core.totals(), Counter(self._scattered), memory)

    def last(self) -> dict[str, Any]:
        """What the last sum did, and whether in "host" or "device" memory; empty before the first."""
        text, _, scattered, memory = self._reports
        if not memory:
            return {}
        report = json.loads(text)
        report["step"] += scattered["steps"]  # the core counts its own
        return {**report, "memory": memory}

    def facts(self) -> dict[str, Any]:
        """What the last sum did, and all of them together. Dense sums do not tell how dense they are."""
        last, (_, of_core, scattered, _) = self.last(), self._reports
        totals = Counter(json.loads(of_core))
        totals.update(scattered)
        known = bool(last) and last["strategy"] != "dense"
        density = last["union_elements"] / max(self.elements, 1) if known else None
        return {"elements": self.elements, "density": density, "last": last, "totals": dict(totals)}

    def is_dense(self) -> bool:
        """As all workers know of the last sum."""
        last = self.last()
        return last["strategy"] == "dense" or last["union_elements"] > _DENSE * self.elements

    def enter(self, task: Task) -> None:
        """The task uses this after all that have entered before."""
        task.after, self._last = self._last, task.done


class Outcome:
    """What became of a sum, for those who must not keep its tensor."""

    def __init__(self, done: threading.Event) -> None:
        self.done = done
        self.pays: bool | None = None  # more than torch's would, as all workers know once it is done; None if it failed

    @classmethod
    def of_refusal(cls) -> Outcome:
        """Of a sum that this worker refused to the others."""
        outcome = cls(threading.Event())
        outcome.done.set()
        return outcome


class Reduction(Task):
    """Sums a tensor over all workers; `result` is a future that gets what this worker ends with."""

    note_failure: Callable[[BaseException], None] | None = None  # before the future has it

    def __init__(self, tensor: torch.Tensor, state: ArrayState, timeout: float) -> None:
        super().__init__()
        self.timeout = timeout
        self._place = Place(tensor)
        self.device = tensor.device if tensor.is_cuda and not tensor.is_sparse else None
        self.result = self._place.future()
        self.outcome: Outcome | None = None  # for whoever wants to know
        self._tensor = tensor
        self._state = state

    def enter(self) -> None:
        self._state.enter(self)

    def prepare(self, side: Side | None) -> None:
        if side is not None:
            self._place.stay(side.wire.kernels, side.wire.stream)
        with self._place.here(), self._mode():
            self._fetch()

    def refuse(self, lane: Lane, error: FailedHere) -> None:
        if not self._state.core.asks:  # the others would not listen
            raise error
        lane.refuse(self._state.core, error.reason + ".")

    def _mode(self) -> torch.inference_mode | torch.no_grad:
        """Tensors that were made in inference mode are written to in no other."""
        return torch.inference_mode() if self._tensor.is_inference() else torch.no_grad()

    def _fetch(self) -> None:
        """Gets what is to be summed to where it is summed."""
        raise NotImplementedError

    def fail(self, error: BaseException) -> None:
        if self.note_failure is not None:
            self.note_failure(error)
        self.result.set_exception(error)

    def _sum(
        self, lane: Lane, flat: torch.Tensor, *, scatter: bool = False, residual: torch.Tensor | None = None
    ) -> None:
        array = (flat.data_ptr(), flat.numel(), TYPES[flat.dtype])
        on_device = flat.is_cuda
        others = {"scatter": scatter, "on_device": on_device, "residual": 0 if residual is None else residual.data_ptr()}
        world = lane.world if lane.side is None else lane.device_world
        core = self._state.core
        with self._place.here():
            try:
                lane.drive(lambda: _core.Exchange.dense(core, world, *array, **others))
            except NotFinite:  # which everybody shall see, as in a sum of floats
                with self._mode():
                    flat.fill_(torch.nan)
                if residual is not None:
                    residual.zero_()
                return
        self._state.note_report("device" if on_device else "host")
        if self.outcome is not None:
            fast = lane.side is None and self._state.nbytes < _AT_ONCE * lane.link.bytes_per_second
            self.outcome.pays = not fast and not self._state.is_dense()


class Estimate:
    """A sum of a fixed size: its bytes, and what earlier ones missed."""

    def __init__(self, nbytes: int, memory: dict[str, torch.Tensor]) -> None:
        self.nbytes = nbytes  # 0: exact
        self._memory = memory

    def add_missed(self, gradient: torch.Tensor) -> None:
        """To a flat gradient; in the stream in which it is summed.

        Unless it points against it: then it has come too late, and is dropped. Small shares bring gradients back many
        steps late, and with momentum these would drive training past its goal, farther each time (docs/design.md).
        """
        missed = self._memory.get("missed")
        if missed is None:
            return
        wide = torch.promote_types(gradient.dtype, torch.float32)
        along = torch.dot(missed.to(wide), gradient.flatten().to(wide)) >= 0  # false if the gradient is not finite
        gradient.addcmul_(missed.view_as(gradient), along.to(gradient.dtype))

    def residual_for(self, flat: torch.Tensor) -> torch.Tensor:
        """Memory for what this sum misses, beside what is summed. New, since a sum that fails has missed nothing."""
        return torch.empty_like(flat)

    def keep(self, residual: torch.Tensor, device: torch.device) -> None:
        self._memory["missed"] = residual.to(device)


class Sum(Reduction):
    """Everybody ends with the sum: the tensor itself if it is dense, or if it is to be summed in place."""

    def __init__(
        self,
        tensor: torch.Tensor,
        state: ArrayState,
        timeout: float,
        *,
        in_place: bool = False,
        select: Callable[[torch.Tensor], None] | None = None,
        estimate: Estimate | None = None,
    ) -> None:
        super().__init__(tensor, state, timeout)
        self._select = select  # leaves in a dense tensor what is to be summed
        self._estimate = None if tensor.is_sparse else estimate
        self._in_place = in_place

    def _fetch(self) -> None:
        if self._tensor.is_sparse:
            self._own = self._place.fetch(self._tensor.coalesce())
            self._values = self._own.values().contiguous()
            return
        flat = self._tensor.contiguous()
        if self._estimate is not None:  # before the selection, which keeps what it does not send itself
            self._estimate.add_missed(flat)
        if self._select is not None:
            self._select(flat)
        self._flat = self._place.fetch(flat)

    def run(self, lane: Lane) -> None:
        if self._tensor.is_sparse:
            summed = self._sum_sparse(lane)
        elif self._estimate is not None:
            summed = self._estimated(lane, self._estimate)
        else:
            self._sum(lane, self._flat)
            summed = self._flat
        with self._place.here(), self._mode():
            self.result.set_result(self._put(summed))

    def _estimated(self, lane: Lane, estimate: Estimate) -> torch.Tensor:
        self._state.core.set_estimate_bytes(estimate.nbytes)
        with self._place.here():
            residual = estimate.residual_for(self._flat)
        self._sum(lane, self._flat, residual=residual)
        with self._place.here():
            estimate.keep(residual, self._place.device)
        return self._flat

    def _put(self, summed: torch.Tensor) -> torch.Tensor:
        """The sum where it is wanted."""
        if self._tensor.is_sparse:
            summed = summed.to(self._place.device)
            return self._tensor.copy_(summed) if self._in_place else summed
        return self._tensor if summed is self._tensor else self._tensor.copy_(summed, non_blocking=True)

    def _sum_sparse(self, lane: Lane) -> torch.Tensor:
        if self._tensor.numel() == 0:  # an array of no elements is dense to the core; others are told if theirs has some
            self._sum(lane, self._values.view(-1))
            return self._own
        items = _items(self._own)
        summed = _core.SparseSum()
        addresses = (items.data_ptr(), items.numel(), self._values.data_ptr())
        kind = TYPES[self._values.dtype]
        try:
            lane.drive(lambda: _core.Exchange.sparse(self._state.core, lane.world, *addresses, kind, summed))
        except NotFinite:  # as above, in one row: who has which others is not known
            return _first_row_not_finite(self._own)
        self._state.note_report("host")
        return _coo(summed, self._own)


class ReduceScatter(Reduction):
    """Each worker ends with its share, in `output`. The tensor is used up, unless it is to be kept."""

    def __init__(
        self,
        tensor: torch.Tensor,
        output: torch.Tensor,
        state: ArrayState,
        whole: WholeSums,
        timeout: float,
        *,
        keeps_input: bool = False,
    ) -> None:
        super().__init__(tensor, state, timeout)
        self._output = output
        self._keeps_input = keeps_input
        self._whole = whole  # asked on devices, where exchanges do not scatter

    def _fetch(self) -> None:
        self._flat = self._place.fetch(self._tensor.contiguous().view(-1))

    def run(self, lane: Lane) -> None:
        self._whole.begin(lane.session)
        if lane.side is not None and not self._is_summed_whole():
            self._scatter(lane, lane.side)
            return
        if self._keeps_input and self._flat.data_ptr() == self._tensor.data_ptr():
            with self._place.here():
                self._flat = self._flat.clone()
        self._sum(lane, self._flat, scatter=lane.side is None)
        if lane.side is not None and self._flat.numel() != 0:
            self._whole.learn(self._state.last(), self._flat.numel())
        share = self._output.numel()
        first = lane.world.rank * share
        own = self._flat[first : first + share].view_as(self._output)
        with self._place.here(), self._mode():
            self.result.set_result(self._output.copy_(own, non_blocking=True))

    def _is_summed_whole(self) -> bool:
        """On a device. NCCL does not add 16-bit integers; exchanges do."""
        return self._flat.dtype == torch.int16 or self._whole.pay()

    def _agree(self, lane: Lane) -> None:
        """That all scatter this array, which NCCL would take on trust."""
        array = (self._flat.data_ptr(), self._flat.numel(), TYPES[self._flat.dtype])
        world = lane.device_world
        core = self._state.scattering(world.size)
        lane.agree(lambda: _core.Exchange.dense(core, world, *array, on_device=self._flat.is_cuda))

    def _scatter(self, lane: Lane, side: Side) -> None:
        self._agree(lane)
        lane.take_turn()
        with self._place.here():
            output = self._place.fetch(self._output)
            side.wire.scatter(self._flat, output, average=self._state.average)
            self.result.set_result(output)
        self._state.note_scattered(lane.world.size)
        if self.outcome is not None:
            self.outcome.pays = False


class Refusal(Task):
    """Has all workers raise that this one was called wrongly, which it was before it had anything to sum. If more sums were
    to follow that will not come, such as those of a backward pass, these fail with it."""

    def __init__(self, error: Exception, timeout: float, *, is_alone: bool = True) -> None:
        super().__init__()
        self.timeout = timeout
        self._error = error
        self._is_alone = is_alone

    def run(self, lane: Lane) -> None:
        if not self._is_alone:
            raise self._error
        lane.refuse(_core.State(), one_line(self._error) + ".")

    def fail(self, error: BaseException) -> None:
        self.note_told()  # by the error that this worker has raised already


# A row of a COO tensor is one item if its length is a power of two, as the codec needs it, and several if not.


def _row(tensor: torch.Tensor) -> int:
    return tensor.shape[tensor.sparse_dim() :].numel()


def _grain(tensor: torch.Tensor) -> int:
    row = _row(tensor)
    return min(row & -row, _LONGEST_GRAIN) or 1


def _items(own: torch.Tensor) -> torch.Tensor:
    """The items of a coalesced tensor: increasing, and as their values lie in memory."""
    indices = own.indices()
    rows = indices[0]
    for size, index in zip(own.shape[1 : own.sparse_dim()], indices[1:], strict=True):
        rows = rows * size + index
    pieces = _row(own) // _grain(own)
    if pieces > 1:
        rows = (rows[:, None] * pieces + torch.arange(pieces)).flatten()
    return rows.contiguous()


def _first_row_not_finite(like: torch.Tensor) -> torch.Tensor:
    dims = like.sparse_dim()
    values = torch.full((1, *like.shape[dims:]), torch.nan, dtype=like.dtype)
    return torch.sparse_coo_tensor(
        torch.zeros(dims, 1, dtype=torch.int64), values, like.shape, is_coalesced=True, check_invariants=False
    )


def _coo(summed: _core.SparseSum, like: torch.Tensor) -> torch.Tensor:
    """A tensor over the memory of the sum, where it is as torch wants it."""
    grain = _grain(like)
    pieces = _row(like) // grain
    rows, values = summed.items, summed.values
    if pieces > 1:  # a piece of a row that is zero everywhere did not come back
        items = rows
        rows, place = torch.unique_consecutive(items // pieces, return_inverse=True)
        whole = torch.zeros(rows.numel(), pieces, grain, dtype=values.dtype)
        whole[place, items % pieces] = values.view(-1, grain)
        values = whole
    sparse_dims = like.sparse_dim()
    shape = like.shape[:sparse_dims]
    indices = rows[None] if sparse_dims == 1 else torch.stack(torch.unravel_index(rows, shape))
    values = values.reshape(rows.numel(), *like.shape[sparse_dims:])
    # They are in order and in range, which is known; not to check is said, or torch warns.
    return torch.sparse_coo_tensor(indices, values, like.shape, is_coalesced=True, check_invariants=False)
