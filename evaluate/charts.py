"""SVG charts that need no script and no other file.

Each is a <figure>: title, legend (HTML, so that it wraps) and an <svg> in a box that scrolls where the screen is narrow,
so that text never gets smaller than 12 pixels. Colours are variables of report.py's style sheet, light and dark; series
also differ in dashes and marks, so that no eye depends on colour alone. All of it is well-formed XML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .numbers import number, tick

WIDTH, HEIGHT = 600, 330  # of a drawing; report.py shows it at 560 pixels or more, where 13 units are 12 pixels
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 14, 46
COLOURS = 8
_GLYPH = 7.2  # width of a character at 13 units, at most

_DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 2", "12 4", "6 2 2 2", "1 2")


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    reference: bool = False  # in gray: somebody else's figure, such as the paper's


def lines(
    title: str,
    series: Sequence[Series],
    x: str = "",
    y: str = "",
    log_x: bool = False,
    log_y: bool = False,
    levels: Sequence[tuple[float, str]] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Points joined by lines. Levels are horizontal lines with a label, marks are vertical ones."""
    return _plot(title, series, x, y, log_x, log_y, levels, marks, joined=True)


def points(
    title: str,
    series: Sequence[Series],
    x: str = "",
    y: str = "",
    log_x: bool = False,
    log_y: bool = False,
    levels: Sequence[tuple[float, str]] = (),
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    return _plot(title, series, x, y, log_x, log_y, levels, marks, joined=False)


def bars(
    title: str,
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    y: str = "",
    log_y: bool = False,
    levels: Sequence[tuple[float, str]] = (),
) -> str:
    """Groups of bars with their values above them; None leaves a gap with a dash."""
    count = len(series)
    bar = max(12.0, min(34.0, (WIDTH - LEFT - RIGHT) / max(1, len(groups) * (count + 0.7))))
    bar = max(bar, 26.0) if count * len(groups) <= 40 else bar
    step = bar * (count + 0.7)
    width = max(WIDTH, LEFT + RIGHT + step * len(groups))
    step = (width - LEFT - RIGHT) / max(1, len(groups))
    room = max(1, int(step / _GLYPH) - 1)
    labels = [_wrap(group, room) for group in groups]
    bottom = 24 + 15 * max((len(label) for label in labels), default=1)
    height = HEIGHT - BOTTOM + bottom
    values = [value for _, row in series for value in row if _drawable(value, log_y)]
    axis = _Axis.over(values + [level for level, _ in levels], log_y, height - bottom, TOP + 8, zero=not log_y)
    out = _frame(axis, width)
    floor = height - bottom
    for group, label in enumerate(labels):
        centre = LEFT + step * (group + 0.5)
        for at, (name, row) in enumerate(series):
            value = row[group] if group < len(row) else None
            left = centre + bar * (at - count / 2)
            if not _drawable(value, log_y):
                out.append(_text(left + bar / 2, floor - 4, "–", "middle"))
                continue
            top = axis.at(value)
            base = axis.at(0) if not log_y and axis.low < 0 else floor
            out.append(
                f'<rect class="bar f{at % COLOURS}" x="{left + 1:.1f}" y="{min(top, base):.1f}" width="{bar - 2:.1f}" '
                f'height="{max(0.5, abs(base - top)):.1f}"><title>{escape(f"{group_name(groups, group)}, {name}: {number(value)}")}'
                f"</title></rect>"
            )
            written = _short(value)
            if bar >= 26 and len(written) * 6.4 <= bar + 6:
                out.append(f'<text class="value" x="{left + bar / 2:.1f}" y="{top - 4:.1f}" text-anchor="middle">{written}</text>')
        for row_number, words in enumerate(label):
            out.append(_text(centre, floor + 17 + 15 * row_number, words, "middle"))
    out += _levels(levels, axis, width)
    out.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{width - RIGHT}" y2="{floor}"/>')
    out.append(_y_label(y, floor))
    return _figure(title, [(name, _swatch(at)) for at, (name, _) in enumerate(series)], out, width, height)


def group_name(groups: Sequence[str], at: int) -> str:
    return groups[at].replace("\n", " ")


def tiles(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[str]],
    x: str = "",
    y: str = "",
    kinds: Sequence[str] = (),
) -> str:
    """A map of which kind rules where. A cell is a kind, or a kind, a blank and what stands below it; "" is left empty."""
    left = 22 + max([len(row) for row in rows] + [3]) * _GLYPH + 8
    longest = max([len(part) for row in cells for cell in row for part in cell.split(" ", 1)] + [4])
    side = max(64.0, longest * _GLYPH + 8)
    width = max(WIDTH, left + RIGHT + side * len(columns))
    side = (width - left - RIGHT) / max(1, len(columns))
    tall = 40
    height = TOP + tall * len(rows) + 46
    out = []
    for down, row in enumerate(rows):
        top = TOP + tall * down
        out.append(_text(left - 8, top + tall / 2 + 5, row, "end"))
        for across, cell in enumerate(cells[down]):
            if not cell:
                continue
            kind, _, more = cell.partition(" ")
            at = list(kinds).index(kind) if kind in kinds else COLOURS - 1
            here = left + side * across
            label = escape(f"{row}, {columns[across]}: {cell}")
            out.append(
                f'<rect class="tile f{at % COLOURS} b{at % COLOURS}" x="{here + 1:.1f}" y="{top + 1}" '
                f'width="{side - 2:.1f}" height="{tall - 2}"><title>{label}</title></rect>'
            )
            middle = here + side / 2
            out.append(_text(middle, top + (tall / 2 - 2 if more else tall / 2 + 5), kind, "middle", "name"))
            if more:
                out.append(_text(middle, top + tall / 2 + 14, more, "middle"))
    floor = TOP + tall * len(rows)
    for across, column in enumerate(columns):
        out.append(_text(left + side * (across + 0.5), floor + 18, column, "middle"))
    out.append(_text((left + width - RIGHT) / 2, floor + 38, x, "middle"))
    if y:
        out.append(f'<text transform="translate(14 {TOP + tall * len(rows) / 2:.1f}) rotate(-90)" text-anchor="middle">{escape(y)}</text>')
    return _figure(title, [(kind, _swatch(at, tile=True)) for at, kind in enumerate(kinds)], out, width, height)


