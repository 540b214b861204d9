"""Performs the collectives of an exchange in device memory, with torch.distributed over NCCL.

All of it happens in one stream, the wire's, which waits for the stream of the exchange's kernels when a collective
starts; the kernels' stream waits for it when one is complete. Between, both work: the next chunk is encoded while this
one is sent. Nobody waits on the processor unless numbers are to be fetched.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _core, _gpu
from .errors import TimedOut

# Up to so many words an OR is one all-gather of everybody's, and not two collectives: then only latency counts.
_SHORT = 1 << 10
_SPIN = 200e-6  # seconds for which numbers are awaited without sleeping
_NAP = 50e-6


class WirePending:
    """A collective under way in device memory."""

    def __init__(self, wire: Wire, what: _core.Collective) -> None:
        self._wire = wire
        self._done = wire.stream.record_event()
        self._awaited = what.kind == "settle" or what.fetches != 0

    def wait(self, seconds: float) -> bool:
        """False if numbers that are awaited are not there yet."""
        if self._awaited and not _happens(self._done, seconds):
            return False
        self._wire.kernels.wait_event(self._done)
        return True

    def drop(self) -> bool:
        """Nothing to wait for: memory goes back in the order of the kernels' stream, which has waited (Wire.join)."""
        return True


class Wire:
    """One process group of NCCL that nobody else uses, and the streams beside it."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device, timeout: float) -> None:
        self.group = group
        self.device = device
        self.rank = group.rank()
        self.size = group.size()
        self._timeout = timeout
        self.kernels = torch.cuda.Stream(device)
        self.stream = torch.cuda.Stream(device)

    def start(self, what: _core.Collective) -> WirePending:
        self.stream.wait_stream(self.kernels)
        with torch.cuda.stream(self.stream):
            self._move(what)
            if what.fetches != 0:
                _gpu.module().fetch(what, self.stream.cuda_stream)
        return WirePending(self, what)

    def scatter(self, data: torch.Tensor, output: torch.Tensor, *, average: bool) -> None:
        """A reduce-scatter, for which there is no exchange here; of arrays on which the workers have agreed."""
        self.stream.wait_stream(self.kernels)
        with torch.cuda.stream(self.stream):
            op = dist.ReduceOp.AVG if average else dist.ReduceOp.SUM
            dist.reduce_scatter_tensor(output, data, op=op, group=self.group)
        self.join()

    def join(self) -> None:
        """What the kernels' stream does from now on comes after all that is on the wire."""
        self.kernels.wait_stream(self.stream)

    def _move(self, what: _core.Collective) -> None:
        index = self.device.index
        if what.kind == "sum":
            add_up(what.data_on(index), self.group)
        elif what.kind == "bit_or":
            combine_words(what.data_on(index), what.scratch_on(index), self.group)
        elif what.kind != "settle":
            leaving, coming = what.leaving_on(index), what.coming_on(index)
            if what.kind == "all_gather":
                leaving = leaving * self.size
            deliver(leaving, coming, self.group)

    def await_all(self) -> None:
        """What was put on the wire until now."""
        if not _happens(self.stream.record_event(), self._timeout):
            raise TimedOut(f"A collective of {self.device} did not end within {self._timeout:g} s.")

    def abort(self) -> None:
        """Has kernels of NCCL that wait for a worker end."""
        self.group._get_backend(torch.device("cuda")).abort()


def _happens(event: torch.cuda.Event, seconds: float) -> bool:
    """Within so many seconds."""
    begin = time.monotonic()
    while not event.query():
        waited = time.monotonic() - begin
        if waited > seconds:
            return False
        time.sleep(0 if waited < _SPIN else _NAP)
    return True


def make_wire(store: dist.Store, rank: int, size: int, device: torch.device, timeout: float) -> Wire:
    """All workers make it. NCCL itself connects them when the first collective comes."""
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=2 * timeout + 30)  # torch ends the process then; ours is an error, and earlier
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.NCCL)
    nccl = dist.ProcessGroupNCCL(store, rank, size, options)
    group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, nccl)
    return Wire(group, device, timeout)


# What follows works on tensors of any device, as far as the backend of the group does.


def add_up(data: torch.Tensor, group: dist.ProcessGroup) -> None:
    if data.dtype != torch.int16:
        dist.all_reduce(data, group=group)
        return
    wide = data.to(torch.int32)  # NCCL does not add 16-bit integers; these wrap when they are narrowed
    dist.all_reduce(wide, group=group)
    data.copy_(wide)


def combine_words(data: torch.Tensor, scratch: torch.Tensor, group: dist.ProcessGroup) -> None:
    """OR, which NCCL does not have. Slices go to their workers, are combined there, and the results go to all: the bytes
    of a ring."""
    workers = group.size()
    if data.numel() == 0 or workers == 1:
        return
    if data.numel() <= _SHORT:
        everybody = data.new_empty(workers * data.numel())
        dist.all_gather_into_tensor(everybody, data, group=group)
        data.copy_(_or_rows(everybody.view(workers, -1)))
        return
    pitch = scratch.numel() // workers
    lengths = [max(0, min(pitch, data.numel() - worker * pitch)) for worker in range(workers)]
    own = lengths[group.rank()]
    rows = scratch[: workers * own]
    dist.all_to_all_single(rows, data, [own] * workers, lengths, group=group)
    combined = _or_rows(rows.view(workers, own))
    whole = data.numel() == scratch.numel()
    into = data if whole else scratch
    place = into[group.rank() * pitch :][:pitch]
    place[:own].copy_(combined)  # which is at the front of scratch: nothing overlaps it but itself
    dist.all_gather_into_tensor(into, place, group=group)
    if not whole:
        data.copy_(scratch[: data.numel()])


def _or_rows(rows: torch.Tensor) -> torch.Tensor:
    """In the first of them."""
    first = rows[0]
    for row in rows[1:]:
        first.bitwise_or_(row)
    return first


def deliver(leaving: Sequence[torch.Tensor], coming: Sequence[torch.Tensor], group: dist.ProcessGroup) -> None:
    """Pieces for worker 0, then those for worker 1, and so on; own ones are left alone."""
    workers, rank = group.size(), group.rank()
    pieces = len(coming) // workers
    for piece in range(pieces):
        out, into = list(leaving[piece::pieces]), list(coming[piece::pieces])
        out[rank], into[rank] = out[rank][:0], into[rank][:0]
        dist.all_to_all(into, out, group=group)
