"""The frame of the evaluation: charts and report are well-formed whatever they get, and formulas are the paper's."""

import json
import math
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from evaluate import __main__ as main  # noqa: E402
from evaluate import charts, numbers, paper, report, rig  # noqa: E402
from evaluate.charts import Series  # noqa: E402
from evaluate.context import Context, Unavailable, telling  # noqa: E402
from evaluate.experiments import scaling, size  # noqa: E402

NASTY = 'a < b & "c"'


def tree(html: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<all>{html}</all>")


def frame(experiment: str, results: dict | None = None, **more) -> dict:
    document = {
        "experiment": experiment,
        "schema": 1,
        "quick": True,
        "gpu": False,
        "date": "2026-01-02 03:04 UTC",
        "seconds": 1.5,
        "machine": {"processor": NASTY, "cores": 2, "memory_bytes": 1},
        "versions": {"python": "3"},
        "commands": [NASTY],
        **more,
    }
    return document if results is None else {**document, "results": results}


SERIES = [
    Series(NASTY, [(0.001, 1.0), (0.01, 20.0), (0.1, None), (0.7, 3000.0)]),
    Series("reference", [(0.001, 2.0), (0.7, 2.0)], reference=True),
    Series("empty", []),
    Series("one", [(0.5, 5.0)], dashed=True),
]


@pytest.mark.parametrize("log_x", [False, True])
@pytest.mark.parametrize("log_y", [False, True])
def test_plots_are_well_formed(log_x: bool, log_y: bool) -> None:
    levels, marks = [(1.6, NASTY), (1.7, "close"), (-1.0, "negative")], [(0.1, NASTY)]
    svg = charts.lines(NASTY, SERIES, x="x", y="y", log_x=log_x, log_y=log_y, levels=levels, marks=marks, top=100)
    root = tree(svg)
    assert root.find(".//figcaption").text == NASTY
    assert "nan" not in svg.lower().replace("name", "")


@pytest.mark.parametrize("series", [[], [Series("a", [])], [Series("a", [(1, 1)])], [Series("a", [(0, 0), (1, 0)])]])
def test_plots_of_hardly_anything(series: list[Series]) -> None:
    tree(charts.lines("t", series))
    tree(charts.lines("t", series, log_x=True, log_y=True))


def test_what_is_above_the_top_is_cut_off() -> None:
    svg = charts.lines("t", [Series("a", [(1, 1e6), (2, 1.0), (3, 1e6), (4, 2.0)])], log_y=True, top=10)
    for points in re.findall(r'points="([^"]*)"', svg):
        assert all(float(point.split(",")[1]) >= charts.TOP - 1 for point in points.split())
    assert len(re.findall("<polyline", svg)) == 2


def test_bars_and_tiles_are_well_formed() -> None:
    groups = ["one", NASTY, "a group whose name takes several lines"]
    tree(charts.bars("t", groups, [(NASTY, [1, None, 3.5]), ("b", [0, 2])], y="y", levels=[(1, "one")]))
    tree(charts.bars("t", groups, [("a", [1, 100, None])], log_y=True))
    tree(charts.bars("t", [], []))
    root = tree(
        charts.tiles("t", ["1", "2"], ["x", NASTY], [["split 3%", ""], ["dense", "other"]], kinds=["dense", "split"])
    )
    assert len(root.findall(".//rect[@class='tile f1 b1']")) == 2  # the cell and its key


def test_text_is_never_below_twelve_pixels() -> None:
    style = report.STYLE.read_text()
    shown = [float(share) for share in re.findall(r"min-width: calc\(var\(--units\) \* ([\d.]+)px\)", style)]
    text = [float(units) for units in re.findall(r"svg text { font(?:-size)?: ([\d.]+)px", style)]
    assert shown[0] == charts.LEAST and text[0] == charts.TEXT
    assert len(shown) == len(text) == 2 and all(a * b >= 12 for a, b in zip(shown, text))
    assert charts.LEAST * charts.WIDTH <= 390 - 2 * 1.1 * 16  # a telephone without its margins


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1234.5, "1,234"),
        (0.01234, "0.0123"),
        (None, "–"),
        (1e-7, "10⁻⁷"),
        (2.5e12, "2.5·10¹²"),
        (-3.14159, "-3.14"),
        (0.99999, "1.00"),
    ],
)
def test_numbers(value, text: str) -> None:
    assert numbers.number(value) == text


