"""Experiment 2: what a sketch of a given size gives back of one worker's gradient.

As in 4.1.1 of the paper: a gradient is compressed into 2% to 200% of its size and decompressed at once; what does
not peel is estimated. It is one sketch of the whole gradient, as in the paper, though the library would sum a large one
in chunks; lossless sums are made as the library makes them. Beside the paper's mean relative error, recovery rate and
rounds there are the largest error, the share of elements that come back bit by bit, and what the lossless mode has to
repair. A second worker, whose gradient is zero, takes part, since one alone would send nothing.
"""

from __future__ import annotations

from .. import paper
from ..charts import Series, lines
from ..context import telling
from ..numbers import number, percent
from ..report import Section, SummaryRow, prose, table

NAME = "recovery"
TITLE = "Recovery on one worker"
GPU = None

SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0)
QUICK_SHARES = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.2, 2.0)
CELLS_PER_ITEM = (0.7, 1.0, 1.1, 1.15, 1.2, paper.GAMMA, 1.26, 1.3, 1.35, 1.4)  # where peeling begins to succeed
QUICK_CELLS_PER_ITEM = (1.0, 1.2, paper.GAMMA, 1.3, 1.4)
LOSSLESS = ("sketch", "packed")
_SHOWN = (0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 1.2, 2.0)


def shares_for(density: float, *, quick: bool) -> list[float]:
    """Sizes to try, as shares of the dense bytes: the paper's range, and closer where peeling begins to succeed."""
    near = [round(density * cells, 6) for cells in (QUICK_CELLS_PER_ITEM if quick else CELLS_PER_ITEM)]
    tried = {*(QUICK_SHARES if quick else SHARES), *(share for share in near if share <= 2)}
    return sorted(tried)


def run(context) -> dict:
    import torch

    from ..gradients import capture, each_model, steps_before

    device = torch.device(context.device)
    full = context.device == "cuda"
    failed: list[str] = []

    def measure(model: str) -> dict:
        context.say(f"{paper.NAMES[model]}: gradients")
        captured = capture(model, device, full=full, steps=steps_before(model, quick=context.quick))
        facts = captured.facts()
        gradient = captured.gradients[0]
        density = int(torch.count_nonzero(gradient)) / gradient.numel()
        context.say(f"{paper.NAMES[model]}: {gradient.numel():,} elements, {percent(density)} not zero")
        fixed, lossless = [], []
        for share in shares_for(density, quick=context.quick):
            with context.part(f"{paper.NAMES[model]}, {percent(share)}", failed):
                fixed.append(_recover(gradient, share))
        for strategy in LOSSLESS:
            with context.part(f"{paper.NAMES[model]}, {strategy}", failed):
                lossless.append(_recover(gradient, None, strategy))
        return {**facts, "density": density, "whole": True, "sizes": fixed, "lossless": lossless}

    def results(models: dict) -> dict:
        sparsity = {model: one["sparsity"] for model, one in models.items() if "failed" not in one}
        return telling({"models": models, "sparsity": sparsity}, failed)

    return results(each_model(("vgg", "ncf", "lstm", "bert"), measure, lambda models: context.save(results(models))))


def _recover(gradient, share: float | None, strategy: str = "sketch") -> dict:
    """One size of one sketch, or a lossless strategy, which learns the size from a first sum, in the library's chunks."""
    import torch

    from ..one_process import Team

    options = {"grain": 1, "chunk_bytes": gradient.nbytes} if share else {"grain": 0}  # 0: found
    team = Team(2, gradient.device, estimate=share, strategy=strategy, **options)
    for _ in range(1 if share else 2):
        arrays = [gradient.clone(), torch.zeros_like(gradient)]
        outcome = team.sum(arrays)
    report = outcome.report
    found = {
        "share": share,
        "strategy": report["strategy"],
        "message_share": outcome.bytes_sent / gradient.nbytes,
        "items": report["items"],
        "lost": report["lost"],
        "repaired": report["repaired"],
        "recovered_share": 1 - report["lost"] / max(report["items"], 1),
        "repaired_share": report["repaired"] / max(report["items"], 1),
        "rounds": report["peel_rounds"],
        "exactness": report["exactness"],
        "error_bound": report["error_bound"],
        "grain": report["grain"],
        **compare(gradient, arrays[0]),
    }
    if share is None or report["lost"] == 0:
        from ..gradients import verify

        found["wrong"] = verify([gradient], arrays, report)
    return found


