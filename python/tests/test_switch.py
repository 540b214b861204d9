"""Sums through `peel switch` against the same sums over Gloo."""

import contextlib
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import time
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
from workers import run_until_told, run_workers, tell_error

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PROGRAM = os.environ.get("PEEL", str(_ROOT / "build/release/peel"))
_SECRET = "let me in, and no one else"
_ROWS = 2000
_LONG = 60.0  # seconds: the time-out of sums that must not wait for it
_SOON = 20.0  # what they may take on a busy machine; it is one or two


@dataclass(frozen=True)
class Running:
    address: str
    process: int

    def switch(self, **others: Any) -> peelreduce.Switch:
        return peelreduce.Switch(self.address, **{"secret": _SECRET, **others})

    def jobs(self) -> int:
        """How many there are."""
        asked = [_PROGRAM, "switch", "status", "--connect", self.address, "--json"]
        environment = {**os.environ, "PEEL_SWITCH_SECRET": _SECRET}
        told = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout
        return len(json.loads(told)["jobs"])


def _start_switch(address: str, *options: str) -> tuple[subprocess.Popen[str], str]:
    """The process, and where it listens."""
    process = subprocess.Popen(
        [_PROGRAM, "switch", "--listen", address, *options],
        env={**os.environ, "PEEL_SWITCH_SECRET": _SECRET},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[2].rstrip(",")


@contextlib.contextmanager
def _run_switch(*options: str) -> Iterator[Running]:
    if not os.access(_PROGRAM, os.X_OK):
        pytest.skip(f"there is no {_PROGRAM}; build it, or name another one in PEEL")
    process, address = _start_switch("127.0.0.1:0", *options)
    try:
        yield Running(address, process.pid)
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def running() -> Iterator[Running]:
    with _run_switch() as switch:
        yield switch


class IntegersOverGloo(peelreduce.Switch):
    """What a switch can do, and no switch."""

    def join(self, job: str, rank: int, size: int, *, within: float, timeout: float) -> Transport:
        store = dist.PrefixStore(job, dist.distributed_c10d._get_default_store())
        transport = make_transport(store, rank, size, timeout)
        transport.moves_buffers = transport.sums_floats = False
        transport.slots = 256
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
    assert running.jobs() == 0  # all have left


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
    guess = peelreduce.State(timeout=_LONG, transport=running.switch(secret="a guess, and a long one"))
    with pytest.raises(peelreduce.Misuse, match="it has another secret for this job"):
        peelreduce.all_reduce(torch.ones(10), state=guess)
    state = peelreduce.State(timeout=_LONG, transport=running.switch())
    peelreduce.all_reduce(torch.ones(10), state=state)
    dist.barrier()
    if rank == 0:
        os.kill(running.process, signal.SIGKILL)
    dist.barrier()
    begin = time.monotonic()
    with pytest.raises(peelreduce.TransportFailed, match="The switch at .* is gone"):
        peelreduce.all_reduce(torch.ones(10), state=state)
    assert time.monotonic() - begin < _SOON
    state = peelreduce.State(timeout=2, transport=running.switch())
    with pytest.raises(peelreduce.TimedOut, match="did not answer"):  # a new attempt
        peelreduce.all_reduce(torch.ones(10), state=state)
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


@pytest.mark.slow
def test_a_switch_that_is_gone_or_not_ours_is_an_error_on_every_worker_until_it_is_back(running: Running) -> None:
    run_workers(3, _lose_the_switch, running)


def _end_the_switch(rank: int, size: int, running: Running) -> None:
    state = peelreduce.DDPState(timeout=_LONG, transport=running.switch())
    model = _made(state)
    _backward(model, rank, 0)
    dist.barrier()
    if rank == 0:
        os.kill(running.process, signal.SIGTERM)
    dist.barrier()
    begin = time.monotonic()
    with pytest.raises(RuntimeError, match="The switch at .* is being shut down"):
        for step in range(1, 1000):  # those that it has begun, a switch may complete
            _backward(model, rank, step)
    assert time.monotonic() - begin < _SOON
    assert isinstance(state.error, peelreduce.TransportFailed)
    _backward(_made(peelreduce.DDPState()), rank, 0)


def test_a_switch_that_is_shut_down_says_so_and_training_goes_on_without_it(running: Running) -> None:
    run_workers(3, _end_the_switch, running)


def _kill_a_worker(rank: int, size: int, folder: str, running: Running) -> None:
    state = peelreduce.State(timeout=_LONG, transport=running.switch())
    peelreduce.all_reduce(torch.ones(10), state=state)
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        peelreduce.all_reduce(torch.ones(10), state=state)
    except peelreduce.TransportFailed as error:
        tell_error(rank, folder, time.monotonic() - begin, error)


def test_a_worker_that_was_killed_is_named_before_the_time_out(running: Running, tmp_path: pathlib.Path) -> None:
    for seconds, error in run_until_told(_kill_a_worker, str(tmp_path), running):
        assert seconds < _SOON
        assert error.startswith("Worker 2 is gone")


@contextlib.contextmanager
def _logged(level: int) -> Iterator[list[str]]:
    """What the package says meanwhile, at this level."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage()) if record.levelno == level else None
    logger = logging.getLogger("peelreduce")
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _do_without(rank: int, size: int, switch: peelreduce.Switch, refusal: str) -> None:
    """The sums of a process group, and a warning that says why."""
    begin = time.monotonic()
    with _logged(logging.WARNING) as warnings:
        state = peelreduce.DDPState(strategy="packed", timeout=_LONG, transport=switch)
        instead = _backward(_made(state), rank, 0)
        assert time.monotonic() - begin < _SOON
        over_group = _backward(_made(peelreduce.DDPState(strategy="packed")), rank, 0)
        assert torch.equal(instead, over_group)
        for dtype in (torch.int16, torch.int64, torch.float32):  # the last of which a switch does not add
            dense = torch.full((100,), rank + 1, dtype=dtype)
            peelreduce.all_reduce(dense, state=peelreduce.State(strategy="dense", transport=switch))
            assert torch.equal(dense, torch.full((100,), size * (size + 1) // 2, dtype=dtype))
    assert len(warnings) == 1, warnings
    assert re.match(f"Sums go over the process group .* Worker . was told: {refusal}", warnings[0])


def _sum_through(size: int, switch: peelreduce.Switch) -> list[str]:
    """The names of the jobs."""
    with _logged(logging.WARNING) as warnings, _logged(logging.INFO) as notes:
        x = torch.ones(10)
        peelreduce.all_reduce(x, state=peelreduce.State(timeout=_LONG, transport=switch))
        assert torch.equal(x, torch.full((10,), float(size)))
    assert not warnings
    jobs = re.fullmatch("Sums go through the switch at .*, as its jobs (.+) and (.+)\\.", notes[0])
    assert jobs is not None, notes
    return list(jobs.groups())


_NO_ROOM = r"The switch at 127\.0\.0\.1:\d+ refused job 'torch/.*': it has no room for another job"


def _find_no_room(rank: int, size: int, running: Running, others: int) -> None:
    """Beside other jobs, of worker 0, which then end."""
    with contextlib.ExitStack() as held:
        for job in range(others if rank == 0 else 0):
            held.callback(running.switch().join(f"other/{job}", 0, 1, within=_LONG, timeout=_LONG).close)
        dist.barrier()
        _do_without(rank, size, running.switch(), _NO_ROOM)
        dist.barrier()
        assert running.jobs() == others  # who was let in has left
        dist.barrier()
    dist.barrier()
    peelreduce.reset()
    _sum_through(size, running.switch())


@pytest.mark.parametrize("others", [1, 2])  # there is room for one of two lanes, and for none
def test_sums_go_over_the_process_group_while_a_switch_has_no_room(others: int) -> None:
    with _run_switch("--jobs", "2") as running:
        run_workers(3, _find_no_room, running, others)


def _find_no_room_on_one_worker(rank: int, size: int, roomy: Running, full: Running) -> None:
    class Divided(peelreduce.Switch):
        def join(self, *arguments: Any, **options: Any) -> Any:
            return (full if rank == 1 else roomy).switch().join(*arguments, **options)

    if rank == 1:
        other = full.switch().join("other", 0, 1, within=_LONG, timeout=_LONG)
    _do_without(rank, size, Divided("", _SECRET), _NO_ROOM)
    dist.barrier()
    assert roomy.jobs() == 0
    if rank == 1:
        other.close()


@pytest.mark.slow
def test_workers_that_a_switch_let_in_go_with_one_that_it_refused() -> None:
    with _run_switch() as roomy, _run_switch("--jobs", "1") as full:
        run_workers(3, _find_no_room_on_one_worker, roomy, full)


def _join_late(rank: int, size: int, running: Running) -> None:
    class Late(peelreduce.Switch):
        def join(self, job: str, *arguments: Any, **options: Any) -> Any:
            if rank == 1 and job.endswith("/0"):
                time.sleep(1.5)  # longer than the first attempt lasts
            return super().join(job, *arguments, **options)

    _sum_through(size, Late(running.address, _SECRET))


@pytest.mark.slow
def test_a_worker_that_is_late_to_join_is_waited_for(running: Running) -> None:
    run_workers(3, _join_late, running)


def _join_later(rank: int, size: int, running: Running) -> None:
    """Two attempts fail. In the second, worker 0 gives up before worker 2, who hears from the switch that somebody left."""
    naps = {(1, "/0"): 1.5, (1, "/2"): 6, (2, "/2"): 0.5}

    class Late(peelreduce.Switch):
        def join(self, job: str, *arguments: Any, **options: Any) -> Any:
            time.sleep(naps.get((rank, job[-2:]), 0))
            return super().join(job, *arguments, **options)

    jobs = _sum_through(size, Late(running.address, _SECRET))
    assert [job[-2:] for job in jobs] == ["/4", "/5"]


@pytest.mark.slow
def test_a_worker_that_is_late_in_every_attempt_is_waited_for(running: Running) -> None:
    run_workers(3, _join_later, running)


def _fail_to_join(rank: int, size: int, running: Running, kind: type[peelreduce.Error]) -> None:
    class Failing(peelreduce.Switch):
        def join(self, *arguments: Any, **options: Any) -> Any:
            if rank == 1:
                raise kind("The name of the job is taken.")
            return super().join(*arguments, **options)

    begin = time.monotonic()
    with pytest.raises(kind, match="The name of the job is taken"):
        state = peelreduce.State(timeout=_LONG, transport=Failing(running.address, _SECRET))
        peelreduce.all_reduce(torch.ones(10), state=state)
    assert time.monotonic() - begin < _SOON
    dist.barrier()
    assert running.jobs() == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", [peelreduce.Disagreement, peelreduce.TransportFailed])
def test_another_refusal_is_an_error_on_every_worker_before_the_time_out(
    running: Running, kind: type[peelreduce.Error]
) -> None:
    run_workers(3, _fail_to_join, running, kind)


def _get_few_slots(rank: int, size: int, running: Running) -> None:
    with _logged(logging.WARNING) as warnings:
        peelreduce.all_reduce(torch.ones(10), state=peelreduce.State(transport=running.switch()))
    assert len(warnings) == 1
    assert "gave 16 of the 256 slots" in warnings[0]


def test_few_slots_are_told() -> None:
    with _run_switch("--slots", "32", "--jobs", "2") as running:
        run_workers(2, _get_few_slots, running)


def _name_jobs(rank: int, size: int, running: Running) -> list[str]:
    return [*_sum_through(size, running.switch()), *_sum_through(size, running.switch(prefix="team-a/"))]


def test_names_of_jobs_can_be_read_and_begin_with_the_prefix(running: Running) -> None:
    first, second = run_workers(2, _name_jobs, running)
    assert first == second
    patterns = [prefix + "torch/[0-9a-f]{12}/" + lane for prefix in ("", "team-a/") for lane in "01"]
    assert all(re.fullmatch(pattern, job) for pattern, job in zip(patterns, first, strict=True)), first
    longest = running.switch(prefix=40 * "x")
    assert len(longest.draw_job()) + len("1234") <= 63
    for prefix in (41 * "x", "team a/", "team-ä/", "team-a\n"):
        with pytest.raises(ValueError, match="prefix of job names has at most 40 letters"):
            running.switch(prefix=prefix)


def _differ(rank: int, size: int, running: Running) -> None:
    port = running.address.rsplit(":", 1)[1]
    told = [
        running.switch(secret=_SECRET + "\r\n", mtu=1500),
        peelreduce.Switch(f"localhost:{port}", secret=_SECRET),
        running.switch(secret=" " + _SECRET, mtu=9000),
    ]
    _sum_through(size, told[rank])


def test_workers_meet_whatever_they_call_the_switch(running: Running) -> None:
    run_workers(3, _differ, running)


def _guess_alone(rank: int, size: int, running: Running) -> None:
    wrong = {"secret": "a guess, and a long one"} if rank == 1 else {}
    begin = time.monotonic()
    with pytest.raises(peelreduce.Misuse, match="it has another secret for this job"):
        state = peelreduce.State(timeout=_LONG, transport=running.switch(**wrong))
        peelreduce.all_reduce(torch.ones(10), state=state)
    assert time.monotonic() - begin < _SOON
    _sum_through(size, running.switch())  # with the right one, they meet again


def test_a_wrong_secret_of_one_worker_is_told_to_all(running: Running) -> None:
    run_workers(3, _guess_alone, running)


def _go_elsewhere(rank: int, size: int, here: Running, there: Running) -> None:
    switch = (there if rank == 1 else here).switch()
    with pytest.raises(peelreduce.TimedOut, match=f"Worker 0 went to the switch at {here.address} and worker 1 to"):
        peelreduce.all_reduce(torch.ones(10), state=peelreduce.State(timeout=2, transport=switch))


@pytest.mark.slow
def test_workers_that_go_to_different_switches_are_told() -> None:
    with _run_switch() as here, _run_switch() as there:
        run_workers(2, _go_elsewhere, here, there)


def _have_a_narrow_path(rank: int, size: int, running: Running) -> None:
    sentence = "The switch answers, but no packet of 576 bytes gets there and back."

    class Narrow(peelreduce.Switch):
        def join(self, *arguments: Any, **options: Any) -> Any:
            if rank == 1:
                time.sleep(options["within"])  # when the others have given up too
                raise peelreduce.TransportFailed(sentence)
            return super().join(*arguments, **options)

    begin = time.monotonic()
    with pytest.raises(peelreduce.TransportFailed, match=sentence):
        state = peelreduce.State(timeout=_LONG, transport=Narrow(running.address, _SECRET))
        peelreduce.all_reduce(torch.ones(10), state=state)
    assert time.monotonic() - begin < _SOON


@pytest.mark.slow
def test_a_narrow_path_of_one_worker_is_told_to_all(running: Running) -> None:
    run_workers(3, _have_a_narrow_path, running)


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
