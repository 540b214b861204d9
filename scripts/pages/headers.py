"""The C++ API as a page, from the comments of the public headers: what a header opens with as text, then what it
declares, with its comments, as code."""

from __future__ import annotations

import re
from pathlib import Path

# In the order in which a reader needs them; the rest follows by name.
_FIRST = ("allreduce", "state", "report", "communicator", "mpi", "nccl", "switch", "inprocess", "plan", "codec", "message")


def api(folder: Path) -> str:
    headers = {path.stem: path for path in sorted(folder.glob("*.h"))}
    order = [name for name in _FIRST if name in headers] + [name for name in headers if name not in _FIRST]
    return "# C++ API\n\n" + "\n".join(_section(headers[name]) for name in order)


def _section(header: Path) -> str:
    lines = header.read_text().splitlines()
    opening = 0
    while opening < len(lines) and lines[opening].startswith("//"):
        opening += 1
    declared = [line for line in lines[opening:] if not line.startswith(("#pragma once", "#include"))]
    code = re.sub(r"\n{3,}", "\n\n", "\n".join(declared)).strip()
    included = "\n".join(line for line in lines[opening:] if line.startswith("#include"))
    shown = code or included  # peel.h has nothing of its own
    return f"## peel/{header.name}\n\n{_text(lines[:opening])}\n\n```cpp\n{shown}\n```\n"


def _text(comment: list[str]) -> str:
    """Paragraphs; lines that are set in by two blanks or more are code."""
    out = []
    for line in comment:
        line = line[2:].removeprefix(" ")
        code = line.startswith("  ")
        if code and out and out[-1] and not out[-1].startswith("    "):
            out.append("")
        out.append("  " + line if code else _escaped(line))
    return "\n".join(out)


def _escaped(line: str) -> str:
    """What Markdown would take for more than it is; `code` stays as it is."""
    parts = line.split("`")
    return "`".join(part if at % 2 else re.sub(r"([<>*_])", r"\\\1", part) for at, part in enumerate(parts))
