"""The examples, in small size: with two workers they train bit by bit as with plain DDP."""

import json
import pathlib

import pytest
from workers import run_script

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")
STEPS = 3

pytestmark = pytest.mark.slow

needs_images = pytest.mark.skipif(
    not FASHION_MNIST.is_dir(), reason="there is no Fashion-MNIST; install the package dataset-fashion-mnist"
)


def _losses(folder: pathlib.Path, name: str, *arguments: str) -> tuple[list[float], str]:
    """Of rank 0, and what it printed."""
    log = folder / "losses.jsonl"
    shared = ("--steps", str(STEPS), "--batch", "8", "--losses", str(log))
    printed, other = run_script(2, EXAMPLES / f"{name}.py", *shared, *arguments)
    assert other == ""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(STEPS))
    assert all(line["seconds"] > 0 for line in lines)
    for line in lines:
        assert f"step {line['step']}: loss {line['loss']:.6f}" in printed
    assert "million parameters" in printed
    return [line["loss"] for line in lines], printed


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("ncf", []),
        ("lstm", []),
        ("lstm", ["--sparse"]),
        pytest.param("vgg", [], marks=needs_images),
        ("bert", []),
    ],
)
def test_losses_are_those_of_plain_ddp(name: str, arguments: list[str], tmp_path: pathlib.Path) -> None:
    expected, printed = _losses(tmp_path, name, "--reduce", "ddp", *arguments)
    assert len(set(expected)) == STEPS
    assert "of what dense sums send" not in printed
    for strategy in ("auto", "split"):
        got, printed = _losses(tmp_path, name, "--strategy", strategy, *arguments)
        assert got == expected
        assert "of what dense sums send" in printed


def test_sending_nothing_is_no_training_together(tmp_path: pathlib.Path) -> None:
    together, _ = _losses(tmp_path, "ncf")
    alone, _ = _losses(tmp_path, "ncf", "--reduce", "nothing")
    assert alone[0] == together[0]
    assert alone[1:] != together[1:]


def test_without_images_the_error_says_what_to_do(tmp_path: pathlib.Path) -> None:
    with pytest.raises(AssertionError, match="SystemExit: .*; install the package .*, or give the folder"):
        run_script(1, EXAMPLES / "vgg.py", "--data", str(tmp_path))
