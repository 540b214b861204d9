"""The hook for DistributedDataParallel.

    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
"""

import copy
import gc
import logging
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
from ._tasks import ArrayState, Estimate, Refusal, Sum, check_tensor
from ._workers import Workers, workers_of
from .functional import check_timeout
from .sparsifiers import Memory, Sparsifier

_log = logging.getLogger("peelreduce")

_FORMAT = 2
_COUNTED = ("bytes_sent", "dense_bytes", "repaired", "encode_s", "wire_s", "decode_s")
_MISSED = "missed"  # by estimates: a bucket remembers it beside what its sparsifier does
_STEPS_BETWEEN_WARNINGS = 100


@dataclass
class _Bucket:
    """What is known of one set of parameters that DDP reduces together."""

    key: str  # the same on every worker and in every run: named after its first and last parameter
    names: list[str]  # of its parameters
    dense: bool  # on purpose: early, or small
    estimates: bool
    parameters: list[torch.Tensor]  # held, so that no other tensor gets their identity
    state: ArrayState
    memory: Memory  # of the sparsifier and of estimates, as long as the bucket
    estimate_bytes: int = 0  # in this step; 0 is exact
    last_step: int = 0  # in which it was seen

    @property
    def sizes(self) -> list[int]:
        return [parameter.numel() for parameter in self.parameters]


