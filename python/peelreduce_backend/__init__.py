"""Tells torch of the backend "peel", and does no more: torch calls this while it is imported itself.

It is a package of its own because an import of peelreduce takes a second, which programs that do not use it must not pay.
"""

from __future__ import annotations

from typing import Any


def register() -> None:
    """Has torch.distributed.init_process_group("peel") work, where torch has torch.distributed."""
    import torch.distributed as dist

    if dist.is_available() and "peel" not in dist.Backend.backend_list:
        dist.Backend.register_backend("peel", _make_group, extended_api=True, devices=["cpu", "cuda"])


def _make_group(options: Any, of_backend: Any) -> Any:
    from peelreduce._backend import make_group

    return make_group(options, of_backend)
