"""The recipes of docs/pytorch.md, each with the package it is for, and skipped where that is not installed.

    pip install lightning accelerate transformers     # where torch and peelreduce are
"""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import subprocess
import sys

import pytest

_RECIPES = pathlib.Path(__file__).parent / "recipes"


@pytest.mark.parametrize(
    ("package", "recipe"),
    [("lightning", "with_lightning.py"), ("accelerate", "with_accelerate.py"), ("transformers", "with_trainer.py")],
)
def test_weights_are_those_without_the_hook(package: str, recipe: str, tmp_path: pathlib.Path) -> None:
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", str(_RECIPES / recipe)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{package} {version}: the same weights") == 2, done.stdout
