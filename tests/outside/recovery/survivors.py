"""Workers that go on without one that was lost, in smaller numbers. For jobs whose launcher lets the survivors live:
torchrun does not, Slurm (`--no-kill`), MPI and own launchers can. The store must not live in the worker that is lost.

Each survivor says in the store at which step it is, they agree on who is left and on the earliest step among them, roll
back to it, and form a new process group. So a step of which some workers had the sum and others not counts for nobody.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import time
from datetime import timedelta
from typing import Any

import peelreduce
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 6
_ROWS = 3000
_LIMIT = timedelta(seconds=60)


def agree(store: dist.Store, attempt: int, name: int, step: int, seconds: float) -> dict[int, int]:
    """Who is left, by name, and at which step. Whoever does not answer within these seconds is left out, on all."""
    here = dist.PrefixStore(f"survivors {attempt}", store)
    here.set(f"step/{name}", str(step))
    time.sleep(seconds)
    everybody = json.loads(store.get("names"))
    found = {other: int(here.get(f"step/{other}")) for other in everybody if here.check([f"step/{other}"])}
    decided = json.loads(here.compare_set("decided", "", json.dumps(found)))  # the first to decide has decided
    return {int(other): at for other, at in decided.items()}


def form_group(store: dist.Store, attempt: int, name: int, names: list[int]) -> None:
    dist.init_process_group(
        "gloo",
        store=dist.PrefixStore(f"group {attempt}", store),
        rank=names.index(name),
        world_size=len(names),
        timeout=_LIMIT,
    )


def train(store: dist.Store, name: int, size: int, lost: int) -> dict[str, Any]:
    """The worker `lost` is killed in the fourth step, after its gradient was computed."""
    store.set("names", json.dumps(list(range(size))))
    names, attempt, step = list(range(size)), 0, 0
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Embedding(_ROWS, 16), torch.nn.Linear(16, 1))
    before = {0: copy.deepcopy(model.state_dict())}  # the weights before each of the last two steps
    errors: list[str] = []
    while step < STEPS:
        form_group(store, attempt, name, names)
        parallel = DistributedDataParallel(model)
        parallel.register_comm_hook(peelreduce.DDPState(timeout=10), peelreduce.allreduce_hook)
        try:
            while step < STEPS:
                before = {at: weights for at, weights in before.items() if at >= step - 1}
                before[step] = copy.deepcopy(model.state_dict())
                take_step(parallel, model, name, step, lost)
                step += 1
        except RuntimeError as error:  # what backward() makes of a peelreduce.Error
            errors.append(str(error))
        if step == STEPS:
            break
        parallel = None
        dist.destroy_process_group()
        attempt += 1
        left = agree(store, attempt, name, step, seconds=3)
        if name not in left:
            raise SystemExit("The others have gone on without this worker.")
        names, step = sorted(left), min(left.values())
        model.load_state_dict(before[step])
    dist.barrier()
    dist.destroy_process_group()
    return {"errors": errors, "names": names, "weights": flat(model).tolist()}


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def take_step(parallel: DistributedDataParallel, model: torch.nn.Module, name: int, step: int, lost: int) -> None:
    draw = torch.Generator().manual_seed(100 * step + name)
    model.zero_grad()
    loss = parallel(torch.randint(_ROWS, (32,), generator=draw)).square().mean()
    if name == lost and step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
