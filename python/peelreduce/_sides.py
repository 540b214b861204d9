"""Where tensors of a GPU are summed: on the device, over NCCL, or by way of host memory. All workers do alike.

On the device they are summed if the workers' group has NCCL for CUDA tensors, and peelreduce was built with CUDA, on
every worker. What was decided, and why, goes to the logger "peelreduce", once for each group.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

import torch

from . import _gpu
from ._core import ScratchPool, World
from ._link import measure_link
from ._rendezvous import Round
from ._wire import Wire, make_wire
from .errors import TransportFailed

if TYPE_CHECKING:
    from ._dispatcher import Group

_log = logging.getLogger("peelreduce")
_YES = "yes"


class Side:
    """What sums on one device: a wire, and the world that exchanges see."""

    def __init__(self, wire: Wire, session: int, scratch: ScratchPool) -> None:
        self.wire = wire
        with torch.cuda.device(wire.device), torch.cuda.stream(wire.stream):
            link = measure_link(wire.group, wire.device, wait=wire.await_all)
            # Not a method: what C++ holds, nobody collects.
            allocate = partial(torch.cuda.caching_allocator_alloc, device=wire.device, stream=wire.kernels)
            self.device = _gpu.module().make_device(wire.kernels.cuda_stream, wire.size, allocate, _release)
        self.world = World(
            wire.rank,
            wire.size,
            latency_s=link.latency_s,
            bytes_per_second=link.bytes_per_second,
            copy_bytes_per_second=link.copy_bytes_per_second,
            session=session,
            device=self.device,
            scratch=scratch,
        )


def _release(address: int) -> None:
    torch.cuda.caching_allocator_delete(address)


class Sides:
    """Of the lanes of one set of workers. The first tensor of a GPU to be submitted decides for all."""

    def __init__(self, group: Group, scratch: ScratchPool) -> None:
        self._group = group
        self._scratch = scratch
        self._lock = threading.Lock()  # of what follows; nobody waits for other workers with it
        self._device: torch.device | None = None  # of the first tensor
        self._wire: Wire | None = None  # of that device
        self._aborted = False
        self._decision: Future[Side | None] | None = None  # of the first lane to ask
        self._others: set[torch.device] = set()  # of which it was said that they are not that one

    def note(self, device: torch.device) -> None:
        """In the order of submission, which is that of all workers; lanes come to their tasks in any order."""
        with self._lock:
            self._device = self._device or device

    def trim(self) -> None:
        """Frees what is kept on the GPU for the sums to come."""
        with self._lock:
            decision = self._decision
        if decision is not None and decision.done() and decision.exception() is None:
            side = decision.result()
            if side is not None:
                side.device.trim()

    def side_of(self, device: torch.device, round_: Round, timeout: float) -> Side | None:
        """None: by way of host memory. All workers have joined the round."""
        if device != self._device:
            self._say_why_not(device)
            return None
        with self._lock:
            is_first, decision = self._decision is None, self._decision or Future()
            self._decision = decision
        if is_first:
            try:
                decision.set_result(self._decide(device, round_, timeout))
            except BaseException as error:  # noqa: BLE001: whatever it is, both lanes hear of it
                decision.set_exception(error)
        return decision.result()  # what the other lane does meanwhile has time-outs

    def _say_why_not(self, device: torch.device) -> None:
        with self._lock:
            if self._wire is None or device in self._others:
                return
            self._others.add(device)
        _log.warning(
            "Tensors of %s are summed by way of host memory, since those of %s came first; use a process group for each "
            "device.",
            device,
            self._device,
        )

    def abort(self) -> None:
        """After an error, which counts more than whatever goes wrong here."""
        with self._lock:
            self._aborted = True
            wire = self._wire
        with contextlib.suppress(Exception):
            if wire is not None:
                wire.abort()

    def close(self) -> None:
        """With the lanes, which do not use them any more: NCCL ends with its group."""
        with self._lock:
            self._wire = self._decision = None

    def _decide(self, device: torch.device, round_: Round, timeout: float) -> Side | None:
        answers = round_.collect("able", obstacle(self._group.backends) or _YES, timeout)
        for worker, answer in enumerate(answers):
            if answer != _YES:
                _log.warning(
                    "Tensors of %s are summed by way of host memory. Worker %d says: %s.", device, worker, answer
                )
                return None
        wire = make_wire(round_.store.under("nccl").plain, round_.rank, round_.size, device, timeout)
        with self._lock:
            if self._aborted:  # nobody would abort this one
                raise TransportFailed("Another sum failed before this one began; see its error.")
            self._wire = wire
        side = Side(wire, round_.number, self._scratch)
        _log.info("Tensors of %s are summed on the device, over NCCL.", device)
        return side


def obstacle(backends: str) -> str:
    """Why this worker cannot sum tensors of a group with these backends on the device; empty if it can."""
    if _gpu.missing:
        return _gpu.missing
    if "cuda:nccl" not in backends.split(","):
        return "the process group has no NCCL for CUDA tensors; make it with backend nccl or cpu:gloo,cuda:nccl"
    return ""
