"""Programs in C++ that lose a worker, over a switch and over MPI: every survivor gets an error in time, and none hangs.

The programs are those of project/, built against an installed package; tests/outside/run says where they are
(OUTSIDE_PROGRAMS), and which `peel` was installed (PEEL).
"""

from __future__ import annotations

import itertools
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

_PROGRAMS = pathlib.Path(os.environ.get("OUTSIDE_PROGRAMS", "."))
_SIZE = 3
_VICTIM = 1
_SURVIVORS = [rank for rank in range(_SIZE) if rank != _VICTIM]
_TIMEOUT = 3  # of the programs, in seconds
_LONG_TIMEOUT = 120  # where an error, or none, is to come long before it
_ENOUGH = 30  # for whatever should happen, on a busy machine
_FAULTS = ("kill", "stop", "pause", "raise", "exit", "memory")  # pause: stopped, and continued within the time-out
_STAGES = ("meeting", "before", "opening", "data", "between", "destroy")


@dataclass
class Told:
    """What a worker wrote: when, a word for what happened, and a sentence."""

    seconds: float
    what: str
    sentence: str

    @classmethod
    def read(cls, path: pathlib.Path) -> Told:
        seconds, what, *rest = path.read_text().split("\n")
        return cls(float(seconds), what, " ".join(rest).strip())


@dataclass
class Outcome:
    fault: str
    struck: float | None = None  # when the victim broke
    told: dict[int, Told] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)  # have destroyed their communicators
    gone: set[int] = field(default_factory=set)  # whose processes were not there when all was over
    log: str = ""


def _wait(condition: Callable[[], bool], seconds: float = _ENOUGH) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _is_gone(pid: int) -> bool:
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


class Case:
    """One job with one fault. Files of its folder say what the workers do (project/faults.cpp)."""

    def __init__(self, folder: pathlib.Path, fault: str, stage: str, timeout: int) -> None:
        self.folder = folder
        self.fault = fault
        self.arguments = ["stop" if fault == "pause" else fault, stage, str(_VICTIM), str(folder), str(timeout)]
        self.log = (folder / "log").open("w")

    def run(self, start: Callable[[Case], list[subprocess.Popen[bytes]]]) -> Outcome:
        processes = start(self)
        try:
            return self._watch()
        finally:
            (self.folder / "seen").touch()
            for pid in [*self._pids().values(), *(process.pid for process in processes)]:
                if not _is_gone(pid):
                    os.kill(pid, signal.SIGKILL)
            for process in processes:
                process.wait()
            self.log.close()

    def _pids(self) -> dict[int, int]:
        return {int(path.suffix[1:]): int(Told.read(path).what) for path in self.folder.glob("pid.?")}

    def _over(self, rank: int) -> bool:
        return (self.folder / f"ended.{rank}").exists() or _is_gone(self._pids()[rank])

    def _watch(self) -> Outcome:
        assert _wait(lambda: len(self._pids()) == _SIZE), (self.folder / "log").read_text()
        pids = self._pids()
        if self.fault == "pause":
            _wait((self.folder / "struck").exists)
            time.sleep(0.5)
            os.kill(pids[_VICTIM], signal.SIGCONT)
        _wait(lambda: all(self._over(rank) for rank in _SURVIVORS))
        if self.fault == "stop":
            os.kill(pids[_VICTIM], signal.SIGCONT)  # it finds the others gone on without it
        _wait(lambda: self._over(_VICTIM))
        outcome = Outcome(self.fault, log=(self.folder / "log").read_text())
        if (self.folder / "struck").exists():
            outcome.struck = Told.read(self.folder / "struck").seconds
        for rank, pid in pids.items():
            if (self.folder / f"told.{rank}").exists():
                outcome.told[rank] = Told.read(self.folder / f"told.{rank}")
            if (self.folder / f"ended.{rank}").exists():
                outcome.ended.add(rank)
            if _is_gone(pid):
                outcome.gone.add(rank)
        return outcome


