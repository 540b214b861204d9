"""One page of the documents that experiments left: HTML without scripts or other files, for wide and narrow screens,
light and dark."""

from __future__ import annotations

import importlib
import json
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from . import experiments, paper
from .context import SCHEMA
from .numbers import number, percent, size, times

STYLE = Path(__file__).parent / "report.css"
KINDS = ("measured", "modelled", "formula")


@dataclass(frozen=True)
class Section:
    title: str
    parts: Sequence[str]  # HTML, from the functions of charts and those below


@dataclass(frozen=True)
class SummaryRow:
    what: str
    paper: str | float | None
    ours: str | float | None
    ratio: float | None  # ours / the paper's; above 1 need not be better: the note says so
    note: str
    kind: str  # one of KINDS


def prose(text: str) -> str:
    """Paragraphs apart by empty lines; `code` between backquotes."""
    return "".join(f"<p>{_inline(part)}</p>" for part in text.strip().split("\n\n") if part.strip())


def select(rows: Sequence[dict], **wanted) -> list[dict]:
    """Those whose fields have these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


_NO_NUMBER = (None, "", "–", "-", "all", "none")  # that may stand in a column of numbers


def table(header: Sequence[str], rows: Sequence[Sequence], note: str = "") -> str:
    """Numbers to the right, words to the left; floats get three significant digits."""
    width = len(header)
    right = [
        any(_is_number(row[at]) for row in rows if at < len(row))
        and all(_is_number(row[at]) or row[at] in _NO_NUMBER for row in rows if at < len(row))
        for at in range(width)
    ]

    def cell(tag: str, at: int, value) -> str:
        place = ' class="number"' if right[at] else ""
        return f"<{tag}{place}>{_inline(_written(value))}</{tag}>"

    head = "".join(cell("th", at, text) for at, text in enumerate(header))
    body = "".join("<tr>" + "".join(cell("td", at, value) for at, value in enumerate(row)) + "</tr>" for row in rows)
    below = f'<p class="note">{_inline(note)}</p>' if note else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}'


def read_documents(folder: Path) -> dict[str, list[dict]]:
    """By experiment, CPU first; the rest of the folder's files is left alone."""
    found: dict[str, list[dict]] = {}
    for name in experiments.NAMES:
        for path in (folder / f"{name}.json", folder / f"{name}-gpu.json"):
            if path.exists():
                found.setdefault(name, []).append(json.loads(path.read_text()))
    return found


def write_report(folder: Path) -> Path:
    path = folder / "report.html"
    path.write_text(page(read_documents(folder)))
    return path


def page(documents: dict[str, list[dict]]) -> str:
    sections, rows = [], []
    for at, name in enumerate(experiments.NAMES, start=1):
        own = documents.get(name, [])
        if not own:
            continue
        module = _experiment(name)
        useful = [one for one in own if "results" in one and one.get("schema") == SCHEMA]
        section = Section(module.TITLE, [])
        try:
            if useful:
                section = module.section(useful)
                rows.append((name, module.TITLE, module.summary(useful)))
        except Exception as error:  # noqa: BLE001
            # Documents of another version, say: the other sections are worth having all the same.
            traceback.print_exc()
            section = Section(module.TITLE, [_missing("Not shown", f"{type(error).__name__}: {error}; run it again.")])
        sections.append(_section(at, name, section, own))
    everything = [one for own in documents.values() for one in own]
    contents = "".join(
        f'<li value="{at}"><a href="#{name}">{escape(_experiment(name).TITLE)}</a></li>'
        for at, name in enumerate(experiments.NAMES, start=1)
        if documents.get(name)
    )
    body = [
        "<header><h1>PeelReduce: evaluation</h1>",
        f'<p class="sub">{_inline(_occasion(everything))}</p></header>',
        prose(_INTRODUCTION),
        _quick_warning(everything),
        "<h2>Summary</h2>",
        _summary(rows) if any(own for _, _, own in rows) else prose("No experiment left results yet."),
        _sparsity([one for one in everything if one.get("schema") == SCHEMA]),
        f"<h2>Experiments</h2><ol>{contents}</ol>" if contents else "",
        *sections,
        _machines(everything),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>PeelReduce: evaluation</title><style>{STYLE.read_text()}</style></head>"
        f"<body>{''.join(body)}</body></html>\n"
    )


def _experiment(name: str):
    return importlib.import_module(f".experiments.{name}", __package__)