def test_units() -> None:
    assert numbers.size(1_500_000) == "1.50 MB"
    assert numbers.duration(0.00123) == "1.23 ms"
    assert [numbers.tick(value) for value in (9999, 10_000, 12_345, 30_000)] == ["9999", "10k", "12,345", "30k"]
    assert numbers.percent(0.0354) == "3.54%"
    assert numbers.plain(0.01) == "1%"


def test_tables_align_numbers() -> None:
    root = tree(report.table(["name", "bytes"], [[NASTY, "1.5 MB"], ["`code`", 3]], note=NASTY))
    assert [cell.get("class") for cell in root.findall(".//th")] == [None, "number"]
    assert root.find(".//code").text == "code"


def test_least_size_is_the_papers() -> None:
    assert paper.least_bits(100, 100, 8) == pytest.approx(100 * math.log2(255))
    assert paper.least_bits(2, 1, 1) == pytest.approx(
        2
    )  # H(1/2) = 1, and a value of one bit that is not zero says nothing
    for bits in (4, 8, 16, 32):
        for density in size.DENSITIES:
            count = 2**24
            assert paper.bloom_bits(count, density * count, bits) < paper.SIZE_BOUND * paper.least_bits(
                count, density * count, bits
            )


def test_unions() -> None:
    assert scaling.union_density(8, 0.01, 0.0) == pytest.approx(0.08)
    assert scaling.union_density(8, 0.01, 1.0) == pytest.approx(0.01)
    assert scaling.union_density(2, 0.5, scaling.INDEPENDENT) == pytest.approx(0.75)
    assert scaling.union_density(64, 0.1, 0.0) is None


def test_bytes_of_strategies() -> None:
    index = {"packed": 100.0, "sketch": 130.0, "list": (0.01, 0.02)}
    sent = scaling.sent_bytes(4, 1000, index, own=0.01, union=0.04)
    assert sent["dense"] == 1.5 * 4000
    assert sent["packed"] == 150 and sent["sketch"] == 195
    assert sent["gather"] == pytest.approx(3 * (40 + 10 + 40))
    assert sent["split"] == pytest.approx(0.75 * (10 + 40 + 20 + 160) + 2 * 3 * 40)


def uniform_row(**more) -> dict:
    return {
        "elements": 10_000,
        "type": "float32",
        "nonzeros": 2000,
        "density": 0.2,
        "codec": "packed",
        "cells": "native",
        "index": "bitmap",
        "grain": 1,
        "phase": 0,
        "items": 2000,
        "message_bytes": 9000,
        "index_bytes": 1250,
        "payload_bytes": 7750,
        "dense_bytes": 40_000,
        "lower_bound_bytes": 8000,
        "lost": 0,
        "wrong": 0,
        **more,
    }


def size_results() -> dict:
    rows = [
        uniform_row(type=type_name, codec=codec, index=index)
        for type_name in size.TYPES
        for codec in ("packed", "sketch")
        for index in ("bitmap", "bloom", "list")
    ]
    support = [
        {**uniform_row(codec=codec, index=index), "asked_grain": 1}
        for codec in ("packed", "sketch")
        for index in ("bitmap", "bloom")
    ]
    support += [{**uniform_row(grain=64, message_bytes=7000), "asked_grain": 64}]
    support += [
        {**uniform_row(codec=codec, grain=64, message_bytes=7000), "asked_grain": "auto"}
        for codec in ("packed", "sketch")
    ]
    return {
        "elements": 10_000,
        "densities": [0.2],
        "uniform": rows,
        "supports": [{"model": "ncf", "source": "a test", "rows": support}],
    }