def compare(true, got) -> dict:
    """How far `got` is from `true`. Means and shares are over the elements that are not zero in `true`."""
    from ..gradients import slices

    nonzeros, exact, invented = 0, 0, 0
    relative, squares, energy, largest, span = 0.0, 0.0, 0.0, 0.0, 0.0
    for right, found in slices(true, got):
        here = right != 0
        error = (found - right).abs()
        nonzeros += int(here.sum())
        exact += int(((found == right) & here).sum())
        invented += int(((found != 0) & ~here).sum())
        relative += float((error / right.abs()).masked_fill(~here, 0).double().sum())
        squares += float(error.double().square().sum())
        energy += float(right.double().square().sum())
        largest = max(largest, float(error.max()))
        span = max(span, float(right.abs().max()))
    return {
        "mean_relative_error": relative / max(nonzeros, 1),
        "l2_error": (squares / energy) ** 0.5 if energy else 0.0,
        "max_error": largest,
        "max_error_of_largest": largest / span if span else 0.0,
        "exact_share": exact / max(nonzeros, 1),
        "invented": invented,
    }


def threshold(sizes: list[dict]) -> float | None:
    """The smallest size from which on, in all that were tried, nothing was lost."""
    best = None
    for one in sorted(sizes, key=lambda one: one["share"], reverse=True):
        if one["lost"]:
            break
        best = one["share"]
    return best


_WHOLE = (
    "There is one sketch of the whole gradient, as in the paper. A large array is otherwise summed in chunks of 64 MiB, "
    "among which a fixed size would be divided by their length, so that the densest chunk would decide from which size "
    "on nothing is lost. The lossless mode has such chunks, and gives each what it needs."
)
_CHUNKS = (
    "Arrays were summed in chunks of 64 MiB, among which a fixed size is divided by their length. So with full models, "
    "whose layers are not equally sparse, the densest chunk decides from which size on nothing is lost. The lossless "
    "mode gives each chunk what it needs."
)


def _several_sketches(one: dict) -> bool:
    """Documents from before there was one sketch for all."""
    return "failed" not in one and not one.get("whole") and one["parameters"] * 4 > 64 << 20


def section(documents) -> Section:
    in_chunks = any(_several_sketches(one) for document in documents for one in document["results"]["models"].values())
    parts = [
        prose(
            "The gradient of one worker is compressed to a fixed size and decompressed, as in section 4.1.1 of the "
            "paper. The size is that of the sketch, as a share of the dense gradient; the index comes on top of it "
            "(its bytes are in the column *message*). What does not peel is estimated from the cells. All of this is "
            "**measured**.\n\n"
            f"{_CHUNKS if in_chunks else _WHOLE}\n\n"
            "The paper's relative error is a mean over elements, and most of these are many orders of magnitude "
            "smaller than the largest, with which they share a fixed-point scale; so tables have the error relative "
            "to the norm of the gradient, too. *To repair* is what the lossless mode would exchange again at that "
            "size."
        )
    ]
    for document in documents:
        parts += _charts(document)
    return Section(TITLE, parts)


def _charts(document) -> list[str]:
    models = document["results"]["models"]
    good = {model: one for model, one in models.items() if "failed" not in one}
    where = "GPU, full size" if any(one["full"] for one in good.values()) else "small models, on a processor"
    parts = [prose(f"{paper.NAMES[model]} failed: {one['failed']}") for model, one in models.items() if "failed" in one]

    def series(field: str, floor: float | None = None) -> list[Series]:
        value = (lambda v: v) if floor is None else (lambda v: max(v, floor))
        return [
            Series(name_of(model, one), [(100 * size["share"], value(size[field])) for size in one["sizes"]])
            for model, one in good.items()
        ]

    axis = "size of the sketch, % of the dense gradient"
    marks = []
    if "vgg" in good:
        expected = 100 * paper.GAMMA * good["vgg"]["density"]
        marks = [(expected, f"{paper.GAMMA} per non-zero, VGG")]
    draw = {"x": axis, "log_x": True, "marks": marks}
    parts += [
        lines(f"Share of non-zeros recovered ({where})", series("recovered_share"), y="recovered", **draw),
        lines(
            f"Mean relative error ({where})", series("mean_relative_error", 1e-9), y="mean relative error", log_y=True,
            **draw,
        ),
        lines(
            f"Rounds of peeling ({where})", series("rounds"), y="rounds, slowest block",
            levels=[(paper.RECOVERY_ROUNDS, "log log n of the paper")], **draw,
        ),
    ]
    for model, one in good.items():
        parts.append(_sizes_table(model, one))
    parts.append(_lossless_table(good))
    return parts


