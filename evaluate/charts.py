"""SVG charts that need no script and no other file.

Each is a Drawing, which lines(), bars() and tiles() give as a <figure>: title, legend (HTML, so that it wraps) and an
<svg>. draw_lines() and draw_bars() are for those who put it elsewhere, as the plots of the documentation do. A drawing is as wide as a telephone, and shown
larger where there is room, with text that grows less; one with many bars or tiles is wider, and its box scrolls. Either
way text is never smaller than 12 pixels (report.py has the style sheet). Colours are variables, light and dark; series
also differ in dashes and marks, so that no eye depends on colour alone. All of it is well-formed XML.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from .numbers import number, tick

WIDTH, HEIGHT = 400, 264  # of a drawing
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 28, 42
TEXT = 13.6  # units; on telephones, where a unit is LEAST pixels or more
LEAST = 0.887
COLOURS = 8
_GLYPH = 8.0  # width of a character, about; no font of a system is much wider

_DASHES = ("", "7 4", "2 3", "10 3 2 3", "4 2", "12 4", "6 2 2 2", "1 2")


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[tuple[float, float | None]]
    dashed: bool = False
    reference: bool = False  # in gray: somebody else's figure, such as the paper's


@dataclass(frozen=True)
class Drawing:
    title: str
    legend: Sequence[tuple[str, str]]  # names, each with an <svg> of 16 units in height
    elements: Sequence[str]
    width: float
    height: float

    def figure(self) -> str:
        keys = "".join(f'<span class="entry">{key} {escape(name)}</span>' for name, key in self.legend)
        shown = f'<div class="legend">{keys}</div>' if len(self.legend) > 1 else ""
        return (
            f'<figure class="chart{" wide" if self.width > 1.2 * WIDTH else ""}"><figcaption>{escape(self.title)}'
            f'</figcaption>{shown}<div class="scroll"><svg class="drawing" role="img" aria-label="{escape(self.title)}" '
            f'viewBox="0 0 {self.width:.0f} {self.height:.0f}" style="--units:{self.width:.0f}">'
            f"{''.join(self.elements)}</svg></div></figure>"
        )


def lines(*arguments, **others) -> str:
    """The figure of draw_lines()."""
    return draw_lines(*arguments, **others).figure()


def bars(*arguments, **others) -> str:
    """The figure of draw_bars()."""
    return draw_bars(*arguments, **others).figure()


def draw_lines(
    title: str,
    series: Sequence[Series],
    x: str = "",
    y: str = "",
    log_x: bool = False,
    log_y: bool = False,
    levels: Sequence[tuple[float, str]] = (),
    marks: Sequence[tuple[float, str]] = (),
    top: float | None = None,
) -> Drawing:
    """Points joined by lines. Levels are horizontal lines with a label, marks are vertical ones. What is above `top` is
    cut off."""
    kept = [(one, [(a, b) for a, b in one.points if _drawable(a, log_x) and _drawable(b, log_y)]) for one in series]
    floor = HEIGHT - BOTTOM
    shown = [b if top is None else min(b, top) for _, own in kept for _, b in own] + [level for level, _ in levels]
    vertical = _Axis.over(shown, log_y, floor, TOP)
    if not log_y and 0 < vertical.low < 0.5 * vertical.high:  # near enough to zero to start there
        vertical = _Axis.over(shown, log_y, floor, TOP, zero=True)
    across = _x_axis([a for _, own in kept for a, _ in own] + [mark for mark, _ in marks], log_x)
    out = _frame(vertical, WIDTH)
    for value in across.ticks:
        here = across.at(value)
        out.append(f'<line class="axis" x1="{here:.1f}" y1="{floor}" x2="{here:.1f}" y2="{floor + 5}"/>')
        out.append(_text(here, floor + 18, tick(value), "middle"))
    out.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{WIDTH - RIGHT}" y2="{floor}"/>')
    labels = []  # on top of everything
    legend = []
    busy = []  # where series are
    colour = 0
    for one, own in kept:
        style = "reference" if one.reference else f"s{colour % COLOURS}"
        mark = 0 if one.reference else colour
        dash = "5 4" if one.dashed or one.reference else _DASHES[colour % len(_DASHES)]
        if not one.reference:
            colour += 1
        route = [(across.at(a), vertical.at(b)) for a, b in own]
        busy += _along(route)
        for piece in _below(route, TOP):
            places = " ".join(f"{a:.1f},{b:.1f}" for a, b in piece)
            out.append(f'<polyline class="series {style}" stroke-dasharray="{dash or "none"}" points="{places}"/>')
        crowded = len(own) > 40
        for (a, b), (left, down) in zip(own, route) if not crowded else ():
            if down >= TOP - 0.5:
                out.append(_mark(mark, left, down, style, escape(f"{one.name}: {number(b)} at {number(a)}")))
        legend.append((one.name, _key(mark, style, dash, marked=not crowded)))
    for mark, label in marks:
        here = across.at(mark)
        out.append(f'<line class="level" x1="{here:.1f}" y1="{TOP}" x2="{here:.1f}" y2="{floor}"/>')
        wide = len(label) * _GLYPH
        heights = range(TOP + 12, floor - 6, 16)
        spots = [(here + 5, high, "start") for high in heights if here + 5 + wide < WIDTH]
        spots += [(here - 5, high, "end") for high in heights if here - 5 - wide > LEFT]
        labels.append(_place(label, spots, busy))
    out += _levels(levels, vertical, WIDTH, busy, labels)
    out += labels
    out.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, x, "middle"))
    out.append(_y_label(y))
    return Drawing(title, legend, out, WIDTH, HEIGHT)


def draw_bars(
    title: str,
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float | None]]],
    y: str = "",
    log_y: bool = False,
    levels: Sequence[tuple[float, str]] = (),
    references: Sequence[str] = (),
) -> Drawing:
    """Groups of bars with their values above them; None leaves a gap with a dash. References are drawn in gray: the
    names of series that are somebody else's figures, such as the paper's."""
    count = len(series)
    told = max((len(label) * _GLYPH + 10 for _, label in levels), default=0)  # beside the bars, where no value is
    bar = max(10.0, min(34.0, (WIDTH - LEFT - RIGHT - told) / max(1, len(groups) * (count + 0.7))))
    bar = max(bar, 27.0) if count * len(groups) <= 40 else bar  # wide enough for values
    words = [len(word) for group in groups for word in group.split()]
    step = max(bar * (count + 0.7), max(words, default=0) * _GLYPH + 6)
    width = max(WIDTH, LEFT + RIGHT + told + step * len(groups))
    step = (width - LEFT - RIGHT - told) / max(1, len(groups))
    room = int((step - 4) / _GLYPH)
    labels = [_wrap(group, room) for group in groups]
    bottom = 24 + 15 * max((len(label) for label in labels), default=1)
    height = HEIGHT - BOTTOM + bottom
    drawn = [value for _, row in series for value in row if _drawable(value, log_y)]
    axis = _Axis.over(drawn + [level for level, _ in levels], log_y, height - bottom, TOP + 10, zero=not log_y)
    colours = [COLOURS - 1 if name in references else None for name, _ in series]
    free = iter(range(count))
    colours = [next(free) % COLOURS if colour is None else colour for colour in colours]
    out = _frame(axis, width)
    floor = height - bottom
    busy: list[tuple[float, float]] = []
    values = []  # on top of everything
    for group, label in enumerate(labels):
        centre = LEFT + step * (group + 0.5)
        for at, (name, row) in enumerate(series):
            value = row[group] if group < len(row) else None
            left = centre + bar * (at - count / 2)
            if not _drawable(value, log_y):
                out.append(_text(left + bar / 2, floor - 4, "–", "middle"))
                continue
            top = axis.at(value)
            busy += [(left + bar / 2, top + down) for down in range(-14, max(1, int(floor - top)), 5)]
            base = axis.at(0) if not log_y and axis.low < 0 else floor
            out.append(
                f'<rect class="bar f{colours[at]}" x="{left + 1:.1f}" y="{min(top, base):.1f}" width="{bar - 2:.1f}" '
                f'height="{max(0.5, abs(base - top)):.1f}"><title>{escape(f"{groups[group]}, {name}: {number(value)}")}'
                f"</title></rect>"
            )
            written = _short(value)
            if bar >= 26 and len(written) * 7 <= bar + 6:
                values.append(_text(left + bar / 2, top - 4, written, "middle", "halo"))
        for row_number, words in enumerate(label):
            out.append(_text(centre, floor + 17 + 15 * row_number, words, "middle"))
    out += _levels(levels, axis, width, busy, values) + values
    out.append(f'<line class="axis" x1="{LEFT}" y1="{floor}" x2="{width - RIGHT}" y2="{floor}"/>')
    out.append(_y_label(y))
    return Drawing(title, [(name, _swatch(colour)) for colour, (name, _) in zip(colours, series)], out, width, height)


def tiles(
    title: str,
    columns: Sequence[str],
    rows: Sequence[str],
    cells: Sequence[Sequence[str]],
    x: str = "",
    y: str = "",
    kinds: Sequence[str] = (),
) -> str:
    """A map of which kind rules where. A cell is a kind, or a kind, a blank and what stands below it; "" is empty."""
    left = max([len(row) for row in rows] + [3]) * _GLYPH + 18
    longest = max([len(part) for row in cells for cell in row for part in cell.split(" ", 1)] + [4])
    side = longest * _GLYPH + 4
    width = max(WIDTH, left + RIGHT + side * len(columns))
    side = (width - left - RIGHT) / max(1, len(columns))
    tall = 40
    height = TOP + tall * len(rows) + 42
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
                f'<rect class="tile f{at % COLOURS} b{at % COLOURS}" x="{here + 0.7:.1f}" y="{top + 0.7}" '
                f'width="{side - 1.4:.1f}" height="{tall - 1.4}"><title>{label}</title></rect>'
            )
            middle = here + side / 2
            out.append(_text(middle, top + (tall / 2 - 2 if more else tall / 2 + 5), kind, "middle", "name"))
            if more:
                out.append(_text(middle, top + tall / 2 + 14, more, "middle"))
    floor = TOP + tall * len(rows)
    for across, column in enumerate(columns):
        out.append(_text(left + side * (across + 0.5), floor + 18, column, "middle"))
    out.append(_text((left + width - RIGHT) / 2, floor + 36, x, "middle"))
    out.append(_y_label(y))
    keys = [(kind, _swatch(at, tile=True)) for at, kind in enumerate(kinds)]
    return Drawing(title, keys, out, width, height).figure()


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
    def over(
        values: Sequence[float], log: bool, start: float, end: float, zero: bool = False, exact: bool = False
    ) -> _Axis:
        values = [value for value in values if _drawable(value, log)] or [1.0]
        low, high = min(values), max(values)
        if log:
            if low == high:
                low, high = low / 2, high * 2
            if not exact:
                margin = (high / low) ** 0.04
                low, high = low / margin, high * margin
            return _Axis(low, high, True, start, end, tuple(_log_ticks(low, high)))
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            low, high = low - abs(low or 1) / 2, high + abs(high or 1) / 2
        ticks = _linear_ticks(low, high)
        if not exact:
            low, high = min(low, ticks[0]), max(high, ticks[-1])
        return _Axis(
            low,
            high,
            False,
            start,
            end,
            tuple(tick for tick in ticks if low - 1e-12 <= tick <= high * (1 + 1e-12) + 1e-12),
        )


def _linear_ticks(low: float, high: float) -> list[float]:
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = min(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    return [round(at * step, 12) for at in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Between the two: powers of ten, with 2 and 5 times as much, or 1.2 and so on, where these are too few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    if last - first > 8:
        powers = range(first, last + 1, 1 + (last - first) // 8)
        return [10.0**power for power in powers if low <= 10.0**power <= high]
    for factors in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 7, 8, 9),
    ):
        ticks = [factor * 10.0**power for power in range(first, last + 1) for factor in factors]
        inside = [tick for tick in ticks if low <= tick * (1 + 1e-9) and tick <= high * (1 + 1e-9)]
        if len(inside) >= 4:
            return inside
    return inside or [low, high]


def _x_axis(values: Sequence[float], log: bool) -> _Axis:
    """With the values themselves as ticks where they are few and apart, as 2, 4, 8 ... workers are."""
    axis = _Axis.over(values, log, LEFT + 8, WIDTH - RIGHT - 8, exact=True)
    own = sorted({value for value in values if _drawable(value, log)})
    doubling = log and all(math.log2(value).is_integer() for value in own)
    for every in (1, 2, 3, 4) if doubling else (1,):
        some = own[::every]
        places = [axis.at(value) for value in some]
        room = [_GLYPH * (len(tick(a)) + len(tick(b))) / 2 + 10 for a, b in zip(some, some[1:])]
        if 1 < len(some) <= 9 and all(b - a >= need for a, b, need in zip(places, places[1:], room)):
            return _Axis(axis.low, axis.high, log, axis.start, axis.end, tuple(some))
    ticks = axis.ticks
    widest = max((len(tick(value)) for value in ticks), default=1) * _GLYPH + 8
    while len(ticks) > 2 and min(axis.at(b) - axis.at(a) for a, b in zip(ticks, ticks[1:])) < widest:
        ticks = ticks[::2]
    return _Axis(axis.low, axis.high, log, axis.start, axis.end, ticks)


def _along(route: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Places on a line, close enough that no label slips between them."""
    out = list(route)
    for (a, b), (c, d) in zip(route, route[1:]):
        count = int(max(abs(c - a), abs(d - b)) / 5)
        out += [(a + (c - a) * at / (count + 1), b + (d - b) * at / (count + 1)) for at in range(1, count + 1)]
    return out


