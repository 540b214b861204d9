"""A job that torchrun starts again from its checkpoint when a worker is lost:

    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    torchrun --nproc-per-node 2 --max-restarts 1 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:0 restart.py FOLDER

Worker 1 is killed in step 3 of the first attempt. Worker 0 gets an error and ends, torchrun starts both again, and they go
on from the last checkpoint. A step of which some workers have the sum and others have not counts for nobody: the
checkpoint was written before it. FOLDER gets weights.pt.
"""

import os
import pathlib
import signal
import sys

import peelreduce
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
ROWS = 3000


def save(path: pathlib.Path, what: object) -> None:
    """Whole or not at all: a worker may be killed while it writes."""
    torch.save(what, path.with_suffix(".new"))
    path.with_suffix(".new").rename(path)


def make_model() -> torch.nn.Module:
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Embedding(ROWS, 16), torch.nn.Linear(16, 1))


def make_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loss_of(model: torch.nn.Module, step: int, rank: int) -> torch.Tensor:
    """Of the same data in every attempt."""
    draw = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randint(ROWS, (32,), generator=draw)).square().mean()


def main(folder: pathlib.Path) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = make_model()
    optimizer = make_optimizer(model)
    parallel = DistributedDataParallel(model)
    state = peelreduce.DDPState(timeout=20)
    parallel.register_comm_hook(state, peelreduce.allreduce_hook)

    first, checkpoint = 0, folder / "checkpoint.pt"
    if checkpoint.exists():  # all workers see the same file, or none
        saved = torch.load(checkpoint)
        first = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state.load_state_dict(saved["reduction"])
    for step in range(first, STEPS):
        if step == 3 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        loss_of(parallel, step, rank).backward()
        optimizer.step()
        if rank == 0:
            parts = {"model": model, "optimizer": optimizer, "reduction": state}
            save(checkpoint, {"step": step + 1, **{name: part.state_dict() for name, part in parts.items()}})
    if rank == 0:
        save(folder / "weights.pt", {"first": first, "model": model.state_dict()})
    dist.destroy_process_group()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
