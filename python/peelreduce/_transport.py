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

_COUNT = torch.int64
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


class Transport:
    """One process group that nobody else uses."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()

    def start(self, what: _core.Collective) -> Pending:
        if what.kind == "sum":
            return self._sum(what.data)
        if what.kind == "bit_or":
            return Pending(dist.all_reduce(what.data, op=dist.ReduceOp.BOR, group=self.group, async_op=True))
        if what.kind == "all_to_all":
            return self._all_to_all(what)
        return self._all_gather(what)

    def _sum(self, data: torch.Tensor) -> Pending:
        if data.dtype != torch.int16:
            return Pending(dist.all_reduce(data, group=self.group, async_op=True))
        wide = data.to(torch.int32)  # Gloo does not add 16-bit integers; these wrap when they are narrowed
        return Pending(dist.all_reduce(wide, group=self.group, async_op=True), lambda: _copy(wide, data))

    # Receivers must know lengths before torch lets them receive, so a round for lengths comes first.

    def _all_to_all(self, what: _core.Collective) -> Pending:
        send = [int(size) for size in what.sizes]
        lengths = torch.empty(self.size, dtype=_COUNT)
        dist.all_to_all_single(lengths, torch.tensor(send, dtype=_COUNT), group=self.group)
        receive = [int(length) for length in lengths]
        data = torch.cat([what.send(worker) for worker in range(self.size)])
        received = torch.empty(sum(receive), dtype=torch.uint8)
        work = dist.all_to_all_single(received, data, receive, send, group=self.group, async_op=True)
        return Pending(work, lambda: self._store(what, list(received.split(receive))))

    def _all_gather(self, what: _core.Collective) -> Pending:
        own = what.send(0)
        lengths = torch.empty(self.size, dtype=_COUNT)
        dist.all_gather_into_tensor(lengths, torch.tensor([own.numel()], dtype=_COUNT), group=self.group)
        receive = [int(length) for length in lengths]
        longest = max(1, *receive)
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: own.numel()] = own
        received = torch.empty(self.size * longest, dtype=torch.uint8)
        work = dist.all_gather_into_tensor(received, padded, group=self.group, async_op=True)
        parts = [part[:length] for part, length in zip(received.split(longest), receive, strict=True)]
        return Pending(work, lambda: self._store(what, parts))

    def _store(self, what: _core.Collective, parts: list[torch.Tensor]) -> None:
        for worker, part in enumerate(parts):
            if worker != self.rank:
                what.receive(worker, part.numel()).copy_(part)


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