@dataclass
class _SavedMemory:
    """That of a bucket, out of a checkpoint; taken from it parameter by parameter."""

    names: list[str]
    sizes: list[int]
    memory: Memory


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
        estimate: sends sketches of this share of the dense bytes of all buckets, in one round, and takes estimates where
            they are too small to be exact; lossy, see below.
        transport: a Switch through which sums go; over the process group unless there is one.

    Buckets are named after their parameters in stats(), logs, errors and checkpoints.

    Making or loading one communicates nothing; the first bucket does. What connects the workers belongs to their process
    group and ends with it; to end it earlier, close all states that use it, on all workers: by close() or a `with` block.

    With `estimate`, a bucket is summed exactly when it is new (in the first step, and in the second, since DDP forms its
    buckets anew after the first). From then on buckets share the bytes by the unions of their last step. What an estimate
    misses waits on its worker and is added to the next gradient, unless it points against it; `lost` and
    `estimate_error` of a report say how much it was. What share to take: 1.4 times the density of the union
    (`density` in stats()) loses nothing. Less than that trains, and takes more steps: with 0.02 to 0.6 of a small dense
    model, losses were up to a fifth above those of exact sums after the same number of steps (docs/design.md has the
    table). A warning is logged where estimate_error is above 0.95, since it takes seven steps and more then until half of
    a gradient has arrived.
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
        self._names: dict[int, tuple[str, torch.Tensor]] = {}  # of parameters, by identity; held, or another got theirs
        self._shared_step = -1  # in which buckets were last told their bytes
        self._warned_step: int | None = None
        self._workers: Workers | None = None  # found with the first bucket
        self._dispatcher: Dispatcher | None = None
        self._failures: list[BaseException] = []  # of the last backward pass
        self._buckets: dict[tuple[int, ...], _Bucket] = {}
        self._saw_all = False  # parameters of the model
        self._saved: dict[str, bytes] = {}  # loaded, for buckets that were not seen yet
        self._saved_bytes: dict[str, int] = {}  # of their estimates
        self._saved_memory: dict[str, _SavedMemory] = {}
        self._forgotten: Counter[str] = Counter()  # totals of buckets that are gone

    def __repr__(self) -> str:
        options = [f"strategy={self.strategy!r}"]
        options += [f"{name}={getattr(self, name)!r}" for name in ("estimate", "transport") if getattr(self, name)]
        options += [f"sparsifier={type(self.sparsifier).__name__}"] * (self.sparsifier is not None)
        return f"<peelreduce.DDPState({', '.join(options)}): {self.step} steps, {len(self._buckets)} buckets>"

    def __deepcopy__(self, memo: dict[int, Any]) -> "DDPState":
        """For another model: options and memory are copied, the process group and a switch are shared. Between two steps."""
        other = DDPState(
            self.process_group,
            strategy=self.strategy,
            timeout=self.timeout,
            min_bytes=self.min_bytes,
            start_step=self.start_step,
            threads=self.threads,
            sparsifier=copy.deepcopy(self.sparsifier, memo),
            check_every=self.check_every,
            estimate=self.estimate,
            transport=self.transport,
        )
        memo[id(self)] = other
        other.load_state_dict(self.state_dict())
        return other

    def reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Averages a bucket over all workers; returns at once."""
        dispatcher, timeout = self._connected(bucket)
        tensor = bucket.buffer()
        try:
            check_tensor(tensor)
            self._share_estimate()
            known = self._known(bucket, tensor)
        except (TypeError, ValueError) as error:
            dispatcher.submit(Refusal(error, timeout, is_alone=False))
            raise
        sparsifier = None if known.dense or tensor.is_sparse else self.sparsifier
        select = None
        if sparsifier is not None:
            select = partial(sparsifier.apply, memory=known.memory, sizes=known.sizes)
        estimate = Estimate(known.estimate_bytes, known.memory) if known.estimates else None
        task = Sum(tensor, known.state, timeout, select=select, estimate=estimate)
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
        if self._workers is None or self._workers.is_closed:
            self._dispatcher = None
            models = models_of(self, bucket.parameters())
            self._workers = workers_of(self.process_group if self.process_group is not None else group_of(models))
            if self._workers is None:
                raise ValueError("This process is not in the process group of its DDPState; give it the model's.")
            for one in models[:1]:
                self._names.update({id(found): (name, found) for name, found in one.module.named_parameters()})
        if self._dispatcher is None:
            self._dispatcher = self._workers.dispatcher(self.transport)
            self._dispatcher.acquire()
        if bucket.index() == 0:
            self._failures = []
            self._dispatcher.begin_step()  # of a failed one backward() has raised the error
        return self._dispatcher, self._workers.timeout_for(self.timeout)

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

        With a sparsifier or estimates every worker saves its own: what waits to be sent differs.
        """
        saved = dict(self._saved)
        used = [one for one in self._buckets.values() if self._is_used(one)]  # those before have given theirs away
        saved.update({one.key: one.state.core.serialise() for one in used})
        shares = {**self._saved_bytes, **self._estimate_shares()}
        memory = dict(self._saved_memory)
        memory.update({one.key: _SavedMemory(one.names, one.sizes, one.memory) for one in used if one.memory})
        waiting = {key: _cloned(one.memory, but=_MISSED) for key, one in memory.items()}
        return {
            "format": _FORMAT,
            "step": self.step,
            "buckets": {key: list(state) for key, state in saved.items()},
            "parameters": {key: dict(zip(one.names, one.sizes, strict=True)) for key, one in memory.items()},
            "sparsifier": {key: one for key, one in waiting.items() if one},
            "missed": {key: one.memory[_MISSED].clone() for key, one in memory.items() if _MISSED in one.memory},
            "estimate_bytes": shares,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what state_dict() gave, of a model with the same parameters.

        All workers load, or none. If some do not, they choose anew together with the others (`reset` in the reports), or
        all of them raise a sentence that says in what they differ; a step before which only some have loaded must not be
        in the middle of a run.
        """
        if state_dict.get("format") != _FORMAT:
            raise ValueError("This is not a state_dict of peelreduce.DDPState, or of another version; start anew.")
        self.step = int(state_dict["step"])
        for identity in list(self._buckets):
            self._forget(identity)
        self._saw_all = False
        self._saved = {str(key): bytes(state) for key, state in state_dict["buckets"].items()}
        self._saved_bytes = {str(key): int(nbytes) for key, nbytes in state_dict["estimate_bytes"].items()}
        self._saved_memory = {}
        for key, sizes in state_dict["parameters"].items():
            memory = _cloned(state_dict["sparsifier"].get(key, {}))
            if key in state_dict["missed"]:
                memory[_MISSED] = state_dict["missed"][key].clone()
            self._saved_memory[str(key)] = _SavedMemory(list(sizes), list(sizes.values()), memory)

    def _known(self, bucket: dist.GradBucket, tensor: torch.Tensor) -> _Bucket:
        """By the bucket's parameters: DDP numbers its buckets anew after the first step."""
        dense = self.step < self.start_step or tensor.numel() * tensor.element_size() < self.min_bytes
        parameters = bucket.parameters()
        identity = (int(dense), *(id(parameter) for parameter in parameters))
        found = self._buckets.get(identity)
        if found is None:
            self._check_model(parameters)
            for place, parameter in enumerate(parameters):
                self._names.setdefault(id(parameter), (f"{bucket.index()}.{place}", parameter))
            found = self._new_bucket(parameters, tensor, dense)
            self._buckets[identity] = found
        found.last_step = self.step
        return found

    def _new_bucket(self, parameters: list[torch.Tensor], tensor: torch.Tensor, dense: bool) -> _Bucket:
        names = [self._names[id(parameter)][0] for parameter in parameters]
        key = names[0] if len(names) == 1 else f"{names[0]}..{names[-1]}"
        key += " (dense)" if dense else ""
        new = _Bucket(
            key=key,
            names=names,
            dense=dense,
            estimates=self.estimate is not None and not dense and not tensor.is_sparse,
            parameters=parameters,
            state=self._new_state(key, tensor, dense),
            memory={},
        )
        for saved in self._saved_memory.values():
            _move_memory(saved, new, tensor)
        for one in self._buckets.values():
            if one.last_step < self.step:  # lanes may be at work on the others
                _move_memory(_SavedMemory(one.names, one.sizes, one.memory), new, tensor)
        if new.estimates:
            new.estimate_bytes = self._saved_bytes.pop(key, 0)
        return new

    def _share_estimate(self) -> None:
        """At the first bucket of a step, when all sums of the step before are over: DDP has waited for them."""
        if self.estimate is None or self._shared_step == self.step:
            return
        self._shared_step = self.step
        shares = self._estimate_shares()
        for one in self._buckets.values():
            one.estimate_bytes = shares.get(one.key, 0)
        self._warn_of_error()

    def _estimate_shares(self) -> dict[str, int]:
        """Bytes of the next step's estimates, of buckets that have been summed: by their last unions, which all workers
        know, and to a small part by their lengths, since a union that was empty may not be so again."""
        known = [one for one in self._buckets.values() if one.estimates and one.last_step == self.step - 1]
        weights = {
            one.key: one.state.union_bytes + one.state.nbytes / 64 for one in known if one.state.union_bytes is not None
        }
        budget = (self.estimate or 0) * sum(one.state.nbytes for one in known if one.key in weights)
        whole = sum(weights.values())
        return {key: max(1, round(budget * weight / whole)) for key, weight in weights.items()}

    def _warn_of_error(self) -> None:
        lately = self._warned_step is not None and self.step < self._warned_step + _STEPS_BETWEEN_WARNINGS
        if lately:
            return
        errors = {one.key: one.state.last().get("estimate_error", 0.0) for one in self._buckets.values() if one.estimates}
        key = max(errors, key=errors.__getitem__, default="")
        if not key or errors[key] <= _core.LARGEST_ESTIMATE_ERROR:
            return
        self._warned_step = self.step
        _log.warning(
            "Estimates of bucket %s missed %.1f%% of its gradient, by the norm, in step %d. Gradients arrive many steps "
            "late, and training takes more of them. Use a larger share than estimate=%g.",
            key,
            100 * errors[key],
            self.step - 1,
            self.estimate,
        )

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
        self._saved_memory = {}  # this step had all parameters, and they have it

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
            unasked_steps=self.check_every - 1,
        )
        if key in self._saved:
            state.restore(self._saved.pop(key))
        return state