_INTRODUCTION = """
The evaluation of *Accelerating Distributed Deep Learning using Lossless Homomorphic Compression* (Li, Xu, Chen,
Dwivedula, Wu, He, Akella, Kim), done again with this library and on other machines. Every figure is one of three
kinds, and it is said of which: **measured**, where a wrong element that is found in a lossless sum is a failure and
sections say what was compared;
**modelled**, from measured parts and a stated model of what this machine does not have, such as a faster link; or a
**formula**. Figures called the paper's were read from its text.
"""


def _summary(groups: Sequence[tuple[str, str, Sequence[SummaryRow]]]) -> str:
    cells = []
    for name, title, rows in groups:
        if rows:
            cells.append(f'<tr class="group"><th colspan="6"><a href="#{name}">{escape(title)}</a></th></tr>')
        for row in rows:
            if row.kind not in KINDS:
                raise ValueError(f"{row.what}: a row is one of {', '.join(KINDS)}, not {row.kind}")
            cells.append(
                "<tr>"
                f'<td class="what">{_inline(row.what)}</td><td class="number">{_inline(_written(row.paper))}</td>'
                f'<td class="number"><b>{_inline(_written(row.ours))}</b></td>'
                f'<td class="number">{times(row.ratio)}</td><td class="kind {row.kind}">{row.kind}</td>'
                f'<td class="remark">{_inline(row.note)}</td></tr>'
            )
    return (
        '<div class="scroll"><table class="summary"><thead><tr><th>what</th><th class="number">the paper</th>'
        '<th class="number">here</th><th class="number">ratio</th><th>kind</th><th>note</th></tr></thead>'
        f"<tbody>{''.join(cells)}</tbody></table></div>"
        '<p class="note">The ratio is the figure here by that of the paper: it compares machines, links and data too, '
        "which are other ones. Whether more is better depends on the row.</p>"
    )


def _sparsity(documents: Sequence[dict]) -> str:
    """Of each model what is nearest to the paper's: the full model, else its real supports, else a small model."""
    rows, best = [], {}
    for document in documents:
        results = document.get("results") or {}
        for model, zeros in (results.get("sparsity") or {}).items():
            facts = (results.get("models") or {}).get(model, {})
            rank = 2 if facts.get("full") else 1 if document["experiment"] == "size" else 0
            if model not in best or rank >= best[model][0]:
                best[model] = (rank, zeros, facts)
    for model, (rank, zeros, facts) in sorted(best.items(), key=lambda one: paper.MODELS.index(one[0])):
        count = facts.get("parameters")
        rows.append(
            [
                paper.NAMES[model],
                f"{number(paper.PARAMETERS[model] / 1e6)} M",
                None if count is None else f"{number(count / 1e6)} M",
                percent(paper.SPARSITY[model]),
                percent(zeros),
                paper.DATA_SETS[model],
                ("small model: " if rank == 0 else "") + facts.get("data", "a folder of supports"),
                facts.get("steps"),
            ]
        )
    if not rows:
        return ""
    header = ["model", "parameters, the paper", "parameters here", "zeros, the paper", "zeros here"]
    header += ["data, the paper", "data here", "steps before"]
    return "<h3>Zeros in gradients</h3>" + table(header, rows, _SPARSITY)


_SPARSITY = """Of all elements of the gradient of one worker, measured at one moment of training; the paper's are averages.
The paper's data sets are not part of this repository: data that are called drawn are made to resemble them. Most zeros of
NCF, LSTM and BERT belong to rows of embeddings that a batch does not touch. Those of VGG19 come from units that ReLU
silences for a whole batch, so that they depend on data, batch and stage of training; which of these accounts for the
difference to the paper was not measured."""


def _section(at: int, name: str, section: Section, documents: Sequence[dict]) -> str:
    parts = [f'<section id="{name}"><h2>{at}. {escape(section.title)}</h2>', *_side_by_side(section.parts)]
    for document in documents:
        where = "With a GPU" if document.get("gpu") else "Without a GPU"
        for key, verb in (("unavailable", "not done"), ("failed", "failed")):
            if key in document:
                parts.append(_missing(f"{where}: {verb}", document[key]))
        if document.get("schema") != SCHEMA:
            found = f"Its document is of schema {document.get('schema')}, and this report reads {SCHEMA}; run it again."
            parts.append(_missing(f"{where}: not shown", found))
        elif "failed" in (document.get("results") or {}):
            parts.append(_missing(f"{where}: a part failed", document["results"]["failed"]))
        for remark in document.get("remarks", []):
            if not _is_fact(remark):
                parts.append(_missing(f"{where}: a tool warned", remark))
    parts.append(_provenance(documents))
    return "".join(parts) + "</section>"


def _missing(what: str, why: str) -> str:
    return f'<p class="missing"><b>{_inline(what)}.</b> {_inline(why)}</p>'


