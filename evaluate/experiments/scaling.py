"""2 to 64 workers, whose supports overlap not at all, in part or in full: what every strategy sends, and which is best.

Measured: workers are threads of one process and exchange real messages; bytes are what they would be between hosts,
times are not, since all share the cores of one machine. Modelled: larger arrays, from the sizes of the library's plans
and lists at the densities that the overlap gives, on links that the model of the wire has. At the size that was
measured, the model is compared with what was sent.

Overlap o: of the n elements of a worker, o n are those of all workers, and the rest are nobody else's, so that the
union has o n + W (1 - o) n. `independent`: every worker draws its own, knowing nothing of the others.
"""

from __future__ import annotations

import shutil
from functools import partial
from statistics import median

from ..charts import Series, bars, lines, tiles
from ..context import telling
from ..numbers import duration, number, percent, plain, size, times
from ..report import Section, SummaryRow, prose, select, table
from ..rig import require_right
from ..wire_model import latency, link_seconds

NAME = "scaling"
TITLE = "Scaling with workers and overlap"
GPU = False

STRATEGIES = ("dense", "packed", "sketch", "split", "gather")
INDEPENDENT = "independent"
DENSITY = 0.01  # of one worker, where it is measured
SIMULATED_ELEMENTS = 2**27
SIMULATED_DENSITIES = (0.001, 0.01, 0.1)
SIMULATED_GBPS = 100.0
GROWTHS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)  # of the union, from one step to the next
CHOOSER_LINKS = ("1gbit", "10gbit", "100gbit")
KEPT = (  # of what the program reports
    *("strategy", "chosen", "grain", "index", "bytes_sent", "dense_bytes", "seconds", "union_elements", "items"),
    *("repaired", "rescaled", "lost", "wrong", "repeat", "rounds", "peel_rounds"),
)
ELEMENT_BYTES = 4
HEADER_BYTES = 40  # of an item message: sizeof(MessageHeader), which src/codec/message_header.h asserts


# What supports are.


def union_density(workers: int, density: float, overlap: float | str) -> float | None:
    """Of all workers together; None where so many disjoint elements do not exist."""
    if overlap == INDEPENDENT:
        return 1 - (1 - density) ** workers
    union = overlap * density + workers * (1 - overlap) * density
    return union if union <= 1 else None


def overlap_name(overlap: float | str) -> str:
    return {0.0: "none", 1.0: "full", INDEPENDENT: "random"}.get(overlap) or plain(overlap)


def _write_masks(folder, elements: int, workers: int, density: float, overlap: float | str) -> list:
    import numpy as np

    draw = np.random.default_rng([elements, workers, int(1000 * overlap) if overlap != INDEPENDENT else 7777])
    count = round(density * elements)
    paths = []
    order = draw.permutation(elements)
    common = round(overlap * count) if overlap != INDEPENDENT else 0
    for worker in range(workers):
        mask = np.zeros(elements, bool)
        if overlap == INDEPENDENT:
            mask[draw.choice(elements, count, replace=False)] = True
        else:
            own = count - common
            mask[order[:common]] = True
            mask[order[common + worker * own : common + (worker + 1) * own]] = True
        paths.append(folder / f"worker{worker}.npy")
        np.save(paths[-1], mask)
    return paths


# Measuring.


def run(context) -> dict:
    elements = 2**18 if context.quick else 2**20
    counts = (2, 8, 32) if context.quick else (2, 4, 8, 16, 32, 64)
    overlaps = (0.0, 0.5, 1.0, INDEPENDENT) if context.quick else (0.0, 0.25, 0.5, 0.75, 1.0, INDEPENDENT)
    facts = {"elements": elements, "density": DENSITY, "workers": list(counts), "overlaps": list(overlaps)}
    results: dict = {**facts, "measured": [], "chosen": [], "grown": [], "simulated": []}
    failed: list[str] = []
    for overlap in overlaps:
        for workers in counts:
            with context.part(f"{workers} workers, overlap {overlap_name(overlap)}", failed):
                rows, choices = _measure(context, elements, workers, overlap)
                results["measured"] += rows
                results["chosen"] += choices
        context.say(f"overlap {overlap_name(overlap)}: up to {counts[-1]} workers")
        context.save(telling(results, failed))
    with context.part("growing unions", failed):
        results["grown"] = _grow(context, elements)
    with context.part("model of larger arrays", failed):
        results["simulated"] = _simulate_all(context, elements, counts, overlaps)
    return telling(results, failed)


