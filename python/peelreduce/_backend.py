"""The backend "peel" of torch.distributed: a process group whose sums and averages of gradients go through this library.

    torch.distributed.init_process_group("peel")

It is a process group of Gloo and, where there is a GPU, of NCCL. Torch's own code performs all collectives with these two
but sums and averages of long tensors of floats and of sparse tensors, which become tasks of the lanes that a process
group has with peelreduce.all_reduce too. What is a sum of ours follows from the operation, the type, the layout and the
length alone, so all workers find the same.

It is a subclass of ProcessGroup, and not of Backend, which Python cannot be in all versions of torch: torch calls what is
overridden here from C++ too (for DDP and functional collectives), and finds Gloo and NCCL where it looks for them.

What is handed on goes to a plain group of the same Gloo and NCCL, not to the base class. Torch calls the base class of a
group in Python with Python's lock held, for which a thread of Gloo may wait while the caller waits for that thread.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ._tasks import ArrayState, Outcome, ReduceScatter, Reduction, Sum, check_tensor
from ._trials import Trials
from ._types import TYPES
from ._whole_sums import WholeSums
from ._workers import Workers, abort_workers, close_workers, workers_of
from .functional import Work, refuse

_log = logging.getLogger("peelreduce")
_SMALL = 1 << 20  # bytes; Gloo and NCCL sum less than this at once
_FEW = _SMALL // 8  # elements, which are less than that in every type
_UNASKED = 7  # dense sums of one kind, after one for which workers ask each other whether they mean the same
_FLOATS = {dtype for dtype in TYPES if dtype.is_floating_point}


class Works(dist.Work):
    """Collectives under way, of ours and of torch's, which torch takes for one of its own."""

    def __init__(self, parts: list[Work | dist.Work], tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._parts = parts
        self._tensors = tensors  # that it ends with
        self._future: torch.futures.Future[list[torch.Tensor]] | None = None

    def is_completed(self) -> bool:
        return all(part.is_completed() for part in self._parts)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> BaseException | None:
        """What went wrong; None while it is under way."""
        if self.is_completed():
            try:
                self.wait()
            except Exception as error:  # noqa: BLE001: it is the answer
                return error
        return None

    def wait(self, timeout: timedelta = timedelta()) -> bool:
        """As that of a Work of ours; a timeout of 0 is none."""
        begin = time.monotonic()
        left = timeout
        for part in self._parts:
            part.wait(left)
            if timeout > timedelta():
                left = max(timeout - timedelta(seconds=time.monotonic() - begin), timedelta(milliseconds=1))
        return True

    def synchronize(self) -> None:
        self.wait()

    def result(self) -> list[torch.Tensor]:
        return self._tensors

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Of a list of tensors, as torch's own works have it."""
        if self._future is None:
            futures = [part.get_future() for part in self._parts]
            whole = futures[0] if len(futures) == 1 else torch.futures.collect_all(futures)
            self._future = whole.then(self._value)
        return self._future

    def _value(self, whole: torch.futures.Future[Any]) -> list[torch.Tensor]:
        """Raises what went wrong."""
        value = whole.value()
        if len(self._parts) > 1:
            for one in value:
                one.value()
        return self._tensors


class Kind:
    """What sums of tensors of one kind remember."""

    def __init__(self, what: str, tensor: torch.Tensor, *, average: bool) -> None:
        """With a name as in "all_reduce of cpu float32 [1000, 64], summed", the same on all workers."""
        layout = f"sparse ({tensor.sparse_dim()} dimensions) " if tensor.is_sparse else ""
        dtype = str(tensor.dtype).removeprefix("torch.")
        how = "averaged" if average else "summed"
        self.name = f"{what} of {tensor.device.type} {layout}{dtype} {list(tensor.shape)}, {how}"
        self._average = average
        self.trials = Trials(one_tells=what == "all_reduce")  # a first reduce-scatter sends items, however many there are
        self.whole = WholeSums("auto")

    def state_of(self, tensor: torch.Tensor) -> ArrayState:
        if self.trials.state is None:
            self.trials.state = ArrayState(
                tensor, average=self._average, strategy="auto", name=self.name, unasked_steps=_UNASKED
            )
        return self.trials.state

    def facts(self) -> dict[str, Any]:
        state = self.trials.state
        return {"handed_on": self.trials.handed_on, **({} if state is None else state.facts())}


class PeelGroup(dist.ProcessGroup):
    """A process group of Gloo and NCCL, with sums of ours."""

    def __init__(self, store: dist.Store, rank: int, size: int, backends: dict[str, tuple[str, Any]]) -> None:
        """Of backends by device, with their names."""
        super().__init__(rank, size)  # with a store, not all versions of torch make groups in Python
        self._plain = dist.ProcessGroup(store, rank, size)
        types = {"gloo": dist.ProcessGroup.BackendType.GLOO, "nccl": dist.ProcessGroup.BackendType.NCCL}
        for device, (name, backend) in backends.items():
            for group in (self, self._plain):
                group._register_backend(torch.device(device), types[name], backend)
                group._set_default_backend(types[name])
        # As torch would tell them of a group without this backend; a GPU's tensors are summed there if it has NCCL.
        self.inner_backends = ",".join(f"{device}:{name}" for device, (name, _) in backends.items())
        self._size = size
        self._workers: Workers | None = None  # from the first sum on
        self._coalesced: list[Work] | None = None  # sums of ours since a block of coalesced collectives began

    # ---- collectives of which some are ours

    def allreduce(self, tensors: Any, opts: Any = None, **others: Any) -> dist.Work:
        if others or not isinstance(tensors, list) or len(tensors) != 1:
            return _work_of(self._plain.allreduce(tensors, *([] if opts is None else [opts]), **others))
        options = dist.AllreduceOptions() if opts is None else opts
        tensor = tensors[0]
        own = None
        if tensor.numel() >= _FEW or tensor.is_sparse:  # looked at here, since every call more delays short ones
            own = self._sum(tensor, options) if isinstance(options, dist.AllreduceOptions) else None
        return Works([own], tensors) if own is not None else _work_of(self._plain.allreduce(tensors, options))

    def allreduce_coalesced(self, tensors: list[torch.Tensor], opts: Any = None) -> dist.Work:
        options = dist.AllreduceCoalescedOptions() if opts is None else opts
        parts: list[Any] = []
        rest = []
        try:
            for tensor in tensors:
                own = self._sum(tensor, options)
                (rest if own is None else parts).append(tensor if own is None else own)
        except BaseException:  # the caller gets no work to wait for, and may use these tensors at once
            for own in parts:
                with contextlib.suppress(Exception):
                    own.wait()
            raise
        if not parts:
            return _work_of(self._plain.allreduce_coalesced(tensors, options))
        if rest:
            parts.append(_work_of(self._plain.allreduce_coalesced(rest, options)))
        return Works(parts, tensors)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, opts: Any = None) -> dist.Work:
        options = dist.ReduceScatterOptions() if opts is None else opts
        own = self._scatter(output, input, options)
        if own is None:
            return _work_of(self._plain._reduce_scatter_base(output, input, options))
        return Works([own], [output])

    _reduce_scatter_base = reduce_scatter_single  # as earlier versions of torch call it

    # ---- the group

    def stats(self) -> dict[str, dict[str, Any]]:
        """Of each kind of tensors that was summed here: how many were handed on, and, of the others
        since then, density, totals and last report."""
        kinds = {} if self._workers is None else self._workers.states()
        return {one.name: one.facts() for one in kinds.values() if isinstance(one, Kind)}

    def _start_coalescing(self, device: torch.device) -> None:
        self._plain._start_coalescing(device)
        self._coalesced = []

    def _end_coalescing(self, device: torch.device) -> dist.Work | None:
        """Of all that was begun since then: torch drops the works of single collectives."""
        own, self._coalesced = self._coalesced or [], None
        plain = self._plain._end_coalescing(device)
        if not own:
            return plain
        return Works([*own, *([] if plain is None else [plain])], [])

    def get_group_store(self) -> dist.Store:
        return self._plain.get_group_store()

    def split_group(self, *arguments: Any, **named: Any) -> Any:
        _log.warning(
            "A group that is made by split_group sums with the backends of this one, and not with peelreduce; use "
            'new_group(backend="peel").'
        )
        return self._plain.split_group(*arguments, **named)

    def shutdown(self) -> None:
        close_workers(self)
        super().shutdown()

    def abort(self) -> None:
        abort_workers(self)
        super().abort()

    # ---- sums

    def _is_ours(self, tensor: torch.Tensor, options: Any) -> bool:
        """Looks first at what most small tensors differ in, which wait for this."""
        is_sparse = tensor.layout == torch.sparse_coo
        if not is_sparse and (tensor.numel() * tensor.element_size() < _SMALL or tensor.layout != torch.strided):
            return False
        is_sum = options.reduceOp == dist.ReduceOp.SUM
        if self._size == 1 or not (is_sum or options.reduceOp == dist.ReduceOp.AVG):
            return False
        if tensor.dtype not in (TYPES if is_sparse and is_sum else _FLOATS) or tensor.device.type not in ("cpu", "cuda"):
            return False
        return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())  # lanes are not part of a graph of CUDA

    def _sum(self, tensor: torch.Tensor, options: Any) -> Work | None:
        """None: it is to be handed on."""
        if not self._is_ours(tensor, options):
            return None
        kind = self._kind_of("all_reduce", tensor, options)
        if self._is_handed_on(kind, tensor):
            return None
        return self._submit(Sum(tensor, kind.state_of(tensor), self._timeout_of(options), in_place=True), kind)

    def _scatter(self, output: torch.Tensor, input: torch.Tensor, options: Any) -> Work | None:
        """None: it is to be handed on. Of lengths that do not fit, torch speaks."""
        fits = input.numel() == self._size * output.numel() and input.dtype == output.dtype and not input.is_sparse
        if not fits or not self._is_ours(input, options):
            return None
        kind = self._kind_of("reduce_scatter", input, options)
        if self._is_handed_on(kind, input):
            return None
        timeout = self._timeout_of(options)
        task = ReduceScatter(input, output, kind.state_of(input), kind.whole, timeout, keeps_input=True)
        return self._submit(task, kind)

    def _is_handed_on(self, kind: Kind, tensor: torch.Tensor) -> bool:
        """Since sums of its kind do not pay. Refuses one that would have to be summed here, and cannot be."""
        if kind.trials.hands_on():
            _check_gaps(tensor)
            return True
        workers = self._connected()
        workers.dispatcher(None).check()  # a callback must not wait for the sum that it is called by
        kind.trials.learn()
        if kind.trials.hands_on():
            _check_gaps(tensor)
            return True
        try:
            check_tensor(tensor)
            _check_gaps(tensor)
        except (TypeError, ValueError) as error:
            refuse(error, workers, None)
            kind.trials.submitted(Outcome.of_refusal())  # as on the other workers, whose sum fails
            raise
        return False

    def _submit(self, task: Reduction, kind: Kind) -> Work:
        task.outcome = Outcome(task.done)
        self._connected().dispatcher(None).submit(task)
        kind.trials.submitted(task.outcome)
        work = Work(task)
        if self._coalesced is not None:
            self._coalesced.append(work)
        return work

    def _kind_of(self, what: str, tensor: torch.Tensor, options: Any) -> Kind:
        """Tensors of one shape share one, since nothing else tells all workers alike which tensor it is."""
        average = options.reduceOp == dist.ReduceOp.AVG
        sparse_dims = tensor.sparse_dim() if tensor.is_sparse else None
        key = ("backend", what, average, tensor.shape, tensor.dtype, tensor.device.type, sparse_dims)
        return self._connected().state_for(key, lambda: Kind(what, tensor, average=average))

    def _connected(self) -> Workers:
        if self._workers is None or self._workers.is_closed:
            self._workers = workers_of(self)
            self._workers.dispatcher(None).acquire()  # which no state that is closed ends
        return self._workers

    def _timeout_of(self, options: Any) -> float:
        """In seconds; the group's, which may be changed at any time, unless the collective has its own."""
        own = options.timeout
        if own > timedelta():
            return own.total_seconds()
        with contextlib.suppress(RuntimeError, AttributeError):
            return self._get_backend(torch.device("cpu")).options._timeout.total_seconds()
        return self._connected().timeout


