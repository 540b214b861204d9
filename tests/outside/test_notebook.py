"""Calls in the order in which people make them in notebooks: too early, again, interrupted, copied, forked."""

from __future__ import annotations

import contextlib
import copy
import os
import signal
import threading
import time
from typing import Any

import jobs
import peelreduce
import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

_SIZE = 2


def _check_sum(worker: jobs.Worker, **others: Any) -> None:
    x = torch.zeros(1000)
    x[worker.rank :: 10] = 1.0 + worker.rank
    peelreduce.all_reduce(x, **others)
    expected = torch.zeros(1000)
    for rank in range(worker.size):
        expected[rank::10] += 1.0 + rank
    assert torch.equal(x, expected)


def _model(state: peelreduce.DDPState) -> DistributedDataParallel:
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(500, 8), torch.nn.Linear(8, 1)))
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    return model


def _backward(model: torch.nn.Module, rank: int) -> None:
    model(torch.arange(20) + 20 * rank).sum().backward()


def _sum_too_early(worker: jobs.Worker) -> None:
    state = peelreduce.State(timeout=20)
    for _ in range(2):
        for given in ({}, {"state": state}):
            with pytest.raises(ValueError, match="init_process_group"):
                peelreduce.all_reduce(torch.ones(1000), **given)
    worker.init()
    for given in ({}, {"state": state}):
        _check_sum(worker, **given)
    dist.destroy_process_group()


def test_a_sum_before_the_process_group_is_refused_and_works_afterwards() -> None:
    jobs.run(_SIZE, _sum_too_early)


def _make_states_early(worker: jobs.Worker) -> None:
    state, training = peelreduce.State(timeout=20), peelreduce.DDPState(timeout=20)
    worker.init()
    _check_sum(worker, state=state)
    model = _model(training)
    for _ in range(2):
        _backward(model, worker.rank)
    assert training.stats()["steps"] == 2
    dist.destroy_process_group()


def test_states_may_be_made_before_the_process_group() -> None:
    jobs.run(_SIZE, _make_states_early)


def _init_again(worker: jobs.Worker) -> None:
    state = peelreduce.State(timeout=20)
    for number in range(3):
        worker.init(number=number)
        _check_sum(worker)
        _check_sum(worker, state=state)
        training = peelreduce.DDPState(timeout=20)
        model = _model(training)
        _backward(model, worker.rank)
        assert training.stats()["steps"] == 1
        dist.barrier()
        dist.destroy_process_group()
        with pytest.raises(ValueError, match="init_process_group"):
            peelreduce.all_reduce(torch.ones(1000))


def test_a_process_group_may_be_destroyed_and_made_again() -> None:
    jobs.run(_SIZE, _init_again)


def _err_and_retry(worker: jobs.Worker) -> None:
    worker.init()
    state = peelreduce.State(timeout=60)
    for given in ({"state": state}, {}):
        with pytest.raises(peelreduce.Disagreement, match="differ"):
            peelreduce.all_reduce(torch.ones(1000 + worker.rank), **given)
        _check_sum(worker, **given)
    with pytest.raises(TypeError, match="complex64"):
        peelreduce.all_reduce(torch.ones(3, dtype=torch.complex64), state=state)  # a typing error, on all workers
    _check_sum(worker, state=state)
    dist.destroy_process_group()


def test_an_error_on_all_workers_is_no_obstacle_to_the_next_sum() -> None:
    jobs.run(_SIZE, _err_and_retry)


def _come_late(worker: jobs.Worker) -> None:
    worker.init()
    state = peelreduce.State(timeout=2)
    _check_sum(worker, state=state)
    if worker.rank == 0:
        with pytest.raises(peelreduce.TimedOut, match="[Ww]orker 1"):
            peelreduce.all_reduce(torch.ones(1000), state=state)
    dist.barrier()  # worker 1 was somewhere else meanwhile: its cell had not been run
    peelreduce.reset()
    dist.barrier()
    patient = peelreduce.State(timeout=60)
    for _ in range(2):
        _check_sum(worker, state=patient)
    dist.destroy_process_group()


def test_a_worker_that_did_not_come_can_be_met_again() -> None:
    jobs.run(_SIZE, _come_late)


