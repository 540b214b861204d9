"""How figures are written: as many digits as a reader can use."""

from __future__ import annotations

import math

_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits, thousands apart, powers of ten where zeros would be counted."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "∞" if value > 0 else "–∞" if value < 0 else "undefined"
    if value == 0:
        return "0"
    size = int(f"{value:.{digits - 1}e}".partition("e")[2])  # of what it is rounded to: 0.9999 is 1.00
    if size < -4 or size > 8:
        mantissa = f"{value / 10**size:.{digits - 1}f}".rstrip("0").rstrip(".")
        power = "10" + str(size).translate(_SUPERSCRIPTS)
        return power if mantissa == "1" else f"{mantissa}·{power}"
    decimals = max(0, digits - 1 - size)
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text and isinstance(value, int) else text


def percent(share: float | None, digits: int = 3) -> str:
    return "–" if share is None else f"{number(100 * share, digits)}%"


def plain(share: float) -> str:
    """A share that was chosen, not measured: 1%, not 1.00%."""
    return f"{100 * share:.6g}%"


def times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{number(ratio)}x"


def rate(bits: float) -> str:
    """Of a link, in bits per second."""
    return f"{bits / 1e9:g} Gbps" if bits >= 1e9 else f"{bits / 1e6:g} Mbps"


def size(count: float | None) -> str:
    """Bytes in decimal units."""
    if count is None:
        return "–"
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= scale:
            return f"{number(count / scale)} {unit}"
    return f"{number(count)} B"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    for unit, scale in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= scale:
            return f"{number(seconds / scale)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def tick(value: float) -> str:
    """As short as an axis wants it."""
    if value == 0:
        return "0"
    exponent = math.log10(abs(value))
    if exponent > 5 - 1e-9 or exponent < -3 - 1e-9:
        power = math.floor(exponent + 1e-9)
        mantissa = f"{value / 10**power:.4g}"
        return ("" if mantissa == "1" else f"{mantissa}·") + "10" + str(power).translate(_SUPERSCRIPTS)
    if abs(value) >= 1e4 and value % 1000 == 0:
        return f"{value / 1000:g}k"
    return f"{value:,.6g}" if abs(value) >= 1e4 else f"{value:.6g}"
