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
from ..context import ROOT, Context, Unavailable
from ..report import Section, SummaryRow, prose, table

NAME = "throughput"
TITLE = "Aggregation throughput against compressed size"
GPU = None

SIZES = [0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0]
QUICK_SIZES = [0.02, 0.1, 0.4, 1.0]
VGG_DENSITY = 0.696  # the paper: 30.4% of VGG19's gradient are zeros
BITMAP = 1 / 32  # of float32, at one bit for each element
NCCL_BUDGET = 90  # seconds, after which no further number of workers is begun
Record = dict[str, Any]


def run(context: Context) -> dict[str, Any]:
    if context.gpu:
        return {"codec": measure_codec(context), "nccl": measure_nccl(context)}
    results: dict[str, Any] = {"codec": measure_codec(context)}
    try:
        rig.refuse_without_network(context)
        results["network"] = measure_network(context)
        results["model"] = validate(context)
    except Unavailable as reason:
        results["network"] = {"unavailable": str(reason)}
    return results


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


def measure_codec(context: Context) -> list[Record]:
    sizes = _sizes(context)
    everything = []
    for codec in ("packed", "sketch"):
        densities = ",".join(f"{density_for(size, codec):.4f}" for size in sizes)
        everything += _bench_codec(context, "lossless", "--codec", codec, "--density", densities)
    fixed = ",".join(f"{size:g}" for size in sizes)
    everything += _bench_codec(
        context, "fixed", "--codec", "sketch", "--density", str(VGG_DENSITY), "--payload-ratio", fixed, "--estimate"
    )
    return everything


def _bench_codec(context: Context, kind: str, *options: str) -> list[Record]:
    power = (24 if context.quick else 27) if context.gpu else (20 if context.quick else 24)
    words = ["bench", "codec", "--backend", "cuda" if context.device == "cuda" else "cpu", "--elements", f"2^{power}"]
    printed = context.peel(*words, "--grain", "1", *options, "--json", "-")
    found = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [codec_record(kind, line) for line in found]


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
    for workers in (4, 2) if context.quick else (4, 2, 8, 3):
        if time.monotonic() - begin > NCCL_BUDGET:
            missing.append(f"{workers} workers were not begun within the {NCCL_BUDGET} s given.")
            continue
        try:
            found += [reduced(line) for line in _bench_nccl(context, workers)]
        except (RuntimeError, Unavailable) as error:  # what was measured before is kept
            missing.append(f"{workers} workers: {error}")
    return {"records": found, "missing": missing}


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


def measure_network(context: Context) -> dict[str, Any]:
    """Over MPI; and through a switch, where dense sums of int32 through the same switch are what it is compared with."""
    rate = "500mbit"
    shape = {"elements": "2^22" if context.quick else "2^23", "warmup": 2, "repeat": 3}
    ring = {"baseline": "mpi-ring"}  # almost always the faster of two; in a full run over MPI both are tried
    densities = _densities(_sizes(context))
    over_mpi: list[Record] = []
    for workers in (4,) if context.quick else (2, 3, 4):
        more = {**shape, **(ring if context.quick else {})}
        found = rig.all_reduce(
            context, workers, rate, "mpi", density=densities, strategy=["auto", "packed", "sketch"], **more
        )
        over_mpi += [reduced(line) for line in found]
    through_switch: list[Record] = []
    for workers in (2,) if context.quick else (2, 4):
        more = {**shape, **ring}
        dense, *_ = rig.all_reduce(context, workers, rate, "switch", type="int32", strategy="dense", density=0.5, **more)
        found = rig.all_reduce(context, workers, rate, "switch", density=densities, strategy=["packed", "sketch"], **more)
        through_switch.append(reduced(dense, over_dense_switch=1.0))
        through_switch += [reduced(line, over_dense_switch=dense["seconds"] / line["seconds"]) for line in found]
    return {"mpi": over_mpi, "switch": through_switch}


# ---- the model of the wire, beside what links took


def validate(context: Context) -> list[Record]:
    """Dense, packed and sketch sums at a density of 5%, over MPI and through the switch, at two rates."""
    found: list[Record] = []
    for transport in ("mpi", "switch"):
        for workers in (2,) if context.quick and transport == "switch" else (2, 4):
            found_here = rig.all_reduce(
                context,
                workers,
                "200mbit,1gbit",
                transport,
                elements="2^21" if context.quick else "2^23",
                density=0.05,
                type="int32" if transport == "switch" else "float32",
                strategy=["dense", "packed", "sketch"],
                baseline="mpi-ring",
                warmup=1,
                repeat=2 if context.quick else 5,
            )
            found += [modelled(line) for line in found_here]
    return found


