"""The tools of the documentation: pictures are well-formed and can be read, and bad links and commands are found."""

import json
import os
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.figures import drawings, plots, results  # noqa: E402
from scripts.pages import check, headers, stage  # noqa: E402


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_pictures_are_up_to_date_and_well_formed() -> None:
    pictures = {**plots.all_plots(), **drawings.all_drawings()}
    for name, text in pictures.items():
        assert (ROOT / "docs/images" / name).read_text() == text, f"{name}: run `make plots`"
        root = ElementTree.fromstring(text)
        width, height = (float(root.get(side)) for side in ("width", "height"))
        assert root.find("{http://www.w3.org/2000/svg}title").text
        assert "prefers-color-scheme: dark" in text and "nan" not in text
        for x, y in re.findall(r'<text[^>]* x="([\d.-]+)" y="([\d.-]+)"', text):
            assert 0 <= float(x) <= width and 0 <= float(y) <= height, f"{name}: text at {x}, {y}"


@pytest.mark.parametrize("name", drawings.all_drawings())
def test_text_of_drawings_fits(name: str) -> None:
    text = drawings.all_drawings()[name]
    width = float(ElementTree.fromstring(text).get("width"))
    for x, anchor, told in re.findall(r'<text[^>]* x="([\d.]+)" y="[\d.]+" text-anchor="(\w+)">([^<]*)', text):
        wide = 7.6 * len(told)  # of small pictures, where text is largest
        left = float(x) - {"start": 0, "middle": wide / 2, "end": wide}[anchor]
        assert left >= 0 and left + wide <= width, f"{told!r} does not fit"


@pytest.mark.parametrize("path", sorted((ROOT / "docs/results").glob("*.jsonl")), ids=lambda path: path.stem)
def test_results_say_what_was_measured(path: pathlib.Path) -> None:
    head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert head["kind"] in ("measured", "modelled", "formula") and path.stem.endswith(head["date"])
    assert head["hardware"] and head["commands"] and head["conditions"] and rows


def test_the_newest_result_counts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    head = {"title": "t", "kind": "measured", "hardware": "h", "commands": ["c"], "conditions": "c"}
    for date in ("2026-01-02", "2026-01-10"):
        text = json.dumps({**head, "date": date}) + '\n{"speedup": 2}\n'
        (tmp_path / f"speed-{date}.jsonl").write_text(text)
    (tmp_path / "speed-of-others-2026-02-01.jsonl").write_text("not this one")
    assert results.load("speed").head["date"] == "2026-01-10"
    assert results.find("nothing") is None
    with pytest.raises(SystemExit, match="There is no"):
        results.load("nothing")


@pytest.mark.parametrize("page", ["README.md", "docs/choosing.md"])
def test_tables_of_what_pays_are_what_was_predicted(page: str) -> None:
    rows = re.findall(r"^\| ([\d.]+)% \| (.*) \|$", (ROOT / page).read_text(), re.MULTILINE)
    rates = ("200mbit", "1gbit", "10gbit", "25gbit", "100gbit")
    predicted = results.load("predicted")
    assert len(rows) * len(rates) == len(predicted.rows)
    for density, cells in rows:
        for rate, cell in zip(rates, cells.split(" | "), strict=True):
            (row,) = predicted.where(density=float(density) / 100, bandwidth=rate)
            told = row["speedup"]
            pays = row["strategy"] != "dense" and told >= 1.05
            assert cell == ((f"{told:.0f}x" if told >= 10 else f"{told:.1f}x") if pays else "–")


def test_the_pages_hold() -> None:
    assert check.breaches(check.pages()) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[a](missing.md)", "there is no"),
        ("[a](README.md#no-such-heading)", "no heading for #no-such-heading"),
        ("![a](docs/images/none.svg)", "there is no"),
        ("`peel polish a.npy`", "there is no `peel polish`"),
        ("    peel plan --elements 3 --colour red", "peel plan has no option --colour"),
        ("    mpirun -np 4 peel bench allreduce --colour red", "peel bench allreduce has no option --colour"),
        ("    make coffee   # now", "there is no `make coffee`"),
        ("    sudo bench/network/run --colour red", "bench/network/run has no option --colour"),
        ("`--colour`", "any program has no option --colour"),
        ("see `src/nowhere.cpp`", "there is no src/nowhere.cpp"),
    ],
)
def test_what_does_not_exist_is_named(tmp_path: pathlib.Path, text: str, complaint: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text.replace("](README", f"]({os.path.relpath(ROOT, tmp_path)}/README"))
    (found,) = check.breaches([page])
    assert complaint in found and found.startswith(f"{page}:1: ")


@pytest.mark.parametrize(
    "text",
    [
        "    PEEL_FUZZ_SECONDS=3 scripts/check lint     # fast",
        "    peel encode a.npy && peel merge a.peel -o b.peel",
        "`make demo`, `peel switch status --json -` and `fuzz/corpus/NAME/`",
        "```cpp\npeel polish --colour\n```",
        "[a](https://example.org/#there)",
    ],
)
def test_what_exists_is_no_breach(tmp_path: pathlib.Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    assert check.breaches([page]) == []


def test_every_page_and_header_is_in_the_site(tmp_path: pathlib.Path) -> None:
    stage.stage(tmp_path)
    menu = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(menu) == sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md"))
    page = headers.api(ROOT / "include/peel")
    for header in (ROOT / "include/peel").glob("*.h"):
        assert f"## peel/{header.name}\n" in page
    for page in tmp_path.rglob("*.md"):
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text()):
            assert re.match(r"[a-z]+:", target) or (page.parent / target).exists(), f"{page}: {target}"
