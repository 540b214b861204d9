"""The evaluation's experiments on gradients: what they compute, at tiny size, and that their pages can be made."""

import pathlib
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from evaluate import gradients, paper  # noqa: E402
from evaluate.context import Context  # noqa: E402
from evaluate.experiments import iteration, recovery, training  # noqa: E402
from evaluate.one_process import Team  # noqa: E402

CPU = torch.device("cpu")


def _gradients(workers: int, elements: int = 20_000, density: float = 0.02) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(workers)
    values = torch.randn(workers, elements, generator=draw)
    return list(values * (torch.rand(workers, elements, generator=draw) < density))


@pytest.mark.parametrize("strategy", ["auto", "dense", "packed", "sketch", "split", "gather"])
def test_a_team_sums_as_the_library_does(strategy: str) -> None:
    team = Team(3, CPU, strategy=strategy)
    for _ in range(3):
        arrays = _gradients(3)
        before = [array.clone() for array in arrays]
        outcome = team.sum(arrays)
        assert gradients.count_wrong(before, arrays[0], outcome.report["error_bound"]) == 0
        assert all(torch.equal(arrays[0], array) for array in arrays)
        assert outcome.report["lost"] == 0
        assert outcome.bytes_sent > 0
    if strategy != "auto":
        assert outcome.report["strategy"] == strategy


def test_wrong_sums_are_counted() -> None:
    parts = _gradients(2)
    total = parts[0] + parts[1]
    assert gradients.count_wrong(parts, total, 0) == 0
    total[7] += 1e-3
    assert gradients.count_wrong(parts, total, 0) == 1
    assert gradients.count_wrong(parts, total, 1e-2) == 0
    report = {"error_bound": 0, "strategy": "packed", "lost": 0}
    with pytest.raises(RuntimeError, match="1 of 20,000 elements of a lossless sum"):
        gradients.verify(parts, [total], report)
    total[7] = float("nan")
    assert gradients.count_wrong(parts, total, 1e-2) == 1


def test_every_worker_must_have_the_sum() -> None:
    parts = _gradients(2)
    total = parts[0] + parts[1]
    report = {"error_bound": 0, "strategy": "packed", "lost": 0}
    assert gradients.verify(parts, [total, total.clone()], report) == 0
    other = total.clone()
    other[3] = float("nan")
    with pytest.raises(RuntimeError, match="1 of 40,000"):
        gradients.verify(parts, [total, other], report)
    with pytest.raises(RuntimeError, match="2 items were lost"):
        gradients.verify(parts, [total], {**report, "lost": 2})


def test_small_sketches_estimate_and_large_ones_recover() -> None:
    gradient = _gradients(1, density=0.5)[0]
    small, large = recovery._recover(gradient, 0.1), recovery._recover(gradient, 1.0)
    assert small["recovered_share"] < 0.1
    assert small["mean_relative_error"] > 1
    assert large["recovered_share"] == 1
    assert large["wrong"] == 0
    assert large["l2_error"] < 1e-5
    exact = recovery._recover(gradient, None, "packed")
    assert exact["exact_share"] == 1
    assert exact["mean_relative_error"] == 0


def test_a_fixed_size_is_one_sketch_of_all() -> None:
    gradient = _gradients(1, elements=400_000)[0]
    gradient[:20_000] = 1.5  # dense, and a twentieth of all
    arrays = [gradient.clone(), torch.zeros_like(gradient)]
    chunks = Team(2, CPU, estimate=0.12, strategy="sketch", grain=1, chunk_bytes=1 << 16).sum(arrays)
    assert chunks.report["lost"] > 0
    assert recovery._recover(gradient, 0.12)["lost"] == 0


def test_a_size_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = recovery._recover

    def fail_once(gradient: torch.Tensor, share: float | None, strategy: str = "sketch") -> dict:
        if share == 2.0:
            raise MemoryError("too large")
        return recover(gradient, share, strategy)

    def capture(model: str, device: torch.device, **options) -> gradients.Captured:
        return gradients.Captured(model, False, _gradients(4, 4000), 1, "drawn", 0.1)

    monkeypatch.setattr(recovery, "_recover", fail_once)
    monkeypatch.setattr(gradients, "capture", capture)
    results = recovery.run(Context(quick=True))
    assert results["failed"].count("MemoryError: too large") == 4
    assert all(len(one["sizes"]) > 5 and one["whole"] for one in results["models"].values())
    document = {"results": results}
    assert "one sketch of the whole gradient" in "".join(recovery.section([document]).parts)
    assert len(recovery.summary([document])) == 4


