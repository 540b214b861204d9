"""What the examples share: their options, the loop that times every step, and words or items that follow Zipf's law."""

import argparse
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass

import peelreduce
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Workload:
    """What one worker trains, without how gradients are summed."""

    model: torch.nn.Module
    make_optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
    draw_batch: Callable[[int, int], tuple[torch.Tensor, ...]]  # of a step and a rank, in host memory
    loss_of: Callable[..., torch.Tensor]  # of the model, or what wraps it, and a batch


def make_parser(description: str | None, full: str, batch: str) -> argparse.ArgumentParser:
    """The options of every example. Without --batch it is None: the example chooses by size."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help=full)
    parser.add_argument("--reduce", choices=["peel", "ddp", "nothing"], default="peel")
    parser.add_argument("--strategy", default="auto", help="of peelreduce (default auto)")
    through = "sum through the switch at this address, with the secret of PEEL_SWITCH_SECRET"
    parser.add_argument("--switch", metavar="HOST:PORT", help=through)
    parser.add_argument("--steps", type=_positive, default=20)
    parser.add_argument("--batch", type=_positive, help=f"of each worker (default {batch})")
    what = "where to write JSON lines: step, loss and seconds of each step"
    parser.add_argument("--losses", type=_new_file, metavar="FILE", help=what)
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"give a number from 1 on, not '{text}'.")
    return int(text)


def _new_file(text: str) -> pathlib.Path:
    path = pathlib.Path(text)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"'{text}' cannot be written; give a file in a folder that exists.")
    return path


def register_hook(options: argparse.Namespace, model: DistributedDataParallel) -> peelreduce.DDPState:
    """Has gradients summed as the options say: by peelreduce, as DDP does by itself, or not at all."""
    transport = peelreduce.Switch(options.switch) if options.switch else None
    state = peelreduce.DDPState(strategy=options.strategy, transport=transport)
    if options.reduce == "peel":
        model.register_comm_hook(state, peelreduce.allreduce_hook)
    elif options.reduce == "nothing":
        model.register_comm_hook(None, _send_nothing)
    return state


def _send_nothing(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """For comparison: what a step takes without any communication. The models drift apart."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def train(
    options: argparse.Namespace,
    work: Workload,
    model: DistributedDataParallel,
    state: peelreduce.DDPState,
) -> None:
    """Steps of the workload, whose model is wrapped. Rank 0 prints each, then what a step took and what was sent.

    Workers wait for each other before a step, so that its time is not that of drawing somebody else's batch.
    """
    rank = dist.get_rank()
    torch.manual_seed(rank)  # the models are made: from here on, workers drop out units of their own
    optimizer = work.make_optimizer(model.parameters())
    times = []
    with ExitStack() as files:
        log = files.enter_context(options.losses.open("w")) if options.losses and rank == 0 else None
        for step in range(options.steps):
            batch = work.draw_batch(step, rank)
            dist.barrier()
            begin = time.perf_counter()
            optimizer.zero_grad()
            loss = work.loss_of(model, *batch)
            loss.backward()
            optimizer.step()
            times.append(time.perf_counter() - begin)
            if rank == 0:
                print(f"step {step}: loss {loss.item():.6f}, {times[-1] * 1e3:.0f} ms", flush=True)
            if log:
                print(json.dumps({"step": step, "loss": loss.item(), "seconds": times[-1]}), file=log, flush=True)
    if rank == 0:
        parameters = sum(parameter.numel() for parameter in model.parameters())
        print(f"{parameters / 1e6:.1f} million parameters, {statistics.median(times[5:] or times) * 1e3:.0f} ms a step")
        if options.reduce == "peel":
            stats = state.stats()
            print(f"sent {stats['bytes_sent'] / max(stats['dense_bytes'], 1):.2%} of what dense sums send")


def zipf_table(count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """How likely each of the first items is together, where the k-th is as likely as 1/k."""
    table = torch.cumsum(1 / torch.arange(1, count + 1, dtype=torch.float64), 0).to(dtype)
    return table / table[-1]


def draw_zipf(table: torch.Tensor, shape: tuple[int, ...], draw: torch.Generator) -> torch.Tensor:
    chosen = torch.searchsorted(table, torch.rand(shape, generator=draw, dtype=table.dtype))
    return chosen.clamp_max(table.numel() - 1)
