"""Reduce-scatter for FSDP2 (torch.distributed.fsdp.fully_shard).

    fully_shard(model)
    peelreduce.apply_fsdp(model)
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ._tasks import ReduceScatter, check_tensor
from .functional import State, Work, is_average, perform


class ScatterGradients:
    """What FSDP calls for the gradients of one module: its protocol of a custom reduce-scatter."""

    def __init__(self, *, strategy: str, timeout: float, threads: int) -> None:
        self.state = State(strategy=strategy, timeout=timeout, threads=threads)

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
        check_tensor(input_tensor)
        workers = dist.get_world_size(group)
        if input_tensor.numel() != workers * output_tensor.numel():
            raise ValueError(
                f"{workers} workers get {output_tensor.numel()} elements each, but there are {input_tensor.numel()}."
            )
        state = self.state.array_state(input_tensor, average=is_average(op, input_tensor))
        task = ReduceScatter(input_tensor, output_tensor, state)
        return perform(task, group, self.state.timeout, async_op)


def apply_fsdp(
    model: torch.nn.Module, *, strategy: str = "auto", timeout: float = 60.0, threads: int = 1
) -> list[ScatterGradients]:
    """Has every FSDP module in the model scatter its gradients with this library. Returns what each of them uses."""
    if strategy not in ("auto", "dense", "split"):
        raise ValueError(f'A reduce-scatter is "auto", "dense" or "split", not "{strategy}".')
    modules = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("There is no FSDP module in this model; call fully_shard first.")
    scatters = []
    for module in modules:  # the setter does not reach the modules inside
        scatter = ScatterGradients(strategy=strategy, timeout=timeout, threads=threads)
        module.set_custom_reduce_scatter(scatter)
        scatters.append(scatter)
    return scatters
