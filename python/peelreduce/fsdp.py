"""Reduce-scatter for FSDP2 (torch.distributed.fsdp.fully_shard).

    fully_shard(model)
    peelreduce.apply_fsdp(model)

Hybrid sharding: torch's own (a mesh of two dimensions) sums shards over the replicas before it calls any hook, and there
is no way to replace that sum without patching torch. So shard over one dimension, and let this library average over the
other:

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    peelreduce.apply_fsdp(model, replicas=mesh["replicate"].get_group())
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ._tasks import ReduceScatter, check_tensor
from ._whole_sums import WholeSums
from ._workers import workers_of
from .functional import State, Work, all_reduce, is_average, perform, refuse


class ScatterGradients:
    """What FSDP calls for the gradients of one module: its protocol of a custom reduce-scatter."""

    def __init__(self, *, strategy: str, timeout: float | None, threads: int) -> None:
        self.state = State(strategy=strategy, timeout=timeout, threads=threads)
        self.replicas: AverageReplicas | None = None
        self._whole = WholeSums(strategy)

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp | dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> Work | None:
        members = workers_of(group)
        assert members is not None  # FSDP scatters among the group's own
        try:
            check_tensor(input_tensor)
            if input_tensor.numel() != members.size * output_tensor.numel():
                raise ValueError(
                    f"{members.size} workers get {output_tensor.numel()} elements each, but there are "
                    f"{input_tensor.numel()}."
                )
            state = self.state.array_state(input_tensor, average=is_average(op, input_tensor))
        except (TypeError, ValueError) as error:
            refuse(error, members, self.state)
            raise
        timeout = members.timeout_for(self.state.timeout)
        task = ReduceScatter(input_tensor, output_tensor, state, self._whole, timeout)
        return perform(task, members, self.state, async_op)


class AverageReplicas:
    """What FSDP calls for its shard of the gradients of one module, to average it over those who hold the same shard."""

    def __init__(self, group: dist.ProcessGroup, *, strategy: str, timeout: float | None, threads: int) -> None:
        self.state = State(strategy=strategy, timeout=timeout, threads=threads)
        self._group = group

    def __call__(self, shard: torch.Tensor) -> None:
        all_reduce(shard, dist.ReduceOp.AVG, self._group, state=self.state)


def apply_fsdp(
    model: torch.nn.Module,
    *,
    replicas: dist.ProcessGroup | None = None,
    strategy: str = "auto",
    timeout: float | None = None,
    threads: int = 1,
) -> list[ScatterGradients]:
    """Has every FSDP module in the model scatter its gradients with this library. Returns what each of them uses.

    With `replicas`, the workers that hold the same shard, these then average it.
    """
    if strategy not in ("auto", "dense", "split"):
        raise ValueError(f'A reduce-scatter is "auto", "dense" or "split", not "{strategy}".')
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("There is no FSDP module in this model; call fully_shard first.")
    scatters = []
    for module in modules:  # the setter does not reach the modules inside
        scatter = ScatterGradients(strategy=strategy, timeout=timeout, threads=threads)
        module.set_custom_reduce_scatter(scatter)
        if replicas is not None:
            scatter.replicas = AverageReplicas(replicas, strategy=strategy, timeout=timeout, threads=threads)
            module.set_all_reduce_hook(scatter.replicas)
        scatters.append(scatter)
    return scatters
