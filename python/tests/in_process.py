"""Workers that are threads of one process, over a network that can fail in every way: what the tests of lanes run on.

A driver is what submits sums and gets futures back. Today that is the dispatcher with its threads; another one need only
implement `Driver`, and the schedules of test_schedules.py hold it to the same promises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.distributed as dist
from peelreduce import _core
from peelreduce._dispatcher import Dispatcher, Lane
from peelreduce._link import LinkFacts
from peelreduce._rendezvous import Round
from peelreduce._store import Asker, Store
from peelreduce._tasks import ArrayState, Sum


class Driver(Protocol):
    """Sums tensors over workers, beside whoever calls it."""

    def submit(self, tensor: torch.Tensor, fault: Callable[[], None] | None) -> torch.futures.Future[torch.Tensor]:
        """`fault` is called on the way, before this worker takes part, and may raise."""
        ...

    def note_told(self) -> None:
        """Whoever submitted has heard of a failure."""
        ...

    def reset(self) -> None: ...
    def close(self) -> None: ...


@dataclass
class _Started:
    """One collective that some workers have started."""

    of: dict[int, _core.Collective] = field(default_factory=dict)
    is_complete: bool = False
    is_broken: bool = False


class Network:
    """What all workers of a test share."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.store = Store(dist.HashStore(), Asker())
        self.changed = threading.Condition()
        self.dead: set[int] = set()
        self._started: dict[tuple[str, int], _Started] = {}
        self._closed: set[tuple[str, int]] = set()  # name of a lane, and worker

    def die(self, worker: int) -> None:
        """As a process does: its connections end, and nobody tells."""
        with self.changed:
            self.dead.add(worker)
            self._break(lambda name, started: True)
            self.changed.notify_all()

    def hang_up(self, name: str, worker: int) -> None:
        """A worker ends its connections of one lane."""
        with self.changed:
            self._closed.add((name, worker))
            self._break(lambda lane, started: lane == name)
            self.changed.notify_all()

    def start(self, name: str, number: int, worker: int, what: _core.Collective) -> _Started:
        with self.changed:
            if any(lane == name for lane, _ in self._closed) or self.dead:
                raise RuntimeError("Connection closed by peer")
            started = self._started.setdefault((name, number), _Started())
            started.of[worker] = what
            if len(started.of) == self.size:
                _perform(started.of)
                started.is_complete = True
                del self._started[name, number]
            self.changed.notify_all()
            return started

    def _break(self, is_hit: Callable[[str, _Started], bool]) -> None:
        for (name, _), started in self._started.items():
            if is_hit(name, started):
                started.is_broken = True


def _perform(of: dict[int, _core.Collective]) -> None:
    """What a network does with what all workers have started."""
    workers = sorted(of)
    kind = of[workers[0]].kind
    if kind in ("sum", "bit_or"):
        total = of[workers[0]].data.clone()
        for worker in workers[1:]:
            total = total + of[worker].data if kind == "sum" else total | of[worker].data
        for worker in workers:
            of[worker].data.copy_(total)
        return
    parts = {w: [of[w].rest(part, 0) for part in range(of[w].parts)] for w in workers}
    room = max(part.numel() for w in workers for part in parts[w])
    message = _core.PART_HEADER_BYTES + room
    sent = {}
    for w in workers:
        sent[w] = torch.empty(of[w].parts * message, dtype=torch.uint8)
        of[w].pack(sent[w].data_ptr(), room)
    for w in workers:
        place = w if kind == "all_to_all" else 0
        received = torch.cat([sent[other][place * message :][:message] for other in workers])
        of[w].unpack(received.data_ptr(), room, w)


class _Pending:
    def __init__(self, network: Network, started: _Started, rank: int) -> None:
        self._network = network
        self._started = started
        self._rank = rank

    def wait(self, seconds: float) -> bool:
        with self._network.changed:
            done = self._network.changed.wait_for(lambda: self._started.is_complete or self._started.is_broken, seconds)
            if done and not self._started.is_complete:
                raise RuntimeError("Connection closed by peer")
            return done

    def drop(self) -> bool:
        with self._network.changed:
            if not self._started.is_complete:
                self._started.of.pop(self._rank, None)
        return True


class InProcess:
    """The transport of one lane of one worker."""

    moves_buffers = True
    sums_floats = True
    times_out = False

    def __init__(self, network: Network, name: str, rank: int, on_start: Callable[[int], None]) -> None:
        self._network = network
        self._name = name
        self.rank = rank
        self.size = network.size
        self._count = 0
        self._on_start = on_start

    def start(self, what: _core.Collective) -> _Pending:
        self._on_start(self.rank)
        self._count += 1
        return _Pending(self._network, self._network.start(self._name, self._count, self.rank, what), self.rank)

    def measure_link(self) -> LinkFacts:
        return LinkFacts(1e-5, 1e9, 1e9)

    def wait_for_long(self) -> None:
        pass

    def abort(self) -> None:
        self._network.hang_up(self._name, self.rank)

    def close(self) -> None:
        self._network.hang_up(self._name, self.rank)


class _Group:
    backends = ""

    def __init__(self, network: Network, rank: int, host: str) -> None:
        self.rank = rank
        self.size = network.size
        self.store = network.store
        self.host = host


class _FaultySum(Sum):
    """Calls `fault` where a worker gets its tensor to where it is summed."""

    fault: Callable[[], None] | None = None
    completions = 0

    def _fetch(self) -> None:
        if self.fault is not None:
            self.fault()
        super()._fetch()

    def run(self, lane: Lane) -> None:
        super().run(lane)
        self.completions += 1

    def fail(self, error: BaseException) -> None:
        super().fail(error)
        self.completions += 1


class ThreadedDriver:
    """The dispatcher of one worker."""

    def __init__(
        self, network: Network, rank: int, timeout: float, on_start: Callable[[int], None], host: str = "127.0.0.1"
    ) -> None:
        def connect(round_: Round, lanes: int, timeout: float) -> list[InProcess]:
            return [InProcess(network, f"{round_.number}/{lane}", rank, on_start) for lane in range(lanes)]

        self.timeout = timeout
        self._states: dict[tuple[int, ...], ArrayState] = {}
        self.tasks: list[_FaultySum] = []
        self.dispatcher = Dispatcher(_Group(network, rank, host), connect)

    def submit(self, tensor: torch.Tensor, fault: Callable[[], None] | None) -> torch.futures.Future[torch.Tensor]:
        shape = tuple(tensor.shape)
        if shape not in self._states:
            self._states[shape] = ArrayState(tensor, average=False, strategy="auto", unasked_steps=2)
        task = _FaultySum(tensor, self._states[shape], self.timeout)
        task.fault = fault
        self.tasks.append(task)
        self.dispatcher.submit(task)
        return task.result

    def note_told(self) -> None:
        self.dispatcher.begin_step()

    def reset(self) -> None:
        self.dispatcher.reset()

    def close(self) -> None:
        self.dispatcher.close()


def within(seconds: float, is_so: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True
