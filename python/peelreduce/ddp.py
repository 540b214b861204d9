"""The hook for DistributedDataParallel.

    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
"""

import gc
import hashlib
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import _core
from ._dispatcher import Dispatcher
from ._switch import Switch, check_transport
from ._tasks import ArrayState, Refusal, Sum, check_tensor
from ._workers import Workers, workers_of
from .functional import check_timeout
from .sparsifiers import Memory, Sparsifier

_FORMAT = 1
_COUNTED = ("bytes_sent", "dense_bytes", "repaired", "encode_s", "wire_s", "decode_s")


@dataclass
class _Bucket:
    """What is known of one set of parameters that DDP reduces together."""

    name: str  # of the shapes of its parameters
    order: int  # among the buckets of these shapes, in the last step that had it
    dense: bool  # on purpose: early, or small
    parameters: list[torch.Tensor]  # held, so that no other tensor gets their identity
    state: ArrayState
    memory: Memory  # of the sparsifier
    last_step: int = 0  # in which it was seen

    @property
    def key(self) -> str:
        """The same in every run."""
        return f"{self.name}-{self.order}"


class DDPState:
    """Options and memory of the hook; one for each model.

    Args:
        process_group: the workers of the model; those of its DistributedDataParallel unless told otherwise.
        strategy: "auto", or one of "dense", "packed", "sketch", "split" and "gather".
        timeout: seconds after which a worker that does not answer is an error; None takes that of the process group.
        min_bytes: buckets smaller than this are summed dense.
        start_step: steps before this one are summed dense, as in torch's own hooks.
        threads: of each worker's codec; 0 takes all cores.
        sparsifier: sends only a part of each dense gradient now, and the rest later; lossy, see TopK and Threshold.
        check_every: buckets that are summed dense are checked to be the same on all workers in every so many steps, not
            in each; 1 for each. DDP itself sees to it that they are.
        estimate: sends sketches of this share of each dense bucket's bytes, in one round, and takes estimates where they
            are too small to be exact; lossy, and `lost` in the reports says how much was estimated.
        transport: a Switch through which sums go; over the process group unless there is one.

    Making or loading one communicates nothing; the first bucket does. What connects the workers belongs to their process
    group and ends with it; to end it earlier, close all states that use it, on all workers: by close() or a `with` block.
    """

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        strategy: str = "auto",
        timeout: float | None = None,
        min_bytes: int = 0,
        start_step: int = 0,
        threads: int = 1,
        sparsifier: Sparsifier | None = None,
        check_every: int = 8,
        estimate: float | None = None,
        transport: Switch | None = None,
    ) -> None:
        if check_every < 1:
            raise ValueError(f"check_every must be at least 1, not {check_every}.")
        if estimate is not None and not 0 < estimate <= 4:
            raise ValueError(f"estimate is a share of a bucket's bytes, above 0 and at most 4, not {estimate}.")
        if estimate is not None and strategy not in ("auto", "sketch"):
            raise ValueError(f'Estimates come from sketches; strategy must be "auto" or "sketch", not "{strategy}".')
        _core.State(strategy=strategy)  # refuses an unknown one here, and not in the first backward pass
        check_transport(transport, strategy)
        if transport is not None and (strategy == "dense" or min_bytes or start_step):
            raise ValueError(
                'A switch adds integers, so gradients have no dense sums there; use strategy "auto", "packed" or "sketch", '
                "and leave min_bytes and start_step at 0."
            )
        check_timeout(timeout)
        self.process_group = process_group
        self.strategy = strategy
        self.timeout = timeout
        self.min_bytes = min_bytes
        self.start_step = start_step
        self.threads = threads
        self.sparsifier = sparsifier
        self.check_every = check_every
        self.estimate = estimate
        self.transport = transport
        self.step = 0
        self._seen: Counter[str] = Counter()  # buckets of this step, by name
        self._workers: Workers | None = None  # found with the first bucket
        self._dispatcher: Dispatcher | None = None
        self._failures: list[BaseException] = []  # of the last backward pass
        self._buckets: dict[tuple[int, ...], _Bucket] = {}
        self._saw_all = False  # parameters of the model
        self._saved: dict[str, bytes] = {}  # loaded, for buckets that were not seen yet
        self._saved_memory: dict[str, Memory] = {}
        self._forgotten: Counter[str] = Counter()  # totals of buckets that are gone

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket over all workers; returns at once."""
        dispatcher, timeout = self._connected(bucket)
        tensor = bucket.buffer()
        try:
            check_tensor(tensor)
            known = self._known(bucket, tensor)
        except (TypeError, ValueError) as error:
            dispatcher.submit(Refusal(error, timeout))
            raise
        sparsifier = None if known.dense or tensor.is_sparse else self.sparsifier
        select = None if sparsifier is None else partial(sparsifier.apply, memory=known.memory)
        task = Sum(tensor, known.state, timeout, select=select)
        task.note_failure = self._failures.append
        if bucket.is_last():
            self._end_step()
        dispatcher.submit(task)
        return task.result.then(_value)

    @property
    def error(self) -> BaseException | None:
        """What the last backward pass failed with, or None. Torch raises it from backward() as a RuntimeError that has its
        sentence but not its class."""
        return self._failures[0] if self._failures else None

    def close(self) -> None:
        """Ends what connects the workers if no other state uses it. Every worker closes the same states."""
        if self._dispatcher is not None:
            self._dispatcher.release()
            self._dispatcher = None

    def __enter__(self) -> "DDPState":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _connected(self, bucket: dist.GradBucket) -> tuple[Dispatcher, float]:
        """What sums the bucket, and how long it waits for the others."""
        if self._workers is None:
            group = self.process_group if self.process_group is not None else group_of(self, bucket.parameters())
            self._workers = workers_of(group)
            if self._workers is None:
                raise ValueError("This process is not in the process group of its DDPState; give it the model's.")
        if self._dispatcher is None:
            self._dispatcher = self._workers.dispatcher(self.transport)
            self._dispatcher.acquire()
        if bucket.index() == 0:
            self._failures = []
            self._dispatcher.begin_step()  # of a failed one backward() has raised the error
        return self._dispatcher, self.timeout if self.timeout is not None else self._workers.timeout

    def stats(self) -> dict[str, Any]:
        """What was sent and saved so far: totals, and for each bucket its density, its totals and its last report.

        Reports name the strategy that was chosen, what had to be repaired, and the time that each part took. Density is
        that of the union of all workers, in whole items, and unknown of dense sums. What torch and the network add to the
        bytes is not counted.
        """
        all_buckets = [(one, one.state.facts()) for one in list(self._buckets.values())]
        totals = Counter(self._forgotten)
        for _, facts in all_buckets:
            totals.update({name: facts["totals"][name] for name in _COUNTED})
        buckets = {one.key: facts for one, facts in all_buckets if self._is_used(one)}
        saved = totals["dense_bytes"] - totals["bytes_sent"]
        return {
            "steps": self.step,
            **{name: totals[name] for name in _COUNTED},
            "bytes_saved": saved,
            "buckets": buckets,
        }

    def state_dict(self) -> dict[str, Any]:
        """Plain values and tensors, which torch.load takes without unpickling objects. Between two steps.

        With a sparsifier every worker saves its own: what waits to be sent differs.
        """
        saved = dict(self._saved)
        used = [one for one in self._buckets.values() if self._is_used(one)]  # those before have given theirs away
        saved.update({one.key: one.state.core.serialise() for one in used})
        memory = dict(self._saved_memory)
        memory.update({one.key: _cloned(one.memory) for one in used if one.memory})
        return {
            "format": _FORMAT,
            "step": self.step,
            "buckets": {key: list(state) for key, state in saved.items()},
            "sparsifier": memory,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what state_dict() gave. All workers load, or none."""
        if state_dict.get("format") != _FORMAT:
            raise ValueError("This is not a state_dict of peelreduce.DDPState, or of another version; start anew.")
        self.step = int(state_dict["step"])
        for identity in list(self._buckets):
            self._forget(identity)
        self._seen.clear()
        self._saw_all = False
        self._saved = {str(key): bytes(state) for key, state in state_dict["buckets"].items()}
        self._saved_memory = {str(key): _cloned(memory) for key, memory in state_dict["sparsifier"].items()}

    def _known(self, bucket: dist.GradBucket, tensor: torch.Tensor) -> _Bucket:
        """By the bucket's parameters: DDP numbers its buckets anew after the first step."""
        dense = self.step < self.start_step or tensor.numel() * tensor.element_size() < self.min_bytes
        parameters = bucket.parameters()
        identity = (int(dense), *(id(parameter) for parameter in parameters))
        found = self._buckets.get(identity)
        if found is None:
            self._check_model(parameters)
            found = self._new_bucket(parameters, tensor, dense)
            self._buckets[identity] = found
        found.last_step = self.step
        found.order = self._seen[found.name]
        self._seen[found.name] += 1
        return found

    def _new_bucket(self, parameters: list[torch.Tensor], tensor: torch.Tensor, dense: bool) -> _Bucket:
        shapes = repr((dense, [tuple(parameter.shape) for parameter in parameters]))
        name = hashlib.blake2s(shapes.encode(), digest_size=8).hexdigest()
        order = self._seen[name]
        key = f"{name}-{order}"
        memory = self._saved_memory.pop(key, {})
        for one in self._buckets.values():
            if one.last_step < self.step:  # lanes may be at work on the others
                _move_memory(one.memory, one.parameters, memory, parameters)
        return _Bucket(name, order, dense, parameters, self._new_state(key, tensor, dense), memory)

    def _is_used(self, one: _Bucket) -> bool:
        """Not one that DDP had before it formed its buckets anew."""
        return one.last_step >= self.step - 1

    def _check_model(self, parameters: list[torch.Tensor]) -> None:
        """Every step has all parameters of a model. Two models would have each other's buckets forgotten."""
        known = {id(parameter) for one in self._buckets.values() for parameter in one.parameters}
        if self._saw_all and not known.issuperset(id(parameter) for parameter in parameters):
            raise ValueError(
                "This DDPState has summed another set of parameters, and remembers one model; make a DDPState for each "
                "DistributedDataParallel."
            )

    def _end_step(self) -> None:
        """Forgets buckets that DDP no longer uses: it forms them anew after the first step."""
        self._saw_all = True
        gone = [identity for identity, one in self._buckets.items() if one.last_step < self.step]
        if self.step > 1:
            for identity in gone:
                self._forget(identity)
        self.step += 1
        self._seen.clear()

    def _forget(self, identity: tuple[int, ...]) -> None:
        totals = self._buckets.pop(identity).state.facts()["totals"]
        self._forgotten.update({name: totals[name] for name in _COUNTED})

    def _new_state(self, key: str, tensor: torch.Tensor, dense: bool) -> ArrayState:
        strategy = "dense" if dense else self.strategy
        state = ArrayState(
            tensor,
            average=True,
            strategy=strategy,
            threads=self.threads,
            name=f"bucket {key}",
            estimate=None if dense else self.estimate,
            unasked_steps=self.check_every - 1,
        )
        if key in self._saved:
            state.core.restore(self._saved.pop(key))
        return state


