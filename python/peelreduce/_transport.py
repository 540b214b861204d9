"""Performs the collectives of an exchange with torch.distributed.

Every worker starts the same collectives in the same order on a group, so the group belongs to one lane and to nobody
else. It is made beside those that torch counts: torch names a new group after how many there are, which differs between
workers as soon as a thread or only some of the workers make one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_process_group_store

from . import _core
from ._link import LinkFacts, measure_link

_lock = threading.Lock()
_made: weakref.WeakKeyDictionary[dist.ProcessGroup, int] = weakref.WeakKeyDictionary()


class Pending:
    """A collective under way: what torch works on, and what is left to do when it is done."""

    def __init__(self, work: dist.Work, finish: Callable[[], None] | None = None) -> None:
        self._work = work
        self._finish = finish

    def wait(self) -> None:
        self._work.wait()
        if self._finish is not None:
            self._finish()

    def drop(self) -> None:
        """Waits until torch no longer uses the memory, for good or ill."""
        try:
            self._work.wait()
        except Exception:  # noqa: BLE001, S110: there was an error before this one, which counts
            pass


class Transport:
    """One process group that nobody else uses."""

    moves_buffers = True
    sums_floats = True

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()

    def start(self, what: _core.Collective) -> Pending:
        if what.kind == "sum":
            return self._sum(what.data)
        if what.kind == "bit_or":
            return Pending(dist.all_reduce(what.data, op=dist.ReduceOp.BOR, group=self.group, async_op=True))
        return self._move(what)

    def measure_link(self) -> LinkFacts:
        return measure_link(self.group)

    def close(self) -> None:
        """Torch closes its groups itself."""

    def _sum(self, data: torch.Tensor) -> Pending:
        if data.dtype != torch.int16:
            return Pending(dist.all_reduce(data, group=self.group, async_op=True))
        wide = data.to(torch.int32)  # Gloo does not add 16-bit integers; these wrap when they are narrowed
        return Pending(dist.all_reduce(wide, group=self.group, async_op=True), lambda: _copy(wide, data))

    def _move(self, what: _core.Collective) -> Pending:
        """All-to-all and all-gather: as many bytes as parts are likely to have, and the rest of longer ones later."""
        room = what.likely_bytes
        message = _core.PART_HEADER_BYTES + room
        sent = torch.empty(what.parts * message, dtype=torch.uint8)
        received = torch.empty(self.size * message, dtype=torch.uint8)
        what.pack(sent.data_ptr(), room)
        perform = dist.all_to_all_single if what.kind == "all_to_all" else dist.all_gather_into_tensor
        work = perform(received, sent, group=self.group, async_op=True)

        def finish() -> None:
            longest = what.unpack(received.data_ptr(), room, self.rank)
            if longest > room:
                self._move_rest(what, room, longest)

        return Pending(work, finish)

    def _move_rest(self, what: _core.Collective, room: int, longest: int) -> None:
        into = [what.rest_from(worker, room) for worker in range(self.size)]
        if what.kind == "all_to_all":
            out = [what.rest(worker, room) for worker in range(self.size)]
            into[self.rank] = torch.empty(out[self.rank].numel(), dtype=torch.uint8)
            received = torch.empty(sum(part.numel() for part in into), dtype=torch.uint8)
            sizes = [part.numel() for part in into]
            dist.all_to_all_single(received, torch.cat(out), sizes, [p.numel() for p in out], group=self.group)
            parts = list(received.split(sizes))
        else:
            own = what.rest(0, room)
            padded = torch.zeros(longest - room, dtype=torch.uint8)
            padded[: own.numel()] = own
            received = torch.empty(self.size * padded.numel(), dtype=torch.uint8)
            dist.all_gather_into_tensor(received, padded, group=self.group)
            parts = [part[: one.numel()] for part, one in zip(received.chunk(self.size), into, strict=True)]
        for worker, part in enumerate(parts):
            if worker != self.rank:
                into[worker].copy_(part)


def workers_of(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """The group, or all workers."""
    found = group if group is not None else dist.group.WORLD
    if found is None:
        raise ValueError("There is no process group; call torch.distributed.init_process_group first.")
    return found


def reserve_names(parent: dist.ProcessGroup, count: int) -> list[str]:
    """Names of new groups of the parent's workers. Every worker reserves in the same order."""
    with _lock:
        number = _made.get(parent, 0)
        _made[parent] = number + 1
    return [f"peelreduce/{number}/{lane}" for lane in range(count)]


def make_transport(parent: dist.ProcessGroup, name: str, timeout: float) -> Transport:
    """A transport over the workers of a group, in their order. All of them make it, with the same name."""
    if not dist.is_gloo_available():
        raise _core.Error("Tensors in host memory are summed over Gloo, which this torch was built without.")
    store = dist.PrefixStore(name, _get_process_group_store(parent))
    rank, size = dist.get_rank(parent), dist.get_world_size(parent)
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    gloo = dist.ProcessGroupGloo(store, rank, size, timeout=timedelta(seconds=timeout))
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    transport = Transport(group)
    _check_or(transport)
    return transport


def _check_or(transport: Transport) -> None:
    """A backend that takes OR for SUM would make every index wrong."""
    word = torch.tensor([1 << (transport.rank % 32) | 1 << 40], dtype=torch.int64)
    dist.all_reduce(word, op=dist.ReduceOp.BOR, group=transport.group)
    if int(word) != (1 << min(transport.size, 32)) - 1 | 1 << 40:
        raise _core.Error("The bitwise OR of this torch is not one; use another version.")


def _copy(source: torch.Tensor, to: torch.Tensor) -> None:
    to.copy_(source)
