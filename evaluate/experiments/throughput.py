"""Experiment 4: how fast gradients are aggregated, against how small they were made.

Three parts, as in the paper: the codec alone on one device; whole all-reduces over NCCL; whole all-reduces over links
with a rate limit, with and without a switch that adds. A fourth compares the model of the wire with those links.

Gbps count one gradient, however many workers bring one: bits of the array divided by the time. What is drawn has the
density at which a lossless message has the size wanted, except where a sketch's size is fixed and the density is that
of VGG19: there, what does not peel is estimated, and the result says how much that was.
"""

from __future__ import annotations

import json
import time
from typing import Any

from .. import paper, rig, wire_model
from ..charts import Series, lines
from ..context import ROOT, Context, Unavailable, telling
from ..numbers import number, percent, plain, rate, times
from ..report import Section, SummaryRow, prose, table

NAME = "throughput"
TITLE = "Aggregation throughput against compressed size"
GPU = None

SIZES = [0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
QUICK_SIZES = [0.02, 0.1, 0.4, 1.0]
VGG_DENSITY = round(1 - paper.SPARSITY["vgg"], 3)
BITMAP = 1 / 32  # of float32, at one bit for each element
NCCL_BUDGET = 90  # seconds, after which no further number of workers is begun
_TRANSPORTS = {"mpi": "MPI", "switch": "switch"}
Record = dict[str, Any]


def run(context: Context) -> dict[str, Any]:
    failed: list[str] = []
    results: dict[str, Any] = {"codec": measure_codec(context, failed)}
    context.save(telling(results, failed))
    if context.gpu:
        return telling({**results, "nccl": measure_nccl(context)}, failed)
    try:
        rig.refuse_without_network(context)
    except Unavailable as reason:
        return telling({**results, "network": {"unavailable": str(reason)}}, failed)
    for name, measure in (("network", measure_network), ("model", validate)):
        results[name] = measure(context, failed)
        context.save(telling(results, failed))
    return telling(results, failed)


# ---- what sizes mean


def density_for(size: float, codec: str) -> float:
    """The density at which a lossless message has about this share of the dense size; what it has, is measured.

    A bitmap and 1 or 1.36 cells for each item; where Bloom filters are smaller than bitmaps, 1.5 and 1.95 in all.
    """
    cells, small = (1.0, 1.5) if codec == "packed" else (1.36, 1.95)
    if size < 0.09:
        return size / small
    return min(1.0, (size - BITMAP) / cells)


def gbps(elements: int, seconds: float) -> float:
    """Of one gradient of float32."""
    return elements * 32 / seconds / 1e9


def size_of(record: Record) -> float:
    """What a worker sent, as a share of what dense sums send. All strategies' bytes are by the definition for rings."""
    return record["bytes_sent"] / record["dense_bytes"]


def _sizes(context: Context) -> list[float]:
    return QUICK_SIZES if context.quick else SIZES


def _densities(sizes: list[float]) -> list[float]:
    return [round(density_for(size, "packed"), 4) for size in sizes]


# ---- (a) the codec alone


def measure_codec(context: Context, failed: list[str]) -> list[Record]:
    sizes = _sizes(context)
    power = (24 if context.quick else 27) if context.gpu else (20 if context.quick else 24)
    backend = "cuda" if context.device == "cuda" else "cpu"
    common = ("bench", "codec", "--backend", backend, "--elements", f"2^{power}", "--grain", 1)
    runs = []
    for codec in ("packed", "sketch"):
        densities = ",".join(f"{density_for(size, codec):.4f}" for size in sizes)
        runs.append(("lossless", ("--codec", codec, "--density", densities)))
    shares = ",".join(f"{size:g}" for size in sizes)
    fixed = ("--codec", "sketch", "--density", VGG_DENSITY, "--payload-ratio", shares, "--estimate")
    everything: list[Record] = []
    for kind, options in [*runs, ("fixed", fixed)]:
        with context.part(f"codec, {options[1]}, {kind}", failed):
            everything += [codec_record(kind, line) for line in context.measure(*common, *options)]
    return everything


def codec_record(kind: str, line: Record) -> Record:
    """Of a line of `peel bench codec`. Items that did not peel are counted, and are never taken for recovered ones."""
    if line["wrong"]:
        raise RuntimeError(f"{line['wrong']} decoded elements were wrong: {line}")
    kept = ("codec", "cells", "index", "density", "elements", "backend", "gpu", "threads", "encode_s", "decode_s",
            "memcpy_s", "message_bytes", "dense_bytes", "rounds", "items", "lost", "wrong",
            "mean_relative_error")  # fmt: skip
    return {
        "kind": kind,
        "size": line["message_bytes"] / line["dense_bytes"],
        "gbps": gbps(line["elements"], line["encode_s"] + line["decode_s"]),
        **{name: line[name] for name in kept},
    }


# ---- (b) over NCCL


def measure_nccl(context: Context) -> dict[str, Any]:
    """Several ranks on the GPUs that there are, over sockets, by scripts/bench-nccl."""
    begin = time.monotonic()
    found: list[Record] = []
    missing: list[str] = []
    failed: list[str] = []
    for workers in (4, 2) if context.quick else (4, 2, 8, 3):
        if time.monotonic() - begin > NCCL_BUDGET:
            missing.append(f"{workers} workers were not begun within the {NCCL_BUDGET} s given.")
            continue
        try:
            with context.part(f"{workers} workers", failed):
                found += [reduced(line) for line in _bench_nccl(context, workers)]
        except Unavailable as reason:
            missing.append(f"{workers} workers: {reason}")
    return telling({"records": found, "missing": missing}, failed)


def _bench_nccl(context: Context, workers: int) -> list[Record]:
    context.out.mkdir(parents=True, exist_ok=True)
    log = context.out / f"nccl-{workers}.jsonl"
    log.unlink(missing_ok=True)
    sizes = QUICK_SIZES if context.quick else [0.02, 0.05, 0.1, 0.3, 0.6, 1.0]
    settings = {
        "RANKS": workers,
        "ELEMENTS": "2^24" if context.quick else "2^25",
        "ROUNDS": 3,
        "DENSITIES": ",".join(map(str, _densities(sizes))),
        "STRATEGIES": "auto,packed,sketch",
        "PATTERNS": "uniform",
        "NCCL_JSON": log,
    }
    environment = {f"PEEL_BENCH_{name}": str(value) for name, value in settings.items()}
    printed = context.command([ROOT / "scripts/bench-nccl", context.program], env=environment)
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    if not found:
        raise Unavailable(printed.strip().removeprefix("bench-nccl: ") or "scripts/bench-nccl printed no result")
    rig.require_right(found)
    return found


def reduced(line: Record, **more: Any) -> Record:
    """Of a line of `peel bench allreduce`, what the report needs."""
    kept = ("transport", "workers", "elements", "type", "density", "strategy", "chosen", "seconds", "baseline",
            "baseline_seconds", "speedup", "bytes_sent", "dense_bytes", "rounds", "encode_s", "wire_s", "decode_s",
            "lost", "wrong", "summed", "repeat")  # fmt: skip
    record = {name: line[name] for name in kept} | {name: line[name] for name in ("rate_bits",) if name in line}
    return {**record, "size": size_of(line) if line["dense_bytes"] else None,
            "gbps": gbps(line["elements"], line["seconds"]), **more}  # fmt: skip


# ---- (c) over links with a rate limit


def measure_network(context: Context, failed: list[str]) -> dict[str, Any]:
    """Over MPI; and through a switch, where dense sums of int32 through the same switch are what it is compared with."""
    rate = "500mbit"
    shape = {"elements": "2^22" if context.quick else "2^23", "warmup": 2, "repeat": 3}
    ring = {"baseline": "mpi-ring"}  # almost always the faster of two; in a full run over MPI both are tried
    densities = _densities(_sizes(context))
    over_mpi: list[Record] = []
    for workers in (4,) if context.quick else (2, 3, 4):
        more = {**shape, **(ring if context.quick else {}), "strategy": ["auto", "packed", "sketch"]}
        with context.part(f"MPI, {workers} workers", failed):
            found = rig.all_reduce(context, workers, rate, "mpi", density=densities, **more)
            over_mpi += [reduced(line) for line in found]
    through_switch: list[Record] = []
    for workers in (2,) if context.quick else (2, 4):
        more = {**shape, **ring}
        with context.part(f"switch, {workers} workers", failed):
            dense, *_ = rig.all_reduce(
                context, workers, rate, "switch", type="int32", strategy="dense", density=0.5, **more
            )
            found = rig.all_reduce(
                context, workers, rate, "switch", density=densities, strategy=["packed", "sketch"], **more
            )
            through_switch.append(reduced(dense, over_dense_switch=1.0))
            through_switch += [reduced(line, over_dense_switch=dense["seconds"] / line["seconds"]) for line in found]
    return {"mpi": over_mpi, "switch": through_switch}


# ---- the model of the wire, beside what links took


def validate(context: Context, failed: list[str]) -> list[Record]:
    """Dense, packed and sketch sums at a density of 5%, over MPI and through the switch, at two rates."""
    found: list[Record] = []
    for transport in ("mpi", "switch"):
        for workers in (2,) if context.quick and transport == "switch" else (2, 4):
            options = {
                "elements": "2^21" if context.quick else "2^23",
                "density": 0.05,
                "type": "int32" if transport == "switch" else "float32",
                "strategy": ["dense", "packed", "sketch"],
                "baseline": "mpi-ring",
                "warmup": 1,
                "repeat": 2 if context.quick else 5,
            }
            with context.part(f"model of the wire, {transport}, {workers} workers", failed):
                lines_here = rig.all_reduce(context, workers, "200mbit,1gbit", transport, **options)
                found += [modelled(line) for line in lines_here]
    return found


def modelled(line: Record) -> Record:
    """What the model says of a line: bytes and rounds are those that were counted, the rest is arithmetic."""
    workers, link = line["workers"], line["rate_bits"] / 1e9
    switch = line["transport"] == "switch"
    seconds = wire_model.exchange_seconds(
        line["bytes_sent"], line["rounds"], workers=workers, gbps=link, switch=switch
    )
    return {
        "transport": line["transport"],
        "workers": workers,
        "gbps": link,
        "strategy": line["chosen"],
        "bytes": line["bytes_sent"] / wire_model.bytes_over_link(1, "sum", workers),
        "modelled": seconds,
        "measured": line["seconds"],
        "codec": line["encode_s"] + line["decode_s"],
        "error": seconds / line["seconds"] - 1,
        "wrong": line["wrong"],
    }


# ---- the report


def section(documents: list[dict[str, Any]]) -> Section:
    parts = [prose(
        "The paper varies the compressed size from 2% to 100% of the gradient and counts the bits of one gradient by the "
        "time of compressing, aggregating and recovering it, however many workers there are. Every sum and every decoded "
        "element here was compared with the known one. Lossless sizes come from the density of what was drawn; in the "
        "series of fixed size the density is that of VGG19 in the paper, so that most sizes are too small to be lossless "
        "and the rest is estimated. The paper's single worker that reaches a switch alone, and its workers of two GPUs "
        "each, were not measured."
    )]  # fmt: skip
    everything = [document.get("results") or {} for document in documents]
    for name, shown in (("codec", _codec_parts), ("nccl", _nccl_parts), ("network", _network_parts),
                        ("model", _model_parts)):  # fmt: skip
        for results in everything:
            parts += shown(results[name]) if results.get(name) else []
    return Section(TITLE, parts)


def _curve(name: str, records: list[Record], value: str, **more: Any) -> Series:
    drawn = sorted((100 * one["size"], one[value]) for one in records if one["size"])
    return Series(name, drawn, **more)


def _where(record: Record) -> str:
    return record["gpu"] or f"the processor, threads: {record['threads']}"


def _codec_parts(records: list[Record]) -> list[str]:
    where = _where(records[0])
    kinds = [("packed, lossless", "lossless", "packed"), ("sketch, lossless", "lossless", "sketch"),
             (f"sketch of fixed size, density {percent(VGG_DENSITY)}", "fixed", "sketch")]  # fmt: skip
    series = [
        _curve(name, [one for one in records if (one["kind"], one["codec"]) == (kind, codec)], "gbps")
        for name, kind, codec in kinds
    ]
    levels = [(paper.CODEC_GBPS_LEAST, "the paper's slowest"), (paper.CODEC_GBPS, "the paper's fastest, on an A100")]
    rows = [
        [one["kind"], one["codec"], percent(one["density"]), percent(one["size"]), number(one["gbps"]),
         number(gbps(one["elements"], one["memcpy_s"])), one["rounds"], percent(one["lost"] / max(one["items"], 1)),
         number(one["mean_relative_error"]), one["wrong"]]
        for one in records
    ]  # fmt: skip
    header = ["kind", "codec", "density", "size", "Gbps", "copying, Gbps", "rounds", "not peeled", "their error", "wrong"]
    lost = sum(one["lost"] for one in records if one["kind"] == "lossless")
    more = f" {lost} items of lossless sizes did not peel; a repair, which is not timed here, fetches them." if lost else ""
    slow = " Sketches that are too small, of which most is estimated, are the slowest."
    return [
        lines(f"Codec alone, {where}", series, x="compressed size, % of dense", y="Gbps", log_x=True,
              log_y=True, levels=levels),
        table(header, rows, note=f"Encode and decode of {records[0]['elements']:,} float32 on {where}; measured.{slow}{more}"),
    ]


def _nccl_parts(found: dict[str, Any]) -> list[str]:
    records = found["records"]
    told = ["Not measured over NCCL: " + " ".join(found["missing"])] if found["missing"] else []
    told += [f"**Failed over NCCL:** {found['failed']}"] if "failed" in found else []
    if not records:
        return [prose(text) for text in told]
    series = [
        _curve(f"{strategy}, {workers} workers", _of(records, strategy, workers), "speedup")
        for strategy in ("packed", "sketch")
        for workers in sorted({one["workers"] for one in records})
    ]
    alone = sorted(gbps(one["elements"], one["baseline_seconds"]) for one in records)
    text = (
        "All-reduces over NCCL: the workers are ranks that share one GPU and talk over sockets, so that every byte passes "
        "the network stack of one machine. Eight ranks are as many as the GPUs of the paper's four workers, but no two of "
        "them are joined by NVLink. `ncclAllReduce` aggregates "
        f"{number(alone[0])} to {number(alone[-1])} Gbps here; over faster links, such as the paper's of 100 Gbps, there is "
        "less to gain."
    )
    levels = [(1, "ncclAllReduce"), (paper.NCCL_SPEEDUP, "the paper's best")]
    return [
        *(prose(one) for one in [text, *told]),
        lines("Times as fast as ncclAllReduce", series, x="compressed size, % of dense", y="speed-up", log_x=True,
              log_y=True, levels=levels),
        _all_reduce_table(records, "speedup", "ncclAllReduce"),
    ]  # fmt: skip


def _of(records: list[Record], strategy: str, workers: int) -> list[Record]:
    return [one for one in records if (one["strategy"], one["workers"]) == (strategy, workers)]


def _all_reduce_table(records: list[Record], value: str, compared: str) -> str:
    """A row for each number of workers and density; of each strategy the size of its messages and how much faster it was.

    `value` names the field of the latter, and `compared` what it is compared with.
    """
    strategies = [name for name in ("auto", "packed", "sketch") if any(one["strategy"] == name for one in records)]
    header = ["workers", "density", f"{compared}, ms", *(["auto takes"] if "auto" in strategies else [])]
    header += [f"{name}: {word}" for name in strategies for word in ("size", "Gbps", "speed-up")]
    rows = []
    for workers, density in sorted({(one["workers"], one["density"]) for one in records}):
        here = {one["strategy"]: one for one in records if (one["workers"], one["density"]) == (workers, density)}
        if not set(strategies) <= set(here):
            continue
        dense = here[strategies[0]]["seconds"] * here[strategies[0]][value]
        row = [workers, percent(density), number(dense * 1e3), *([here["auto"]["chosen"]] if "auto" in here else [])]
        for one in (here[name] for name in strategies):
            row += [percent(one["size"]), number(one["gbps"]), times(one[value])]
        rows.append(row)
    one = records[0]
    checked = sum(record["summed"] * record["workers"] for record in records)
    wrong = sum(record["wrong"] for record in records)
    what = (f"{one['elements']:,} elements of 4 bytes on every worker; medians of {one['repeat']}; measured. Speed-ups are "
            f"over {compared}, as it was in the same run; below 1x it does not pay. {wrong} of {checked:,} elements "
            "compared were wrong.")  # fmt: skip
    return table(header, rows, note=what)


def _network_parts(found: dict[str, Any]) -> list[str]:
    if "unavailable" in found:
        return [prose(found["unavailable"])]
    if not (found["mpi"] or found["switch"]):
        return []
    link = rate([*found["mpi"], *found["switch"]][0]["rate_bits"])
    mpi = [
        _curve(f"{strategy}, {workers} workers", _of(found["mpi"], strategy, workers), "speedup")
        for strategy in ("auto", "packed", "sketch")
        for workers in sorted({one["workers"] for one in found["mpi"]})[-1:]
    ]
    levels = [(1, "dense int32"), (paper.ATP_SPEEDUP, "the paper's best over ATP")]
    switch = [
        _curve(f"{strategy}, {workers} workers", _of(found["switch"], strategy, workers), "over_dense_switch")
        for strategy in ("packed", "sketch")
        for workers in sorted({one["workers"] for one in found["switch"]})
    ]
    return [
        prose(
            f"Links of {link} in each direction, one for each worker, joined by a bridge or by a switch that adds. The "
            "paper's second cluster has a switch that adds dense integers (ATP); here that is a dense sum of int32 through "
            "the same switch as ours. A worker alone has nothing to exchange and is not measured here, unlike in the paper. "
            "The limiter lets the first 64 KiB of a burst pass at once, which flatters the smallest messages."
        ),
        lines(f"Over MPI at {link}: times as fast as its dense sum", mpi, x="compressed size, % of dense", y="speed-up",
              log_x=True, log_y=True, levels=[(1, "dense, MPI")]),
        *([_all_reduce_table(found["mpi"], "speedup", "dense MPI")] if found["mpi"] else []),
        lines(f"Through a switch at {link}: times as fast as dense int32", switch, x="compressed size, % of dense",
              y="speed-up", log_x=True, log_y=True, levels=levels),
        *([_all_reduce_table(found["switch"], "over_dense_switch", "dense int32")] if found["switch"] else []),
    ]  # fmt: skip


def _model_parts(records: list[Record]) -> list[str]:
    rows = [
        [_TRANSPORTS[one["transport"]], one["workers"], rate(one["gbps"] * 1e9), one["strategy"],
         f"{one['bytes'] / 1e6:.2f}", f"{one['measured'] * 1e3:.1f}", f"{one['codec'] * 1e3:.1f}",
         f"{one['modelled'] * 1e3:.1f}", f"{round(100 * one['error']):+d}%"]
        for one in records
    ]  # fmt: skip
    header = ["transport", "workers", "links", "strategy", "MB of a worker", "whole sum, measured, ms",
              "codec in it, measured, ms", "wire, modelled, ms", "model by measured"]  # fmt: skip
    return [
        prose(
            "The model of the wire that stands for links of 10 Gbps and more elsewhere in this report, beside whole sums "
            "over links that can be made here. It counts bytes, which are measured, and steps, whose latencies are assumed; "
            "nothing else. Messages go in parts, so that most of the codec's work happens while other parts are on the "
            "wire; what remains of it is an error of the model. Where that is largest, with four workers at 1 Gbps, it is "
            "presumably also that workers wait for a core, if there are fewer cores than workers; this was not measured."
        ),
        table(header, rows, note="Density of the union 5%; bytes are those that were counted; every sum was verified."),
    ]


def summary(documents: list[dict[str, Any]]) -> list[SummaryRow]:
    rows: list[SummaryRow] = []
    for document in documents:
        results = document.get("results") or {}
        rows += _codec_summary(results.get("codec", [])) if document.get("gpu") else []
        rows += _nccl_summary((results.get("nccl") or {}).get("records", []))
        rows += _switch_summary((results.get("network") or {}).get("switch", []))
    return rows


def _codec_summary(records: list[Record]) -> list[SummaryRow]:
    if not records:
        return []
    rows = []
    for what, choose, theirs in (("fastest", max, paper.CODEC_GBPS), ("slowest", min, paper.CODEC_GBPS_LEAST)):
        ours = choose((one for one in records if one["codec"] == "sketch"), key=lambda one: one["gbps"])
        how = "lossless" if ours["kind"] == "lossless" else "estimates: of a fixed size"
        how += f", at which {percent(ours['lost'] / max(ours['items'], 1))} did not peel" if ours["lost"] else ""
        note = f"{how}; sketch at {percent(ours['size'])} of dense on {_where(ours)}; the paper on an A100"
        note += "; slower than the paper's slowest" if ours["gbps"] < paper.CODEC_GBPS_LEAST else ""
        rows.append(SummaryRow(f"Codec alone, {what}, Gbps", number(theirs), number(ours["gbps"]), ours["gbps"] / theirs,
                               note, "measured"))  # fmt: skip
    return rows


def _nccl_summary(records: list[Record]) -> list[SummaryRow]:
    four = [one for one in records if one["workers"] == 4 and one["strategy"] in ("packed", "sketch")]
    if not four:
        return []
    best = max(four, key=lambda one: one["speedup"])
    alone = gbps(best["elements"], best["baseline_seconds"])
    where = f"ranks on one GPU over sockets, where NCCL alone has {number(alone)} Gbps; the paper's links have 100"
    note = f"lossless, {best['strategy']} at {percent(best['size'])} of dense; {where}"
    ratio = best["speedup"] / paper.NCCL_SPEEDUP
    rows = [SummaryRow("Aggregation over NCCL, 4 workers, at most", times(paper.NCCL_SPEEDUP), times(best["speedup"]),
                       ratio, note, "measured")]  # fmt: skip
    sketches = [one for one in four if one["strategy"] == "sketch" and one["size"] >= paper.ITERATION_SHARE]
    if sketches:
        tenth = min(sketches, key=lambda one: one["size"])
        note = f"lossless, sketch at {percent(tenth['size'])}, the least size measured that is no smaller; {where}"
        rows.append(SummaryRow("Aggregation over NCCL, 4 workers, at 10% of dense", "in a chart only",
                               times(tenth["speedup"]), None, note, "measured"))  # fmt: skip
    pays = sorted(one["size"] for one in four if one["strategy"] == "sketch" and one["speedup"] >= 1)
    loses = sorted((one["size"], one["speedup"]) for one in four if one["strategy"] == "sketch" and one["speedup"] < 1)
    if pays and loses:
        note = f"lossless; the largest size tried that pays. At {percent(loses[0][0])} it does not: {times(loses[0][1])}"
        rows.append(SummaryRow("Size up to which a sketch pays over NCCL, 4 workers", plain(paper.NCCL_BREAK_EVEN),
                               percent(pays[-1]), pays[-1] / paper.NCCL_BREAK_EVEN, note, "measured"))  # fmt: skip
    return rows


def _switch_summary(records: list[Record]) -> list[SummaryRow]:
    two = [one for one in records if one["workers"] == 2 and one["strategy"] != "dense"]
    if not two:
        return []
    best = max(two, key=lambda one: one["over_dense_switch"])
    worst = min(two, key=lambda one: one["over_dense_switch"])
    speedup, least = best["over_dense_switch"], worst["over_dense_switch"]
    note = (f"{best['strategy']} at {percent(best['size'])} of dense, {rate(best['rate_bits'])}; the paper over ATP at "
            f"{rate(paper.ATP_LINK_BITS)}. At worst, {worst['strategy']} at {percent(worst['size'])}: {times(least)}")  # fmt: skip
    note += ", which does not pay" if least < 1 else ""
    return [SummaryRow("Aggregation through a switch, 2 workers, at most", times(paper.ATP_SPEEDUP), times(speedup),
                       speedup / paper.ATP_SPEEDUP, note, "measured")]  # fmt: skip
