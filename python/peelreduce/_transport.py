"""Performs the collectives of an exchange with torch.distributed.

Every worker starts the same collectives in the same order on a group, so the group belongs to one lane and to nobody
else. It is made beside those that torch counts: torch names a new group after how many there are, which differs between
workers as soon as a thread or only some of the workers make one.

Gloo cannot be interrupted: a collective that waits for a worker does so until its time-out, with the memory it writes to.
But it notices when its connections end, as they do when a process ends. So a lane that gives up shuts its sockets down,
here and thereby on the other side.
"""

from __future__ import annotations

import ast
import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from . import _core
from ._link import LinkFacts, measure_link
from .errors import Error

_making_device = threading.Lock()
_LONG = timedelta(days=1)
_AWHILE = timedelta(seconds=10)
_DESCRIPTORS = Path("/proc/self/fd")  # Linux; elsewhere Gloo ends by its time-out


class Pending:
    """A collective under way: what torch works on, and what follows when it is done, which may be another one."""

    def __init__(self, work: dist.Work, finish: Callable[[], Pending | None] | None = None) -> None:
        self._work = work
        self._finish = finish

    def wait(self, seconds: float) -> bool:
        """False if it is still under way then; raises what went wrong."""
        try:
            self._work.wait(timedelta(seconds=seconds))
        except RuntimeError:
            if not self._work.is_completed():
                return False
            self._work.wait()  # it may have completed just after the time was over
        following = None if self._finish is None else self._finish()
        if following is None:
            return True
        self._work, self._finish = following._work, following._finish
        return self.wait(seconds)

    def drop(self) -> bool:
        """Waits until torch no longer uses the memory; False if it still does after a while."""
        with contextlib.suppress(Exception):  # there was an error before this one, which counts
            self._work.wait(_AWHILE)
        return self._work.is_completed()


class Transport:
    """One process group that nobody else uses."""

    moves_buffers = True
    sums_floats = True
    times_out = False

    def __init__(self, group: dist.ProcessGroup, sockets: Sockets) -> None:
        self.group = group
        self.rank = group.rank()
        self.size = group.size()
        self._sockets = sockets

    def start(self, what: _core.Collective) -> Pending:
        if what.kind == "sum":
            return self._sum(what.data)
        if what.kind == "bit_or":
            return Pending(dist.all_reduce(what.data, op=dist.ReduceOp.BOR, group=self.group, async_op=True))
        return self._move(what)

    def measure_link(self) -> LinkFacts:
        return measure_link(self.group)

    def wait_for_long(self) -> None:
        """From now on a lane decides how long it waits for a collective, not Gloo, if it can have it end."""
        if self._sockets.own is not None:
            self.group._get_backend(torch.device("cpu"))._set_default_timeout(_LONG)

    def abort(self) -> None:
        """Has all that is under way end, here and on the other workers."""
        self._sockets.shut_down()

    def close(self) -> None:
        """Nothing is under way; torch closes the group when it is dropped."""
        del self.group

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

        def finish() -> Pending | None:
            longest = what.unpack(received.data_ptr(), room, self.rank)
            return self._move_rest(what, room, longest) if longest > room else None

        return Pending(work, finish)

    def _move_rest(self, what: _core.Collective, room: int, longest: int) -> Pending:
        into = [what.rest_from(worker, room) for worker in range(self.size)]
        if what.kind == "all_to_all":
            out = [what.rest(worker, room) for worker in range(self.size)]
            into[self.rank] = torch.empty(out[self.rank].numel(), dtype=torch.uint8)
            received = torch.empty(sum(part.numel() for part in into), dtype=torch.uint8)
            sizes = [part.numel() for part in into]
            work = dist.all_to_all_single(
                received, torch.cat(out), sizes, [p.numel() for p in out], group=self.group, async_op=True
            )
            parts = list(received.split(sizes))
        else:
            own = what.rest(0, room)
            padded = torch.zeros(longest - room, dtype=torch.uint8)
            padded[: own.numel()] = own
            received = torch.empty(self.size * padded.numel(), dtype=torch.uint8)
            work = dist.all_gather_into_tensor(received, padded, group=self.group, async_op=True)
            parts = [part[: one.numel()] for part, one in zip(received.chunk(self.size), into, strict=True)]

        def finish() -> None:
            for worker, part in enumerate(parts):
                if worker != self.rank:
                    into[worker].copy_(part)

        return Pending(work, finish)


