"""Several workers in one process: real exchanges of the library, whose collectives are performed in its memory.

    team = Team(4, torch.device("cuda"), gbps=100, estimate=0.1)
    outcome = team.sum([gradient_of_0, gradient_of_1, gradient_of_2, gradient_of_3])    # in place, on all of them

Everything but the wire is what four machines would do: the same plans, messages, repairs and choices, for the link
that is named, and the same bytes in the reports. So one processor or one GPU measures codecs and losses of a cluster,
and how long messages take is left to a model. Workers take turns, so that the times of each are its own.
"""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass
from typing import Any

import torch
from peelreduce import _core, _gpu
from peelreduce._link import copy_speed
from peelreduce._types import TYPES

from . import wire_model

CHUNK_BYTES = 64 << 20  # as peelreduce.DDPState has it


@dataclass
class Outcome:
    """What one sum did. Reports are those of the library, of worker 0 first."""

    reports: list[dict[str, Any]]
    busy_s: float  # of one worker, on average: all that is not collectives, the interpreter included

    @property
    def report(self) -> dict[str, Any]:
        return self.reports[0]

    @property
    def codec_s(self) -> float:
        """Encoding and decoding, of one worker on average, as the library measures it."""
        return sum(report["encode_s"] + report["decode_s"] for report in self.reports) / len(self.reports)

    @property
    def bytes_sent(self) -> float:
        """By one worker, on average."""
        return sum(report["bytes_sent"] for report in self.reports) / len(self.reports)


class Team:
    """Workers that sum arrays of one length again and again.

    Args:
        gbps: of the link that strategies are chosen for.
        estimate: sketches of this share of the dense bytes, and estimates of what does not peel. None: lossless.
        moves_buffers: the transport can do more than SUM and OR, as a switch cannot.
        sums_floats: it adds more than integers.
        options: of the library's states, such as strategy and grain.
    """

    def __init__(
        self,
        workers: int,
        device: torch.device,
        *,
        gbps: float = 10,
        estimate: float | None = None,
        moves_buffers: bool = True,
        sums_floats: bool = True,
        **options: Any,
    ) -> None:
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", torch.cuda.current_device())
        self.workers = workers
        self._device = device
        self._estimate = estimate
        self._options = {"chunk_bytes": CHUNK_BYTES, "threads": torch.get_num_threads(), **options}
        self._states: list[_core.State] = []
        self._stream = _stream_of(device) if device.type == "cuda" else None
        facts = {
            "latency_s": wire_model.latency(gbps),
            "bytes_per_second": gbps * 1e9 / 8,
            "copy_bytes_per_second": copy_speed(),  # of host memory; for GPUs the library has its own
            "moves_buffers": moves_buffers,
            "sums_floats": sums_floats,
        }
        self._worlds = [
            _core.World(
                rank,
                workers,
                device=_make_device(device, self._stream, workers),
                scratch=_core.ScratchPool(),  # kept from sum to sum, as a worker of its own keeps it
                **facts,
            )
            for rank in range(workers)
        ]

    def sum(self, arrays: list[torch.Tensor]) -> Outcome:
        """Sums in place. All arrays are flat, contiguous and of one length."""
        if len(arrays) != self.workers:
            raise ValueError(f"{self.workers} workers sum as many arrays, not {len(arrays)}.")
        if not self._states:
            self._states = [_core.State(**self._options_for(arrays[0])) for _ in arrays]
        if self._stream is None:
            return self._sum(arrays)
        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(self._stream):
                outcome = self._sum(arrays)
            torch.cuda.current_stream(self._device).wait_stream(self._stream)
        return outcome

    def _options_for(self, array: torch.Tensor) -> dict[str, Any]:
        if self._estimate is None:
            return self._options
        return {**self._options, "estimate_bytes": max(1, round(self._estimate * array.nbytes))}

    def _sum(self, arrays: list[torch.Tensor]) -> Outcome:
        on_device = self._stream is not None
        self._wait()
        begin, moved = time.perf_counter(), 0.0
        exchanges = [
            _core.Exchange.dense(state, world, x.data_ptr(), x.numel(), TYPES[x.dtype], on_device=on_device)
            for state, world, x in zip(self._states, self._worlds, arrays, strict=True)
        ]
        try:
            while (asked := [exchange.next() for exchange in exchanges])[0] is not None:
                self._wait()
                start = time.perf_counter()
                self._perform(asked)
                self._wait()
                moved += time.perf_counter() - start
                for exchange, what in zip(exchanges, asked, strict=True):
                    exchange.complete(what)
            self._wait()
            busy = time.perf_counter() - begin - moved
        finally:
            for exchange in exchanges:
                exchange.close()
        return Outcome([json.loads(state.last()) for state in self._states], busy / self.workers)

    def _wait(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _perform(self, asked: list[_core.Collective]) -> None:
        kind, on_host = asked[0].kind, asked[0].memory == "host"
        if kind == "sum":
            _share(self._buffers(asked), torch.Tensor.add_)
        elif kind == "bit_or":
            _share(self._buffers(asked), torch.Tensor.bitwise_or_)
        elif kind != "settle":
            (_move if on_host else self._move_pieces)(asked)
        if not on_host:
            assert self._stream is not None
            for what in asked:
                if what.fetches:
                    _gpu.module().fetch(what, self._stream.cuda_stream)

    def _buffers(self, asked: list[_core.Collective]) -> list[torch.Tensor]:
        if asked[0].memory == "host":
            return [what.data for what in asked]
        return [what.data_on(self._device.index) for what in asked]

    def _move_pieces(self, asked: list[_core.Collective]) -> None:
        """In device memory: pieces for worker 0, then those for worker 1, and so on, or the same ones for everybody."""
        for receiver, what in enumerate(asked):
            coming = what.coming_on(self._device.index)
            pieces = len(coming) // self.workers
            for sender, other in enumerate(asked):
                if sender == receiver:
                    continue
                leaving = other.leaving_on(self._device.index)
                first = 0 if other.kind == "all_gather" else receiver * pieces
                for piece in range(pieces):
                    coming[sender * pieces + piece].copy_(leaving[first + piece])


@functools.cache
def _stream_of(device: torch.device) -> torch.cuda.Stream:
    """One for all teams: torch's allocator gives memory back to the stream that it was for."""
    return torch.cuda.Stream(device)


def _make_device(device: torch.device, stream: torch.cuda.Stream | None, workers: int) -> Any:
    """For exchanges in the memory of a GPU, with memory of torch's allocator; None in host memory. It must not know its
    team, whose memory would never be given back."""
    if stream is None:
        return None
    with torch.cuda.device(device), torch.cuda.stream(stream):
        return _gpu.module().make_device(
            stream.cuda_stream,
            workers,
            lambda nbytes: torch.cuda.caching_allocator_alloc(nbytes, device, stream),
            torch.cuda.caching_allocator_delete,
        )


def _share(buffers: list[torch.Tensor], combine: Any) -> None:
    """Everybody gets what all of them together make."""
    first, *others = buffers
    for other in others:
        combine(first, other)
    for other in others:
        other.copy_(first)


def _move(asked: list[_core.Collective]) -> None:
    """All-to-all and all-gather in host memory, with room for the longest part."""
    room = max(what.rest(part, 0).numel() for what in asked for part in range(what.parts))
    message = _core.PART_HEADER_BYTES + room
    sent = []
    for what in asked:
        packed = torch.empty(what.parts * message, dtype=torch.uint8)
        what.pack(packed.data_ptr(), room)
        sent.append(packed.view(what.parts, message))
    for receiver, what in enumerate(asked):
        received = torch.cat([parts[receiver if len(parts) > 1 else 0] for parts in sent])
        what.unpack(received.data_ptr(), room, receiver)
