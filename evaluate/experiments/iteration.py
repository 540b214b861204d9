"""Experiment 5: how much faster an iteration gets, for NCF, LSTM, VGG19 and BERT-base.

Measured, on one GPU (or small models on a processor): what a worker computes, what its codec takes, and what the
library sends when four workers sum their gradients. Modelled: how long that takes on links that are not here
(wire_model.py), and so what an iteration takes, as the sum of the three. The two stand in tables of their own.
"""

from __future__ import annotations

import os
import statistics

from .. import paper
from ..charts import bars
from ..numbers import duration, number, percent, times
from ..report import Section, SummaryRow, prose, table
from ..wire_model import LINKS, exchange_seconds, wire_seconds
from .recovery import compare, name_of

NAME = "iteration"
TITLE = "Speed-up of an iteration"
GPU = None

WORKERS = paper.NCCL_WORKERS
FIXED = paper.ITERATION_SHARE
SWITCH_GBPS = paper.ATP_LINK_BITS / 1e9
NCCL_LINK = "100 Gbps"
HOMOMORPHIC = ("packed", "sketch")  # lossless, and all that a ring or a switch has to do is to add and to OR
_FIXED = f"fixed {percent(FIXED, 2)}"
_LEARNING, _REPEATS = 3, 5  # sums before those that count: sizes and grains are learned from what came before


def run(context) -> dict:
    import torch

    from ..gradients import capture, each_model, steps_before

    device = torch.device(context.device)
    full = context.device == "cuda"
    repeats = 3 if context.quick else _REPEATS

    def measure(model: str) -> dict:
        captured = capture(model, device, full=full, steps=steps_before(model, quick=context.quick))
        gradients = captured.gradients
        lossless = {link: _sum(gradients, repeats, gbps=gbps) for link, gbps in LINKS.items()}
        asked = {way: _sum(gradients, repeats, strategy=way) for way in HOMOMORPHIC}
        fixed = _sum(gradients, repeats, estimate=FIXED)
        through_switch = {"gbps": SWITCH_GBPS, "moves_buffers": False, "sums_floats": False}
        through_switch |= {"threads": len(os.sched_getaffinity(0)), "learning": 1}
        pair = [one.cpu() for one in gradients[: paper.ATP_WORKERS]]  # a switch is reached from host memory
        found = {
            **captured.facts(),
            "lossless": lossless,
            "asked": asked,
            "fixed": fixed,
            "switch": _sum(pair, 1, **through_switch),
            "switch_fixed": _sum(pair, 1, estimate=FIXED, **through_switch),
        }
        one = lossless[NCCL_LINK]
        context.say(
            f"{paper.NAMES[model]}: computes {duration(found['compute_s'])}; lossless {one['strategy']} sends "
            f"{percent(one['sent_share'])} of dense, codec {duration(one['codec_s'])}"
        )
        return found

    def results(models: dict) -> dict:
        return {"workers": WORKERS, "models": models}

    return results(each_model(paper.MODELS, measure, lambda models: context.save(results(models))))


def _sum(
    gradients: list, repeats: int, *, learning: int = _LEARNING, estimate: float | None = None, **options
) -> dict:
    """What one sum sends and takes a worker; medians. Those that count are verified on all workers, between the timed
    ones, where nothing was lost, which is always so unless there is an estimate."""
    from ..gradients import verify
    from ..one_process import Team

    team = Team(len(gradients), gradients[0].device, estimate=estimate, **options)
    counted, arrays, wrong = [], [], 0
    for at in range(learning + repeats):
        del arrays
        arrays = [gradient.clone() for gradient in gradients]
        outcome = team.sum(arrays)
        if at >= learning:
            counted.append(outcome)
            if estimate is None or outcome.report["lost"] == 0:
                wrong += verify(gradients, arrays, outcome.report)
    report = counted[-1].report
    found = {
        "strategy": report["strategy"],
        "grain": report["grain"],
        "exactness": report["exactness"],
        "rounds": report["rounds"],
        "bytes_sent": statistics.median(one.bytes_sent for one in counted),
        "sent_share": statistics.median(one.bytes_sent for one in counted) / report["dense_bytes"],
        "codec_s": statistics.median(one.codec_s for one in counted),
        "busy_s": statistics.median(one.busy_s for one in counted),
        "repaired": report["repaired"],
        "lost_share": report["lost"] / max(1, report["items"]),
    }
    if report["lost"] == 0:
        found["wrong"] = wrong
    else:
        total = gradients[0].clone()
        for other in gradients[1:]:
            total += other
        found["l2_error"] = compare(total, arrays[0])["l2_error"]
    return found


