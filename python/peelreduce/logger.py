"""What the hook did, step by step, for people to look at.

    logger = peelreduce.StepLogger(state, "peelreduce.jsonl")     # or a SummaryWriter of TensorBoard
    for batch in loader:
        ...
        optimizer.step()
        logger.step()
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Protocol

from .ddp import DDPState


class Writer(Protocol):
    """What torch.utils.tensorboard.SummaryWriter has."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> Any: ...


class StepLogger:
    """Writes what was sent, saved and repaired since the step before, and how long it took.

    Args:
        state: the state of the hook.
        to: a file to which a line of JSON is added for each step, or a SummaryWriter. Every worker that has a logger
            writes; give one to rank 0 alone.
    """

    def __init__(self, state: DDPState, to: str | os.PathLike[str] | Writer) -> None:
        if not isinstance(state, DDPState):
            raise TypeError(f"A logger reads a peelreduce.DDPState, not {type(state).__name__}.")
        if not isinstance(to, str | os.PathLike) and not hasattr(to, "add_scalar"):
            raise TypeError(f"A logger writes to a file name or to a SummaryWriter, not to {type(to).__name__}.")
        self._state = state
        self._writer = to if not isinstance(to, str | os.PathLike) else None
        self._file = Path(to).open("a", encoding="utf-8") if isinstance(to, str | os.PathLike) else None
        self._before = state.stats()
        self._time = time.perf_counter()

    def step(self, **others: float) -> dict[str, Any]:
        """To be called after each optimizer step, with other numbers if you like, such as the loss. Returns the row."""
        stats, now = self._state.stats(), time.perf_counter()
        row: dict[str, Any] = {"step": stats["steps"], "seconds": now - self._time, **others}
        for name, value in stats.items():
            if name not in ("steps", "buckets"):
                row[name] = value - self._before[name]
        row["buckets"] = {
            key: {"density": one["density"], **{name: one["last"].get(name) for name in _SHOWN}}
            for key, one in stats["buckets"].items()
        }
        self._before, self._time = stats, now
        self._write(row)
        return row

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, row: dict[str, Any]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()  # so that a run that is killed has its rows
        if self._writer is not None:
            for name, value in row.items():
                if name not in ("step", "buckets"):
                    self._writer.add_scalar(f"peelreduce/{name}", value, row["step"])
            for key, one in row["buckets"].items():
                if one["density"] is not None:
                    self._writer.add_scalar(f"peelreduce/density/{key}", one["density"], row["step"])


_SHOWN = ("memory", "strategy", "grain", "bytes_sent", "dense_bytes", "repaired", "lost", "estimate_error", "total_s")