def _share_a_state(worker: jobs.Worker) -> None:
    worker.init()
    state = peelreduce.DDPState(timeout=20)
    model = _model(state)
    _backward(model, worker.rank)
    other = _model(state)
    with pytest.raises((ValueError, RuntimeError), match="another set of parameters"):
        _backward(other, worker.rank)
    _backward(model, worker.rank)  # the first model goes on
    assert state.stats()["steps"] == 2
    with pytest.raises(TypeError, match="DDPState"):
        peelreduce.allreduce_hook(peelreduce.State(), None)
    dist.destroy_process_group()


def test_a_state_of_another_model_or_kind_is_refused() -> None:
    jobs.run(_SIZE, _share_a_state)


def _copy_everything(worker: jobs.Worker) -> None:
    worker.init()
    state = peelreduce.DDPState(timeout=20)
    model = _model(state)
    _backward(model, worker.rank)
    average = copy.deepcopy(model.module)  # as those do who keep an average of the weights
    assert torch.equal(average[1].weight, model.module[1].weight)
    saved = copy.deepcopy(state.state_dict())
    restored = peelreduce.DDPState(timeout=20)
    restored.load_state_dict(saved)
    _backward(_model(restored), worker.rank)
    assert restored.step == 2
    with contextlib.suppress(TypeError, peelreduce.Error):  # it has threads and connections, and may refuse
        copy.deepcopy(state)
    _backward(model, worker.rank)  # the original goes on either way
    assert state.step == 2
    dist.destroy_process_group()


def test_models_and_checkpoints_are_copied() -> None:
    jobs.run(_SIZE, _copy_everything)


def _be_interrupted(worker: jobs.Worker) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    worker.init()
    state = peelreduce.State(timeout=300)
    _check_sum(worker, state=state)
    if worker.rank == 0:
        worker.tell("waiting")
        try:
            peelreduce.all_reduce(torch.ones(1000), state=state)
        except KeyboardInterrupt:
            worker.tell("interrupted")
    dist.barrier()
    peelreduce.reset()  # the sum that was interrupted is forgotten
    dist.barrier()
    _check_sum(worker, state=state)
    dist.destroy_process_group()


def test_an_interrupted_sum_is_forgotten_by_a_reset() -> None:
    with jobs.started(_SIZE, _be_interrupted) as job:
        assert job.wait_told(0, "waiting"), job.fates
        time.sleep(0.5)  # for it to wait indeed; one that comes too early interrupts another line of the same block
        job.signal(0, signal.SIGINT)
        for rank in range(_SIZE):
            assert job.wait_ended(rank), f"worker {rank} hangs: {job.fates}"
            assert job.fates[rank].exitcode == 0, job.fates
        assert job.fates[0].find("interrupted") is not None


def _double(rows: list[int]) -> torch.Tensor:
    return 2 * torch.tensor(rows)


def _fork(worker: jobs.Worker) -> None:
    worker.init()
    state = peelreduce.State(timeout=20)
    _check_sum(worker, state=state)
    child = os.fork()
    if child == 0:
        try:
            peelreduce.all_reduce(torch.ones(10), state=state)
        except peelreduce.Error:
            os._exit(7)  # refused, at once
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    # As a loader with workers forks, in the middle of training.
    model = _model(peelreduce.DDPState(timeout=20))
    loader = DataLoader(range(40), batch_size=10, num_workers=1, multiprocessing_context="fork", collate_fn=_double)
    for rows in loader:
        model(rows).sum().backward()
    _check_sum(worker, state=state)
    dist.destroy_process_group()


def test_a_forked_process_is_refused_and_the_parent_goes_on() -> None:
    jobs.run(_SIZE, _fork)


def _close(worker: jobs.Worker) -> None:
    worker.init()
    before = set(threading.enumerate())
    with peelreduce.DDPState(timeout=20) as state:
        model = _model(state)
        _backward(model, worker.rank)
        assert set(threading.enumerate()) - before
    assert not set(threading.enumerate()) - before
    _backward(model, worker.rank)  # connects anew
    state.close()
    state.close()
    dist.destroy_process_group()


def test_a_state_that_is_closed_leaves_no_threads() -> None:
    jobs.run(_SIZE, _close)
