"""Puts the pages where MkDocs finds them, as a site wants them.

    python3 -m scripts.pages.stage FOLDER

README.md becomes the first page. Links to files of the repository that are no pages lead to copies of these files as
text, and those to headers to the page that is made from the comments of include/peel.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from .check import pages
from .headers import api

_SITE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def stage(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree("docs/images", folder / "images")
    for page in pages():
        _write(folder / _place(page), _linked(page, folder))
    _write(folder / "api/python.md", "# Python API\n\n::: peelreduce\n\n## Operators\n\n::: peelreduce.ops\n")
    _write(folder / "api/cpp.md", api(Path("include/peel")))


def _place(page: Path) -> Path:
    """Of a page of the repository, in the site."""
    name = str(page)
    return Path(_SITE[name]) if name in _SITE else page.relative_to("docs")


def _linked(page: Path, folder: Path) -> str:
    here = _place(page).parent

    def moved(match: re.Match) -> str:
        before, target, after = match.groups()
        path, mark, anchor = target.partition("#")
        if not path or re.match(r"[a-z]+:", target):
            return match[0]
        there = Path(os.path.normpath(page.parent / path))
        if there in pages():
            place = _place(there)
        elif there.parts[:2] == ("docs", "images"):
            place = there.relative_to("docs")
        elif there.parts[:2] == ("include", "peel") and there.suffix == ".h":
            place, mark, anchor = Path("api/cpp.md"), "#", f"peel{there.stem}h"
        else:
            place = Path("source") / f"{there}.txt"
            _write(folder / place, there.read_text())
        return f"{before}{os.path.relpath(place, here)}{mark}{anchor}{after}"

    def named(match: re.Match) -> str:  # a link to a folder, which a site does not show
        return match[1] if (page.parent / match[2]).is_dir() else match[0]

    text = re.sub(r"\[([^\]]*)\]\(([^)#\s]+)\)", named, page.read_text())
    text = re.sub(r"(\]\()([^)\s]+)(\))", moved, text)
    return re.sub(r'(<img src=")([^"]+)(")', moved, text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    stage(Path(sys.argv[1]))