def name_of(model: str, one: dict) -> str:
    name = paper.NAMES[model]
    return name if one["full"] else f"small {name.replace('VGG19', 'VGG').replace('-base', '')}"


def shown(sizes: list[dict]) -> list[dict]:
    """Of the sizes that were tried, those that tell something: round ones up to where nothing changes any more, and the
    two between which the last losses end."""
    least = threshold(sizes)
    lossy = [size["share"] for size in sizes if least is None or size["share"] < least]
    enough = next((share for share in _SHOWN if least is not None and share >= 1.5 * least), _SHOWN[-1])
    chosen = {*(share for share in _SHOWN if share <= enough), least, *lossy[-1:]}
    return [size for size in sizes if size["share"] in chosen]


def _sizes_table(model: str, one: dict) -> str:
    least = threshold(one["sizes"])
    rows = [
        [
            percent(size["share"]),
            percent(size["message_share"]),
            percent(size["recovered_share"], 4) if size["lost"] else "all",
            size["rounds"],
            number(size["mean_relative_error"]),
            number(size["l2_error"]),
            percent(size["max_error_of_largest"]),
            percent(size["exact_share"]),
            percent(1 - size["recovered_share"]),
        ]
        for size in shown(one["sizes"])
    ]
    header = [
        "sketch", "message", "recovered", "rounds", "mean relative error", "error of the norm",
        "largest error, of the largest value", "bit-exact", "to repair",
    ]
    note = (
        f"{name_of(model, one)}: {one['parameters']:,} elements, {percent(one['density'])} not zero on this worker, "
        f"after {one['steps']} steps; data: {one['data']}. "
    )
    note += (
        f"Nothing is lost from {percent(least)} on, {number(least / one['density'])} cells per non-zero, of the sizes "
        "that were tried."
        if least
        else "Every size that was tried loses something."
    )
    return table(header, rows, note)


def _lossless_table(good: dict) -> str:
    rows = [
        [
            name_of(model, one),
            size["strategy"],
            size["grain"],
            percent(size["message_share"]),
            size["rounds"],
            percent(size["repaired_share"]),
            percent(size["exact_share"], 4),
            number(size["mean_relative_error"]),
            number(size["error_bound"]),
            size.get("wrong"),
        ]
        for model, one in good.items()
        for size in one["lossless"]
    ]
    header = [
        "model", "lossless mode", "grain", "message, of dense", "rounds", "repaired", "bit-exact",
        "mean relative error", "error bound", "wrong",
    ]
    return table(
        header,
        rows,
        "Lossless: sized by what the step before had. A sketch adds fixed-point numbers, so it is exact to its error "
        "bound and not bit by bit; values below half of a unit of that are zero. Packed keeps the bits. *Wrong* "
        "counts elements farther from the gradient than the bound.",
    )


def summary(documents) -> list[SummaryRow]:
    rows = []
    for document in documents:
        for model, one in document["results"]["models"].items():
            if document is not documents[-1] and model != "vgg":
                continue  # of small models the paper's own is enough, where there are full ones
            least = None if "failed" in one else threshold(one["sizes"])
            if least is None:
                continue
            ours = least / one["density"]
            note = f"{percent(least)} of dense at {percent(one['density'])} non-zeros, without the index"
            split = " in chunks of 64 MiB, of which the densest decides" if _several_sketches(one) else ""
            if model == "vgg":
                note += f" (the paper: {percent(paper.RECOVERY_THRESHOLD)} at {percent(1 - paper.SPARSITY['vgg'])})"
            rows.append(
                SummaryRow(
                    f"Cells per non-zero to recover all, {name_of(model, one)}", paper.GAMMA, round(ours, 3),
                    ours / paper.GAMMA, f"{note}; the least size tried{split}. Less is better.",
                    "measured",
                )
            )
    return rows