def _side_by_side(parts: Sequence[str]) -> list[str]:
    """Charts that follow each other share a row where the screen is wide enough."""
    out: list[str] = []
    for at, part in enumerate(parts):
        is_chart = part.startswith("<figure")
        follows = at > 0 and parts[at - 1].startswith("<figure")
        if is_chart and not follows:
            out.append('<div class="figures">')
        elif follows and not is_chart:
            out.append("</div>")
        out.append(part)
    if parts and parts[-1].startswith("<figure"):
        out.append("</div>")
    return out


def command_of(document: dict) -> str:
    """What does an experiment again."""
    options = [f"--{name}" for name in ("quick", "gpu") if document.get(name)]
    return " ".join(["scripts/evaluate", *options, "--only", document["experiment"]])


def _is_fact(remark: str) -> bool:
    return "links carry" in remark


def _provenance(documents: Sequence[dict]) -> str:
    shown = ""
    for document in documents:
        commands = document.get("commands") or [command_of(document)]
        facts = [remark for remark in document.get("remarks", []) if _is_fact(remark)]
        text = "\n".join([*commands, *(f"# {fact}" for fact in facts)])
        shown += f"<p>{escape(_where(document))}</p><pre>{escape(text)}</pre>"
    return f'<details class="commands"><summary>Commands</summary>{shown}</details>' if shown else ""


def _where(document: dict) -> str:
    mode = "quick" if document.get("quick") else "full"
    side = "GPU" if document.get("gpu") else "CPU"
    return f"{side}, {mode}, {document.get('date', '')}, {number(document.get('seconds', 0))} s"


def _occasion(documents: Sequence[dict]) -> str:
    dates = sorted({document.get("date", "")[:10] for document in documents} - {""})
    commits = sorted({document.get("versions", {}).get("commit", "") for document in documents} - {""})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}" if dates else "no documents"
    return when + (f", commit {', '.join(commits)}" if commits else "")


def _quick_warning(documents: Sequence[dict]) -> str:
    quick = sorted({document["experiment"] for document in documents if document.get("quick")})
    if not quick:
        return ""
    return prose(
        f"**Quick runs** (small arrays, few repeats: they show that all works, not how fast it is): {', '.join(quick)}."
    )


def _machines(documents: Sequence[dict]) -> str:
    seen: dict[str, tuple[dict, dict, list[str]]] = {}
    for document in documents:
        facts, found = document.get("machine", {}), document.get("versions", {})
        stable = {key: value for key, value in found.items() if key != "commit"}
        entry = seen.setdefault(json.dumps([facts, stable], sort_keys=True), (facts, found, []))
        entry[2].append(document["experiment"] + (" (GPU)" if document.get("gpu") else ""))
    if not seen:
        return ""
    rows = []
    for facts, found, names in seen.values():
        hardware = f"{facts.get('processor', '?')}, {facts.get('cores', '?')} cores, {size(facts.get('memory_bytes'))}"
        gpus = "; ".join(facts.get("gpus", [])) or "none"
        software = ", ".join(f"{key} {value}" for key, value in found.items() if value)
        rows.append([hardware, gpus, f"{facts.get('system', '')}; {software}", ", ".join(names)])
    return (
        "<section><h2>Machines and versions</h2>"
        + table(["machine", "GPUs", "versions", "experiments"], rows)
        + "</section>"
    )


def _written(value) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)


def _is_number(value) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return True
    if not isinstance(value, str) or not value.strip():
        return False
    head = value.strip().split()[0].lstrip("+-−<>≤≥~").rstrip("%x×")
    units = ("", "GB", "MB", "kB", "B", "s", "ms", "us", "ns", "M", "G", "Gbps", "Tbps", "Mbps", "bits")
    body = head.replace(",", "").replace("·10", "e").translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
    try:
        float(body)
    except ValueError:
        return False
    rest = value.strip().split()[1:]
    return not rest or (len(rest) == 1 and rest[0] in units)


def _inline(text: str) -> str:
    """Escaped, with `code`, **strong** and *emphasis*."""
    out = []
    for at, part in enumerate(str(text).split("`")):
        safe = escape(part)
        if at % 2:
            out.append(f"<code>{safe}</code>")
            continue
        strong = safe.split("**")
        if len(strong) % 2:
            safe = "".join(f"<b>{piece}</b>" if odd % 2 else _emphasis(piece) for odd, piece in enumerate(strong))
        out.append(safe)
    return "".join(out)


def _emphasis(text: str) -> str:
    pieces = text.split("*")
    if len(pieces) % 2 == 0:
        return text
    return "".join(f"<em>{piece}</em>" if odd % 2 else piece for odd, piece in enumerate(pieces))