def model_iteration(facts: dict, one: dict, workers: int, gbps: float, *, switch: bool = False) -> dict:
    """Seconds of an iteration with a dense sum and with ours. Overlapped: as if all of the wire hid behind the rest."""
    dense_wire = wire_seconds(4 * facts["parameters"], "switch" if switch else "sum", workers, gbps)
    own_wire = exchange_seconds(one["bytes_sent"], one["rounds"], workers=workers, gbps=gbps, switch=switch)
    compute, codec = facts["compute_s"], one["codec_s"]
    dense, own = compute + dense_wire, compute + codec + own_wire
    return {
        "dense_wire_s": dense_wire,
        "wire_s": own_wire,
        "dense_s": dense,
        "own_s": own,
        "speedup": dense / own,
        "overlapped": max(compute, dense_wire) / max(compute + codec, own_wire),
    }


def section(documents) -> Section:
    parts = [
        prose(
            "The paper's figure of the speed-up of an iteration. What a worker computes (forward, backward, "
            "optimizer), what encoding and decoding takes, and the bytes of every message are **measured**: real "
            "gradients of four workers, different batches at the same weights, summed by the library in one process. "
            "How long the bytes take on a link is **modelled**, since the links are not here: experiment 4 holds the "
            "model against links with a real rate limit. An iteration is computing, codec and wire, one after "
            "another; *overlapped* is the other extreme, where the wire hides behind all of the rest.\n\n"
            "**Lossless**: the library chooses how to sum for the link it is told of, or is asked for a strategy. "
            f"**Fixed {percent(FIXED, 2)}**: the paper's size of a sketch, which cannot be lossless where more than "
            f"about {percent(FIXED / paper.GAMMA, 1)} is not zero. Sums here go in chunks of 64 MiB, which share "
            "the bytes by the unions of the step before; the column *estimated* says how much is lost."
        )
    ]
    for document in documents:
        parts += _parts(document["results"])
    return Section(TITLE, parts)


def _parts(results: dict) -> list[str]:
    models, workers = results["models"], results["workers"]
    good = {model: one for model, one in models.items() if "failed" not in one}
    parts = [prose(f"{paper.NAMES[model]} failed: {one['failed']}") for model, one in models.items() if "failed" in one]
    if not good:
        return parts
    small = not all(one["full"] for one in good.values())
    size = "small models on a processor" if small else "full models on a GPU"
    if small:
        parts.append(
            prose(
                "**Small models on a processor**: it computes and codes far slower than a GPU, so that modelled "
                "speed-ups say nothing about a cluster of GPUs; they show how the parts add up. For fast links the "
                "library chooses dense sums then."
            )
        )
    names = [name_of(model, one) for model, one in good.items()]
    series = [
        (
            f"lossless, {link}",
            [round(model_iteration(one, one["lossless"][link], workers, gbps)["speedup"], 2) for one in good.values()],
        )
        for link, gbps in LINKS.items()
    ]
    fixed = [model_iteration(one, one["fixed"], workers, LINKS[NCCL_LINK])["speedup"] for one in good.values()]
    series.append((f"{_FIXED}, {NCCL_LINK}", [round(speedup, 2) for speedup in fixed]))
    return [
        *parts,
        bars(f"Modelled speed-up over a dense ring ({size})", names, series, y="times", levels=[(1, "dense")]),
        _measured_table(good, size, workers),
        _speedup_table(good, workers),
        _modelled_table(good, workers),
        _switch_table(good),
    ]


def _measured_table(good: dict, size: str, workers: int) -> str:
    rows = []
    for model, one in good.items():
        own = "GPU" if one["full"] else "host"
        sums = [(f"for {link}", found, workers, own) for link, found in one["lossless"].items()]
        sums += [(f"{way} asked for", found, workers, own) for way, found in one["asked"].items()]
        sums += [
            (_FIXED, one["fixed"], workers, own),
            ("for a switch", one["switch"], paper.ATP_WORKERS, "host"),
            (f"{_FIXED}, switch", one["switch_fixed"], paper.ATP_WORKERS, "host"),
        ]
        for what, found, count, memory in sums:
            rows.append(
                [
                    name_of(model, one),
                    percent(one["sparsity"]),
                    duration(one["compute_s"]),
                    what,
                    count,
                    memory,
                    found["strategy"],
                    percent(found["sent_share"]),
                    duration(found["codec_s"]),
                    duration(found["busy_s"]),
                    percent(found["lost_share"]) if found["lost_share"] else "none",
                    percent(found["l2_error"]) if "l2_error" in found else None,
                    found.get("wrong"),
                ]
            )
    header = [
        "model", "zeros", "compute", "sum", "workers", "memory", "strategy", "sent, of dense", "encode + decode",
        "with the host", "estimated", "error of the norm", "wrong",
    ]
    return table(
        header,
        rows,
        f"Measured, {size}. *Memory*: where gradients were and the codec ran; what is sent to a switch is coded in "
        "host memory, by all cores, and copying it there is not in these times. *With the host*: all that a worker "
        "does for a sum but communicate, its Python included, as the workers took turns here. *Wrong* counts "
        "elements that are not the sum, on all workers, in all sums that are timed.",
    )