class Sockets:
    """The connections of one Gloo device, known by the addresses at which its workers listen."""

    def __init__(self, own: Address | None) -> None:
        self.own = own  # None where it cannot be told
        self._others: set[Address] = set()

    def learn(self, addresses: list[Address | None]) -> None:
        """Where all workers listen."""
        self._others = {address for address in addresses if address is not None and address != self.own}

    def shut_down(self) -> None:
        if self.own is None:
            return
        for one in _open_sockets():
            with contextlib.suppress(OSError):  # it may be closed by now
                if _listens(one):
                    continue  # Gloo ends the process if it cannot accept
                if _address(one.getsockname()) == self.own or _address(one.getpeername()) in self._others:
                    one.shutdown(socket.SHUT_RDWR)


Address = tuple[str, int]


def _address(name: object) -> Address | None:
    """Of an IP socket."""
    return (str(name[0]), int(name[1])) if isinstance(name, tuple) and len(name) >= 2 else None


def _open_sockets() -> Iterator[socket.socket]:
    """Second descriptors of all sockets of this process, each of which is closed when the next one is asked for."""
    if not _DESCRIPTORS.is_dir():
        return
    for entry in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # another thread has closed it
            if not os.readlink(_DESCRIPTORS / entry).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry))) as one:
                yield one


def _listens(one: socket.socket) -> bool:
    return bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _listening() -> set[Address]:
    """Where this process listens."""
    found: set[Address] = set()
    for one in _open_sockets():
        with contextlib.suppress(OSError):
            name = _address(one.getsockname())
            if name is not None and _listens(one):
                found.add(name)
    return found


def make_device() -> tuple[object, Address | None]:
    """A device of Gloo, and where it listens: on the first interface that GLOO_SOCKET_IFNAME names, as groups of torch do.
    The default device does not look there, and takes the address that the name of this host has, which may be a loopback."""
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0].strip()
    with _making_device:
        before = _listening()
        if interface:
            device = dist.ProcessGroupGloo.create_device(interface=interface)
        else:
            device = dist.ProcessGroupGloo.create_default_device()
        new = _listening() - before
    return device, new.pop() if len(new) == 1 else None


def make_transport(store: dist.Store, rank: int, size: int, timeout: float) -> Transport:
    """A transport over workers that all make it, with this store, which is nobody else's."""
    if not dist.is_gloo_available():
        raise Error("Tensors in host memory are summed over Gloo, which this torch was built without.")
    device, own = make_device()
    store.set(f"listens/{rank}", repr(own))
    options = dist.ProcessGroupGloo._Options()
    options._devices = [device]
    options._timeout = timedelta(seconds=timeout)
    group = dist.ProcessGroup(store, rank, size)
    group._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    gloo = dist.ProcessGroupGloo(store, rank, size, options)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, gloo)
    sockets = Sockets(own)
    sockets.learn([ast.literal_eval(store.get(f"listens/{worker}").decode()) for worker in range(size)])
    transport = Transport(group, sockets)
    _check_or(transport)
    return transport


def _check_or(transport: Transport) -> None:
    """A backend that takes OR for SUM would make every index wrong."""
    word = torch.tensor([1 << (transport.rank % 32) | 1 << 40], dtype=torch.int64)
    dist.all_reduce(word, op=dist.ReduceOp.BOR, group=transport.group)
    if int(word) != (1 << min(transport.size, 32)) - 1 | 1 << 40:
        raise Error("The bitwise OR of this torch is not one; use another version.")


def _copy(source: torch.Tensor, to: torch.Tensor) -> None:
    to.copy_(source)
