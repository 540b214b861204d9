"""Summing one tensor over all workers, as torch.distributed.all_reduce does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from . import _core
from ._dispatcher import Dispatcher
from ._switch import Switch, check_transport
from ._tasks import ArrayState, Reduction, Refusal, Sum, check_tensor
from ._workers import Workers, workers_of
from .errors import TimedOut


def check_timeout(timeout: float | None) -> None:
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be positive, in seconds, or None for the process group's, not {timeout}.")


class State:
    """What sums of one tensor remember from step to step. One for each tensor that is summed again and again.

    Args:
        strategy: "auto", or one of "dense", "packed", "sketch", "split" and "gather".
        timeout: seconds after which a worker that does not answer is an error; None takes that of the process group.
        threads: of each worker's codec; 0 takes all cores.
        transport: a Switch through which sums go; over the process group unless there is one.

    What connects the workers belongs to their process group and ends with it. To end it earlier, close all states that
    use it, on all workers: by close() or a `with` block.
    """

    def __init__(
        self,
        *,
        strategy: str = "auto",
        timeout: float | None = None,
        threads: int = 1,
        transport: Switch | None = None,
    ) -> None:
        check_timeout(timeout)
        _core.State(strategy=strategy)  # refuses an unknown one
        check_transport(transport, strategy)
        self._strategy = strategy
        self.timeout = timeout
        self.transport = transport
        self._threads = threads
        self._kind: tuple[Any, ...] | None = None
        self._array: ArrayState | None = None
        self._dispatchers: set[Dispatcher] = set()
        self._may_close = True  # nobody has one of a tensor that came without

    def __deepcopy__(self, memo: dict[int, Any]) -> State:
        """For another tensor: with the same options, and nothing learned yet."""
        return State(
            strategy=self._strategy, timeout=self.timeout, threads=self._threads, transport=self.transport
        )

    def report(self) -> dict[str, Any]:
        """What the last sum did, and in which memory; empty before the first."""
        return self._array.last() if self._array is not None else {}

    def array_state(self, tensor: torch.Tensor, *, average: bool) -> ArrayState:
        """The state for tensors like this one: another shape starts anew."""
        kind = (average, tuple(tensor.shape), tensor.dtype, tensor.sparse_dim() if tensor.is_sparse else None)
        if self._array is None or self._kind != kind:
            self._array = ArrayState(
                tensor, average=average, strategy=self._strategy, threads=self._threads, name="tensor"
            )
            self._kind = kind
        return self._array

    def dispatcher(self, workers: Workers) -> Dispatcher:
        found = workers.dispatcher(self.transport)
        if self._may_close and found not in self._dispatchers:
            found.acquire()
            self._dispatchers.add(found)
        return found

    def close(self) -> None:
        """Ends what connects the workers if no other state uses it. Every worker closes the same states."""
        for one in self._dispatchers:
            one.release()
        self._dispatchers.clear()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Work:
    """A sum under way."""

    def __init__(self, task: Reduction) -> None:
        self._task = task
        self._result = task.result
        self._done = task.done

    def is_completed(self) -> bool:
        return self._result.done()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Returns when the tensor holds the sum; raises what went wrong, within the time-out of the sum. With a timeout,
        raises TimedOut if the sum is still under way then; it goes on, and may be waited for again."""
        seconds = None if timeout is None or timeout <= timedelta() else timeout.total_seconds()
        if not self._result.done() and not self._done.wait(seconds):  # which Ctrl-C interrupts; a future it does not
            raise TimedOut(f"The sum is still under way after {seconds:g} s; wait for it again.")
        try:
            self._result.wait()
        except BaseException:
            self._task.note_told()
            raise
        return True

    def get_future(self) -> torch.futures.Future[torch.Tensor]:
        """Whoever has it is told of a failure by it."""
        self._result.add_done_callback(self._note_told)
        return self._result

    def _note_told(self, result: torch.futures.Future[torch.Tensor]) -> None:
        try:
            result.value()
        except BaseException:  # noqa: BLE001: whoever has the future gets it
            self._task.note_told()


def is_average(op: dist.ReduceOp | dist.ReduceOp.RedOpType, tensor: torch.Tensor) -> bool:
    """Or a sum; all else is refused."""
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        raise ValueError(f"peelreduce sums (SUM) and averages (AVG); it has no {op}.")
    if op == dist.ReduceOp.AVG and not tensor.dtype.is_floating_point:
        raise ValueError(f"Only floating-point tensors have averages; this one is {tensor.dtype}.")
    return op == dist.ReduceOp.AVG


def perform(task: Reduction, workers: Workers, state: State, async_op: bool) -> Work | None:
    """Submits a task of all these workers, and waits for it unless it is to run beside the caller."""
    state.dispatcher(workers).submit(task)
    work = Work(task)
    if async_op:
        return work
    work.wait()
    return None


def all_reduce(
    tensor: torch.Tensor,
    op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM,
    group: dist.ProcessGroup | DeviceMesh | None = None,
    async_op: bool = False,
    *,
    state: State | None = None,
) -> Work | None:
    """Sums or averages a tensor over all workers, in place.

    Dense tensors and sparse COO tensors; the latter become coalesced. Without a state, tensors of one shape and type
    share one: give each tensor that is summed again and again its own. Dense tensors of a GPU are summed there if their
    group has NCCL for them; all others in host memory, to which they are copied. A process that is not in the group
    does nothing and gets None, as in torch.
    """
    workers = workers_of(group)
    if workers is None:
        return None
    try:
        if state is not None and not isinstance(state, State):
            raise TypeError(f"The state of a sum is a peelreduce.State, not {type(state).__name__}.")
        check_tensor(tensor)
        average = is_average(op, tensor)
        chosen = state if state is not None else _default_state(workers, tensor)
        array = chosen.array_state(tensor, average=average)
    except (TypeError, ValueError) as error:
        refuse(error, workers, state)
        raise
    task = Sum(tensor, array, workers.timeout_for(chosen.timeout), in_place=True)
    return perform(task, workers, chosen, async_op)


def refuse(error: Exception, workers: Workers, state: State | None) -> None:
    """Tells the other workers, which may have been called rightly, of an error that is raised here."""
    given = state if isinstance(state, State) else State()
    if workers.size > 1:
        workers.dispatcher(given.transport).submit(Refusal(error, workers.timeout_for(given.timeout)))


def _default_state(workers: Workers, tensor: torch.Tensor) -> State:
    sparse_dims = tensor.sparse_dim() if tensor.is_sparse else None
    kind = (tuple(tensor.shape), tensor.dtype, tensor.device, sparse_dims)
    return workers.state_for(kind, _made_for_nobody)


def _made_for_nobody() -> State:
    state = State()
    state._may_close = False
    return state
