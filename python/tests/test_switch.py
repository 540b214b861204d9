"""Sums through `peel switch` against the same sums over Gloo."""

import os
import pathlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import peelreduce
import pytest
import torch
import torch.distributed as dist
from peelreduce._transport import Transport, make_transport
from ratings import Ratings
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = os.environ.get("PEEL", str(_ROOT / "build/release/peel"))
_SECRET = "let me in"
_ROWS = 2000


@dataclass(frozen=True)
class Running:
    address: str
    process: int

    def switch(self, **others: Any) -> peelreduce.Switch:
        return peelreduce.Switch(self.address, **{"secret": _SECRET, **others})

    def jobs(self) -> str:
        asked = [_PROGRAM, "switch", "status", "--connect", self.address]
        environment = {**os.environ, "PEEL_SWITCH_SECRET": _SECRET}
        return subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout


def _start_switch(address: str) -> tuple[subprocess.Popen[str], str]:
    """The process, and where it listens."""
    process = subprocess.Popen(
        [_PROGRAM, "switch", "--listen", address],
        env={**os.environ, "PEEL_SWITCH_SECRET": _SECRET},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[2].rstrip(",")


@pytest.fixture
def running() -> Iterator[Running]:
    if not os.access(_PROGRAM, os.X_OK):
        pytest.skip(f"there is no {_PROGRAM}; build it, or name another one in PEEL")
    process, address = _start_switch("127.0.0.1:0")
    try:
        yield Running(address, process.pid)
    finally:
        process.kill()
        process.communicate()


class IntegersOverGloo(peelreduce.Switch):
    """What a switch can do, and no switch."""

    def join(self, job: str, rank: int, size: int, timeout: float) -> Transport:
        store = dist.PrefixStore(job, dist.distributed_c10d._get_default_store())
        transport = make_transport(store, rank, size, timeout)
        transport.moves_buffers = transport.sums_floats = False
        return transport


def _made(state: peelreduce.DDPState, **kwargs: Any) -> DistributedDataParallel:
    torch.manual_seed(7)
    model = DistributedDataParallel(Ratings(_ROWS, **kwargs), bucket_cap_mb=0.0005)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    return model


def _backward(model: DistributedDataParallel, rank: int, step: int, factor: float = 1) -> torch.Tensor:
    """The gradients."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    rows, target = torch.randint(_ROWS, (16,), generator=draw), torch.randn(16, generator=draw)
    model.zero_grad()
    (factor * mse_loss(model(rows), target)).backward()
    return torch.cat([parameter.grad.to_dense().flatten() for parameter in model.parameters()])


def _train(rank: int, strategy: str, transport: peelreduce.Switch | None, **kwargs: Any) -> torch.Tensor:
    """All gradients of a few steps, in which they make a difference to those of the next."""
    state = peelreduce.DDPState(strategy=strategy, transport=transport)
    model = _made(state, **kwargs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gradients = []
    for step in range(4):
        gradients.append(_backward(model, rank, step))
        optimizer.step()
    reports = [bucket["last"] for bucket in state.stats()["buckets"].values()]
    assert len(reports) > 1
    assert all(report["strategy"] in ("packed", "sketch") and report["memory"] == "host" for report in reports)
    return torch.stack(gradients)


def _train_in_every_way(rank: int, size: int, running: Running) -> None:
    over_gloo = IntegersOverGloo("", "unused")
    for strategy, sparse in (("packed", False), ("sketch", False), ("auto", True)):
        through = _train(rank, strategy, running.switch(), sparse=sparse)
        assert torch.equal(through, _train(rank, strategy, over_gloo, sparse=sparse)), (strategy, sparse)
        if strategy == "sketch":  # whose cells are integers whatever the transport
            assert torch.equal(through, _train(rank, strategy, None))
    _overflow(rank, running)


def _overflow(rank: int, running: Running) -> None:
    """A step that is not finite on one worker is so on all, as GradScaler needs it, and the next one is as ever."""
    for sparse in (False, True):
        models = [
            _made(peelreduce.DDPState(strategy="packed", transport=transport), sparse=sparse)
            for transport in (running.switch(), IntegersOverGloo("", "unused"))
        ]
        for step in range(4):
            factor = float("inf") if rank == 1 and step in (0, 2) else 1.0
            through, over_gloo = (_backward(model, rank, step, factor) for model in models)
            assert bool(through.isfinite().all()) == (step in (1, 3)), step
            assert torch.equal(through.nan_to_num(), over_gloo.nan_to_num())


def test_gradients_are_those_of_the_process_group_to_the_bit(running: Running) -> None:
    run_workers(3, _train_in_every_way, running)
    assert "jobs         0 of" in running.jobs()  # all have left


def _sum_tensors(rank: int, size: int, running: Running) -> None:
    os.environ["PEEL_SWITCH_SECRET"] = _SECRET
    through = peelreduce.Switch(running.address)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64):
        dense = torch.arange(-50, 50).to(dtype) * (rank + 1)
        peelreduce.all_reduce(dense, state=peelreduce.State(strategy="dense", transport=through))
        assert torch.equal(dense, sum(torch.arange(-50, 50).to(dtype) * (worker + 1) for worker in range(size)))
    state = peelreduce.State(strategy="dense", transport=through)
    ones = torch.ones(100)
    with pytest.raises(peelreduce.Error, match="adds integers only; use packed, sketch or auto"):
        peelreduce.all_reduce(ones, state=state)
    state = peelreduce.State(transport=through)
    with pytest.raises(peelreduce.Error, match="Workers differ"):
        peelreduce.all_reduce(torch.ones(100 + rank), state=state)
    peelreduce.all_reduce(ones, state=state)  # a refusal is not the end
    assert torch.equal(ones, torch.full((100,), float(size)))


def test_sums_what_a_switch_can_and_refuses_the_rest(running: Running) -> None:
    run_workers(2, _sum_tensors, running)


def _lose_the_switch(rank: int, size: int, running: Running) -> None:
    guess = peelreduce.State(timeout=2, transport=running.switch(secret="a guess"))
    refused = peelreduce.all_reduce(torch.ones(10), state=guess, async_op=True)
    state = peelreduce.State(timeout=2, transport=running.switch())
    peelreduce.all_reduce(torch.ones(10), state=state)
    dist.barrier()
    if rank == 0:
        os.kill(running.process, signal.SIGKILL)
    dist.barrier()
    with pytest.raises(peelreduce.TimedOut, match="sent no result"):
        peelreduce.all_reduce(torch.ones(10), state=state)
    with pytest.raises(peelreduce.TimedOut, match="did not answer"):  # a new attempt
        peelreduce.all_reduce(torch.ones(10), state=state)
    with pytest.raises(peelreduce.Error, match="did not answer.*same secret"):
        refused.wait()
    dist.barrier()
    process = _start_switch(running.address)[0] if rank == 0 else None
    dist.barrier()
    try:
        for again in (state, peelreduce.State(timeout=20, transport=running.switch())):
            x = torch.ones(10)
            peelreduce.all_reduce(x, state=again)
            assert torch.equal(x, torch.full((10,), float(size)))
    finally:
        dist.barrier()
        if process is not None:
            process.kill()
            process.communicate()


def test_a_switch_that_is_gone_or_not_ours_is_an_error_on_every_worker_until_it_is_back(running: Running) -> None:
    run_workers(3, _lose_the_switch, running)


def test_misuse_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEEL_SWITCH_SECRET", raising=False)
    with pytest.raises(ValueError, match="needs a secret; give .* or set PEEL_SWITCH_SECRET"):
        peelreduce.Switch("127.0.0.1:7077")
    through = peelreduce.Switch("127.0.0.1:7077", secret=_SECRET)
    assert _SECRET not in repr(through)
    for make in (peelreduce.DDPState, peelreduce.State):
        for strategy in ("split", "gather"):
            with pytest.raises(ValueError, match='use "auto", "packed" or "sketch"'):
                make(strategy=strategy, transport=through)
        with pytest.raises(TypeError, match="peelreduce.Switch, or None for the process group, not str"):
            make(transport="127.0.0.1:7077")
    for options in ({"strategy": "dense"}, {"min_bytes": 1}, {"start_step": 1}):
        with pytest.raises(ValueError, match="no dense sums there"):
            peelreduce.DDPState(transport=through, **options)