def _check_gaps(tensor: torch.Tensor) -> None:
    """Gloo would take the memory of such a tensor for its elements, as soon as it is handed on."""
    if tensor.layout == torch.strided and not tensor.is_contiguous() and torch._debug_has_internal_overlap(tensor) != 0:
        raise ValueError("The elements of this tensor do not fill its memory, or share it; sum tensor.contiguous().")


# What torch calls by Python even where it is not overridden, by all names that versions of torch have for it.
_HANDED_ON = (
    "all_gather_single",
    "all_gather_single_coalesced",
    "all_to_all_single",
    "allgather",
    "allgather_into_tensor_coalesced",
    "alltoall",
    "alltoall_base",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "recv_anysource",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single_coalesced",
    "reduce_scatter_tensor_coalesced",
    "scatter",
    "send",
)


def _handing_on(name: str) -> Callable[..., dist.Work]:
    def hand_on(self: PeelGroup, *arguments: Any, **named: Any) -> dist.Work:
        return _work_of(getattr(self._plain, name)(*arguments, **named))

    return hand_on


def _work_of(handed_on: dist.Work | None) -> dist.Work:
    """NCCL has none for a collective that is not asynchronous, which not all versions of torch expect of Python."""
    return Works([], []) if handed_on is None else handed_on


