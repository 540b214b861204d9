"""What a message takes, against S_min of the paper: the least that supports without structure allow.

Every size is that of a message that was made, decoded and compared. Formulas stand for what the library does not have:
values of 4 bits. Real supports have structure, which grains turn into messages below S_min.
"""

from __future__ import annotations

import lzma
import shutil

from .. import paper
from ..charts import Series, bars, lines
from ..context import telling
from ..numbers import number, percent, size, times
from ..report import Section, SummaryRow, prose, select, table

NAME = "size"
TITLE = "Size against the theory"
GPU = False

DENSITIES = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 0.7)
QUICK_DENSITIES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.7)
TYPES = {"float32": 32, "float16": 16, "int8": 8}
FORMULA_BITS = (4, 8, 16, 32)
GRAINS = tuple(2**power for power in range(11))
KINDS = (("packed", "bitmap"), ("packed", "bloom"), ("packed", "list"), ("sketch", "bitmap"), ("sketch", "bloom"))
KEPT = (  # of what the program reports
    *("elements", "type", "nonzeros", "density", "codec", "cells", "index", "grain", "phase", "items", "message_bytes"),
    *("index_bytes", "payload_bytes", "dense_bytes", "lower_bound_bytes", "lost", "wrong"),
)
SHOWN = 10  # times S_min; a bitmap of a nearly empty array goes on to thousands
DRAWN = ("--pattern", "rows:64", "--elements", "2^22", "--density", 0.035)
FEW = 1000  # non-zeros; below, what a message has besides them shows


# Measuring.


def run(context) -> dict:
    elements = 2**22 if context.quick else 2**24
    densities = QUICK_DENSITIES if context.quick else DENSITIES
    swept = ("--density", ",".join(f"{density:g}" for density in densities), "--type", ",".join(TYPES))
    codec = ("--codec", "packed,sketch", "--index", "bitmap,bloom,list", "--grain", 1, "--repeat", 1)
    uniform = [_kept(row) for row in context.measure("bench", "codec", "--elements", elements, *swept, *codec)]
    context.say(f"{len(uniform)} messages of {elements:,} elements without structure")
    supports: list[dict] = []
    failed: list[str] = []
    results = {"elements": elements, "densities": list(densities), "uniform": uniform, "supports": supports}
    context.save(results)
    with context.part("real supports", failed):
        _real_supports(context, supports)
    if context.data is not None:  # of others, the experiment recovery tells
        results["sparsity"] = {one["model"]: one["zeros"] for one in supports}
        results["models"] = {one["model"]: {"parameters": one["rows"][0]["elements"]} for one in supports}
    return telling(results, failed)


def _kept(row: dict) -> dict:
    if row["wrong"]:
        raise RuntimeError(f"{row['wrong']} elements of a decoded message are wrong: {row}")
    return {name: row[name] for name in KEPT}