# Below: how a drawing is made.


def _drawable(value: float | None, log: bool) -> bool:
    return value is not None and math.isfinite(value) and (value > 0 or not log)


@dataclass(frozen=True)
class _Axis:
    low: float
    high: float
    log: bool
    start: float  # where low is drawn
    end: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.log else (self.low, self.high)
        here = math.log10(value) if self.log else value
        return self.start + (here - low) / (high - low) * (self.end - self.start)

    @staticmethod
    def over(values: Sequence[float], log: bool, start: float, end: float, zero: bool = False, exact: bool = False) -> _Axis:
        values = [value for value in values if _drawable(value, log)] or [1.0]
        low, high = min(values), max(values)
        if log:
            ticks = _log_ticks(low, high)
            if not exact:
                low, high = min(low, ticks[0]) / 1.08, max(high, ticks[-1]) * 1.08
            elif low == high:
                low, high = low / 2, high * 2
            return _Axis(low, high, True, start, end, tuple(tick for tick in ticks if low <= tick * 1.0001 and tick <= high * 1.0001))
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
        ticks = _linear_ticks(low, high)
        if not exact:
            low, high = min(low, ticks[0]), max(high, ticks[-1])
        return _Axis(low, high, False, start, end, tuple(tick for tick in ticks if low - 1e-12 <= tick <= high * (1 + 1e-12) + 1e-12))


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = min((factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999))
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low) + 1e-9), math.ceil(math.log10(high) - 1e-9)
    last = max(last, first + 1)
    if last - first <= 2:
        inside = [factor * 10.0**power for power in range(first, last + 1) for factor in (1, 2, 5)]
        kept = [tick for tick in inside if low / 2.6 <= tick <= high * 2.6]
        below = [tick for tick in kept if tick <= low * 1.0001]
        above = [tick for tick in kept if tick >= high / 1.0001]
        begin = below[-1] if below else kept[0]
        finish = above[0] if above else kept[-1]
        return [tick for tick in kept if begin <= tick <= finish]
    every = 1 + (last - first) // 8
    return [10.0**power for power in range(first, last + 1, every)]