def _measure(context, elements: int, workers: int, overlap: float | str) -> tuple[list[dict], list[dict]]:
    folder = context.out / "scaling-masks"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        paths = _write_masks(folder, elements, workers, DENSITY, overlap)
        pattern = "npy:" + ",".join(str(path) for path in paths)
        common = ("bench", "allreduce", "--workers", workers, "--pattern", pattern, "--warmup", 3)
        rounds = 2 if context.quick else 3
        rows = context.measure(*common, "--strategy", ",".join((*STRATEGIES, "auto")), "--repeat", rounds)
        choices = [
            {"link": link, **row}
            for link in CHOOSER_LINKS
            for row in context.measure(*common, "--strategy", "auto", "--repeat", 1, "--link", link)
        ]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    require_right(rows + choices)
    place = {"workers": workers, "overlap": overlap}
    return (
        [{**place, **{name: row[name] for name in KEPT}} for row in rows],
        [{**place, "link": row["link"], "chosen": row["chosen"]} for row in choices],
    )


def _grow(context, elements: int) -> list[dict]:
    """Sketches are sized by the last step's union. Three steps of one density, then one of a larger one."""
    try:
        import torch

        from ..one_process import Team
    except ImportError as reason:
        context.say(f"no growing unions: {reason}")
        return []
    workers = 4
    rows = []
    for growth in GROWTHS:
        draw = torch.Generator().manual_seed(round(1000 * growth))
        team = Team(workers, torch.device("cpu"), strategy="sketch", threads=1)
        for density in (DENSITY, DENSITY, DENSITY, DENSITY * (1 + growth)):
            arrays = [_sparse(torch, elements, density, draw) for _ in range(workers)]
            expected = torch.stack([array.double() for array in arrays]).sum(0)
            outcome = team.sum(arrays)
        report = outcome.report
        error = max(float((array.double() - expected).abs().max()) for array in arrays)
        if not error <= report["error_bound"]:  # NaN, too
            raise RuntimeError(f"a sum is off by {error}, and its bound is {report['error_bound']}")
        require_right([{"wrong": 0, **report}])
        rows.append(
            {
                "growth": growth,
                "workers": workers,
                "items": report["items"],
                "repaired": report["repaired"],
                "lost": report["lost"],
                "bytes_sent": outcome.bytes_sent,
                "dense_bytes": report["dense_bytes"],
                "error_bound": report["error_bound"],
            }
        )
    context.note("evaluate.one_process.Team(4, cpu, strategy='sketch'): three sums, then one whose supports have grown")
    return rows


def _sparse(torch, elements: int, density: float, draw):
    array = torch.zeros(elements)
    places = torch.randperm(elements, generator=draw)[: round(density * elements)]
    array[places] = torch.randint(1, 1000, (len(places),), generator=draw).float() / 1024
    return array


# Modelling.


def sent_bytes(workers: int, elements: int, index: dict, own: float, union: float) -> dict[str, float]:
    """By one worker. `index` maps "packed" and "sketch" to the bytes of a message of the union, and "list" to those of
    a list, by element, at the densities of one worker and of the union."""
    ring = 2 * (workers - 1) / workers
    share = (workers - 1) / workers
    headers = (workers - 1) * HEADER_BYTES  # of the item messages that a worker sends in one round

    def items(index_bytes: float, density: float) -> float:
        return elements * (index_bytes + density * ELEMENT_BYTES)

    return {
        "dense": ring * elements * ELEMENT_BYTES,
        "packed": ring * index["packed"],
        "sketch": ring * index["sketch"],
        "split": share * (items(index["list"][0], own) + items(index["list"][1], union)) + 2 * headers,
        "gather": (workers - 1) * items(index["list"][0], own) + headers,
    }


def wire_time(strategy: str, workers: int, sent: float, gbps: float) -> float:
    """By the model of the wire. Rings of W - 1 steps: two for a sum, and one to gather or to scatter."""
    rings = {"dense": 2, "packed": 4, "sketch": 2, "split": 2, "gather": 1}[strategy]
    return link_seconds(sent, rings * (workers - 1), gbps)