def _real_supports(context, found: list[dict]) -> None:
    folder = context.out / "size-masks"
    try:
        for model, source, zeros, union in _unions(context, folder):
            found.append({"model": model, "source": source, "zeros": zeros, "rows": _sizes_of(context, union)})
            context.say(f"{model}: support of {source}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unions(context, folder):
    """For each model its name, where its support comes from, the share of zeros of one worker, and options that give
    the program the union of four workers."""
    folder.mkdir(parents=True, exist_ok=True)
    if context.data is not None:
        for model in paper.MODELS:
            packed = context.data / f"{model}.masks.xz"
            if packed.exists() and (model == "ncf" or not context.quick):
                zeros = _unpack(packed, folder / f"{model}.npy")
                yield model, "the full model", zeros, ("--pattern", f"npy:{folder / model}.npy")
        return
    try:
        import torch

        from .. import gradients
    except ImportError as reason:
        context.say(f"no gradients of the examples, since they take torch and the package: {reason}")
        yield "ncf", "drawn rows of 64 like those of the full model", None, DRAWN
        return
    import numpy as np

    for model in paper.MODELS:
        steps = gradients.steps_before(model, quick=context.quick)
        captured = gradients.capture(model, torch.device("cpu"), full=False, steps=steps)
        union = torch.stack([gradient != 0 for gradient in captured.gradients]).any(0)
        np.save(folder / f"{model}.npy", union.cpu().numpy())
        zeros = sum(gradients.share_of_zeros(one) for one in captured.gradients) / len(captured.gradients)
        yield model, "the small model of examples/", zeros, ("--pattern", f"npy:{folder / model}.npy")


def _unpack(path, to):
    """Writes the union of all masks in a file, and returns the share of zeros of one worker. Masks are bits, the first
    one lowest, one worker after another, each in whole bytes (vgg: worker 0, then the union). Up to seven bits after
    the last element are taken for zeros."""
    import numpy as np

    bits = np.frombuffer(lzma.decompress(path.read_bytes()), np.uint8)
    has_union = path.name.startswith("vgg")
    masks = bits.reshape(2 if has_union else 4, -1)
    if has_union:
        workers, union = masks[:1], masks[1]
    else:
        workers, union = masks, np.bitwise_or.reduce(masks, axis=0)
    counts = np.array([bin(byte).count("1") for byte in range(256)], np.int64)
    nonzeros = sum(int((np.bincount(mask, minlength=256) * counts).sum()) for mask in workers)
    np.save(to, np.unpackbits(union, bitorder="little").view(bool))
    return 1 - nonzeros / (workers.size * 8)


def _sizes_of(context, union) -> list[dict]:
    runs = (
        ("--grain", 1, "--codec", "packed,sketch", "--index", "bitmap,bloom"),
        ("--grain", ",".join(map(str, GRAINS[1:])), "--codec", "packed", "--index", "auto"),
        ("--grain", "auto", "--codec", "packed,sketch", "--index", "auto"),
    )
    rows = []
    for options in runs:
        for row in context.measure("bench", "codec", *union, *options, "--repeat", 1):
            rows.append({**_kept(row), "asked_grain": "auto" if options[1] == "auto" else row["grain"]})
    return rows


# Showing.


def section(documents) -> Section:
    results = documents[0]["results"]
    parts = [prose(_TEXT.format(elements=f"{results['elements']:,}", bound=paper.SIZE_BOUND))]
    parts += ["<h3>Without structure</h3>"]
    parts += [_type_chart(results, type_name, bits) for type_name, bits in TYPES.items()]
    parts += [_formula_chart(results), prose(_cells(results)), _type_table(results), _formula_table(results)]
    if results["supports"]:
        parts += ["<h3>Real supports</h3>", *_support_parts(results["supports"])]
    return Section(TITLE, parts)


_TEXT = """
S_min is what an index of n non-zeros among N elements and their values of C bits take at least, if any n elements may
be the non-zero ones: N H(n/N) + n log(2^C - 1) bits. The paper's Bloom filter and Count Sketch stay below {bound} S_min.
Messages here have {elements} elements, were encoded, decoded and compared: none was wrong. A `list` says where items
are close to the entropy, but cannot be ORed: split, gather and files use it, a switch cannot.
"""

_CELLS = """
Cells of a sketch have 32 bits in this library whatever the type, so that sums have room in them: **for 16- and 8-bit
values the payload of a sketch is 2 and 4 times what cells of that width would take**, and it does not pay, while
`packed` sends values in their own type. Sketches with a bitmap have {least} to {most} cells for an item, where the
paper has {gamma}. Values of 4 bits do not exist in the library; they are formulas.
"""


def _cells(results: dict) -> str:
    rows = [
        row
        for row in select(results["uniform"], type="float32", codec="sketch", index="bitmap")
        if row["nonzeros"] >= FEW
    ]
    gammas = [row["payload_bytes"] / 4 / row["items"] for row in rows]
    return _CELLS.format(least=number(min(gammas)), most=number(max(gammas)), gamma=paper.GAMMA)


def _ratio(row: dict) -> float:
    return row["message_bytes"] / row["lower_bound_bytes"]


def _type_chart(results: dict, type_name: str, bits: int) -> str:
    series = [
        Series(
            f"{codec}, {index}",
            [
                (row["density"], _ratio(row))
                for row in select(results["uniform"], type=type_name, codec=codec, index=index)
            ],
        )
        for codec, index in KINDS
    ]
    elements = results["elements"]
    formula = _over_least(paper.bloom_bits, elements, bits, results["densities"])
    series.append(Series("the paper's Bloom filter and sketch (formula)", formula, reference=True))
    return _ratio_chart(f"Message / S_min, values of {bits} bits ({type_name}; measured; gray: formula)", series)


def _formula_chart(results: dict) -> str:
    elements = results["elements"]

    series = [
        Series(f"{bits} bits, {name}", _over_least(size_of, elements, bits, DENSITIES))
        for name, size_of, widths in (
            ("Bloom filter", paper.bloom_bits, FORMULA_BITS),
            ("bitmap", paper.bitmap_bits, (4, 32)),
        )
        for bits in widths
    ]
    return _ratio_chart(f"Message / S_min by the paper's formulas, gamma {paper.GAMMA} (formula)", series)


def _over_least(size_of, elements: int, bits: int, densities) -> list[tuple[float, float]]:
    """A formula of the paper for a size in bits, as a multiple of the least size."""
    items = [(density, density * elements) for density in densities]
    return [(d, size_of(elements, count, bits) / paper.least_bits(elements, count, bits)) for d, count in items]


def _ratio_chart(title: str, series: list[Series]) -> str:
    return lines(
        title,
        series,
        x="density (share of non-zeros)",
        y="times S_min",
        log_x=True,
        log_y=True,
        levels=[(paper.SIZE_BOUND, f"{paper.SIZE_BOUND}, the paper's bound")],
        top=SHOWN,
    )


def _type_table(results: dict) -> str:
    rows = []
    for density in sorted({row["density"] for row in results["uniform"]}):
        own = select(results["uniform"], type="float32", density=density)
        cells = [select(own, codec=codec, index=index) for codec, index in KINDS]
        first = own[0]
        rows.append(
            [
                percent(density, 2),
                size(first["lower_bound_bytes"]),
                percent(first["lower_bound_bytes"] / first["dense_bytes"]),
                *(times(_ratio(cell[0])) if cell else None for cell in cells),
                sum(row["lost"] for row in own),
            ]
        )
    return "<h3>float32, times S_min (measured)</h3>" + table(
        ["density", "S_min", "S_min, of dense", *(f"{codec}, {index}" for codec, index in KINDS), "lost items"],
        rows,
        "Lost items of a sketch did not peel; an all-reduce sends them again, and no element is wrong. At the smallest "
        "densities a message has a few hundred items, and what every message and block has besides them shows.",
    )


def _formula_table(results: dict) -> str:
    elements = results["elements"]
    rows = []
    for density in results["densities"]:
        nonzeros = density * elements
        least = paper.least_bits(elements, nonzeros, 4)
        rows.append(
            [
                percent(density, 2),
                percent(least / (4 * elements)),
                times(paper.bitmap_bits(elements, nonzeros, 4) / least),
                times(paper.bloom_bits(elements, nonzeros, 4) / least),
                times((elements + 4 * nonzeros) / least),
            ]
        )
    return "<h3>4-bit values, times S_min (formula)</h3>" + table(
        ["density", "S_min, of dense", "sketch, bitmap", "sketch, bloom", "packed, bitmap"], rows
    )


def _support_parts(supports: list[dict]) -> list[str]:
    chart = lines(
        "Packed message / S_min by grain, smaller one of bitmap and Bloom filter (measured)",
        [
            Series(paper.NAMES[one["model"]], [(grain, _ratio(row)) for grain, row in sorted(_by_grain(one).items())])
            for one in supports
        ],
        x="grain (elements that stand or fall together)",
        y="times S_min",
        log_x=True,
        log_y=True,
        levels=[(1, "S_min")],
    )
    rows = []
    for one in supports:
        first = one["rows"][0]
        grained = {codec: select(one["rows"], asked_grain="auto", codec=codec)[0] for codec in ("packed", "sketch")}
        single = {
            kind: select(one["rows"], asked_grain=1, codec=kind[0], index=kind[1])[0]
            for kind in KINDS
            if kind[1] != "list"
        }
        dense = first["dense_bytes"]
        rows.append(
            [
                paper.NAMES[one["model"]],
                f"{first['elements']:,}",
                percent(first["density"]),
                percent(first["lower_bound_bytes"] / dense),
                *(percent(row["message_bytes"] / dense) for row in single.values()),
                *(f"{percent(row['message_bytes'] / dense)}" for row in grained.values()),
                " and ".join(str(row["grain"]) for row in grained.values()),
                times(_ratio(grained["packed"])),
            ]
        )
    listing = table(
        [
            "model",
            "elements",
            "non-zero",
            "S_min",
            "packed, bitmap",
            "packed, bloom",
            "sketch, bitmap",
            "sketch, bloom",
            "packed, grain found",
            "sketch, grain found",
            "grains",
            "packed / S_min",
        ],
        rows,
        f"Measured; the union of four workers, {supports[0]['source']}; share of the dense bytes (float32). Columns "
        "without a grain have grain 1. The bound holds for supports without structure; rows of embeddings are "
        "structure.",
    )
    compare = bars(
        "Message, share of the dense bytes (measured; S_min: formula)",
        [paper.NAMES[one["model"]] for one in supports],
        [
            (
                "S_min (formula)",
                [100 * one["rows"][0]["lower_bound_bytes"] / one["rows"][0]["dense_bytes"] for one in supports],
            ),
            ("packed, grain 1", [100 * _best(one, "packed") for one in supports]),
            ("packed, grain found", [100 * _best(one, "packed", "auto") for one in supports]),
            ("sketch, grain 1", [100 * _best(one, "sketch") for one in supports]),
            ("sketch, grain found", [100 * _best(one, "sketch", "auto") for one in supports]),
        ],
        y="% of dense",
        levels=[(100, "dense")],
        references=["S_min (formula)"],
    )
    return [chart, compare, listing]


def _by_grain(one: dict) -> dict[int, dict]:
    best: dict[int, dict] = {}
    for row in one["rows"]:
        if row["codec"] == "packed" and row["asked_grain"] != "auto":
            grain = row["grain"]
            if grain not in best or row["message_bytes"] < best[grain]["message_bytes"]:
                best[grain] = row
    return best


def _best(one: dict, codec: str, grain=1) -> float:
    rows = select(one["rows"], codec=codec, asked_grain=grain)
    return min(row["message_bytes"] / row["dense_bytes"] for row in rows)


def worst_ratio(rows: list[dict], codec: str, type_name: str) -> tuple[float, float]:
    """The largest message / S_min, each with the smaller one of bitmap and Bloom filter, and at which density."""
    found = []
    for density in {row["density"] for row in rows}:
        own = [
            row
            for row in select(rows, codec=codec, type=type_name, density=density)
            if row["index"] != "list" and row["nonzeros"] >= FEW
        ]
        if own:
            found.append((min(map(_ratio, own)), density))
    return max(found)


def _bound_row(results: dict, codec: str, type_name: str, values: str) -> SummaryRow:
    ratio, density = worst_ratio(results["uniform"], codec, type_name)
    note = f"at density {percent(density, 2)}; the smaller one of bitmap and Bloom filter, {FEW:,} non-zeros or more"
    if ratio > paper.SIZE_BOUND:
        note += "; does not hold the bound" + (", since cells have 32 bits" if codec == "sketch" else "")
    return SummaryRow(
        f"Message / S_min, at most: {codec}, {values}",
        f"< {paper.SIZE_BOUND}",
        times(ratio),
        ratio / paper.SIZE_BOUND,
        note,
        "measured",
    )


def summary(documents) -> list[SummaryRow]:
    results = documents[0]["results"]
    rows = [_bound_row(results, "sketch", type_name, f"{bits}-bit values") for type_name, bits in TYPES.items()]
    worst = max(TYPES, key=lambda type_name: worst_ratio(results["uniform"], "packed", type_name))
    rows.append(_bound_row(results, "packed", worst, "all of these"))
    for one in results["supports"]:
        row = select(one["rows"], asked_grain="auto", codec="packed")[0]
        rows.append(
            SummaryRow(
                f"Message / S_min on the support of {paper.NAMES[one['model']]}, packed",
                "≥ 1",
                times(_ratio(row)),
                None,
                f"grain {row['grain']}; {percent(row['message_bytes'] / row['dense_bytes'])} of dense; {one['source']}"
                + ("; below a bound that assumes no structure" if _ratio(row) < 1 else "")
                + ("; hardly anything to gain" if row["message_bytes"] > 0.8 * row["dense_bytes"] else ""),
                "measured",
            )
        )
    for one in results["supports"]:
        share = _best(one, "sketch", "auto")
        if share > 1:
            what = f"Lossless sketch of the support of {paper.NAMES[one['model']]}, of dense"
            note = f"does not pay, since it is larger than what it encodes; {one['source']}"
            rows.append(SummaryRow(what, None, percent(share), None, note, "measured"))
    return rows