def _run_all(
    folder: pathlib.Path,
    stage: str,
    start: Callable[[Case], list[subprocess.Popen[bytes]]],
    told_at_once: tuple[str, ...],
) -> list[Outcome]:
    """All faults at one stage, side by side: most of the time they wait. Survivors of some are told long before the
    time-out."""

    def run(fault: str) -> Outcome:
        (folder / fault).mkdir()
        timeout = _LONG_TIMEOUT if fault in told_at_once else _TIMEOUT
        return Case(folder / fault, fault, stage, timeout).run(start)

    with ThreadPoolExecutor(len(_FAULTS)) as pool:
        return list(pool.map(run, _FAULTS))


def _check(outcome: Outcome, stage: str, *, may_be_ended: bool) -> None:
    """`may_be_ended`: the transport may end survivors itself, as Open MPI does when a connection breaks."""
    assert outcome.struck is not None, outcome
    for rank in range(_SIZE):
        assert rank in outcome.ended or rank in outcome.gone, f"worker {rank} hangs: {outcome}"
    if outcome.fault == "pause" or stage == "destroy":
        expected = "finished"
    elif outcome.fault == "memory" and all(told.what == "finished" for told in outcome.told.values()):
        assert stage == "data", outcome  # what was to be allocated was there already
        expected = "finished"
    else:
        expected = "peel::Error"
    for rank in _SURVIVORS:
        if rank not in outcome.told:
            assert may_be_ended, f"worker {rank} vanished: {outcome}"
            continue
        told = outcome.told[rank]
        assert told.what.startswith(expected), f"worker {rank}: {outcome}"
        assert told.seconds - outcome.struck < _ENOUGH, f"worker {rank} was told late: {outcome}"
        if expected == "peel::Error":
            assert told.sentence.endswith("."), f"worker {rank}: {outcome}"
    if outcome.fault == "stop" and stage != "destroy" and _VICTIM in outcome.told:
        assert outcome.told[_VICTIM].what.startswith("peel::Error"), f"the worker that was stopped: {outcome}"


@pytest.mark.parametrize("stage", _STAGES)
def test_a_switch_tells_the_survivors(switch: str, stage: str, tmp_path: pathlib.Path) -> None:
    jobs = itertools.count()

    def start(case: Case) -> list[subprocess.Popen[bytes]]:
        job = f"{stage} {next(jobs)}"
        return [
            subprocess.Popen(
                [_PROGRAMS / "switch_faults", *case.arguments, str(rank), str(_SIZE), switch, job],
                env={**os.environ, "PEEL_SWITCH_SECRET": "a secret that nobody guesses"},
                stderr=case.log,
            )
            for rank in range(_SIZE)
        ]

    # Who raises leaves the job on its way out, and the switch tells the others at once; but not if it never joined.
    at_once = ("pause",) if stage == "meeting" else ("pause", "raise", "memory")
    for outcome in _run_all(tmp_path, stage, start, at_once):
        _check(outcome, stage, may_be_ended=False)


@pytest.mark.parametrize("stage", _STAGES)
def test_mpi_tells_the_survivors(stage: str, tmp_path: pathlib.Path) -> None:
    mpirun = shutil.which("mpirun")
    if not (_PROGRAMS / "mpi_faults").exists() or mpirun is None:
        pytest.skip("there is no transport over MPI, or no mpirun")
    if "Open MPI" not in subprocess.run([mpirun, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("mpirun is not Open MPI's")

    def start(case: Case) -> list[subprocess.Popen[bytes]]:
        # With recovery mpirun does not end the others when a worker is gone.
        command = [mpirun, "--enable-recovery", "--oversubscribe", "-np", str(_SIZE)]
        command += ["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]
        allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return [
            subprocess.Popen(
                [*command, _PROGRAMS / "mpi_faults", *case.arguments],
                env={**os.environ, **allowed},
                stdout=case.log,
                stderr=subprocess.STDOUT,
            )
        ]

    for outcome in _run_all(tmp_path, stage, start, ("pause",)):
        _check(outcome, stage, may_be_ended=True)