def _x_axis(values: Sequence[float], log: bool) -> _Axis:
    """With the values themselves as ticks where they are few and apart, as 2, 4, 8 ... workers are."""
    axis = _Axis.over(values, log, LEFT + 10, WIDTH - RIGHT - 10, exact=True)
    own = sorted({value for value in values if _drawable(value, log)})
    if 1 < len(own) <= 9:
        places = [axis.at(value) for value in own]
        room = [_GLYPH * (len(tick(a)) + len(tick(b))) / 2 + 10 for a, b in zip(own, own[1:])]
        if all(right - left >= need for left, right, need in zip(places, places[1:], room)):
            return _Axis(axis.low, axis.high, log, axis.start, axis.end, tuple(own))
    return axis


def _plot(title, series, x, y, log_x, log_y, levels, marks, joined) -> str:
    kept = [
        (at, one, [(a, b) for a, b in one.points if _drawable(a, log_x) and _drawable(b, log_y)])
        for at, one in enumerate(series)
    ]
    floor = HEIGHT - BOTTOM
    vertical = _Axis.over(
        [b for _, _, own in kept for _, b in own] + [level for level, _ in levels], log_y, floor, TOP, zero=False
    )
    if not log_y and 0 < vertical.low < 0.5 * vertical.high:  # near enough to zero to start there
        vertical = _Axis.over(
            [b for _, _, own in kept for _, b in own] + [level for level, _ in levels], log_y, floor, TOP, zero=True
        )
    across = _x_axis([a for _, _, own in kept for a, _ in own] + [mark for mark, _ in marks], log_x)
    out = _frame(vertical, WIDTH)
    for value in across.ticks:
        here = across.at(value)
        out.append(f'<line class="axis" x1="{here:.1f}" y1="{floor}" x2="{here:.1f}" y2="{floor + 5}"/>')
        out.append(_text(here, floor + 20, tick(value), "middle"))
    out.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDTH - RIGHT}" y2="{floor}"/>')
    out += _levels(levels, vertical, WIDTH)
    for mark, label in marks:
        here = across.at(mark)
        out.append(f'<line class="level" x1="{here:.1f}" y1="{TOP}" x2="{here:.1f}" y2="{floor}"/>')
        side = "end" if here > WIDTH * 0.6 else "start"
        out.append(_text(here + (5 if side == "start" else -5), TOP + 12, label, side, "halo"))
    legend = []
    colour = 0
    for _, one, own in kept:
        style = "reference" if one.reference else f"s{colour % COLOURS}"
        mark = 0 if one.reference else colour
        dash = "5 4" if one.dashed or one.reference else _DASHES[colour % len(_DASHES)]
        if not one.reference:
            colour += 1
        if joined and len(own) > 1:
            route = " ".join(f"{across.at(a):.1f},{vertical.at(b):.1f}" for a, b in own)
            out.append(f'<polyline class="series {style}" stroke-dasharray="{dash or "none"}" points="{route}"/>')
        crowded = joined and len(own) > 40
        for a, b in own if not crowded else ():
            told = escape(f"{one.name}: {number(b)} at {number(a)}")
            out.append(_mark(mark, across.at(a), vertical.at(b), style, told))
        legend.append((one.name, _key(mark, style, dash if joined else None, marked=not crowded)))
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x, "middle"))
    out.append(_y_label(y, floor))
    return _figure(title, legend, out, WIDTH, HEIGHT)


