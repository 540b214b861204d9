"""Long runs, workers that stand still, and users who lose patience."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import time
from datetime import timedelta

import peelreduce
import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from workers import run_until_told, run_workers, tell_error

pytestmark = pytest.mark.slow

_ROWS = 2000


class Ratings(torch.nn.Module):
    """One embedding with gradients of either layout, each larger than what a process may grow by in a step."""

    def __init__(self) -> None:
        super().__init__()
        self.users = torch.nn.Embedding(_ROWS, 8, sparse=True)
        self.items = torch.nn.Embedding(_ROWS, 8)
        self.layer = torch.nn.Linear(16, 1)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.cat([self.users(users), self.items(items)], dim=1)).squeeze(1)


def _made(timeout: float) -> DistributedDataParallel:
    torch.manual_seed(7)
    model = DistributedDataParallel(Ratings(), bucket_cap_mb=0.01)
    model.register_comm_hook(peelreduce.DDPState(timeout=timeout), peelreduce.allreduce_hook)
    return model


def _loss(model: DistributedDataParallel, rank: int, step: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(1000 * step + rank)
    users, items = torch.randint(_ROWS, (2, 8), generator=draw)
    return mse_loss(model(users, items), torch.randn(8, generator=draw))


def _held() -> dict[str, int]:
    """What this process has, of things that may leak."""
    gc.collect()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return {
        "bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "objects": len(gc.get_objects()),
        "threads": len(os.listdir("/proc/self/task")),
        "files": len(os.listdir("/proc/self/fd")),
    }


def _endure(rank: int, size: int) -> tuple[dict[str, int], dict[str, int]]:
    model = _made(60)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    early = {}
    for step in range(1000):
        if step == 200:
            early = _held()
        optimizer.zero_grad()
        _loss(model, rank, step).backward()
        optimizer.step()
    return early, _held()


def test_a_thousand_steps_leave_nothing_behind() -> None:
    for early, late in run_workers(2, _endure):
        assert late["bytes"] - early["bytes"] < 8 << 20, (early, late)
        assert late["objects"] - early["objects"] < 100, (early, late)  # not one in ten steps
        assert late["threads"] == early["threads"]
        assert late["files"] == early["files"]


def _stop_another(rank: int, size: int, folder: str) -> None:
    """Worker 0 stops worker 2 wherever it may be, and ends all when everybody has heard of it."""
    pids = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(pids, torch.tensor([os.getpid()]))
    model = _made(3)
    begin = time.monotonic()
    try:
        for step in range(1_000_000):
            if rank == 0 and step == 20:
                begin = time.monotonic()
                os.kill(int(pids[2]), signal.SIGSTOP)
            _loss(model, rank, step).backward()
    except RuntimeError as error:
        tell_error(rank, folder, time.monotonic() - begin, error)


def test_a_worker_that_is_stopped_in_the_middle_is_an_error(tmp_path: pathlib.Path) -> None:
    errors = run_until_told(_stop_another, str(tmp_path))
    assert errors[0][0] < 30  # the time-out is 3
    for _, error in errors:
        assert "Worker 2 did not come to it" in error


def wait_for_a_sleeper(rank: int, folder: str, where: str, timeout: float) -> None:
    """What the two processes below do: worker 1 sleeps, and worker 0 waits for it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background job would ignore
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    model = _made(timeout)
    state = peelreduce.State(timeout=timeout)
    for step in range(3):
        loss = _loss(model, rank, step)
        peelreduce.all_reduce(torch.ones(10), state=state)
        if step == 2:
            pathlib.Path(folder, f"ready-{rank}").touch()
            if rank == 1:
                time.sleep(600)
            elif where == "all_reduce":
                peelreduce.all_reduce(torch.ones(10), state=state)
        loss.backward()


@pytest.mark.parametrize(
    ("where", "timeout"),
    [
        ("backward", 4),  # torch waits there without looking at signals: it ends with the time-out
        ("all_reduce", 300),  # this ends at once
    ],
)
def test_a_keyboard_interrupt_ends_a_worker_that_waits(tmp_path: pathlib.Path, where: str, timeout: float) -> None:
    call = "import sys, test_endurance as t; t.wait_for_a_sleeper(int(sys.argv[1]), *sys.argv[2:4], float(sys.argv[4]))"
    paths = [str(pathlib.Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(paths)}
    arguments = [str(tmp_path), where, str(timeout)]
    with (tmp_path / "log").open("w") as log:
        waiting, sleeping = (
            subprocess.Popen([sys.executable, "-c", call, str(rank), *arguments], env=environment, stderr=log)
            for rank in range(2)
        )
    try:
        until = time.monotonic() + 60
        while not all((tmp_path / f"ready-{rank}").exists() for rank in range(2)):
            assert time.monotonic() < until, (tmp_path / "log").read_text()
            time.sleep(0.05)
        time.sleep(0.3)  # for it to wait indeed
        waiting.send_signal(signal.SIGINT)
        status = waiting.wait(40)
        log_text = (tmp_path / "log").read_text()
        assert "KeyboardInterrupt" in log_text
        assert status in (-signal.SIGINT, 1, 128 + signal.SIGINT), log_text  # and no crash on the way out
    finally:
        for process in (waiting, sleeping):
            process.kill()
            process.wait()