def _simulate_all(context, measured_elements: int, counts, overlaps) -> list[dict]:
    cases = [
        (elements, density, overlap, workers, union)
        for elements, densities in ((measured_elements, (DENSITY,)), (SIMULATED_ELEMENTS, SIMULATED_DENSITIES))
        for density in densities
        for overlap in overlaps
        for workers in counts
        if (union := union_density(workers, density, overlap)) is not None
    ]
    lists = _list_bytes(context, sorted({round(d, 9) for case in cases for d in (case[1], case[4])}))
    plans: dict[tuple, dict[str, dict[str, int]]] = {}
    out = []
    for elements, density, overlap, workers, union in cases:
        union = round(union, 9)
        key = (elements, union, workers)
        if key not in plans:
            plans[key] = _plan_bytes(context, elements, union, workers)
        smaller = {codec: min(by_index.values()) for codec, by_index in plans[key].items()}
        index = {**smaller, "list": (lists[round(density, 9)], lists[union])}
        sent = sent_bytes(workers, elements, index, density, union)
        out.append(
            {
                "elements": elements,
                "density": density,
                "overlap": overlap,
                "workers": workers,
                "union_density": union,
                "message_bytes": plans[key],
                "bytes_sent": sent,
                "wire_s": {name: wire_time(name, workers, sent[name], SIMULATED_GBPS) for name in STRATEGIES},
            }
        )
    return out


def _plan_bytes(context, elements: int, union: float, workers: int) -> dict[str, dict[str, int]]:
    """Of a message, by codec and index."""
    sizes = ("--elements", elements, "--density", f"{union:.9f}", "--workers", workers)
    found: dict[str, dict[str, int]] = {}
    for index in ("bitmap", "bloom"):
        choices = context.measure("plan", *sizes, "--bandwidth", "100gbit", "--index", index)[0]["choices"]
        for choice in choices:
            if choice["strategy"] in ("packed", "sketch"):
                found.setdefault(choice["strategy"], {})[index] = choice["message_bytes"]
    return found


def _list_bytes(context, densities: list[float]) -> dict[float, float]:
    """What says where the items are, by element: the smaller one of a list and a bitmap, measured at 2^20 elements."""
    listed = ",".join(f"{density:.9f}" for density in densities)
    codec = ("--codec", "packed", "--index", "list,bitmap", "--grain", 1, "--repeat", 1)
    rows = context.measure("bench", "codec", "--elements", "2^20", "--density", listed, *codec)
    require_right(rows)
    found: dict[float, float] = {}
    for density in densities:
        near = [row for row in rows if abs(row["density"] - density) <= 2 / 2**20]
        found[density] = 0.0 if density >= 1 else min(row["index_bytes"] for row in near) / 2**20
    return found


# Showing.


def section(documents) -> Section:
    results = documents[0]["results"]
    facts = {
        "elements": f"{results['elements']:,}",
        "density": plain(results["density"]),
        "most": max(results["workers"]),
    }
    return Section(TITLE, [prose(_TEXT.format(**facts)), *_measured_parts(results), *_simulated_parts(results)])


_TEXT = """
All workers have {density} of their elements non-zero, at random places, in arrays of {elements} float32. A share of
each worker's elements (the overlap) is common to all, and the rest is nobody else's; where the overlap is called
random, supports are independent and meet by chance. Up to {most} workers are threads of one process that exchange real
messages. Every sum was compared on every worker; none was wrong and nothing was lost. Bytes are those that a worker
sends; `packed` and `sketch` have a bitmap or a Bloom filter as the library chooses, and bytes may fall where that changes.
"""

_CHOICE = """
`auto` weighs coding against the wire: the faster the link, the less there is to gain, and the sooner dense sums win.
Few workers with small unions gather. Sketches are rounded to a shared scale, so `auto` takes them only through a
switch, where neither split nor gather exists.
"""


def _map(title: str, results: dict, cell) -> str:
    """Tiles of workers and overlaps; `cell` gets both as a dictionary."""
    return tiles(
        title,
        [str(count) for count in results["workers"]],
        [overlap_name(overlap) for overlap in results["overlaps"]],
        [[cell({"workers": w, "overlap": o}) for w in results["workers"]] for o in results["overlaps"]],
        x="workers",
        y="overlap",
        kinds=STRATEGIES,
    )


def _by_workers(title: str, unit: str, series: dict[str, list[tuple[int, float]]]) -> str:
    drawn = [Series(name, points) for name, points in series.items()]
    return lines(title, drawn, x="workers", y=unit, log_x=True, log_y=True)