def group_of(state: object, parameters: list[torch.Tensor]) -> dist.ProcessGroup:
    """That of the DistributedDataParallel which reduces these parameters with this state: a hook is not told."""
    wanted = {id(parameter) for parameter in parameters}
    models = [
        one
        for one in gc.get_objects()
        if issubclass(type(one), DistributedDataParallel) and wanted <= {id(parameter) for parameter in one.parameters()}
    ]
    hooked = [one for one in models if any(found is state for _, found in one._comm_hooks)]
    groups = {id(one.process_group): one.process_group for one in hooked or models}
    if len(groups) != 1:
        found = "no DistributedDataParallel" if not groups else "several, of different process groups, that"
        raise ValueError(
            f"The process group of this model cannot be told: there is {found} reduces its parameters; give it to "
            "DDPState(process_group=...)."
        )
    return groups.popitem()[1]


def _cloned(memory: Memory) -> Memory:
    return {name: tensor.clone() for name, tensor in memory.items()}


def _move_memory(source: Memory, has: list[torch.Tensor], target: Memory, wants: list[torch.Tensor]) -> None:
    """From a bucket to one that has some of its parameters: these lie one after another, as DDP lays them out."""
    sizes = [parameter.numel() for parameter in wants]
    places = dict(zip(map(id, wants), range(len(wants)), strict=True))
    for name, values in source.items():
        for parameter, part in zip(has, values.split([one.numel() for one in has]), strict=True):
            if id(parameter) in places:
                into = target.setdefault(name, values.new_zeros(sum(sizes)))
                into.split(sizes)[places[id(parameter)]].add_(part)
                part.zero_()


def _value(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
    """Raises what went wrong. DDP does not look whether a future made in Python holds an error; it does of this one."""
    return future.value()


def allreduce_hook(state: DDPState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages gradients over all workers; for DistributedDataParallel.register_comm_hook."""
    if not isinstance(state, DDPState):
        raise TypeError(f"The state of this hook is a peelreduce.DDPState, not {type(state).__name__}.")
    if not isinstance(bucket, dist.GradBucket):
        raise TypeError(f"This hook reduces buckets of DistributedDataParallel, not {type(bucket).__name__}.")
    return state.reduce(bucket)