for _name in _HANDED_ON:
    if hasattr(dist.ProcessGroup, _name):
        setattr(PeelGroup, _name, _handing_on(_name))
PeelGroup.recvAnysource = PeelGroup.recv_anysource  # as C++ calls it


def make_group(options: Any, of_nccl: Any) -> PeelGroup:
    """What torch calls for a group with this backend, with its options, and with those that the caller has for NCCL."""
    has_nccl = torch.cuda.is_available() and dist.is_nccl_available()
    if of_nccl is not None and not has_nccl:
        raise TypeError(
            'Options of the backend "peel" are those of its NCCL, which this process has not; leave pg_options out.'
        )
    store = options.store
    backends = {"cpu": ("gloo", _make("gloo", options, dist.PrefixStore("gloo", store), None))}
    if has_nccl:
        backends["cuda"] = ("nccl", _make("nccl", options, dist.PrefixStore("nccl", store), of_nccl))
    elif torch.cuda.is_available():
        backends["cuda"] = backends["cpu"]
    return PeelGroup(store, options.group_rank, options.group_size, backends)


def _make(name: str, options: Any, store: dist.Store, own: Any) -> Any:
    """As torch makes it; versions that have nothing to call for that make it inside a group."""
    if hasattr(dist.Backend, "_ensure_backend_registered"):
        dist.Backend._ensure_backend_registered(name)
    plugin = dist.Backend._plugins.get(name.upper())
    if plugin is not None and plugin.extended_api:
        options.store = store
        return plugin.creator_fn(options, own)
    rank, size = options.group_rank, options.group_size
    if name == "gloo":
        return dist.ProcessGroupGloo(store, rank, size, timeout=options.timeout)
    own = own if own is not None else dist.ProcessGroupNCCL.Options()
    own._timeout = options.timeout
    own.global_ranks_in_group = options.global_ranks_in_group
    own.group_name = options.group_id
    return dist.ProcessGroupNCCL(store, rank, size, own)
