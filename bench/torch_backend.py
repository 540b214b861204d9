"""What the backend "peel" costs and saves against Gloo, in host memory:

    GLOO_SOCKET_IFNAME=lo torchrun --nproc-per-node 2 bench/torch_backend.py

The two take turns in random order, each with a new gradient and after a barrier, and each time is that of the slower
worker. A second group of Gloo shows how far two of them differ. The first quartile of all times is told, since other
programs may run beside, after as many sums as the backend needs to tell dense from sparse; "in all" are the means, which
the sums that try again what was found to be dense are part of.

Every sum is compared with one that torch computes in one process from the seeds of all workers: bit by bit where there are
two workers, which have only one order of additions, and within the rounding of other orders else. Exit status: 1 where a
sum is wrong.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

_WARM_UP = 8


def gradient(elements: int, density: float, seed: int) -> torch.Tensor:
    """The same for the same seed, on every worker."""
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(elements, generator=draw)
    return values if density == 1 else values * (torch.rand(elements, generator=draw) < density)


def perform_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    dist.all_reduce(tensor, group=group)
    return tensor


def perform_reduce_scatter(tensor: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
    share = torch.empty(tensor.numel() // dist.get_world_size())
    dist.reduce_scatter_tensor(share, tensor, group=group)
    return share


class Round:
    """One sum of each group, of the same gradients, timed and compared."""

    def __init__(self, perform: Callable[..., torch.Tensor], elements: int, density: float, seed: int) -> None:
        self._perform = perform
        each = [gradient(elements, density, seed * dist.get_world_size() + rank) for rank in range(dist.get_world_size())]
        self._own = each[dist.get_rank()]
        self._sum = sum(each)
        self._magnitude = sum(one.abs() for one in each)

    def seconds(self, group: dist.ProcessGroup) -> float:
        tensor = self._own.clone()
        dist.barrier()
        begin = time.perf_counter()
        result = self._perform(tensor, group)
        took = torch.tensor(time.perf_counter() - begin)
        self._check(result)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        return float(took)

    def _check(self, result: torch.Tensor) -> None:
        part = slice(None)
        if result.numel() < self._sum.numel():
            part = slice(dist.get_rank() * result.numel(), (dist.get_rank() + 1) * result.numel())
        if dist.get_world_size() == 2:
            wrong = int((result != self._sum[part]).sum())
        else:
            room = dist.get_world_size() * torch.finfo(result.dtype).eps * self._magnitude[part]
            wrong = int(((result - self._sum[part]).abs() > room).sum())
        if wrong:
            sys.exit(f"{wrong} of {result.numel()} elements of a sum are wrong")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8, help="for each line")
    parser.add_argument("--kib", type=int, nargs="+", default=[1, 64, 256, 1024, 4096, 25600])
    parser.add_argument("--density", type=float, nargs="+", default=[1, 0.01])
    parser.add_argument("--only", choices=["all_reduce", "reduce_scatter"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    draw = random.Random(1)  # the same on all workers
    groups = {"gloo": dist.new_group(), "peel": dist.new_group(backend="peel"), "gloo again": dist.new_group()}
    performs = {"all_reduce": perform_all_reduce, "reduce_scatter": perform_reduce_scatter}
    for operation in [options.only] if options.only else performs:
        for density in options.density:
            for kib in options.kib:
                times: dict[str, list[float]] = {name: [] for name in groups}
                end = time.monotonic() + options.seconds
                goes_on = torch.ones(1)
                while goes_on:
                    one = Round(performs[operation], kib << 8, density, seed=len(times["peel"]))
                    for name in draw.sample([*groups], len(groups)):
                        times[name].append(one.seconds(groups[name]))
                    goes_on.fill_(time.monotonic() < end or len(times["peel"]) < 2 * _WARM_UP)
                    dist.broadcast(goes_on, src=0)
                took = {name: 1e3 * statistics.quantiles(one[_WARM_UP:], n=4)[0] for name, one in times.items()}
                mean = {name: statistics.fmean(one[_WARM_UP:]) for name, one in times.items()}
                if dist.get_rank() == 0:
                    plain = (took["gloo"] + took["gloo again"]) / 2
                    print(
                        f"{operation:14} density {density:<5g} {kib:6} KiB "
                        f"{len(times['peel']):5} times: Gloo {took['gloo']:8.3f} and {took['gloo again']:8.3f} ms, "
                        f"peel {took['peel']:8.3f} ms, {took['peel'] / plain:6.3f} of Gloo, "
                        f"in all {2 * mean['peel'] / (mean['gloo'] + mean['gloo again']):6.3f}",
                        flush=True,
                    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