def scaling_results() -> dict:
    overlaps, workers = [0.0, 1.0, scaling.INDEPENDENT], [2, 64]
    measured = [
        {
            "workers": count,
            "overlap": overlap,
            "strategy": name,
            "chosen": "split",
            "grain": 1,
            "index": "bitmap",
            "bytes_sent": 10,
            "dense_bytes": 100,
            "seconds": 0.1,
            "union_elements": 5,
            "items": 5,
            "repaired": 0,
            "rescaled": 0,
            "lost": 0,
            "wrong": 0,
            "repeat": 1,
            "rounds": 2,
            "peel_rounds": 3,
        }
        for overlap in overlaps
        for count in workers
        for name in (*scaling.STRATEGIES, "auto")
    ]
    simulated = [
        {
            "elements": elements,
            "density": density,
            "overlap": overlap,
            "workers": count,
            "union_density": 0.1,
            "message_bytes": {"packed": {"bitmap": 10, "bloom": 8}, "sketch": {"bitmap": 12, "bloom": 9}},
            "bytes_sent": dict.fromkeys(scaling.STRATEGIES, 11.0),
            "wire_s": dict.fromkeys(scaling.STRATEGIES, 1.0),
        }
        for elements in (1000, scaling.SIMULATED_ELEMENTS)
        for density in scaling.SIMULATED_DENSITIES
        for overlap in overlaps
        for count in workers
    ]
    chosen = [
        {"workers": count, "overlap": overlap, "link": link, "chosen": "split", "wrong": 0}
        for overlap in overlaps
        for count in workers
        for link in scaling.CHOOSER_LINKS
    ]
    return {
        "elements": 1000,
        "density": 0.01,
        "workers": workers,
        "overlaps": overlaps,
        "measured": measured,
        "chosen": chosen,
        "grown": [],
        "simulated": simulated,
    }


def test_report_of_tiny_documents(tmp_path: pathlib.Path) -> None:
    documents = {
        "size": frame("size", size_results()),
        "scaling": frame("scaling", scaling_results()),
        "clock": frame("clock", unavailable=f"No namespaces: {NASTY}."),
        "recovery-gpu": frame("recovery", failed="RuntimeError: it broke", gpu=True),
    }
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    page = report.write_report(tmp_path).read_text()
    ElementTree.fromstring(page.split("\n", 1)[1])
    assert "No namespaces" in page and "it broke" in page and "0.875x" in page
    assert not re.search(r"(src|href)=\"(?!#)", page) and "<script" not in page and "@import" not in page


def test_sparsity_of_the_largest_model_stands_beside_the_papers() -> None:
    def results(zeros: float, *, full: bool) -> dict:
        return {"sparsity": {"ncf": zeros}, "models": {"ncf": {"full": full, "parameters": 7, "data": "drawn"}}}

    full, small = frame("recovery", results(0.9876, full=True), gpu=True), frame("recovery", results(0.5, full=False))
    table = report._sparsity([full, small])
    assert "98.8%" in table and "98.9%" in table and "50.0%" not in table
    assert "small model" in report._sparsity([small])


class _Broken:
    NAME = "broken"

    @staticmethod
    def run(context: Context) -> dict:
        context.save({"models": {"ncf": 1}})
        raise RuntimeError("3 elements are wrong")


def test_what_was_saved_before_a_failure_is_kept(tmp_path: pathlib.Path) -> None:
    document = main.perform(_Broken, Context(program=tmp_path / "none"), tmp_path / "broken.json")
    assert document == json.loads((tmp_path / "broken.json").read_text())
    assert document["results"] == {"models": {"ncf": 1}}
    assert main.failures(document) == ["RuntimeError: 3 elements are wrong"]