def modelled(line: Record) -> Record:
    """What the model says of a line: bytes and rounds are those that were counted, the rest is arithmetic."""
    workers, rate = line["workers"], line["rate_bits"] / 1e9
    ring = wire_model.bytes_over_link(1, "sum", workers)
    strategy = line["chosen"]
    seconds = wire_model.exchange_seconds(
        strategy,
        workers,
        rate,
        payload=line["bytes_sent"] / ring,
        switch=line["transport"] == "switch",
        latency=wire_model.NETWORK_LATENCY,
    )
    return {
        "transport": line["transport"],
        "workers": workers,
        "gbps": rate,
        "strategy": strategy,
        "bytes": line["bytes_sent"] / ring,
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
        "and the rest is estimated."
    )]  # fmt: skip
    everything = [document.get("results") or {} for document in documents]
    for name, shown in (("codec", _codec_parts), ("nccl", _nccl_parts), ("network", _network_parts),
                        ("model", _model_parts)):  # fmt: skip
        for results in everything:
            parts += shown(results[name]) if results.get(name) else []
    return Section(TITLE, parts)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _curve(name: str, records: list[Record], value: str, **more: Any) -> Series:
    drawn = sorted((100 * one["size"], one[value]) for one in records if one["size"])
    return Series(name, drawn, **more)


def _where(record: Record) -> str:
    return record["gpu"] or f"{record['threads']} thread of the processor"


def _codec_parts(records: list[Record]) -> list[str]:
    where = _where(records[0])
    kinds = [("packed, lossless", "lossless", "packed"), ("sketch, lossless", "lossless", "sketch"),
             ("sketch of fixed size, density 69.6%", "fixed", "sketch")]  # fmt: skip
    series = [
        _curve(name, [one for one in records if (one["kind"], one["codec"]) == (kind, codec)], "gbps")
        for name, kind, codec in kinds
    ]
    levels = [(paper.CODEC_GBPS_LEAST, "the paper's slowest"), (paper.CODEC_GBPS, "the paper's fastest, on an A100")]
    rows = [
        [one["kind"], one["codec"], f"{one['density']:.2%}", _percent(one["size"]), f"{one['gbps']:,.1f}",
         f"{gbps(one['elements'], one['memcpy_s']):,.0f}", one["rounds"], _percent(one["lost"] / max(one["items"], 1)),
         "-" if one["mean_relative_error"] is None else f"{one['mean_relative_error']:.3g}", one["wrong"]]
        for one in records
    ]  # fmt: skip
    header = ["kind", "codec", "density", "size", "Gbps", "copying, Gbps", "rounds", "not peeled", "their error", "wrong"]
    lost = sum(one["lost"] for one in records if one["kind"] == "lossless")
    more = f" {lost} items of lossless sizes did not peel; a repair, which is not timed here, fetches them." if lost else ""
    return [
        lines(f"Codec alone, {where}", series, x="compressed size, % of dense", y="Gbps", log_x=True,
              log_y=True, levels=levels),
        table(header, rows, note=f"Encode and decode of {records[0]['elements']:,} float32 on {where}; measured.{more}"),
    ]


