"""The network of hosts with limited links, bench/network, as experiments use it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from .context import ROOT, Context, Unavailable

_FOLDER = ROOT / "bench/network"
_TRIES = 2  # a machine with other things to do may miss the rate of its links


def refuse_without_network(context: Context, tool: str = "run") -> None:
    """Raises Unavailable with the tool's own reason: no root, no namespaces and, for `run`, no MPI; `train` needs none."""
    words = [sys.executable, str(_FOLDER / tool), "--possible", "--program", str(context.program)]
    found = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    if found.returncode != 0:
        reason = found.stderr.strip().removeprefix(f"{tool}: ") or f"bench/network/{tool} says no more"
        raise Unavailable(f"Links with a limited rate cannot be made here: {reason}.")


def all_reduce(context: Context, hosts: int, rate: str, transport: str, **options: Any) -> list[dict[str, Any]]:
    """The lines of `peel bench allreduce` on that many hosts. An option `density=[0.1, 0.2]` becomes --density 0.1,0.2."""
    words = [sys.executable, str(_FOLDER / "run"), "--program", str(context.program)]
    words += ["--hosts", str(hosts), "--rate", rate, "--transport", transport]
    for name, value in options.items():
        listed = value if isinstance(value, list) else [value]
        words += [f"--{name.replace('_', '-')}", ",".join(map(str, listed))]
    lines = [json.loads(line) for line in _tried(context, words).splitlines() if line.startswith("{")]
    require_right(lines)
    return lines


def train(context: Context, hosts: int, rate: str, switch: bool, script: str, *options: str) -> str:
    """What rank 0 of examples/SCRIPT printed."""
    words = [sys.executable, str(_FOLDER / "train"), "--hosts", str(hosts), "--rate", rate]
    words += ["--program", str(context.program), *(["--switch"] if switch else [])]
    return _tried(context, [*words, str(ROOT / "examples" / script), *options])


def require_right(lines: list[dict[str, Any]]) -> None:
    """The tools compare every element of every sum on every worker; here nothing may have been wrong or lost."""
    for line in lines:
        if line["wrong"] or line["lost"]:
            raise RuntimeError(f"{line['wrong']} elements of a sum were wrong and {line['lost']} items lost: {line}")


def _tried(context: Context, words: list[str]) -> str:
    for _ in range(_TRIES - 1):
        try:
            return context.command(words)
        except RuntimeError as error:
            if "are wrong" in str(error):  # elements of a sum: no matter of chance
                raise
            print(f"trying again after: {error}", file=sys.stderr)
    return context.command(words)