def _measured_parts(results: dict) -> list[str]:
    measured = results["measured"]

    def growth(overlap):
        rows = select(measured, overlap=overlap, strategy="auto")
        return [(row["workers"], 100 * row["union_elements"] / results["elements"]) for row in rows]

    def sent(overlap, strategy):
        return [
            (row["workers"], row["bytes_sent"] / 1e6) for row in select(measured, overlap=overlap, strategy=strategy)
        ]

    def chosen(link, place):
        rows = select(results["chosen"], link=link, **place)
        return rows[0]["chosen"] if rows else ""

    unions = {overlap_name(overlap): growth(overlap) for overlap in results["overlaps"]}
    parts = ["<h3>Measured</h3>"]
    parts.append(_by_workers("Growth of the union: elements that some worker has (measured)", "% of elements", unions))
    for overlap in (0.0, 0.5, 1.0, INDEPENDENT):
        if overlap in results["overlaps"]:
            title = f"Bytes that a worker sends, overlap {overlap_name(overlap)} (measured)"
            parts.append(_by_workers(title, "MB", {name: sent(overlap, name) for name in STRATEGIES}))
    title = "Who sends the fewest bytes, and what share of a dense ring's they are (measured)"
    parts.append(_map(title, results, lambda place: _least_cell(select(measured, **place))))
    for link in CHOOSER_LINKS:
        title = f"What auto chooses for links of {link.replace('gbit', ' Gbps')} (measured: the choice of the library)"
        parts.append(_map(title, results, partial(chosen, link)))
    parts += [prose(_CHOICE), _time_table(results), _repair_table(results)]
    return parts + ([_growth_table(results["grown"])] if results.get("grown") else [])


def _least(rows: list[dict]) -> dict | None:
    return min((row for row in rows if row["strategy"] in STRATEGIES), key=lambda row: row["bytes_sent"], default=None)


def _least_cell(rows: list[dict]) -> str:
    least = _least(rows)
    return f"{least['strategy']} {percent(least['bytes_sent'] / least['dense_bytes'], 2)}" if least else ""


def _time_table(results: dict) -> str:
    overlap = INDEPENDENT if INDEPENDENT in results["overlaps"] else results["overlaps"][-1]
    contenders = (*STRATEGIES, "auto")
    rows = []
    for count in results["workers"]:
        own = {row["strategy"]: row["seconds"] for row in select(results["measured"], workers=count, overlap=overlap)}
        rows.append([count, *(duration(own.get(name)) for name in contenders)])
    return f"<h3>Time in one process, overlap {overlap_name(overlap)}</h3>" + table(
        ["workers", *contenders],
        rows,
        "Measured; threads that share the cores of this machine and copy through its memory, so more workers take "
        "longer whatever they send. It says what work there is, not what a network would do.",
    )


def _repair_table(results: dict) -> str:
    rows = []
    for count in results["workers"]:
        own = select(results["measured"], workers=count, strategy="sketch")
        items = sum(row["items"] * row["repeat"] for row in own)
        repaired = sum(row["repaired"] for row in own)
        rate = percent(repaired / items if items else None)
        most = max((row["peel_rounds"] for row in own), default=None)
        rows.append([count, items, repaired, rate, most, sum(row["lost"] for row in own)])
    return "<h3>Repair of sketches</h3>" + table(
        ["workers", "items summed", "repaired", "rate", "rounds of peeling, most", "lost"],
        rows,
        "Measured, all overlaps together, after three rounds in which plans learned their sizes. Repaired items did "
        "not peel and were sent again.",
    )


def _growth_table(grown: list[dict]) -> str:
    rows = []
    for row in grown:
        shares = percent(row["repaired"] / row["items"]), percent(row["bytes_sent"] / row["dense_bytes"])
        rows.append([f"+{plain(row['growth'])}", row["items"], row["repaired"], *shares, row["lost"]])
    return "<h3>Repair of sketches whose union grew since the last step</h3>" + table(
        ["growth", "items", "repaired", "rate", "bytes, of dense", "lost"],
        rows,
        f"Measured; {grown[0]['workers']} workers with independent supports. What does not peel, because there is more "
        "than the sketch was sized for, is sent again in the same call. Every sum was within its error bound.",
    )