def _nccl_parts(found: dict[str, Any]) -> list[str]:
    records = found["records"]
    told = ["Not measured over NCCL: " + " ".join(found["missing"])] if found["missing"] else []
    if not records:
        return [prose(text) for text in told]
    series = [
        _curve(f"{strategy}, {workers} workers", _of(records, strategy, workers), "speedup")
        for strategy in ("packed", "sketch")
        for workers in sorted({one["workers"] for one in records})
    ]
    text = (
        "All-reduces over NCCL: the workers are ranks that share one GPU and talk over sockets, so that every byte passes "
        "the network stack of one machine. Eight ranks stand for the paper's four workers of two GPUs each; pairs that are "
        "joined by NVLink were not measured."
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
    header = ["workers", "density", f"{compared}, ms"]
    header += [word for name in strategies for word in (f"{name}: size", "Gbps", "times as fast")]
    rows = []
    for workers, density in dict.fromkeys((one["workers"], one["density"]) for one in records):
        here = {one["strategy"]: one for one in records if (one["workers"], one["density"]) == (workers, density)}
        if not set(strategies) <= set(here):
            continue
        dense = here[strategies[0]]["seconds"] * here[strategies[0]][value]
        row = [workers, f"{density:.2%}", f"{dense * 1e3:.1f}"]
        for name in strategies:
            one = here[name]
            size = f"{one['size']:.1%}" + (f" ({one['chosen']})" if name == "auto" else "")
            row += [size, f"{one['gbps']:.3g}", f"{one[value]:.2f}"]
        rows.append(row)
    one = records[0]
    checked = sum(record["summed"] * record["workers"] for record in records)
    wrong = sum(record["wrong"] for record in records)
    what = (f"{one['elements']:,} elements of 4 bytes on every worker; medians of {one['repeat']}; measured. {wrong} of "
            f"{checked:,} elements compared were wrong.")  # fmt: skip
    return table(header, rows, note=what)


def _network_parts(found: dict[str, Any]) -> list[str]:
    if "unavailable" in found:
        return [prose(found["unavailable"])]
    rate = f"{found['mpi'][0]['rate_bits'] / 1e6:g} Mbit/s"
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
            f"Links of {rate} in each direction, one for each worker, joined by a bridge or by a switch that adds. The "
            "paper's second cluster has a switch that adds dense integers (ATP); here that is a dense sum of int32 through "
            "the same switch as ours. A worker alone has nothing to exchange and is not measured here, unlike in the paper. "
            "The limiter lets the first 64 KiB of a burst pass at once, which flatters the smallest messages."
        ),
        lines(f"Over MPI at {rate}: times as fast as its dense sum", mpi, x="compressed size, % of dense", y="speed-up",
              log_x=True, log_y=True, levels=[(1, "dense, MPI")]),
        _all_reduce_table(found["mpi"], "speedup", "dense MPI"),
        lines(f"Through a switch at {rate}: times as fast as dense int32", switch, x="compressed size, % of dense",
              y="speed-up", log_x=True, log_y=True, levels=levels),
        _all_reduce_table(found["switch"], "over_dense_switch", "dense int32"),
    ]  # fmt: skip


def _model_parts(records: list[Record]) -> list[str]:
    rows = [
        [one["transport"], one["workers"], f"{one['gbps'] * 1e3:g}", one["strategy"], f"{one['bytes'] / 1e6:.2f}",
         f"{one['measured'] * 1e3:.1f}", f"{one['codec'] * 1e3:.1f}", f"{one['modelled'] * 1e3:.1f}",
         f"{one['error']:+.0%}"]
        for one in records
    ]  # fmt: skip
    header = ["transport", "workers", "Mbit/s", "strategy", "MB of a worker", "measured ms", "of these codec",
              "wire, modelled ms", "error"]  # fmt: skip
    return [
        prose(
            "The model of the wire that stands for links of 10 Gbps and more elsewhere in this report, beside whole sums "
            "over links that can be made here. It counts bytes and steps only. Messages go in parts, so that most of the "
            "codec's work happens while other parts are on the wire; what remains of it is the model's error, and so are "
            "workers that wait for a core: where there are fewer cores than workers, at 1 Gbit/s, that is most of the time."
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
        note = f"sketch at {ours['size']:.0%} of dense on {_where(ours)}; the paper on an A100"
        rows.append(SummaryRow(f"Codec alone, {what}, Gbps", f"{theirs:g}", f"{ours['gbps']:,.0f}", ours["gbps"] / theirs,
                               note, "measured"))  # fmt: skip
    return rows


def _best(records: list[Record], value: str) -> Record:
    return max(records, key=lambda one: one[value])


def _nccl_summary(records: list[Record]) -> list[SummaryRow]:
    four = [one for one in records if one["workers"] == 4 and one["strategy"] in ("packed", "sketch")]
    if not four:
        return []
    best = _best(four, "speedup")
    note = f"{best['strategy']} at {best['size']:.1%} of dense; ranks on one GPU over sockets, the paper over 100 Gbps"
    ratio = best["speedup"] / paper.NCCL_SPEEDUP
    return [SummaryRow("Aggregation over NCCL, 4 workers, at most", f"{paper.NCCL_SPEEDUP}x", f"{best['speedup']:.1f}x",
                       ratio, note, "measured")]  # fmt: skip


def _switch_summary(records: list[Record]) -> list[SummaryRow]:
    two = [one for one in records if one["workers"] == 2 and one["strategy"] != "dense"]
    if not two:
        return []
    best = _best(two, "over_dense_switch")
    speedup = best["over_dense_switch"]
    note = (f"{best['strategy']} at {best['size']:.1%} of dense, {best['rate_bits'] / 1e6:g} Mbit/s; the paper over ATP at "
            "10 Gbps")  # fmt: skip
    return [SummaryRow("Aggregation through a switch, 2 workers, at most", f"{paper.ATP_SPEEDUP}x", f"{speedup:.1f}x",
                       speedup / paper.ATP_SPEEDUP, note, "measured")]  # fmt: skip
