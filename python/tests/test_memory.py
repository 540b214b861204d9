"""What sums keep in memory beside the tensors."""

from __future__ import annotations

import os
import pathlib

import peelreduce
import torch
from peelreduce import _workers
from workers import run_workers

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
