"""What this installation has, and whether it works: python -m peelreduce.doctor

Exit status 0 if two processes of this machine can sum a tensor, 1 if not.
"""

from __future__ import annotations

import os
import sys
import tempfile
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from . import __version__, _core, _gpu, all_reduce

_WORKERS = 2
_ELEMENTS = 100_000


def _gradient(rank: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(rank)
    values = torch.randint(-8, 8, (_ELEMENTS,), generator=draw).float()
    return values * (torch.rand(_ELEMENTS, generator=draw) < 0.01)


def _check(rank: int, store: str) -> None:
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=_WORKERS, timeout=timedelta(seconds=30)
    )
    tensor = _gradient(rank)
    all_reduce(tensor)
    if not torch.equal(tensor, sum(_gradient(worker) for worker in range(_WORKERS))):
        raise RuntimeError("The sum is wrong; report this with the output of the doctor.")
    dist.destroy_process_group()


def self_check() -> str:
    """An empty string if two processes can sum a tensor, or what went wrong."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            processes.spawn(_check, args=(f"{folder}/store",), nprocs=_WORKERS)
    except Exception:  # noqa: BLE001: whatever it is, it is the answer
        return traceback.format_exc(limit=1)
    return ""


def main() -> int:
    facts = {
        "peelreduce": __version__,
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "codecs": ", ".join(_core.backends()),
        "vectors": _core.simd_target() or "none",
        "cuda": _gpu.about(),
        "nccl": "yes" if dist.is_nccl_available() else "no: tensors of GPUs are summed in host memory",
        "gloo": "yes" if dist.is_gloo_available() else "no: tensors in host memory need it",
    }
    for name, fact in facts.items():
        print(f"{name:<12}{fact}")
    problem = self_check()
    print(f"{'self-check':<12}{problem or f'{_WORKERS} processes agree on a sum'}")
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