def test_a_wrong_sum_in_a_part_ends_with_status_1(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(context: Context) -> dict:
        failed: list[str] = []
        with context.part("packed", failed):
            rig.require_right([{"wrong": 1, "lost": 0}])
        return telling({**size_results(), "elements": 10_000}, failed)

    monkeypatch.setattr(size, "run", run)
    monkeypatch.setattr(sys, "argv", ["evaluate", "--only", "size", "--quick", "--out", str(tmp_path)])
    assert main.main() == 1
    page = (tmp_path / "report.html").read_text()
    assert "a part failed" in page and "1 elements of a sum were wrong" in page and "S_min" in page
    monkeypatch.setattr(size, "run", lambda context: size_results())
    assert main.main() == 0


def test_results_of_a_full_run_are_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "size.json"
    path.write_text(json.dumps(frame("size", size_results(), quick=False)))
    before = path.read_text()
    monkeypatch.setattr(size, "run", lambda context: {})
    monkeypatch.setattr(sys, "argv", ["evaluate", "--only", "size", "--quick", "--out", str(tmp_path)])
    assert main.main() == 0 and path.read_text() == before

    def refuse(context: Context) -> dict:
        raise Unavailable("No program.")

    monkeypatch.setattr(size, "run", refuse)
    monkeypatch.setattr(sys, "argv", ["evaluate", "--only", "size", "--out", str(tmp_path)])
    assert main.main() == 0 and path.read_text() == before


def test_documents_of_another_schema_are_told(tmp_path: pathlib.Path) -> None:
    (tmp_path / "size.json").write_text(json.dumps(frame("size", {"other": 1}, schema=99)))
    assert "is of schema 99" in report.write_report(tmp_path).read_text()


def test_warnings_and_rates_of_tools_are_shown(tmp_path: pathlib.Path) -> None:
    context = Context()
    says = "run: 7 packets were dropped; 2 hosts at 200 mbit: links carry 199.0 to 200.1 each way; noise"
    context.command(["sh", "-c", "for line; do echo $line >&2; done", "sh", *says.split("; ")])
    assert context.remarks == says.split("; ")[:2]
    document = frame("size", size_results(), commands=[], remarks=context.remarks)
    (tmp_path / "size.json").write_text(json.dumps(document))
    page = report.write_report(tmp_path).read_text()
    assert "a tool warned" in page and "# 2 hosts at 200 mbit" in page and "scripts/evaluate --quick --only size" in page


def test_no_command_waits_without_bound() -> None:
    with pytest.raises(RuntimeError, match="did not end within 0.2 s: half"):
        Context().command(["sh", "-c", "echo half >&2; sleep 60 & wait"], timeout=0.2)


def test_a_part_that_failed_is_found() -> None:
    assert main.failures({"results": {"runs": [{"kind": "top-k"}, {"failed": "it broke"}]}}) == ["it broke"]
    assert main.failures({"results": {"nccl": {"records": [], "failed": "4 workers: wrong"}}}) == ["4 workers: wrong"]
    assert main.failures({"results": {"models": {"ncf": {"wrong": 0}}}}) == []


def test_a_report_takes_no_other_package(tmp_path: pathlib.Path) -> None:
    (tmp_path / "size.json").write_text(json.dumps(frame("size", size_results())))
    blocked = "import sys; sys.modules.update(numpy=None, torch=None, peelreduce=None); import runpy; "
    code = (
        blocked
        + f"sys.argv = ['evaluate', '--report-only', '--out', {str(tmp_path)!r}]; "
        + "runpy.run_module('evaluate', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report.html").exists()


def test_commands_are_noted_as_a_reader_types_them(tmp_path: pathlib.Path) -> None:
    context = Context(out=tmp_path, program=pathlib.Path("/bin/echo"))
    files = ",".join(f"{tmp_path}/w{at}.npy" for at in range(9))
    assert context.peel("bench", f"npy:{files}").startswith("bench npy:")
    assert context.commands == ["peel bench npy:OUT/w0.npy,...,OUT/w8.npy"]
    with pytest.raises(RuntimeError, match="exit status 1"):
        context.command(["false"])
    with pytest.raises(Unavailable):
        Context(program=tmp_path / "peel").peel("plan")