def ways(one: dict) -> list[tuple[str, dict]]:
    """What there is for every link: a name, and what was measured for each link."""
    found = [("lossless, as the library chooses", one["lossless"])]
    found += [(f"lossless, {way}", dict.fromkeys(LINKS, sums)) for way, sums in one["asked"].items()]
    return [*found, (_FIXED, dict.fromkeys(LINKS, one["fixed"]))]


def _speedup_table(good: dict, workers: int) -> str:
    rows = [
        [
            name_of(model, one),
            what,
            *(times(model_iteration(one, sums[link], workers, gbps)["speedup"]) for link, gbps in LINKS.items()),
        ]
        for model, one in good.items()
        for what, sums in ways(one)
    ]
    return table(
        ["model", "sum", *LINKS],
        rows,
        f"Modelled speed-up of an iteration over a dense ring of {workers} workers. Below 1x it does not pay. The "
        "fixed size is lossy where the table above says that something was estimated, and needs more iterations then.",
    )


def _modelled_table(good: dict, workers: int) -> str:
    rows = []
    for model, one in good.items():
        for what, sums in ways(one):
            found = model_iteration(one, sums[NCCL_LINK], workers, LINKS[NCCL_LINK])
            rows.append([name_of(model, one), what, *_seconds(found)])
    header = ["model", "sum", *_SECONDS]
    return table(header, rows, f"Modelled, {workers} workers, rings at {NCCL_LINK}, as the paper's over NCCL.")


_SECONDS = ("wire, dense", "wire, ours", "iteration, dense", "iteration, ours", "speed-up", "overlapped")


def _seconds(found: dict) -> list[str]:
    parts = [duration(found[field]) for field in ("dense_wire_s", "wire_s", "dense_s", "own_s")]
    return [*parts, times(found["speedup"]), times(found["overlapped"])]


def _switch_table(good: dict) -> str:
    rows = []
    for model, one in good.items():
        for what, sums in (("lossless", one["switch"]), (_FIXED, one["switch_fixed"])):
            found = model_iteration(one, sums, paper.ATP_WORKERS, SWITCH_GBPS, switch=True)
            rows.append([name_of(model, one), what, *_seconds(found)])
    return table(
        ["model", "sum", *_SECONDS],
        rows,
        f"Modelled, {paper.ATP_WORKERS} workers whose sums are made by a switch at {number(SWITCH_GBPS)} Gbps that "
        "adds integers, as in the paper's comparison with ATP. Every message crosses a link once. The codec's time "
        "is that of the processor, in host memory, also where a GPU computes: copies between GPU and host, which such a "
        "worker needs before and after, are **not** counted, and would slow both, dense sums and ours.",
    )


def summary(documents) -> list[SummaryRow]:
    rows = []
    results = documents[-1]["results"]
    for model, one in results["models"].items():
        if "failed" in one or not one["full"]:
            continue  # small models on a processor compare with nothing of the paper
        name = name_of(model, one)
        ring = {"workers": results["workers"], "gbps": LINKS[NCCL_LINK]}
        switch = {"workers": paper.ATP_WORKERS, "gbps": SWITCH_GBPS, "switch": True}
        loses = "lossy" if one["fixed"]["lost_share"] > 0 else "lossless, too"
        for where, expected, found, fixed, link in (
            (
                f"over a dense ring, {NCCL_LINK}", paper.ITERATION_SPEEDUP_NCCL[model], one["lossless"][NCCL_LINK],
                one["fixed"], ring,
            ),
            (
                f"over a dense switch, {number(SWITCH_GBPS)} Gbps", paper.ITERATION_SPEEDUP_ATP[model], one["switch"],
                one["switch_fixed"], switch,
            ),
        ):
            modelled = model_iteration(one, found, **link)
            own, at_tenth = modelled["speedup"], model_iteration(one, fixed, **link)["speedup"]
            note = f"Lossless. At the paper's fixed {percent(FIXED, 2)}, {loses}: {times(at_tenth)}."
            if own < 1:
                note += (
                    f" Does not pay: sending all takes {duration(modelled['dense_wire_s'])}, {found['strategy']} "
                    f"{duration(modelled['wire_s'])} and {duration(found['codec_s'])} to encode and decode."
                )
            rows.append(
                SummaryRow(
                    f"Speed-up of an iteration {where}, {name}", times(expected), times(own), own / expected, note,
                    "modelled",
                )
            )
    return rows
