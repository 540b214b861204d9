"""What the package promises to those who call it in ways nobody thought of: no wrong number, no stuck job, no error that
outlives its call, and errors that programs can tell apart."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import threading
import time
from datetime import timedelta

import peelreduce
import pytest
import torch
import torch.distributed as dist
from peelreduce import _tasks
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from workers import run_until_told, run_workers, tell_error


def _sum_of_ones(size: int, group: dist.ProcessGroup | None = None) -> None:
    """A sum as ever."""
    x = torch.ones(100)
    peelreduce.all_reduce(x, group=group)
    assert torch.equal(x, torch.full((100,), float(size)))


def _raised(kind: type[BaseException], function, *arguments, **options) -> str:
    with pytest.raises(kind) as caught:
        function(*arguments, **options)
    return str(caught.value)


# ---- arguments that differ


def _empty_on_one(rank: int, size: int, sparse: bool) -> tuple[str, float]:
    shape = (0, 4) if rank == 1 else (50, 4)
    x = torch.zeros(shape).to_sparse(1) if sparse else torch.ones(shape)
    begin = time.monotonic()
    told = _raised(peelreduce.Disagreement, peelreduce.all_reduce, x, state=peelreduce.State(timeout=20))
    seconds = time.monotonic() - begin
    _sum_of_ones(size)
    return told, seconds


@pytest.mark.parametrize("sparse", [False, True])
def test_an_empty_tensor_on_one_worker_is_told_to_all(sparse: bool) -> None:
    told = run_workers(3, _empty_on_one, sparse)
    assert all("Workers differ in elements: it is 200 on worker 0 and 0 on worker 1" in text for text, _ in told)
    assert all(seconds < 10 for _, seconds in told)


def _empty_everywhere(rank: int, size: int) -> None:
    for shape in ((0,), (0, 4), (3, 0)):
        peelreduce.all_reduce(torch.ones(shape))
        peelreduce.all_reduce(torch.zeros(shape).to_sparse(1))
    _sum_of_ones(size)


def test_empty_tensors_have_sums() -> None:
    run_workers(2, _empty_everywhere)


def _called_wrongly_on_one(rank: int, size: int) -> str:
    x = torch.ones(10, dtype=torch.complex64 if rank == 1 else torch.float32)
    told = _raised(TypeError if rank == 1 else peelreduce.Misuse, peelreduce.all_reduce, x)
    _sum_of_ones(size)
    return told


def test_what_one_worker_cannot_sum_is_told_to_all() -> None:
    told = run_workers(3, _called_wrongly_on_one)
    assert all("does not sum torch.complex64" in text for text in told)
    assert told[0].startswith("Worker 1 cannot take part: ")


# ---- groups


def _average_over_a_group(rank: int, size: int, give_group: bool) -> list[float]:
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    own = groups[rank // 2]
    model = torch.nn.Linear(4, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    model = DistributedDataParallel(model, process_group=own)
    state = peelreduce.DDPState(own if give_group else None)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    model(torch.full((1, 4), float(rank))).sum().backward()
    return model.module.weight.grad.flatten().tolist()


@pytest.mark.parametrize("give_group", [False, True])
def test_a_model_is_averaged_over_the_workers_of_its_own_group(give_group: bool) -> None:
    assert run_workers(4, _average_over_a_group, give_group) == 2 * [4 * [0.5]] + 2 * [4 * [2.5]]


def _outside_of_a_group(rank: int, size: int) -> None:
    pair = dist.new_group([0, 1])
    x = torch.ones(5)
    assert peelreduce.all_reduce(x, group=pair) is None
    assert torch.equal(x, torch.full((5,), 2.0 if rank < 2 else 1.0))
    work = peelreduce.all_reduce(x, group=pair, async_op=True)
    assert (work is None) == (rank == 2)
    if work is not None:
        work.wait()


def test_a_worker_outside_of_a_group_gets_nothing() -> None:
    run_workers(3, _outside_of_a_group)


def _over_a_mesh(rank: int, size: int) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    x = torch.full((5,), float(rank))
    peelreduce.all_reduce(x, group=mesh["inner"])
    assert torch.equal(x, torch.full((5,), 1.0 if rank < 2 else 5.0))
    assert 'mesh["outer"]' in _raised(ValueError, peelreduce.all_reduce, x, group=mesh).replace("'", '"')
    whole = dist.tensor.distribute_tensor(torch.ones(8), mesh["inner"])
    assert "to_local()" in _raised(TypeError, peelreduce.all_reduce, whole)


def test_meshes_are_groups_and_their_tensors_are_refused() -> None:
    run_workers(4, _over_a_mesh)


# ---- nothing is stuck, and no error outlives its call


def _before_there_is_a_group() -> tuple[str, str]:
    x = torch.ones(10)
    state = peelreduce.State()
    return (
        _raised(ValueError, peelreduce.all_reduce, x),
        _raised(ValueError, peelreduce.all_reduce, x, state=state, async_op=True),
    )


def _sum_after_an_early_call(rank: int, size: int, store: str) -> tuple[str, str]:
    dist.destroy_process_group()
    told = _before_there_is_a_group()
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    _sum_of_ones(size)
    peelreduce.all_reduce(torch.ones(10))
    return told


def test_a_sum_before_there_is_a_process_group_does_not_hinder_later_ones(tmp_path: pathlib.Path) -> None:
    for told in run_workers(2, _sum_after_an_early_call, str(tmp_path / "again"), seconds=60):
        assert all("call torch.distributed.init_process_group first" in text for text in told)


def _in_inference_mode(rank: int, size: int) -> None:
    with torch.inference_mode():
        across = torch.ones(6, 4).t()
        peelreduce.all_reduce(across)
        assert torch.equal(across, torch.full((4, 6), float(size)))
        sparse = torch.eye(4).to_sparse()
        peelreduce.all_reduce(sparse)
        assert torch.equal(sparse.to_dense(), size * torch.eye(4))
    _sum_of_ones(size)


def test_tensors_of_inference_mode_have_sums() -> None:
    run_workers(2, _in_inference_mode)


def _fail_alone(rank: int, size: int, error: type[BaseException], at: int) -> tuple[str, float]:
    """One worker has no memory for its tensor, or something else of its own."""
    fetch = _tasks.Sum._fetch
    state = peelreduce.State(timeout=60)
    for step in range(at):
        peelreduce.all_reduce(torch.ones(100), state=state)

    def failing(self: _tasks.Sum) -> None:
        raise error("not here")

    if rank == 1:
        _tasks.Sum._fetch = failing
    begin = time.monotonic()
    told = _raised(peelreduce.Error, peelreduce.all_reduce, torch.ones(100), state=state)
    seconds = time.monotonic() - begin
    _tasks.Sum._fetch = fetch
    for _ in range(3):
        _sum_of_ones(size)
        peelreduce.all_reduce(torch.ones(100), state=state)
    return told, seconds


@pytest.mark.parametrize("error", [MemoryError, RuntimeError])
@pytest.mark.parametrize("at", [0, 3])
def test_a_worker_that_fails_alone_tells_the_others_at_once(error: type[BaseException], at: int) -> None:
    told = run_workers(3, _fail_alone, error, at)
    assert told[1][0].startswith("This worker ")
    assert all("Worker 1 cannot take part: it " in told[rank][0] and "not here" in told[rank][0] for rank in (0, 2))
    assert all(seconds < 10 for _, seconds in told)


def _fail_on_the_way(rank: int, size: int) -> tuple[str, float, str]:
    """One worker fails where the others cannot be told by the opening any more."""
    model = torch.nn.Embedding(3000, 16)
    model = DistributedDataParallel(model, bucket_cap_mb=0.01)
    state = peelreduce.DDPState()
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    run = _tasks.Sum.run

    def failing(self: _tasks.Sum, lane: object) -> None:
        raise MemoryError("std::bad_alloc")

    def backward() -> None:
        model.zero_grad()
        model(torch.arange(10) + rank).sum().backward()

    backward()
    if rank == 2:
        _tasks.Sum.run = failing
    begin = time.monotonic()
    told = _raised(RuntimeError, backward)
    seconds = time.monotonic() - begin
    kind = type(state.error).__name__
    _tasks.Sum.run = run
    backward()
    assert state.error is None
    _sum_of_ones(size)
    return told, seconds, kind


def test_a_worker_that_fails_on_the_way_tells_the_others_and_the_next_step_is_as_ever() -> None:
    told = run_workers(3, _fail_on_the_way)
    assert "This worker has no host memory left" in told[2][0]
    assert all("Worker 2 failed in a sum: it has no host memory left" in told[rank][0] for rank in (0, 1))
    assert all(seconds < 10 for _, seconds, _ in told)
    assert [kind for _, _, kind in told] == ["TransportFailed", "TransportFailed", "FailedHere"]


def _alone_with_a_sum(rank: int, size: int) -> str:
    """Two of four workers sum over all of them."""
    told = ""
    if rank < 2:
        told = _raised(peelreduce.TimedOut, peelreduce.all_reduce, torch.ones(7), state=peelreduce.State(timeout=1))
    dist.barrier()
    _sum_of_ones(size)
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
    model(torch.ones(1, 3)).sum().backward()
    return told


def test_workers_that_were_alone_with_a_sum_find_the_others_again() -> None:
    told = run_workers(4, _alone_with_a_sum)
    assert all("Workers 2 and 3 did not call within 1 s" in text for text in told[:2])


def _different_timeouts(rank: int, size: int) -> None:
    for timeout in (30, 40):
        state = peelreduce.State(timeout=timeout + rank)
        x = torch.ones(10)
        peelreduce.all_reduce(x, state=state)
        assert x[0].item() == size


def test_different_timeouts_do_not_matter() -> None:
    run_workers(3, _different_timeouts)


def _one_is_late(rank: int, size: int, folder: str) -> str:
    group = dist.new_group(timeout=timedelta(seconds=8))
    _sum_of_ones(size, group)
    told_others = [pathlib.Path(folder, str(other)) for other in (0, 2)]
    if rank == 1:
        while not all(path.exists() for path in told_others):
            time.sleep(0.05)
        told = _raised(peelreduce.TimedOut, _sum_of_ones, size, group)
    else:
        told = _raised(peelreduce.TimedOut, _sum_of_ones, size, group)
        pathlib.Path(folder, str(rank)).touch()
    dist.barrier()
    _sum_of_ones(size, group)
    return told


def test_the_timeout_is_that_of_the_process_group_and_names_who_did_not_come(tmp_path: pathlib.Path) -> None:
    told = run_workers(3, _one_is_late, str(tmp_path))
    assert all("stood still for 8 s. Worker 1 did not come to it" in text for text in told)




def _killed(rank: int, size: int, folder: str) -> None:
    _sum_of_ones(size)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    try:
        peelreduce.all_reduce(torch.ones(1 << 20))
    except peelreduce.TransportFailed as error:
        tell_error(rank, folder, time.monotonic() - begin, error)


def test_a_worker_that_was_killed_is_named(tmp_path: pathlib.Path) -> None:
    for seconds, told in run_until_told(_killed, str(tmp_path)):
        assert "Worker 2 is gone" in told
        assert seconds < 20


# ---- what is made ends


def _counts() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def _are_at_most(found: tuple[int, int], expected: tuple[int, int]) -> bool:
    return all(one <= other for one, other in zip(found, expected, strict=True))


def _settled(expected: tuple[int, int]) -> tuple[int, int]:
    end = time.monotonic() + 20
    while not _are_at_most(found := _counts(), expected) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def _train_once(sums: int = 2) -> None:
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    model.register_comm_hook(peelreduce.DDPState(), peelreduce.allreduce_hook)
    for _ in range(sums):
        model(torch.ones(1, 3)).sum().backward()


def _make_models(rank: int, size: int, count: int) -> None:
    _train_once()
    first = _counts()
    for _ in range(count):
        _train_once()
    assert _are_at_most(_settled(first), first)


def test_models_that_are_dropped_leave_nothing() -> None:
    run_workers(2, _make_models, 20)


@pytest.mark.slow
def test_two_hundred_models_that_are_dropped_leave_nothing() -> None:
    run_workers(2, _make_models, 200, seconds=600)


def _make_groups(rank: int, size: int, how: str) -> None:
    before = None
    for _ in range(6):
        group = dist.new_group()
        if how == "close":
            with peelreduce.State() as state:
                peelreduce.all_reduce(torch.ones(10), group=group, state=state)
        else:
            _sum_of_ones(size, group)
        dist.barrier()
        dist.destroy_process_group(group)
        del group
        if before is None:
            before = _counts()
    assert _are_at_most(_settled(before), before)
    assert not [one for one in threading.enumerate() if one.name.startswith("peelreduce")]


@pytest.mark.parametrize("how", ["close", "drop"])
def test_lanes_end_with_their_group(how: str) -> None:
    run_workers(2, _make_groups, how)


def _close(rank: int, size: int) -> None:
    with peelreduce.State() as state:
        peelreduce.all_reduce(torch.ones(10), state=state)
        assert [one for one in threading.enumerate() if one.name.startswith("peelreduce")]
    assert not [one for one in threading.enumerate() if one.name.startswith("peelreduce")]
    peelreduce.all_reduce(torch.ones(10), state=state)  # which opens it again
    state.close()
    with peelreduce.DDPState() as hooked:
        model = DistributedDataParallel(torch.nn.Linear(3, 3))
        model.register_comm_hook(hooked, peelreduce.allreduce_hook)
        model(torch.ones(1, 3)).sum().backward()
    assert not [one for one in threading.enumerate() if one.name.startswith("peelreduce")]


def test_states_that_are_closed_end_their_lanes() -> None:
    run_workers(2, _close)


# ---- errors


def test_errors_have_classes_and_codes() -> None:
    for name, code in (
        ("TimedOut", "timeout"),
        ("Disagreement", "disagreement"),
        ("NotFinite", "not_finite"),
        ("TransportFailed", "transport"),
        ("Misuse", "invalid_argument"),
    ):
        kind = getattr(peelreduce, name)
        assert issubclass(kind, peelreduce.Error)
        assert kind.code == code
        assert kind.__module__ == "peelreduce"
        assert kind.__doc__
    assert issubclass(peelreduce.Misuse, ValueError)
    with pytest.raises(peelreduce.Misuse) as caught:
        peelreduce.ops.make_plan(10, grain=3)
    assert caught.value.code == "invalid_argument"


def _wait_for_a_while(rank: int, size: int) -> str:
    _sum_of_ones(size)
    if rank == 1:
        dist.barrier()
    work = peelreduce.all_reduce(torch.ones(10), async_op=True)
    told = ""
    if rank == 0:
        told = _raised(peelreduce.TimedOut, work.wait, timedelta(seconds=0.2))
        dist.barrier()
    assert work.wait(timedelta(seconds=30))
    assert work.wait()
    return told


def test_work_may_be_waited_for_a_while() -> None:
    assert "still under way after 0.2 s" in run_workers(2, _wait_for_a_while)[0]
