"""What an experiment is told, and what it may ask of the machine."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # of the repository
SCHEMA = 1  # of documents
TIMEOUT = 1800.0  # seconds of a command; the longest one takes a few minutes
_REMARK = re.compile(r"(run|train|peel|bench-nccl): |.*links carry ")  # what tools say beside results, of their stderr


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
    commands: list[str] = field(default_factory=list)  # in the root of the repository; OUT and DIR stand for folders
    remarks: list[str] = field(default_factory=list)  # of tools that succeeded: warnings, and what links carried
    save: Callable[[dict], object] = lambda results: None  # keeps results so far, should the rest be interrupted

    def command(self, words: list, timeout: float = TIMEOUT, env: dict[str, str] | None = None) -> str:
        """Runs it in the root of the repository and returns its standard output; a failure is a RuntimeError, and so is
        a time-out. Warnings of a tool that succeeds are kept for the report."""
        words = [str(word) for word in words]
        self.note((f"{' '.join(f'{k}={shlex.quote(v)}' for k, v in env.items())} " if env else "") + self._shown(words))
        status, printed, errors = _run(words, dict(os.environ, **(env or {})), timeout)
        if status is None:
            raise RuntimeError(f"{self._shown(words)}: did not end within {timeout:g} s: {errors.strip()[-2000:]}")
        if status != 0:
            raise RuntimeError(f"{self._shown(words)}: exit status {status}: {errors.strip()[-2000:]}")
        self.remarks += [line for line in errors.splitlines() if _REMARK.match(line) and line not in self.remarks]
        return printed

    @contextlib.contextmanager
    def part(self, what: str, failed: list[str]) -> Iterator[None]:
        """A part that may fail without the others: the reason goes to `failed`, of which the results are to tell."""
        try:
            yield
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001: whatever it was, the report says so
            traceback.print_exc()
            failed.append(f"{what}: {type(error).__name__}: {error}")

    def peel(self, *words, timeout: float = TIMEOUT) -> str:
        """The program of this library, with these arguments."""
        if not self.program.exists():
            raise Unavailable("The program peel was not built; scripts/evaluate builds it, and --program names it.")
        return self.command([self.program, *words], timeout=timeout)

    def measure(self, *words, timeout: float = TIMEOUT) -> list[dict]:
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


def telling(results: dict, failed: list[str]) -> dict:
    """Results, with what failed beside them: `failed` in a document makes the exit status 1, at whatever depth."""
    return {**results, "failed": "; ".join(failed)} if failed else results


def _run(words: list[str], env: dict[str, str], timeout: float) -> tuple[int | None, str, str]:
    """Exit status, None after a time-out, and what was printed. All that it started ends with it, and may clean up."""
    process = subprocess.Popen(
        words, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        printed, errors = process.communicate(timeout=timeout)
        return process.returncode, printed, errors
    except subprocess.TimeoutExpired:
        return (None, *_end(process))
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen) -> tuple[str, str]:
    for number, grace in ((signal.SIGTERM, 30), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=grace)
    return "", ""


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
