"""The workers of a process group, for as long as it lives: what all sums over them share."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.distributed_c10d import _get_process_group_store

from ._dispatcher import Connect, Dispatcher, Transport
from ._rendezvous import Round
from ._store import Asker, Store
from ._switch import Refused, Switch, join_all
from ._transport import make_device, make_transport

_log = logging.getLogger("peelreduce")
_STORE_TIMEOUT = timedelta(seconds=30)  # of one answer
_MOST_STATES = 256  # of tensors that came without one; the one that was not used for longest goes

State = TypeVar("State")


class Workers:
    """Holds the group's store and not the group, with whose last reference its lanes end."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.backends = getattr(group, "inner_backends", None) or dist.get_backend_config(group)
        self.timeout = _timeout_of(group)
        # A connection of its own: one that somebody waits on would have everybody wait.
        store = _get_process_group_store(group).clone()
        store.set_timeout(_STORE_TIMEOUT)
        self._asker = Asker()
        self.store = Store(dist.PrefixStore("peelreduce", store), self._asker)
        self.host = _host()
        self._dispatchers: dict[tuple[str, str] | None, Dispatcher] = {}  # by address and prefix of the switch
        self._switches: dict[tuple[str, str], Switch] = {}  # as they were told last
        self._states: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
        self._lock = threading.Lock()
        self.is_closed = False

    def timeout_for(self, given: float | None) -> float:
        """The group's, unless a state has its own."""
        return self.timeout if given is None else given

    def dispatcher(self, switch: Switch | None) -> Dispatcher:
        """Shared by all states that go the same way. A state may bring another secret, or another MTU, than those before:
        lanes that are there stay, and the next ones are made with the latest.

        Workers may know one switch by different addresses and have different secrets of it, and must meet all the same. So
        they meet by the prefix, and by how many other switches this program has used before."""
        with self._lock:
            way = None if switch is None else (switch.address, switch.prefix)
            if way not in self._dispatchers:
                self._dispatchers[way] = self._make_dispatcher(way)
            if switch is not None:
                self._switches[way] = switch
            return self._dispatchers[way]

    def state_for(self, kind: tuple[Any, ...], make: Callable[[], State]) -> State:
        """That of tensors that came without one."""
        with self._lock:
            found = self._states.pop(kind, None) or make()
            self._states[kind] = found  # the youngest now
            if len(self._states) > _MOST_STATES:
                self._states.popitem(last=False)
            return found

    def states(self) -> dict[tuple[Any, ...], Any]:
        """All of them, by kind."""
        with self._lock:
            return dict(self._states)

    def reset(self) -> None:
        for dispatcher in self._all():
            dispatcher.reset()
        with self._lock:
            self._states.clear()

    def trim(self) -> None:
        for dispatcher in self._all():
            dispatcher.trim()

    def close(self) -> None:
        """For good, with the group."""
        self.is_closed = True
        for dispatcher in self._all():
            dispatcher.close()
        self._asker.stop()

    def abort(self) -> None:
        """For good, and at once: what is under way fails."""
        self.is_closed = True
        for dispatcher in self._all():
            dispatcher.abort()
        self._asker.stop()

    def _make_dispatcher(self, way: tuple[str, str] | None) -> Dispatcher:
        if way is None:
            return Dispatcher(_By(self, "gloo"), _over_gloo)
        number = sum(known is not None and known[1] == way[1] for known in self._dispatchers)
        switches = self._switches  # and not these workers, which it would keep alive
        return Dispatcher(_By(self, f"switch/{number}/{way[1]}"), _through(lambda: switches[way]))

    def _all(self) -> list[Dispatcher]:
        with self._lock:
            return list(self._dispatchers.values())


class _By:
    """The same workers, who meet on their own for every way that sums go."""

    def __init__(self, workers: Workers, way: str) -> None:
        self.rank = workers.rank
        self.size = workers.size
        self.backends = workers.backends
        self.host = workers.host
        self.store = workers.store.under(way)


def _over_gloo(round_: Round, lanes: int, timeout: float) -> list[Transport]:
    return [
        make_transport(round_.store.under(f"gloo/{lane}").plain, round_.rank, round_.size, timeout)
        for lane in range(lanes)
    ]


def _through(latest: Callable[[], Switch]) -> Connect:
    def connect(round_: Round, lanes: int, timeout: float) -> list[Transport]:
        try:
            return join_all(latest(), round_, lanes, timeout)
        except Refused as refused:
            _log.warning(
                "Sums go over the process group and not through the switch, until their states are closed, one of them fails "
                "or peelreduce.reset() is called. %s",
                refused,
            )
        return _over_gloo(round_, lanes, timeout)

    return connect


def _timeout_of(group: dist.ProcessGroup) -> float:
    """Seconds after which collectives of the group itself give up."""
    for device in ("cpu", "cuda"):
        try:
            return group._get_backend(torch.device(device)).options._timeout.total_seconds()
        except (RuntimeError, AttributeError):  # it has none for this device, or one that does not tell
            continue
    return dist.default_pg_timeout.total_seconds()


def _host() -> str:
    """The address by which Gloo is reached; empty if it cannot be told."""
    if not dist.is_gloo_available():
        return ""
    _, address = make_device()
    return address[0] if address is not None else ""


_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[dist.ProcessGroup, Workers] = weakref.WeakKeyDictionary()


def workers_of(group: dist.ProcessGroup | DeviceMesh | None) -> Workers | None:
    """Of the group, or all workers; None if this process is not one of the group's."""
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            names = group.mesh_dim_names or tuple(range(group.ndim))
            raise ValueError(
                f"A sum goes over one dimension of a mesh, and this one has {group.ndim}; take one of them, as in "
                f"mesh[{names[0]!r}]."
            )
        group = group.get_group()
    found = group if group is not None else dist.group.WORLD
    if found is None:
        raise ValueError("There is no process group; call torch.distributed.init_process_group first.")
    if found is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    if not isinstance(found, dist.ProcessGroup):
        raise TypeError(f"A group is a torch.distributed.ProcessGroup or a DeviceMesh, not {type(found).__name__}.")
    with _lock:
        if found not in _known:
            workers = Workers(found)
            _known[found] = workers
            weakref.finalize(found, workers.close).atexit = False
        return _known[found]


def close_workers(group: dist.ProcessGroup) -> None:
    """Ends what sums over this group use, after what is under way."""
    workers = _known.get(group)
    if workers is not None:
        workers.close()


def abort_workers(group: dist.ProcessGroup) -> None:
    """Ends what sums over this group use, and has what is under way fail."""
    workers = _known.get(group)
    if workers is not None:
        workers.abort()


def empty_cache() -> None:
    """Frees the memory, in the host and on GPUs, that sums have worked in and that is kept for the next ones.

    All states share it. That of a GPU goes back to torch's allocator: call torch.cuda.empty_cache() afterwards for others
    to have it.
    """
    with _lock:
        known = list(_known.values())
    for workers in known:
        workers.trim()


def reset(group: dist.ProcessGroup | DeviceMesh | None = None) -> None:
    """Forgets a failure: ends what is under way over these workers, and has the next sum connect them anew.

    Sums connect anew by themselves after a failure that all workers had at the same place of the program. Where that is
    not so, as after a step of which some workers have the sum and others not, an error says so: have all workers go back
    to one place, such as the last checkpoint, and call this on every one of them.
    """
    workers = workers_of(group)
    if workers is not None:
        workers.reset()
