"""Reads docs/results: the newest file of each measurement."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path("docs/results")


@dataclass(frozen=True)
class Result:
    head: dict  # title, kind, date, hardware, commands, conditions
    rows: list[dict]

    def where(self, **wanted) -> list[dict]:
        return [row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())]


def find(name: str) -> Result | None:
    """The newest file of this name; None where nothing was measured yet."""
    paths = sorted(FOLDER.glob(f"{name}-[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9].jsonl"))
    if not paths:
        return None
    head, *rows = [json.loads(line) for line in paths[-1].read_text().splitlines() if line.strip()]
    missing = {"title", "kind", "date", "hardware", "commands", "conditions"} - head.keys()
    if missing:
        raise SystemExit(f"{paths[-1]}: the first line lacks {', '.join(sorted(missing))}; docs/results/README.md says why.")
    return Result(head, rows)


def load(name: str) -> Result:
    result = find(name)
    if result is None:
        raise SystemExit(f"There is no {FOLDER}/{name}-DATE.jsonl, which a plot is made from.")
    return result
