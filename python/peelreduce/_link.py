"""What connects the workers, measured by all of them together; every worker gets the same numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

_LONG_ENOUGH = 10e-3  # to be told from noise
_LARGEST = 16 << 20


@dataclass(frozen=True)
class LinkFacts:
    """Of the slowest worker."""

    latency_s: float
    bytes_per_second: float
    copy_bytes_per_second: float


# Of what was put into a device's current stream. Collectives of the host are complete when they return.
Wait = Callable[[], None]


def _complete() -> None:
    pass


def _seconds(wait: Wait, perform: Callable[[], None]) -> float:
    begin = time.perf_counter()
    perform()
    wait()
    return time.perf_counter() - begin


def _latency(group: dist.ProcessGroup, device: torch.device, wait: Wait) -> float:
    word = torch.zeros(8, dtype=torch.int64, device=device)
    times = [_seconds(wait, lambda: dist.all_reduce(word, group=group)) for _ in range(12)]
    return sorted(times[3:])[4]  # the first ones make the connections


def _bandwidth(group: dist.ProcessGroup, device: torch.device, wait: Wait, latency_s: float) -> float:
    size = group.size()
    nbytes = 64 << 10
    while True:
        data = torch.ones(nbytes * size, dtype=torch.uint8, device=device)
        received = torch.empty_like(data)

        def perform(received: torch.Tensor = received, data: torch.Tensor = data) -> None:
            dist.all_to_all_single(received, data, group=group)

        best = min(_seconds(wait, perform) for _ in range(3))
        enough = torch.tensor([1 if best > _LONG_ENOUGH else 0], device=device)
        dist.all_reduce(enough, op=dist.ReduceOp.MAX, group=group)
        wait()
        if int(enough) or nbytes >= _LARGEST:
            return nbytes * (size - 1) / max(best - latency_s, best / 2)
        nbytes *= 2


def copy_speed() -> float:
    source = torch.zeros(4 << 20, dtype=torch.uint8)
    target = torch.zeros_like(source)
    best = float("inf")
    for _ in range(3):
        begin = time.perf_counter()
        target.copy_(source)
        best = min(best, time.perf_counter() - begin)
    return source.numel() / best


def measure_link(group: dist.ProcessGroup, device: torch.device | None = None, *, wait: Wait = _complete) -> LinkFacts:
    """Of the group's memory of this device, or of the host. About 50 ms on an idle link. `wait` returns when collectives
    of the device are complete, and raises if a worker stands still."""
    where = device if device is not None else torch.device("cpu")
    copy = copy_speed()
    latency_s = _latency(group, where, wait)
    own = LinkFacts(latency_s, _bandwidth(group, where, wait, latency_s), max(copy, copy_speed()))
    told = [-own.latency_s, own.bytes_per_second, own.copy_bytes_per_second]
    facts = torch.tensor(told, dtype=torch.float64, device=where)
    dist.all_reduce(facts, op=dist.ReduceOp.MIN, group=group)
    wait()
    worst = facts.tolist()
    return LinkFacts(-worst[0], worst[1], worst[2])
