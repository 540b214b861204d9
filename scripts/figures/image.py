"""A picture that is a file of its own, light or dark as the reader's screen is.

It is shown by <img>, so it brings its style along, and a background: a page may be light while the system is dark. Text
is larger where the picture is small (a media query inside an image looks at the size of the image). Colours are those of
the evaluation's report.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

from evaluate.charts import COLOURS, Drawing

_REPORT = Path("evaluate/report.css")
_MARGIN = 10
_GLYPH = 7.6  # width of a character of small pictures, about
_LINE = 19

_RULES = """
text { font: 13.6px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: var(--soft); }
.title, .strong { fill: var(--ink); font-weight: 600; } .name { fill: var(--ink); }
.code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: var(--ink); }
.halo { fill: var(--ink); paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.paper { fill: var(--paper); stroke: var(--line); } .shade { fill: var(--shade); stroke: var(--edge); }
.grid { stroke: var(--line); } .axis { stroke: var(--soft); } .level { stroke: var(--soft); stroke-dasharray: 2 3; }
.series { fill: none; stroke-width: 2; stroke-linejoin: round; } .mark { fill: var(--paper); stroke-width: 1.6; }
.reference { stroke: var(--soft); } .arrow { stroke: var(--soft); stroke-width: 1.4; fill: none; }
.head { fill: var(--soft); } .cell { fill: var(--paper); stroke: var(--edge); } .soft { fill-opacity: .25; }
@media (min-width: 480px) { text { font-size: 11.6px; } }
"""


def image(drawing: Drawing) -> str:
    """A chart with its title and legend above it."""
    width = math.ceil(drawing.width) + 2 * _MARGIN
    top = _MARGIN
    out = []
    for line in _wrap(drawing.title, int(drawing.width / _GLYPH)):
        top += _LINE
        out.append(f'<text class="title" x="{_MARGIN}" y="{top - 5}">{escape(line)}</text>')
    if len(drawing.legend) > 1:
        left, top = _MARGIN, top + 6
        for name, key in drawing.legend:
            key_width = float(re.search(r'width="(\d+)"', key)[1])
            wide = key_width + 8 + len(name) * _GLYPH
            if left > _MARGIN and left + wide > width:
                left, top = _MARGIN, top + _LINE
            out.append(f'<g transform="translate({left:g} {top})">{key}</g>')
            out.append(f'<text class="name" x="{left + key_width + 6:g}" y="{top + 13}">{escape(name)}</text>')
            left += wide + 10
        top += _LINE + 2
    out.append(f'<g transform="translate({_MARGIN} {top})">{"".join(drawing.elements)}</g>')
    return svg(drawing.title, width, top + math.ceil(drawing.height) + _MARGIN, out)


def svg(title: str, width: float, height: float, elements: list[str]) -> str:
    body = "\n".join(element for element in elements if element)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-label="{escape(title)}">\n<title>{escape(title)}</title>\n'
        f"<style>{_style()}</style>\n"
        f'<rect class="paper" x=".5" y=".5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="8"/>\n{body}\n</svg>\n'
    )


def _style() -> str:
    light, dark = (_colours(block) for block in re.findall(r":root \{(.*?)\}", _REPORT.read_text(), re.DOTALL)[:2])
    series = "\n".join(
        f".s{at} {{ stroke: var(--c{at}); }} .f{at} {{ fill: var(--c{at}); }} .b{at} {{ stroke: var(--c{at}); }}"
        for at in range(COLOURS)
    )
    return f"\n:root {{ {light} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}{_RULES}{series}\n"


def _colours(block: str) -> str:
    return " ".join(f"{name}: {value};" for name, value in re.findall(r"(--\w+): (#\w+)", block))


def _wrap(text: str, room: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines
