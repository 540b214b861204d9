"""Where a tensor lies, and how it gets to host memory, where it is summed.

A tensor of a GPU is copied there and back by the lane that sums it, in a stream of its own, so that neither the training
thread nor the stream it computes in waits. Whoever waits for the future has its current stream wait for the copy.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_own = threading.local()


def _own_stream(device: torch.device) -> torch.cuda.Stream:
    """Of this thread."""
    streams: dict[torch.device, torch.cuda.Stream] = _own.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


class Place:
    """Made where the tensor is ready in the current stream."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.device = tensor.device
        self._ready = torch.cuda.current_stream(self.device).record_event() if tensor.is_cuda else None

    def future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future(devices=[self.device]) if self._ready is not None else torch.futures.Future()

    @contextmanager
    def here(self) -> Iterator[None]:
        """What is done to the tensor inside comes after what made it ready."""
        if self._ready is None:
            yield
            return
        stream = _own_stream(self.device)
        stream.wait_event(self._ready)
        with torch.cuda.stream(stream):
            yield

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in host memory: itself, or a copy that is complete."""
        if self._ready is None:
            return tensor
        if tensor.is_sparse:
            return tensor.cpu()
        stream = torch.cuda.current_stream(self.device)
        tensor.record_stream(stream)
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        stream.synchronize()
        return host