def _below(route: Sequence[tuple[float, float]], top: float) -> list[list[tuple[float, float]]]:
    """The pieces of a line that are not above `top`, where the drawing ends."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, (a, b) in enumerate(route):
        if at > 0:
            before, over = route[at - 1], top - 0.5
            if (before[1] < over) != (b < over):
                share = (top - before[1]) / (b - before[1])
                pieces[-1].append((before[0] + (a - before[0]) * share, top))
                if b < over:
                    pieces.append([])
        if b >= top - 0.5:
            pieces[-1].append((a, b))
    return [piece for piece in pieces if len(piece) > 1]


def _place(label: str, spots: Sequence[tuple[float, float, str]], busy: list[tuple[float, float]]) -> str:
    """At the spot that hides least, which is taken from then on."""
    wide = len(label) * _GLYPH

    def box(spot):
        left = {"start": spot[0], "end": spot[0] - wide, "middle": spot[0] - wide / 2}[spot[2]]
        return left, left + wide, spot[1] - 12, spot[1] + 4

    def hidden(spot):
        left, right, high, low = box(spot)
        return sum(left <= a <= right and high <= b <= low for a, b in busy)

    if not spots:
        return ""
    best = min(spots, key=hidden)
    left, right, high, low = box(best)
    busy += [
        (left + (right - left) * at / 20, y)
        for at in range(21)
        for y in (high, (high + low) / 2, low)
        for _ in range(9)
    ]
    return _text(best[0], best[1], label, best[2], "halo")


def _frame(axis: _Axis, width: float) -> list[str]:
    out = []
    for value in axis.ticks:
        here = axis.at(value)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{here:.1f}" x2="{width - RIGHT:.1f}" y2="{here:.1f}"/>')
        out.append(_text(LEFT - 6, here + 4.5, tick(value), "end"))
    return out


def _levels(levels, axis: _Axis, width: float, busy: list[tuple[float, float]], labels: list[str]) -> list[str]:
    """Lines; their labels are added to the others."""
    out = []
    for value, label in levels:
        if not _drawable(value, axis.log):
            continue
        here = axis.at(value)
        out.append(f'<line class="level" x1="{LEFT}" y1="{here:.1f}" x2="{width - RIGHT:.1f}" y2="{here:.1f}"/>')
        heights = [
            high for high in (here - 5, here + 15) if TOP - 4 < high - 10 and high < max(axis.start, axis.end) - 2
        ] or [here - 5]
        middle = [(LEFT + (width - LEFT - RIGHT) * share, "middle") for share in (0.5, 0.35, 0.65)]
        sides = ((width - RIGHT - 4, "end"), (LEFT + 6, "start"), *middle)
        labels.append(_place(label, [(x, high, side) for x, side in sides for high in heights], busy))
    return out


def _mark(kind: int, x: float, y: float, style: str, told: str = "") -> str:
    title = f"<title>{told}</title>" if told else ""
    shape = kind % 6
    if shape == 0:
        return f'<circle class="mark {style}" cx="{x:.1f}" cy="{y:.1f}" r="2.9">{title}</circle>'
    path = {
        1: "M-2.6-2.6H2.6V2.6H-2.6Z",
        2: "M0-3.8L3.8 0L0 3.8L-3.8 0Z",
        3: "M0-3.7L3.4 2.7H-3.4Z",
        4: "M-2.9-2.9L2.9 2.9M-2.9 2.9L2.9-2.9",
        5: "M0-3.7V3.7M-3.7 0H3.7",
    }[shape]
    return f'<path class="mark {style}" transform="translate({x:.1f} {y:.1f})" d="{path}">{title}</path>'


def _key(mark: int, style: str, dash: str, marked: bool) -> str:
    line = f'<line class="series {style}" stroke-dasharray="{dash or "none"}" x1="1" y1="8" x2="33" y2="8"/>'
    drawn = line + (_mark(mark, 17, 8, style) if marked else "")
    return f'<svg class="key" viewBox="0 0 34 16" width="34" height="16">{drawn}</svg>'


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


def _y_label(y: str) -> str:
    return _text(2, 12, y, "start")


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