def test_steps_are_fixed_and_accuracies_uncertain() -> None:
    assert [training.steps_for(quick=quick, on_gpu=gpu) for quick in (True, False) for gpu in (True, False)] == [
        30, 60, 50, 150,
    ]  # fmt: skip
    assert training.uncertainty(0.5, 10_000) == pytest.approx(0.0098)


def test_errors_are_over_what_is_not_zero() -> None:
    true = torch.tensor([0.0, 1.0, -2.0, 4.0])
    found = recovery.compare(true, torch.tensor([0.5, 1.0, -1.0, 4.0]))
    assert found["mean_relative_error"] == pytest.approx(0.5 / 3)
    assert found["exact_share"] == pytest.approx(2 / 3)
    assert found["invented"] == 1
    assert found["max_error"] == 1


def test_the_threshold_is_below_nothing_that_was_lost() -> None:
    sizes = [{"share": share, "lost": lost} for share, lost in [(0.5, 3), (0.6, 0), (0.7, 1), (0.8, 0), (0.9, 0)]]
    assert recovery.threshold(sizes) == 0.8
    assert recovery.threshold(sizes[:1]) is None


def test_curves_are_thinned_to_means() -> None:
    assert training.thin([1.0, 3.0]) == [(1, 1.0), (2, 3.0)]
    thinned = training.thin([float(step) for step in range(100)])
    assert len(thinned) <= 40
    assert thinned[-1][0] == 100
    assert thinned[0] == (3, 1.0)


def test_gradients_are_those_of_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASHION_MNIST", str(ROOT / "there is none"))
    for model in ("ncf", "vgg"):
        work, data = gradients.make_workload(model, full=False, batch=4)
        flat, loss = gradients.gradient_of(work, work.model, 0, 1, CPU)
        again, _ = gradients.gradient_of(work, work.model, 0, 1, CPU)
        assert flat.numel() == sum(parameter.numel() for parameter in work.model.parameters())
        assert torch.equal(flat, again)
        assert loss > 0
        assert gradients.share_of_zeros(flat) > 0.01
    assert "drawn images" in data


def _sums(sent: float, codec: float, lost: float = 0.0) -> dict:
    more = {"strategy": "split", "sent_share": sent / 6e8, "busy_s": codec, "rounds": 2, "lost_share": lost}
    return {"bytes_sent": sent, "codec_s": codec, **more}


def _facts() -> dict:
    facts = {"full": True, "parameters": 10**8, "compute_s": 0.01, "sparsity": 0.99}
    lossless = dict.fromkeys(iteration.LINKS, _sums(6e6, 1e-4))
    one = {**facts, "lossless": lossless, "asked": {way: _sums(8e6, 1e-3) for way in iteration.HOMOMORPHIC}}
    return {**one, "fixed": _sums(6e7, 1e-3, 0.5), "switch": _sums(4e6, 1e-3), "switch_fixed": _sums(4e7, 1e-3, 0.5)}


def test_iterations_are_modelled_as_the_sum_of_their_parts() -> None:
    found = iteration.model_iteration(_facts(), _sums(6e6, 1e-4), 4, 100)
    assert found["dense_wire_s"] == pytest.approx(0.048, rel=0.02)  # 600 MB at 12.5 GB/s
    assert found["wire_s"] == pytest.approx(0.00048 + 2 * 6 * 14e-6, rel=0.02)
    assert found["speedup"] == pytest.approx((0.01 + found["dense_wire_s"]) / (0.0101 + found["wire_s"]))
    assert found["overlapped"] == pytest.approx(found["dense_wire_s"] / 0.0101)


def test_one_model_that_fails_is_told_and_the_others_are_shown() -> None:
    saved: list[int] = []

    def measure(model: str) -> dict:
        if model == "lstm":
            raise MemoryError("too large")
        return _facts()

    models = gradients.each_model(paper.MODELS, measure, lambda found: saved.append(len(found)))
    assert models["lstm"] == {"failed": "MemoryError: too large"}
    assert saved == [1, 2, 3, 4]
    documents = [{"results": {"workers": 4, "models": models}}]
    parts = "".join(iteration.section(documents).parts)
    assert "LSTM failed: MemoryError: too large" in parts
    assert "VGG19" in parts
    assert len(iteration.summary(documents)) == 6
