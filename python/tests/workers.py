"""Runs a function or a script in several worker processes, and returns what each of them returned or printed."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import os
import pathlib
import runpy
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "peelreduce"])  # imported once, not by every worker


def _packed(value: Any) -> bytes:
    """Tensors in a queue would be shared memory, which ends with its worker."""
    memory = io.BytesIO()
    torch.save(value, memory)
    return memory.getvalue()


def _work(function: Callable[..., Any], rank: int, size: int, results: Any, arguments: tuple) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        results.put((rank, None, _packed(function(rank, size, *arguments))))
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
        raise


def _in_group(
    rank: int, size: int, store: str, backend: str, function: Callable[..., Any], arguments: tuple
) -> Any:
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    result = function(rank, size, *arguments)
    dist.barrier()
    dist.destroy_process_group()
    return result


def _as_script(rank: int, size: int, port: int, path: pathlib.Path, arguments: tuple[str, ...]) -> str:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.parent))  # python does so for a script that it runs
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(path), run_name="__main__")
    return printed.getvalue()


def _run(size: int, seconds: float, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    results = _CONTEXT.Queue()
    processes = [
        _CONTEXT.Process(target=_work, args=(function, rank, size, results, arguments)) for rank in range(size)
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


def run_workers(
    size: int, function: Callable[..., Any], *arguments: Any, seconds: float = 180, backend: str = "gloo"
) -> list[Any]:
    """function(rank, size, *arguments) in every worker. An error in one is an error here."""
    with tempfile.TemporaryDirectory() as folder:
        return _run(size, seconds, _in_group, f"{folder}/store", backend, function, arguments)


def run_script(size: int, path: pathlib.Path, *arguments: str, seconds: float = 180) -> list[str]:
    """A script in every worker, as torchrun starts it, and what each printed. It forms the group itself."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return _run(size, seconds, _as_script, port, path, arguments)


_TOLD = "everybody has heard of it"


def tell_error(rank: int, folder: str, seconds: float, error: BaseException) -> None:
    """For workers 0 and 1 of three whose worker 2 is gone; worker 0 ends all when both have told."""
    path = pathlib.Path(folder, str(rank))
    path.with_suffix(".part").write_text(f"{seconds}\n{error}")
    path.with_suffix(".part").rename(path)
    while rank != 0 or not pathlib.Path(folder, "1").exists():
        time.sleep(0.05)
    raise RuntimeError(_TOLD)


def run_until_told(
    function: Callable[..., Any], folder: str, *arguments: Any, backend: str = "gloo"
) -> list[tuple[float, str]]:
    """After how many seconds workers 0 and 1 got an error, and which."""
    with pytest.raises(AssertionError, match=_TOLD):
        run_workers(3, function, folder, *arguments, seconds=60, backend=backend)
    told = [pathlib.Path(folder, str(rank)).read_text().split("\n", 1) for rank in (0, 1)]
    return [(float(seconds), error) for seconds, error in told]
