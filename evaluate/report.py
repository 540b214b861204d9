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
from .numbers import number, percent, size, times

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


def table(header: Sequence[str], rows: Sequence[Sequence], note: str = "") -> str:
    """Numbers to the right, words to the left; floats get three significant digits."""
    width = len(header)
    right = [
        any(_is_number(row[at]) for row in rows if at < len(row))
        and all(_is_number(row[at]) or row[at] in (None, "", "–", "-") for row in rows if at < len(row))
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
        module = importlib.import_module(f".experiments.{name}", __package__)
        useful = [one for one in own if "results" in one]
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
        f'<li value="{at}"><a href="#{name}">{escape(importlib.import_module(f".experiments.{name}", __package__).TITLE)}</a></li>'
        for at, name in enumerate(experiments.NAMES, start=1) if documents.get(name)
    )
    body = [
        "<header><h1>PeelReduce: evaluation</h1>",
        f'<p class="sub">{_inline(_occasion(everything))}</p></header>',
        prose(_INTRODUCTION),
        _quick_warning(everything),
        "<h2>Summary</h2>",
        _summary(rows) if any(own for _, _, own in rows) else prose("No experiment left results yet."),
        _sparsity(everything),
        f"<h2>Experiments</h2><ol>{contents}</ol>" if contents else "",
        *sections,
        _machines(everything),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>PeelReduce: evaluation</title><style>{_STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


_INTRODUCTION = """
The evaluation of *Accelerating Distributed Deep Learning using Lossless Homomorphic Compression* (Li, Xu, Chen, Dwivedula,
Wu, He, Akella, Kim), done again with this library and on other machines. Every figure is one of three kinds, and a column
or chart has only one of them: **measured**, with the result of every timed operation verified; **modelled**, from
measured parts and a stated model of what this machine does not have, such as a faster link; or a **formula**. Figures
called the paper's were read from its text.
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
                f'<td class="number"><b>{_inline(_written(row.ours))}</b></td><td class="number">{times(row.ratio)}</td>'
                f'<td><span class="kind {row.kind}">{row.kind}</span></td><td class="remark">{_inline(row.note)}</td></tr>'
            )
    return (
        '<div class="scroll"><table class="summary"><thead><tr><th>what</th><th class="number">the paper</th>'
        '<th class="number">here</th><th class="number">ratio</th><th>kind</th><th>note</th></tr></thead>'
        f"<tbody>{''.join(cells)}</tbody></table></div>"
        '<p class="note">The ratio is the figure here by that of the paper; where the machines differ, it compares the '
        "machines too.</p>"
    )


def _sparsity(documents: Sequence[dict]) -> str:
    rows = []
    for model in paper.MODELS:
        for document in documents:
            results = document.get("results") or {}
            if model not in (results.get("sparsity") or {}):
                continue
            count = (results.get("models") or {}).get(model, {}).get("parameters")
            where = [document["experiment"], *(word for word in ("quick", "gpu") if document.get(word))]
            rows.append(
                [
                    paper.NAMES[model], f"{number(paper.PARAMETERS[model] / 1e6)} M", None if count is None else f"{number(count / 1e6)} M",
                    percent(paper.SPARSITY[model]), percent(results["sparsity"][model]), ", ".join(where),
                ]
            )
    if not rows:
        return ""
    return "<h3>Zeros in gradients</h3>" + table(
        ["model", "parameters, the paper", "parameters here", "zeros, the paper", "zeros here", "measured in"], rows,
        "Of all elements of the gradient of one worker; measured. Data are drawn to resemble the paper's data sets, which are "
        "not part of this repository, and a processor computes small models: sparsity is that of the data and of the size.",
    )


def _section(at: int, name: str, section: Section, documents: Sequence[dict]) -> str:
    parts = [f'<section id="{name}"><h2>{at}. {escape(section.title)}</h2>', *_side_by_side(section.parts)]
    for document in documents:
        where = "With a GPU" if document.get("gpu") else "Without a GPU"
        for key, verb in (("unavailable", "not done"), ("failed", "failed")):
            if key in document:
                parts.append(_missing(f"{where}: {verb}", document[key]))
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


def _provenance(documents: Sequence[dict]) -> str:
    commands = "".join(
        f"<p>{escape(_where(document))}</p><pre>{escape(chr(10).join(document.get('commands', [])))}</pre>"
        for document in documents if document.get("commands")
    )
    return f'<details class="commands"><summary>Commands</summary>{commands}</details>' if commands else ""


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
    return prose(f"**Quick runs** (small arrays, few repeats: they show that all works, not how fast it is): {', '.join(quick)}.")


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
    return "<section><h2>Machines and versions</h2>" + table(["machine", "GPUs", "versions", "experiments"], rows) + "</section>"


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


_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #55606f; --line: #dde1e7; --paper: #ffffff; --shade: #f4f6f8; --edge: #b9c1cc;
  --c0: #0b62c4; --c1: #b3470b; --c2: #0a7d52; --c3: #8a2a9c; --c4: #a3122f; --c5: #6b6200; --c6: #00707f; --c7: #55606f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7ebf0; --soft: #a3aebc; --line: #333b46; --paper: #14181d;
  --shade: #1d232a; --edge: #4a5563; --c0: #66b0ff; --c1: #ff9a5c; --c2: #4fd6a0; --c3: #d991ea; --c4: #ff7f96; --c5: #d8cc4a;
  --c6: #4fd0e0; --c7: #a3aebc; } }
* { box-sizing: border-box; }
body { font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: var(--ink);
  background: var(--paper); margin: 2.5rem auto 4rem; max-width: 76rem; padding: 0 1.1rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.3rem; line-height: 1.25; margin: 3rem 0 .6rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p, ol, ul { max-width: 44rem; } p { margin: .7rem 0; } a { color: var(--c0); }
.sub, .note, .remark { color: var(--soft); } .sub { margin: .3rem 0 1.4rem; } .note, .remark { font-size: .9rem; }
.missing { background: var(--shade); border-left: 3px solid var(--c1); padding: .6rem .9rem; }
code, pre { font: .875em/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
code { overflow-wrap: anywhere; }
pre { background: var(--shade); padding: .7rem .9rem; overflow-x: auto; margin: .5rem 0; }
details { margin: 1rem 0; color: var(--soft); } summary { cursor: pointer; }
.scroll { overflow-x: auto; max-width: 100%; background:
  linear-gradient(to right, var(--paper) 40%, transparent) 0 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--edge), transparent) 0 0 / .6rem 100% no-repeat scroll,
  linear-gradient(to left, var(--edge), transparent) 100% 0 / .6rem 100% no-repeat scroll; }
table { border-collapse: collapse; font-size: .94rem; font-variant-numeric: tabular-nums; margin: .6rem 0 .2rem; }
th, td { padding: .34rem 1.1rem .34rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
thead th { color: var(--soft); font-weight: 600; border-bottom-color: var(--soft); vertical-align: bottom; }
.number { text-align: right; white-space: nowrap; } thead .number { white-space: normal; }
.summary { min-width: 48rem; max-width: 70rem; } .summary .what { min-width: 14rem; } .summary .remark { min-width: 16rem; }
.group th { padding-top: 1.1rem; font-weight: 600; } .group a { color: inherit; text-decoration: none; }
.kind { font-size: .85rem; white-space: nowrap; } .kind.measured { color: var(--c2); }
.kind.modelled { color: var(--c1); font-style: italic; } .kind.formula { color: var(--c3); font-style: italic; }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 35rem), 1fr)); gap: 1.8rem 2rem;
  margin: 1.4rem 0; } .wide { grid-column: 1 / -1; } figure { margin: 0; min-width: 0; display: flex; flex-direction: column; }
figure .scroll { margin-top: auto; } figcaption { font-weight: 600; margin-bottom: .25rem; max-width: 44rem; }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; font-size: .9rem; margin: .2rem 0 .4rem; }
.entry { display: inline-flex; align-items: center; gap: .4rem; } .key { flex: none; overflow: visible; }
.drawing { display: block; width: 100%; height: auto; min-width: calc(var(--units) * .887px);
  max-width: calc(var(--units) * 1.45px); }
svg text { font: 13.6px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
svg text.name, svg text.value { fill: var(--ink); }
@media (min-width: 40rem) { .drawing { min-width: calc(var(--units) * 1.2px); } svg text { font-size: 10.3px; } }
svg text.halo { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .level { stroke: var(--soft); stroke-dasharray: 2 3; }
.series { fill: none; stroke-width: 1.6; stroke-linejoin: round; } .mark { fill: var(--paper); stroke-width: 1.4; }
.grid, .axis, .level, .tile { vector-effect: non-scaling-stroke; }
.reference { stroke: var(--soft); } .tile { fill-opacity: .2; stroke-width: 1; } .bar { stroke: none; }
@media (max-width: 30rem) { body { margin-top: 1.2rem; } h1 { font-size: 1.4rem; } }
@media print { details { display: none; } body { max-width: none; } }
""" + "".join(f".s{at} {{ stroke: var(--c{at}); }} .f{at} {{ fill: var(--c{at}); }} .b{at} {{ stroke: var(--c{at}); }}\n" for at in range(8))
