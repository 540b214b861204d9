"""Experiment 6: training loss over wall-clock time, by really distributed training over links with a rate limit.

The four models in small size, one process in each host, all from the same seed: plain DDP over Gloo, packed and sketch
over Gloo, and packed through a switch that adds. Steps are the same steps, so that only the clock may differ; whether
the losses are equal is checked, bit by bit.

Time is that of steps: drawing a batch and waiting for others before a step are not in it, for nobody.
"""

from __future__ import annotations

import json
import re
import statistics
from typing import Any

from .. import paper, rig
from ..charts import Series, lines
from ..context import Context, telling
from ..numbers import number, percent, plain, rate, times
from ..report import Section, SummaryRow, prose, table

NAME = "clock"
TITLE = "Loss over wall-clock time"
GPU = False

RATE = "200mbit"
QUICK_STEPS = 8
FULL_STEPS = {"ncf": 40, "lstm": 40, "vgg": 60, "bert": 60}
VARIANTS = {  # name: options of the example, whether through a switch
    "DDP": (["--reduce", "ddp"], False),
    "packed": (["--strategy", "packed"], False),
    "sketch": (["--strategy", "sketch"], False),
    "switch": (["--strategy", "packed"], True),
}
NAMES = {"DDP": "plain DDP", "packed": "packed", "sketch": "sketch", "switch": "packed, through a switch"}
SUMMED = "switch"  # the variant of the summary: the paper's two workers reach a switch
SETTLED = 2  # steps before sizes and scales are known, which are not in the median
Run = dict[str, Any]


def run(context: Context) -> dict[str, Any]:
    rig.refuse_without_network(context, "train")
    runs: list[Run] = []
    failed: list[str] = []
    for model in paper.MODELS:
        for workers in (2,) if context.quick else (2, 4):
            steps = QUICK_STEPS if context.quick else FULL_STEPS[model] // (workers // 2)
            for variant in VARIANTS:
                context.say(f"{model}, {workers} workers, {variant}")
                with context.part(f"{model}, {workers} workers, {variant}", failed):
                    runs.append(train(context, model, workers, steps, variant))
            context.save(telling({"runs": compare(runs)}, failed))
    compared = compare(runs)
    return telling({"runs": compared}, failed + faults(compared))


def train(context: Context, model: str, workers: int, steps: int, variant: str) -> Run:
    options, switch = VARIANTS[variant]
    log = context.out / "clock-losses.jsonl"
    log.unlink(missing_ok=True)
    try:
        words = [*options, "--steps", str(steps), "--losses", str(log)]
        printed = rig.train(context, workers, RATE, switch, f"{model}.py", *words)
        taken = [json.loads(line) for line in log.read_text().splitlines()]
    finally:
        log.unlink(missing_ok=True)
    return {
        "model": model,
        "workers": workers,
        "rate": RATE,
        "variant": variant,
        "losses": [step["loss"] for step in taken],
        "seconds": [step["seconds"] for step in taken],
        "sent": sent_share(printed),
    }


def sent_share(printed: str) -> float | None:
    """What an example says that it sent, as a share of dense sums; plain DDP says nothing."""
    found = re.search(r"sent ([0-9.]+)% of what dense sums send", printed)
    return float(found[1]) / 100 if found else None


def compare(runs: list[Run]) -> list[Run]:
    """Adds to each run how far its losses are from those of plain DDP with as many workers, and how much faster it was.
    None where plain DDP failed, so that there is nothing to compare with."""
    bases = {(one["model"], one["workers"]): one for one in runs if one["variant"] == "DDP"}
    for one in runs:
        one["median_seconds"] = statistics.median(one["seconds"][SETTLED:] or one["seconds"])
    for one in runs:
        base = bases.get((one["model"], one["workers"]))
        if base is None:
            one.update(dict.fromkeys(("equal_steps", "largest_difference", "speedup", "whole_speedup")))
            continue
        pairs = list(zip(one["losses"], base["losses"], strict=True))
        one["equal_steps"] = sum(ours == theirs for ours, theirs in pairs)
        one["largest_difference"] = max(abs(ours - theirs) / abs(theirs) for ours, theirs in pairs)
        one["speedup"] = base["median_seconds"] / one["median_seconds"]
        one["whole_speedup"] = sum(base["seconds"]) / sum(one["seconds"])
    return runs


def must_be_equal(one: Run) -> bool:
    """With two workers, packed adds the same two numbers as DDP does."""
    return one["variant"] == "packed" and one["workers"] == 2


def faults(runs: list[Run]) -> list[str]:
    """Losses that must be those of plain DDP, bit by bit, and are not."""
    return [
        f"{one['model']}, packed: losses of {len(one['losses']) - one['equal_steps']} steps are wrong: not plain DDP's"
        for one in runs
        if must_be_equal(one) and one["equal_steps"] is not None and one["equal_steps"] < len(one["losses"])
    ]


def over_time(one: Run) -> list[tuple[float, float]]:
    """Points of time and loss, at the end of each step."""
    clock, drawn = 0.0, []
    for seconds, loss in zip(one["seconds"], one["losses"], strict=True):
        clock += seconds
        drawn.append((clock, loss))
    return drawn


