"""What an experiment is told, and what it may ask of the machine."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # of the repository


class Unavailable(Exception):
    """This machine cannot do the experiment; the reason is a sentence for the reader of the report."""


@dataclass
class Context:
    quick: bool = False
    gpu: bool = False
    device: str = "cpu"  # or "cuda"
    out: Path = ROOT / "build/evaluate"
    data: Path | None = None  # a folder with MODEL.masks.xz
    program: Path = ROOT / "build/release/peel"
    commands: list[str] = field(default_factory=list)  # as a reader would type them, in the root of the repository
    save: Callable[[dict], object] = lambda results: None  # keeps results so far, should the rest be interrupted

    def command(self, words: list, timeout: float | None = None, env: dict[str, str] | None = None) -> str:
        """Runs it in the root of the repository and returns its standard output; a failure is a RuntimeError."""
        words = [str(word) for word in words]
        self.note((f"{' '.join(f'{k}={shlex.quote(v)}' for k, v in env.items())} " if env else "") + self._shown(words))
        done = subprocess.run(
            words,
            cwd=ROOT,
            env=dict(os.environ, **(env or {})),
            timeout=timeout,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{self._shown(words)}: exit status {done.returncode}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def peel(self, *words, timeout: float | None = None) -> str:
        """The program of this library, with these arguments."""
        if not self.program.exists():
            raise Unavailable("The program peel was not built; scripts/evaluate builds it, and --program names it.")
        return self.command([self.program, *words], timeout=timeout)

    def measure(self, *words, timeout: float | None = None) -> list[dict]:
        """What `peel bench` and others write with --json, one object in a line."""
        return [json.loads(line) for line in self.peel(*words, "--json", "-", timeout=timeout).splitlines()]

    def note(self, command: str) -> None:
        """Remembers a command for the report, once."""
        if command not in self.commands:
            self.commands.append(command)

    def say(self, text: str) -> None:
        print(f"    {text}", file=sys.stderr, flush=True)

    def _shown(self, words: list[str]) -> str:
        def short(word: str) -> str:
            if word == str(self.program):
                return "peel"
            if word == sys.executable:
                return "python"
            for folder, name in ((self.out, "OUT"), (self.data, "DIR"), (ROOT, ".")):
                if folder is not None:
                    word = word.replace(f"{folder}/", f"{name}/".removeprefix("./"))
            files = word.split(",")
            return word if len(files) < 4 or "/" not in word else f"{files[0]},...,{files[-1]}"

        return shlex.join(short(word) for word in words)


def machine() -> dict:
    """Processor, cores, memory and, where there are any, GPUs."""
    facts = {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
    }
    gpus = _output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"])
    if gpus:
        facts["gpus"] = gpus.splitlines()
    return facts


def versions(program: Path) -> dict:
    """Of what figures depend on. Nothing is imported that was not imported anyway."""
    found = {"python": platform.python_version()}
    for package in ("torch", "numpy", "torchvision", "transformers", "peelreduce"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            pass
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda:
        found["cuda"] = torch.version.cuda
        if torch.cuda.is_available() and torch.distributed.is_nccl_available():
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
    if program.exists():
        found["peel"] = _output([str(program), "--version"])
    commit = _output(["git", "describe", "--always", "--dirty"])
    if commit:
        found["commit"] = commit
    return found


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _output(words: list[str]) -> str:
    try:
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
