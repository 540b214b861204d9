"""Runs a function in several worker processes that form a Gloo group, and returns what each of them returned."""

from __future__ import annotations

import io
import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "peelreduce"])  # imported once, not by every worker


def _packed(value: Any) -> bytes:
    """Tensors in a queue would be shared memory, which ends with its worker."""
    memory = io.BytesIO()
    torch.save(value, memory)
    return memory.getvalue()


def _work(function: Callable[..., Any], rank: int, size: int, store: str, results: Any, arguments: tuple) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        dist.init_process_group(
            "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
        )
        results.put((rank, None, _packed(function(rank, size, *arguments))))
        dist.barrier()
        dist.destroy_process_group()
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
        raise


def run_workers(size: int, function: Callable[..., Any], *arguments: Any, seconds: float = 180) -> list[Any]:
    """function(rank, size, *arguments) in every worker. An error in one is an error here."""
    with tempfile.TemporaryDirectory() as folder:
        results = _CONTEXT.Queue()
        processes = [
            _CONTEXT.Process(target=_work, args=(function, rank, size, f"{folder}/store", results, arguments))
            for rank in range(size)
        ]
        for process in processes:
            process.start()
        returned: dict[int, Any] = {}
        try:
            for _ in range(size):
                rank, error, value = results.get(timeout=seconds)
                assert error is None, f"worker {rank}:\n{error}"
                returned[rank] = torch.load(io.BytesIO(value), weights_only=False)
            for process in processes:
                process.join(seconds)
                assert process.exitcode == 0, f"a worker ended with {process.exitcode}"
        finally:
            for process in processes:
                process.kill()
                process.join()
        return [returned[rank] for rank in range(size)]
