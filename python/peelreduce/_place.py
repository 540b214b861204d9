"""Where a tensor lies, and how it gets to where it is summed.

A tensor of a GPU is summed there, or copied to host memory and back by the lane that sums it: in another stream than the
one it was computed in, so that neither the training thread nor that stream waits. Whoever waits for the future has its
current stream wait for the sum.
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
        self._ready: torch.cuda.Event | None = None
        self._streams: tuple[torch.cuda.Stream, ...] = ()  # if it is summed on its device: of kernels, and the wire's
        if tensor.is_cuda:
            self._ready = torch.cuda.Event(blocking=True)
            self._ready.record(torch.cuda.current_stream(self.device))

    def future(self) -> torch.futures.Future[torch.Tensor]:
        return torch.futures.Future(devices=[self.device]) if self._ready is not None else torch.futures.Future()

    @contextmanager
    def here(self) -> Iterator[None]:
        """What is done to the tensor inside comes after what made it ready."""
        if self._ready is None:
            yield
            return
        stream = self._streams[0] if self._streams else _own_stream(self.device)
        stream.wait_event(self._ready)
        with torch.cuda.stream(stream):
            yield

    def stay(self, kernels: torch.cuda.Stream, wire: torch.cuda.Stream) -> None:
        """The tensor is summed on its device, in these streams. Waits until it is ready: other arrays are summed there,
        too, and must not stand behind one that the backward pass has yet to compute."""
        assert self._ready is not None
        self._streams = (kernels, wire)
        self._ready.synchronize()

    def fetch(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor where it is summed: itself, or a copy in host memory that is complete."""
        if self._ready is None:
            return tensor
        if self._streams:
            for stream in self._streams:
                tensor.record_stream(stream)
            return tensor
        if tensor.is_sparse:
            return tensor.cpu()
        stream = torch.cuda.current_stream(self.device)
        tensor.record_stream(stream)
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        host.copy_(tensor, non_blocking=True)
        stream.synchronize()
        return host