# ---- the report


def section(documents: list[dict[str, Any]]) -> Section:
    parts = [prose(
        "Workers are processes in network namespaces, each with a link of its own that is limited in both directions, on "
        "one machine. The models are the small ones of the examples, with drawn data or Fashion-MNIST: the paper's are "
        "larger, its links faster, and so its speed-ups are other ones. What carries over is that the same steps are "
        "taken.\n\n"
        "With two workers, packed adds the same two numbers as DDP does, so that losses must be equal bit by bit. With "
        "four, the order of additions differs from that of Gloo's ring; a sketch and a switch add fixed-point numbers. "
        "Then losses may differ as they do between two orders of addition."
    )]  # fmt: skip
    for document in documents:
        runs = (document.get("results") or {}).get("runs", [])
        shown = max((one["workers"] for one in runs), default=0)
        parts += [_chart(model, [one for one in runs if (one["model"], one["workers"]) == (model, shown)])
                  for model in dict.fromkeys(one["model"] for one in runs)]  # fmt: skip
        parts += [prose(verdict(runs)), _table(runs)] if runs else []
    return Section(TITLE, parts)


def verdict(runs: list[Run]) -> str:
    """Whether what must be equal is, and how far the rest is off."""
    runs = [one for one in runs if one["equal_steps"] is not None]
    strict = [one for one in runs if must_be_equal(one)]
    equal = len(strict) - len(faults(strict))
    others = max((one["largest_difference"] for one in runs if one not in strict), default=0)
    ending = "as it must be" if equal == len(strict) else "which is a fault: all must be"
    return (f"Bit-equal losses, packed with two workers: {equal} of {len(strict)} models, {ending}. All other runs were "
            f"within {number(others, 2)} of plain DDP's loss, relatively, in every step.")  # fmt: skip


def _name(model: str) -> str:
    return f"small {paper.NAMES[model].removesuffix('19').removesuffix('-base')}"


def _link(one: Run) -> str:
    return one["rate"].replace("mbit", " Mbps")


def _chart(model: str, runs: list[Run]) -> str:
    title = f"{_name(model)}, {runs[0]['workers']} workers, {_link(runs[0])}"
    series = [
        Series(NAMES[one["variant"]], over_time(one), reference=one["variant"] == "DDP")
        for one in sorted(runs, key=lambda one: list(VARIANTS).index(one["variant"]))
    ]
    return lines(title, series, x="seconds of training", y="loss of worker 0")


def _table(runs: list[Run]) -> str:
    header = ["model", "workers", "how sums go", "steps", "ms a step", "over DDP", "whole run, over DDP", "sent, of dense",
              "steps of equal loss", "largest difference"]  # fmt: skip
    rows = [
        [_name(one["model"]), one["workers"], NAMES[one["variant"]], len(one["losses"]),
         f"{one['median_seconds'] * 1e3:.0f}", times(one["speedup"]), times(one["whole_speedup"]),
         percent(one["sent"]), None if one["equal_steps"] is None else f"{one['equal_steps']} of {len(one['losses'])}",
         "none" if one["largest_difference"] == 0 else number(one["largest_difference"], 2)]
        for one in runs
    ]  # fmt: skip
    note = (f"Links of {_link(runs[0])}; ms are medians without the first {SETTLED} steps; measured. Below 1x it does not pay. "
            "Differences are relative.")  # fmt: skip
    return table(header, rows, note=note)


def summary(documents: list[dict[str, Any]]) -> list[SummaryRow]:
    rows = []
    for document in documents:
        runs = (document.get("results") or {}).get("runs", [])
        for model in dict.fromkeys(one["model"] for one in runs):
            found = {one["variant"]: one for one in runs if one["model"] == model and one["workers"] == 2}
            rows += [_summary_row(found)] if {"DDP", SUMMED} <= set(found) else []
    return rows


def _summary_row(found: dict[str, Run]) -> SummaryRow:
    """Two workers, as the paper has them at its switch, and the same way for all models, whichever was fastest."""
    ours = found[SUMMED]
    speedup, theirs = ours["whole_speedup"], paper.ITERATION_SPEEDUP_ATP[ours["model"]]
    others = [f"; {NAMES[one['variant']]} {times(one['whole_speedup'])}" for name, one in found.items()
              if name not in ("DDP", SUMMED)]  # fmt: skip
    note = f"{NAMES[SUMMED]}, {_link(ours)}, {len(ours['losses'])} steps" + ", which does not pay" * (speedup < 1)
    note += (f"{''.join(others)}; loss equal in {ours['equal_steps']} steps; the paper: an iteration at "
             f"{rate(paper.ATP_LINK_BITS)} and {plain(paper.ITERATION_SHARE)} of dense, lossy for VGG19 and BERT")  # fmt: skip
    return SummaryRow(f"Whole run over plain DDP, {_name(ours['model'])}, 2 workers", times(theirs), times(speedup),
                      speedup / theirs, note, "measured")  # fmt: skip