def models_of(state: object, parameters: list[torch.Tensor]) -> list[DistributedDataParallel]:
    """Those that reduce these parameters, with this state if some do: a hook is not told."""
    wanted = {id(parameter) for parameter in parameters}
    models = [
        one
        for one in gc.get_objects()
        if issubclass(type(one), DistributedDataParallel) and wanted <= {id(parameter) for parameter in one.parameters()}
    ]
    return [one for one in models if any(found is state for _, found in one._comm_hooks)] or models


def group_of(models: list[DistributedDataParallel]) -> dist.ProcessGroup:
    groups = {id(one.process_group): one.process_group for one in models}
    if len(groups) != 1:
        found = "no DistributedDataParallel" if not groups else "several, of different process groups, that"
        raise ValueError(
            f"The process group of this model cannot be told: there is {found} reduces its parameters; give it to "
            "DDPState(process_group=...)."
        )
    return groups.popitem()[1]


def _cloned(memory: Memory, but: str = "") -> Memory:
    return {name: tensor.clone() for name, tensor in memory.items() if name != but}


def _move_memory(source: _SavedMemory, target: _Bucket, like: torch.Tensor) -> None:
    """To a bucket that has some of its parameters: these lie one after another, as DDP lays them out."""
    sizes = target.sizes
    places = {name: place for place, name in enumerate(target.names)}
    for name, size in zip(source.names, source.sizes, strict=True):
        if name in places and size != sizes[places[name]]:
            raise ValueError(
                f"The checkpoint of DDPState is of another model: parameter {name} has {size} elements there and "
                f"{sizes[places[name]]} here. Start anew."
            )
    for what, values in source.memory.items():
        for name, part in zip(source.names, values.split(source.sizes), strict=True):
            if name in places:
                if what not in target.memory:
                    target.memory[what] = torch.zeros(sum(sizes), dtype=values.dtype, device=like.device)
                target.memory[what].split(sizes)[places[name]].add_(part.to(like.device))
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
