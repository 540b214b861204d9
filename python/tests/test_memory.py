"""What sums keep in memory beside the tensors."""

from __future__ import annotations

import os
import pathlib
import sys

import peelreduce
import pytest
import torch
from peelreduce import _core, _workers
from workers import run_workers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from evaluate.one_process import Team  # noqa: E402

_MIB = 2**20


def _resident() -> int:
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _use_states(rank: int, size: int, count: int) -> None:
    torch.manual_seed(rank)
    own = torch.randint(1, 9, (_MIB,)) * (torch.rand(_MIB) < 0.3)
    everybody = []
    for other in range(size):
        torch.manual_seed(other)
        everybody.append(torch.randint(1, 9, (_MIB,)) * (torch.rand(_MIB) < 0.3))
    expected = torch.stack(everybody).sum(0).float()
    x = torch.empty(_MIB)
    states = []
    after_one = 0
    for index in range(count):
        states.append(peelreduce.State(timeout=60))
        for _ in range(2):  # the second one knows more
            x.copy_(own)
            peelreduce.all_reduce(x, state=states[-1])
            assert torch.equal(x, expected)
        if index == 0:
            after_one = _resident()
    grown = _resident() - after_one
    assert grown < 64 * _MIB, f"{count} states took {grown / _MIB:.0f} MiB more than one"
    pool = _workers.workers_of(None).dispatcher(None)._lanes.scratch
    assert pool.memory_bytes > 0
    peelreduce.empty_cache()
    assert pool.memory_bytes == 0
    x.copy_(own)
    peelreduce.all_reduce(x, state=states[0])
    assert torch.equal(x, expected)


def test_many_states_work_in_the_memory_of_one() -> None:
    run_workers(2, _use_states, 100)


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[_core.ScratchPool]:
    """All pools that a test makes."""
    made: list[_core.ScratchPool] = []
    make = _core.ScratchPool

    def make_and_note() -> _core.ScratchPool:
        made.append(make())
        return made[-1]

    monkeypatch.setattr(_core, "ScratchPool", make_and_note)
    return made


def test_a_team_works_in_the_memory_of_its_last_sum(pools: list[_core.ScratchPool]) -> None:
    team = Team(3, torch.device("cpu"), strategy="split")
    for _ in range(3):
        team.sum([torch.ones(10_000) for _ in range(3)])
    assert len(pools) == 3
    assert all(pool.memory_bytes > 10_000 for pool in pools)


def test_a_profile_is_of_warm_memory(pools: list[_core.ScratchPool]) -> None:
    torch.manual_seed(2)
    model = torch.nn.Embedding(20_000, 16)

    def steps():
        for _ in range(2):
            model.zero_grad()
            model(torch.randint(20_000, (40,))).sum().backward()
            yield

    peelreduce.profile(model, steps(), workers=2, bandwidths=["100mbit"])
    assert len(pools) == 2, "each of the two workers keeps its memory"
    assert all(pool.memory_bytes > 0 for pool in pools)
