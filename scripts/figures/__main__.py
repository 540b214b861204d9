"""Writes every picture, or compares it with the one that is there."""

import sys
from pathlib import Path

from . import drawings, plots

IMAGES = Path("docs/images")


def main() -> int:
    pictures = {**plots.all_plots(), **drawings.all_drawings()}
    if sys.argv[1:] == ["--check"]:
        old = [name for name, text in pictures.items() if not _same(IMAGES / name, text)]
        old += [path.name for path in sorted(IMAGES.glob("*.svg")) if path.name not in pictures]
        for name in old:
            print(f"{IMAGES / name} is not what docs/results and scripts/figures make of it; run `make plots`.")
        return 1 if old else 0
    if sys.argv[1:]:
        print("usage: scripts/plots [--check]", file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    for name, text in pictures.items():
        (IMAGES / name).write_text(text)
        print(IMAGES / name)
    return 0


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