_SIMULATION = """
Arrays of {elements} float32 ({bytes}), of which {most} do not fit here: bytes come from the library's plans and from
the size of its lists at each density; the wire is modelled as rings on links of {gbps} Gbps with {latency} for a step,
and coding takes no time. At the size that was measured, bytes of this model are off by, in the median and at most:
{checks}. The model takes the smaller one of bitmap and Bloom filter; the library, where memory is fast as it was in the
measurement, may take the larger one, since a filter takes time to read. The rest is what every message has besides
items, of which {most} workers have many small ones.
"""


def _simulated_parts(results: dict) -> list[str]:
    large = select(results["simulated"], elements=SIMULATED_ELEMENTS)
    if not large:
        return []
    checks = _deviations(results)
    most = max(results["workers"])
    text = _SIMULATION.format(
        elements=f"{SIMULATED_ELEMENTS:,}",
        bytes=size(SIMULATED_ELEMENTS * ELEMENT_BYTES),
        most=most,
        gbps=number(SIMULATED_GBPS),
        latency=duration(latency(SIMULATED_GBPS)),
        checks=", ".join(
            f"{name} {percent(median(all_), 2)} and {percent(max(all_), 2)}" for name, all_ in checks.items()
        ),
    )
    parts = ["<h3>Modelled</h3>", prose(text)]
    for density in SIMULATED_DENSITIES:
        own = select(large, density=density)
        title = f"Fastest on the wire, and times as fast as dense; {plain(density)} non-zero on each worker (modelled)"
        parts.append(_map(title, results, partial(_fastest_cell, own)))
    rows = select(large, density=DENSITY, workers=most)
    parts.append(
        bars(
            f"Bytes that one of {most} workers sends, {plain(DENSITY)} non-zero on each (modelled)",
            [overlap_name(row["overlap"]) for row in rows],
            [(name, [row["bytes_sent"][name] / 1e6 for row in rows]) for name in STRATEGIES],
            y="MB",
            log_y=True,
        )
    )
    return [*parts, prose("Tiles are empty where so many disjoint elements do not exist.")]


def _fastest(row: dict) -> str:
    return min(STRATEGIES, key=lambda name: row["wire_s"][name])


def _fastest_cell(rows: list[dict], place: dict) -> str:
    found = select(rows, **place)
    if not found:
        return ""
    wire, best = found[0]["wire_s"], _fastest(found[0])
    return f"{best} {times(wire['dense'] / wire[best])}"


def _deviations(results: dict) -> dict[str, list[float]]:
    """By strategy, how far the model that is drawn is from what was measured, as shares of the latter."""
    found: dict[str, list[float]] = {}
    for row in select(results["simulated"], elements=results["elements"]):
        place = {"workers": row["workers"], "overlap": row["overlap"]}
        for real in select(results["measured"], **place):
            name = real["strategy"]
            if name not in STRATEGIES or not real["bytes_sent"]:
                continue
            found.setdefault(name, []).append(abs(row["bytes_sent"][name] / real["bytes_sent"] - 1))
    return found


def summary(documents) -> list[SummaryRow]:
    results = documents[0]["results"]
    most = max(results["workers"])
    rows = []
    for overlap in (0.0, 1.0):
        least = _least(select(results["measured"], workers=most, overlap=overlap))
        if least:
            what = (
                f"Bytes sent by one of {most} workers, of a dense ring's: {plain(DENSITY)} non-zero on each, overlap "
            )
            share = percent(least["bytes_sent"] / least["dense_bytes"])
            note = f"by {least['strategy']}" + ("; the union grows with every worker" if overlap == 0.0 else "")
            rows.append(SummaryRow(what + overlap_name(overlap), None, share, None, note, "measured"))
    place = {"elements": SIMULATED_ELEMENTS, "density": 0.1, "workers": most, "overlap": INDEPENDENT}
    for row in select(results["simulated"], **place):
        wire, best = row["wire_s"], _fastest(row)
        gain = wire["dense"] / wire["packed"]
        note = f"{percent(row['union_density'])} of the elements are somebody's"
        note += "; packed does not pay" if gain < 1.05 else ""
        note += f"; {best}, where workers send only what they have, {times(wire['dense'] / wire[best])}"
        what = f"Time on the wire, dense / packed: {most} workers, 10% non-zero on each, at random"
        rows.append(SummaryRow(what, None, times(gain), None, note, "modelled"))
    return rows
