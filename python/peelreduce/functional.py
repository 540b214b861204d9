"""Summing one tensor over all workers, as torch.distributed.all_reduce does."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist

from . import _core
from ._dispatcher import Dispatcher
from ._switch import Switch, check_transport
from ._tasks import ArrayState, Reduction, Sum, check_tensor
from ._transport import workers_of


class State:
    """What sums of one tensor remember from step to step. One for each tensor that is summed again and again.

    Args:
        strategy: "auto", or one of "dense", "packed", "sketch", "split" and "gather".
        timeout: seconds after which a worker that does not answer is an error.
        threads: of each worker's codec; 0 takes all cores.
        transport: a Switch through which sums go; over the process group unless there is one.
    """

    def __init__(
        self, *, strategy: str = "auto", timeout: float = 60.0, threads: int = 1, transport: Switch | None = None
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout must be positive, in seconds, not {timeout}.")
        _core.State(strategy=strategy)  # refuses an unknown one
        check_transport(transport, strategy)
        self._strategy = strategy
        self.timeout = timeout
        self.transport = transport
        self._threads = threads
        self._kind: tuple[Any, ...] | None = None
        self._array: ArrayState | None = None

    def report(self) -> dict[str, Any]:
        """What the last sum did, and in which memory; empty before the first."""
        return self._array.last() if self._array is not None else {}

    def array_state(self, tensor: torch.Tensor, *, average: bool) -> ArrayState:
        """The state for tensors like this one: another shape starts anew."""
        kind = (average, tuple(tensor.shape), tensor.dtype, tensor.sparse_dim() if tensor.is_sparse else None)
        if self._array is None or self._kind != kind:
            self._array = ArrayState(
                tensor,
                average=average,
                strategy=self._strategy,
                timeout=self.timeout,
                threads=self._threads,
                name="tensor",
            )
            self._kind = kind
        return self._array


class Work:
    """A sum under way."""

    def __init__(self, task: Reduction) -> None:
        self._result = task.result
        self._done = task.done

    def is_completed(self) -> bool:
        return self._result.done()

    def wait(self) -> bool:
        """Returns when the tensor holds the sum; raises what went wrong, within the time-out."""
        if not self._result.done():
            self._done.wait()  # which Ctrl-C interrupts; the wait of a future it does not
        self._result.wait()
        return True

    def get_future(self) -> torch.futures.Future[torch.Tensor]:
        return self._result


_lock = threading.Lock()
_dispatchers: dict[tuple[dist.ProcessGroup, float, Switch | None], Dispatcher] = {}
_states: OrderedDict[tuple[Any, ...], State] = OrderedDict()
_MOST_STATES = 256  # the one that was not used for longest goes


def _dispatcher_of(group: dist.ProcessGroup | None, state: State) -> Dispatcher:
    workers = workers_of(group)
    key = (workers, state.timeout, state.transport)
    with _lock:
        if key not in _dispatchers:
            _dispatchers[key] = Dispatcher(*key)
        return _dispatchers[key]


def _default_state(group: dist.ProcessGroup | None, tensor: torch.Tensor) -> State:
    kind = (group, tuple(tensor.shape), tensor.dtype, tensor.device, tensor.sparse_dim() if tensor.is_sparse else None)
    with _lock:
        found = _states.pop(kind, None) or State()
        _states[kind] = found  # the youngest now
        if len(_states) > _MOST_STATES:
            _states.popitem(last=False)
        return found


def is_average(op: dist.ReduceOp | dist.ReduceOp.RedOpType, tensor: torch.Tensor) -> bool:
    """Or a sum; all else is refused."""
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        raise ValueError(f"peelreduce sums (SUM) and averages (AVG); it has no {op}.")
    if op == dist.ReduceOp.AVG and not tensor.dtype.is_floating_point:
        raise ValueError(f"Only floating-point tensors have averages; this one is {tensor.dtype}.")
    return op == dist.ReduceOp.AVG


def perform(task: Reduction, group: dist.ProcessGroup | None, state: State, async_op: bool) -> Work | None:
    """Submits a task of all these workers, and waits for it unless it is to run beside the caller."""
    _dispatcher_of(group, state).submit(task)
    work = Work(task)
    if async_op:
        return work
    work.wait()
    return None


def all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    state: State | None = None,
) -> Work | None:
    """Sums or averages a tensor over all workers, in place.

    Dense tensors and sparse COO tensors; the latter become coalesced. Without a state, tensors of one shape and type
    share one: give each tensor that is summed again and again its own. Dense tensors of a GPU are summed there if their
    group has NCCL (see _sides); all others in host memory, to which they are copied.
    """
    check_tensor(tensor)
    average = is_average(op, tensor)
    chosen = state if state is not None else _default_state(group, tensor)
    task = Sum(tensor, chosen.array_state(tensor, average=average), in_place=True)
    return perform(task, group, chosen, async_op)
