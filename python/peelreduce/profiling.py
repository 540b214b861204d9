"""What would be gained, on your own model, before you switch it on: on one process, without a network.

    def steps():
        for batch in itertools.islice(loader, 4):
            model.zero_grad()
            loss(model(batch)).backward()
            yield

    print(peelreduce.profile(model, steps()))

Gradients of different steps stand for those of different workers. They are cut into buckets about as DDP cuts them and
summed by the library itself, several workers in one process; bytes and codec times are measured, and the time on the wire
follows from a bandwidth. Sparse gradients are taken for dense ones with zeros, which they gain a little more than.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

import torch

from . import _core
from ._link import copy_speed
from ._types import TYPES

_LATENCY_S = 50e-6  # of a small collective, as a good network has it
_SUMS = 3  # of the same gradients: the first two teach what the third one does


@dataclass(frozen=True)
class Part:
    """One bucket, or a sparse gradient."""

    names: list[str]
    elements: int
    density: float  # of one worker, on average
    union_density: float
    strategy: dict[str, str]  # by bandwidth
    seconds: dict[str, float]
    dense_seconds: dict[str, float]
    bytes_share: dict[str, float]  # of what a dense sum sends


@dataclass(frozen=True)
class Profile:
    """What sums of one step would take, one bucket after another, without what hides behind the backward pass."""

    workers: int
    bandwidths: tuple[str, ...]
    parts: list[Part]

    def seconds(self, bandwidth: str) -> float:
        return sum(part.seconds[bandwidth] for part in self.parts)

    def dense_seconds(self, bandwidth: str) -> float:
        return sum(part.dense_seconds[bandwidth] for part in self.parts)

    def speedup(self, bandwidth: str) -> float:
        """Of the sums alone."""
        return self.dense_seconds(bandwidth) / max(self.seconds(bandwidth), 1e-12)

    def __str__(self) -> str:
        rows = [["parameters", "elements", "non-zero", "of all workers", *self.bandwidths]]
        for part in self.parts:
            name = part.names[0] + (f" and {len(part.names) - 1} more" if len(part.names) > 1 else "")
            rows.append([name, f"{part.elements:,}", f"{part.density:.2%}", f"{part.union_density:.2%}"])
            rows[-1] += [f"{part.strategy[b]}, {part.bytes_share[b]:.1%} of the bytes" for b in self.bandwidths]
        rows.append(["sums of a step take", "", "", "", *(f"{self.seconds(b):.3g} s" for b in self.bandwidths)])
        rows.append(["dense ones take", "", "", "", *(f"{self.dense_seconds(b):.3g} s" for b in self.bandwidths)])
        rows.append(["faster by", "", "", "", *(f"{self.speedup(b):.3g}x" for b in self.bandwidths)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return f"{self.workers} workers\n" + "\n".join(lines)


def profile(
    model: torch.nn.Module,
    steps: Iterable[object],
    *,
    workers: int = 4,
    bandwidths: Iterable[str] = ("1gbit", "10gbit", "100gbit"),
    bucket_bytes: int = 25 << 20,
) -> Profile:
    """Measures what sums of this model's gradients would take.

    Args:
        model: in host memory. It is not changed, but by your steps.
        steps: whatever computes the gradients of one step each time it is advanced; one for each worker is used. The
            gradients of so many steps are held in memory.
        workers: how many would train.
        bandwidths: of each worker's link, such as "10gbit" or "400mbit".
        bucket_bytes: as DDP's bucket_cap_mb.
    """
    if workers < 2:
        raise ValueError(f"Two workers or more have something to sum, not {workers}.")
    rates = {name: _bytes_per_second(name) for name in bandwidths}
    gradients: list[dict[str, torch.Tensor]] = []
    for _ in islice(steps, workers):
        found = {n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None}
        gradients.append(found)
    if len(gradients) < workers or not all(gradients):
        raise ValueError(
            f"There were gradients after {sum(map(bool, gradients))} steps, but {workers} stand for {workers} workers; "
            "let `steps` call backward() and yield that often."
        )
    names = [name for name in gradients[0] if all(name in one for one in gradients)]
    copy = copy_speed()
    parts = [
        _measure(bucket, [[one[name] for name in bucket] for one in gradients], rates, copy)
        for bucket in _buckets(names, gradients[0], bucket_bytes)
    ]
    return Profile(workers, tuple(rates), parts)


def _bytes_per_second(name: str) -> float:
    units = {"gbit": 1e9 / 8, "mbit": 1e6 / 8}
    number, unit = name[:-4], name[-4:]
    try:
        rate = float(number) * units[unit]
    except (KeyError, ValueError):
        rate = 0.0
    if not rate > 0:
        raise ValueError(f'A bandwidth is a number of gbit or mbit, such as "10gbit", not "{name}".')
    return rate


def _buckets(names: list[str], like: dict[str, torch.Tensor], nbytes: int) -> list[list[str]]:
    """From the last parameter to the first, as gradients become ready; sparse ones and other types alone."""
    buckets: list[list[str]] = []
    size, kind = 0, None
    for name in reversed(names):
        gradient = like[name]
        own = (gradient.dtype, name if gradient.is_sparse else "")
        if own != kind or size >= nbytes:
            buckets.append([])
            size, kind = 0, own
        buckets[-1].append(name)
        size += gradient.numel() * gradient.element_size()
    return buckets


def _measure(
    names: list[str], gradients: list[list[torch.Tensor]], rates: dict[str, float], copy_bytes_per_second: float
) -> Part:
    flat = [torch.cat([one.to_dense().flatten() if one.is_sparse else one.flatten() for one in g]) for g in gradients]
    nonzero = [array != 0 for array in flat]
    union = torch.stack(nonzero).any(0)
    elements, workers = flat[0].numel(), len(flat)
    reports = {}
    for name, rate in rates.items():
        states = [_core.State(average=flat[0].is_floating_point()) for _ in flat]
        worlds = [
            _core.World(
                rank,
                workers,
                latency_s=_LATENCY_S,
                bytes_per_second=rate,
                copy_bytes_per_second=copy_bytes_per_second,
                scratch=_core.ScratchPool(),  # the sum that is reported works in warm memory, as training does
            )
            for rank in range(workers)
        ]
        for _ in range(_SUMS):
            _sum_in_process(states, worlds, [array.clone() for array in flat])
        reports[name] = json.loads(states[0].last())
    seconds = {
        name: report["bytes_sent"] / rates[name]
        + report["encode_s"]
        + report["decode_s"]
        + (report["rounds"] + 1) * _LATENCY_S
        for name, report in reports.items()
    }
    dense = {name: report["dense_bytes"] / rates[name] + 2 * _LATENCY_S for name, report in reports.items()}
    return Part(
        names=names,
        elements=elements,
        density=sum(int(one.sum()) for one in nonzero) / max(elements * workers, 1),
        union_density=int(union.sum()) / max(elements, 1),
        strategy={name: report["strategy"] for name, report in reports.items()},
        seconds=seconds,
        dense_seconds=dense,
        bytes_share={name: r["bytes_sent"] / max(r["dense_bytes"], 1) for name, r in reports.items()},
    )


def _sum_in_process(states: list[_core.State], worlds: list[_core.World], arrays: list[torch.Tensor]) -> None:
    """All workers in turn: each begins what it can, and what all have begun is performed."""
    exchanges = [
        _core.Exchange.dense(state, world, array.data_ptr(), array.numel(), TYPES[array.dtype])
        for state, world, array in zip(states, worlds, arrays, strict=True)
    ]
    while not all(exchange.finished for exchange in exchanges):
        begun = [list(iter(exchange.next, None)) for exchange in exchanges]
        for collectives in zip(*begun, strict=True):
            _perform(list(collectives))
            for exchange, collective in zip(exchanges, collectives, strict=True):
                exchange.complete(collective)


def _perform(collectives: list[_core.Collective]) -> None:
    kind = collectives[0].kind
    if kind in ("sum", "bit_or"):
        tensors = [one.data for one in collectives]
        total = tensors[0].clone()
        for tensor in tensors[1:]:
            total = total + tensor if kind == "sum" else total | tensor
        for tensor in tensors:
            tensor.copy_(total)
        return
    header = _core.PART_HEADER_BYTES
    room = max(one.rest(part, 0).numel() for one in collectives for part in range(one.parts))
    messages = []
    for one in collectives:
        message = torch.empty(one.parts, header + room, dtype=torch.uint8)
        one.pack(message.data_ptr(), room)
        messages.append(message)
    for rank, one in enumerate(collectives):
        column = rank if kind == "all_to_all" else 0
        received = torch.stack([message[column] for message in messages])
        one.unpack(received.data_ptr(), room, rank)
