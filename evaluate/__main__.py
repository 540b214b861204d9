"""Runs experiments, writes their documents and the report: python -m evaluate [--quick] [--gpu] [--only NAMES]."""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from datetime import datetime, timezone
from pathlib import Path

from . import experiments
from .context import ROOT, SCHEMA, Context, Unavailable, machine, versions
from .numbers import duration
from .report import command_of, write_report


def main() -> int:
    options = arguments()
    context_of = {
        "quick": options.quick,
        "gpu": options.gpu,
        "device": options.device,
        "out": options.out,
        "data": options.data,
        "program": options.program,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in [] if options.report_only else options.only:
        module = importlib.import_module(f".experiments.{name}", __package__)
        if module.GPU is not None and module.GPU != options.gpu:
            continue
        print(f"{name}: {module.TITLE}", file=sys.stderr, flush=True)
        path = options.out / f"{name}{'-gpu' if options.gpu else ''}.json"
        if options.quick and (there := results_at(path)) and not there.get("quick"):
            print(f"    not done: {path} is of a full run; remove it, or name another --out", file=sys.stderr, flush=True)
            continue
        document = perform(module, Context(**context_of), path)
        ending = document.get("unavailable") or "; ".join(failures(document)) or "done"
        print(f"    {ending} ({duration(document['seconds'])})", file=sys.stderr, flush=True)
        if failures(document):
            failed.append(name)
    print(write_report(options.out))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def results_at(path: Path) -> dict | None:
    """The document of an earlier run, if it has results."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) and "results" in document else None


def perform(module, context: Context, path: Path) -> dict:
    """One experiment, as a document at that path. A failure is told in the report and does not keep the others from
    running; what an experiment saved on its way is there even if the process is ended from outside. Results of an earlier
    run stay if this machine cannot do the experiment."""
    begin = time.monotonic()
    data = " --data DIR" if context.data else ""
    context.note(command_of({"experiment": module.NAME, "quick": context.quick, "gpu": context.gpu}) + data)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")

    def write(outcome: dict) -> dict:
        document = {
            "experiment": module.NAME,
            "schema": SCHEMA,
            "quick": context.quick,
            "gpu": context.gpu,
            "date": date,
            "seconds": round(time.monotonic() - begin, 1),
            "machine": machine(),
            "versions": versions(context.program),
            "commands": context.commands,
            "remarks": context.remarks,
            **outcome,
        }
        if "unavailable" in outcome and results_at(path):
            context.say(f"{path.name} of an earlier run is kept")
        else:
            path.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n")
        return document

    unfinished = "It was interrupted; what is shown was measured before."
    saved: dict = {}

    def save(results: dict) -> None:
        saved["results"] = _plain(results)
        write({**saved, "failed": unfinished})

    context.save = save
    try:
        outcome = {"results": _plain(module.run(context))}
    except Unavailable as reason:
        outcome = {"unavailable": str(reason)}
    except Exception as error:  # noqa: BLE001
        traceback.print_exc()
        outcome = {**saved, "failed": f"{type(error).__name__}: {error}"}
    document = write(outcome)
    _tidy()
    return document


def failures(value) -> list[str]:
    """What failed in a document: all of it, or a part that its results tell of. A wrong lossless sum is among these."""
    if isinstance(value, dict):
        own = [value["failed"]] if isinstance(value.get("failed"), str) else []
        return own + [what for one in value.values() for what in failures(one)]
    return [what for one in value for what in failures(one)] if isinstance(value, list) else []


def _plain(value):
    """As JSON has it: no NaN, no infinity, no numpy."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _tidy() -> None:
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="evaluate", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small arrays and few repeats: minutes, not an hour")
    parser.add_argument("--gpu", action="store_true", help="the experiments of a GPU instead of those of the processor")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="where gradients are computed; cuda with --gpu")
    parser.add_argument("--only", default=",".join(experiments.NAMES), help="experiments, as in size,scaling")
    parser.add_argument("--out", type=Path, default=ROOT / "build/evaluate", help="folder of documents and report")
    parser.add_argument("--data", type=Path, help="folder of real supports, files as MODEL.masks.xz")
    parser.add_argument(
        "--program", type=Path, default=Path(os.environ.get("PEEL", ROOT / "build/release/peel")), help="which peel"
    )
    parser.add_argument("--report-only", action="store_true", help="make the report from documents that are there")
    options = parser.parse_args()
    options.only = [name for name in options.only.split(",") if name]
    unknown = set(options.only) - set(experiments.NAMES)
    if unknown:
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}; there are {', '.join(experiments.NAMES)}")
    if options.data is not None and not options.data.is_dir():
        parser.error(f"--data {options.data}: there is no such folder")
    options.device = options.device or ("cuda" if options.gpu else "cpu")
    options.out, options.program = options.out.resolve(), options.program.resolve()
    options.data = options.data.resolve() if options.data else None
    return options


if __name__ == "__main__":
    for ending in (signal.SIGTERM, signal.SIGHUP):  # as an interrupt does: commands are ended first
        signal.signal(ending, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