def _frame(axis: _Axis, width: float) -> list[str]:
    out = []
    for value in axis.ticks:
        here = axis.at(value)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{here:.1f}" x2="{width - RIGHT:.1f}" y2="{here:.1f}"/>')
        out.append(_text(LEFT - 8, here + 4.5, tick(value), "end"))
    return out


def _levels(levels, axis: _Axis, width: float) -> list[str]:
    out = []
    taken: list[float] = []
    for value, label in levels:
        if not _drawable(value, axis.log):
            continue
        here = axis.at(value)
        out.append(f'<line class="level" x1="{LEFT}" y1="{here:.1f}" x2="{width - RIGHT:.1f}" y2="{here:.1f}"/>')
        above = here - 5 if here > TOP + 16 else here + 15
        while any(abs(above - other) < 14 for other in taken):
            above += 14
        taken.append(above)
        out.append(_text(width - RIGHT - 4, above, label, "end", "halo"))
    return out


def _mark(kind: int, x: float, y: float, style: str, told: str = "") -> str:
    title = f"<title>{told}</title>" if told else ""
    shape = kind % 6
    if shape == 0:
        return f'<circle class="mark {style}" cx="{x:.1f}" cy="{y:.1f}" r="3.4">{title}</circle>'
    path = {
        1: "M-3.2-3.2H3.2V3.2H-3.2Z",
        2: "M0-4.6L4.6 0L0 4.6L-4.6 0Z",
        3: "M0-4.4L4.2 3.2H-4.2Z",
        4: "M-3.6-3.6L3.6 3.6M-3.6 3.6L3.6-3.6",
        5: "M0-4.6V4.6M-4.6 0H4.6",
    }[shape]
    return f'<path class="mark {style}" transform="translate({x:.1f} {y:.1f})" d="{path}">{title}</path>'


def _key(mark: int, style: str, dash: str | None, marked: bool) -> str:
    line = ""
    if dash is not None:
        line = f'<line class="series {style}" stroke-dasharray="{dash or "none"}" x1="1" y1="8" x2="33" y2="8"/>'
    return f'<svg class="key" viewBox="0 0 34 16" width="34" height="16">{line}{_mark(mark, 17, 8, style) if marked else ""}</svg>'


def _swatch(at: int, tile: bool = False) -> str:
    kind = "tile" if tile else "bar"
    return (
        f'<svg class="key" viewBox="0 0 16 16" width="16" height="16">'
        f'<rect class="{kind} f{at % COLOURS} b{at % COLOURS}" x="1" y="2" width="13" height="12"/></svg>'
    )


def _text(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    if not text:
        return ""
    chosen = f' class="{style}"' if style else ""
    return f'<text{chosen} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _y_label(y: str, floor: float) -> str:
    if not y:
        return ""
    return f'<text transform="translate(14 {(TOP + floor) / 2:.1f}) rotate(-90)" text-anchor="middle">{escape(y)}</text>'


def _short(value: float) -> str:
    return tick(float(f"{value:.2g}")) if abs(value) < 100 else tick(round(value))


def _wrap(text: str, room: int) -> list[str]:
    rows: list[str] = []
    for line in text.split("\n"):
        rows.append("")
        for word in line.split():
            if rows[-1] and len(rows[-1]) + 1 + len(word) > room:
                rows.append("")
            rows[-1] = f"{rows[-1]} {word}".strip()
    return rows


def _figure(title: str, legend, drawing: list[str], width: float, height: float) -> str:
    keys = "".join(f'<span class="entry">{key} {escape(name)}</span>' for name, key in legend)
    shown = f'<div class="legend">{keys}</div>' if len(legend) > 1 else ""
    least = round(width * 560 / WIDTH)
    return (
        f'<figure class="chart"><figcaption>{escape(title)}</figcaption>{shown}'
        f'<div class="scroll"><svg class="drawing" role="img" aria-label="{escape(title)}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" style="min-width:{least}px;max-width:{round(width * 1.2)}px">'
        f"{''.join(drawing)}</svg></div></figure>"
    )
