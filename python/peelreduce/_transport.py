"""Performs the collectives of an exchange with torch.distributed.

Every worker starts the same collectives in the same order on a group, so the group must belong to whoever drives
exchanges, and to nobody else.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist

from . import _core

_COUNT = torch.int64


class Pending:
    """A collective under way: what torch works on, and what is left to do when it is done."""

    def __init__(self, work: dist.Work | None, finish: Callable[[], None] | None = None) -> None:
        self._work = work
        self._finish = finish

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()
        if self._finish is not None:
            self._finish()


class Transport:
    """One process group that nobody else uses."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.ors = _offers_or(group)

    def start(self, what: _core.Collective) -> Pending:
        if what.kind == "sum":
            return self._sum(what.data)
        if what.kind == "bit_or":
            return self._bit_or(what.data)
        if what.kind == "all_to_all":
            return self._all_to_all(what)
        return self._all_gather(what)

    def _sum(self, data: torch.Tensor) -> Pending:
        if data.dtype != torch.int16:
            return Pending(dist.all_reduce(data, group=self.group, async_op=True))
        wide = data.to(torch.int32)  # Gloo does not add 16-bit integers; these wrap when they are narrowed
        return Pending(dist.all_reduce(wide, group=self.group, async_op=True), lambda: _narrow(wide, data))

    def _bit_or(self, words: torch.Tensor) -> Pending:
        if self.ors:
            return Pending(dist.all_reduce(words, op=dist.ReduceOp.BOR, group=self.group, async_op=True))
        # Everybody ORs a share of the words.
        share = -(-words.numel() // self.size)
        padded = torch.zeros(share * self.size, dtype=words.dtype)
        padded[: words.numel()] = words
        shares = torch.empty_like(padded)
        dist.all_to_all_single(shares, padded, group=self.group)
        mine = shares[:share]
        for worker in range(1, self.size):
            mine |= shares[worker * share : (worker + 1) * share]
        work = dist.all_gather_into_tensor(padded, mine.clone(), group=self.group, async_op=True)
        return Pending(work, lambda: _copy(words, padded[: words.numel()]))

    # Receivers must know lengths before torch lets them receive, so a round for lengths comes first.

    def _all_to_all(self, what: _core.Collective) -> Pending:
        send = [int(size) for size in what.sizes]
        lengths = torch.empty(self.size, dtype=_COUNT)
        dist.all_to_all_single(lengths, torch.tensor(send, dtype=_COUNT), group=self.group)
        receive = [int(length) for length in lengths]
        parts = [what.send(worker) for worker in range(self.size) if send[worker]]
        data = torch.cat(parts) if parts else torch.empty(0, dtype=torch.uint8)
        received = torch.empty(sum(receive), dtype=torch.uint8)
        work = dist.all_to_all_single(received, data, receive, send, group=self.group, async_op=True)
        return Pending(work, lambda: self._store(what, list(received.split(receive))))

    def _all_gather(self, what: _core.Collective) -> Pending:
        own = what.send(0)
        lengths = torch.empty(self.size, dtype=_COUNT)
        dist.all_gather_into_tensor(lengths, torch.tensor([own.numel()], dtype=_COUNT), group=self.group)
        receive = [int(length) for length in lengths]
        longest = max(receive)
        padded = torch.empty(longest, dtype=torch.uint8)
        padded[: own.numel()] = own
        received = torch.empty(self.size * longest, dtype=torch.uint8)
        work = dist.all_gather_into_tensor(received, padded, group=self.group, async_op=True)
        parts = [part[:length] for part, length in zip(received.split(longest), receive, strict=True)] if longest else []
        return Pending(work, lambda: self._store(what, parts))

    def _store(self, what: _core.Collective, parts: list[torch.Tensor]) -> None:
        for worker, part in enumerate(parts):
            if worker != self.rank:
                what.receive(worker, part.numel()).copy_(part)


def make_transport(group: dist.ProcessGroup | None, timeout: float) -> Transport:
    """A transport over a new group of the same workers. All of them make it."""
    ranks = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
    own = dist.new_group(ranks, timeout=timedelta(seconds=timeout), use_local_synchronization=True)
    return Transport(own)


def _narrow(wide: torch.Tensor, data: torch.Tensor) -> None:
    data.copy_(wide)


def _copy(to: torch.Tensor, source: torch.Tensor) -> None:
    to.copy_(source)


def _offers_or(group: dist.ProcessGroup) -> bool:
    """Whether a bitwise OR is one. A backend that adds instead would be taken at its word otherwise."""
    try:
        word = torch.tensor([1 << dist.get_rank(group) % 32 | 1 << 40], dtype=torch.int64)
        dist.all_reduce(word, op=dist.ReduceOp.BOR, group=group)
    except (RuntimeError, ValueError):
        return False
    workers = min(dist.get_world_size(group), 32)
    return int(word) == (1 << workers) - 1 | 1 << 40
