"""What connects the workers, measured by all of them together; every worker gets the same numbers."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from ._transport import Transport

_LONG_ENOUGH = 10e-3  # to be told from noise
_LARGEST = 16 << 20


@dataclass(frozen=True)
class LinkFacts:
    """Of the slowest worker."""

    latency_s: float
    bytes_per_second: float
    copy_bytes_per_second: float


def _latency(transport: Transport) -> float:
    word = torch.zeros(8, dtype=torch.int64)
    times = []
    for _ in range(12):
        begin = time.perf_counter()
        dist.all_reduce(word, group=transport.group)
        times.append(time.perf_counter() - begin)
    return sorted(times[3:])[4]  # the first ones make the connections


def _bandwidth(transport: Transport, latency_s: float) -> float:
    size = transport.size
    nbytes = 64 << 10
    while True:
        data = torch.ones(nbytes * size, dtype=torch.uint8)
        received = torch.empty_like(data)
        best = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            dist.all_to_all_single(received, data, group=transport.group)
            best = min(best, time.perf_counter() - begin)
        enough = torch.tensor([1 if best > _LONG_ENOUGH else 0])
        dist.all_reduce(enough, op=dist.ReduceOp.MAX, group=transport.group)
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


def measure_link(transport: Transport) -> LinkFacts:
    """About 50 ms on an idle link."""
    copy = copy_speed()
    latency_s = _latency(transport)
    own = LinkFacts(latency_s, _bandwidth(transport, latency_s), max(copy, copy_speed()))
    facts = torch.tensor([-own.latency_s, own.bytes_per_second, own.copy_bytes_per_second], dtype=torch.float64)
    dist.all_reduce(facts, op=dist.ReduceOp.MIN, group=transport.group)
    worst = [float(fact) for fact in facts]
    return LinkFacts(-worst[0], worst[1], worst[2])


