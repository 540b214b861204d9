"""The pure functions of the experiments on networks, and their sections from documents as runs leave them."""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from evaluate import rig, wire_model  # noqa: E402
from evaluate.context import Context, Unavailable  # noqa: E402
from evaluate.experiments import clock, throughput  # noqa: E402

ALL_REDUCE = {
    "transport": "mpi", "workers": 4, "elements": 1 << 20, "type": "float32", "density": 0.05, "strategy": "packed",
    "chosen": "packed", "seconds": 0.02, "baseline": "mpi-ring", "baseline_seconds": 0.2, "speedup": 10.0,
    "bytes_sent": 600_000, "dense_bytes": 6_000_000, "rounds": 2, "encode_s": 0.001, "wire_s": 0.018, "decode_s": 0.001,
    "lost": 0, "wrong": 0, "summed": 1 << 22, "repeat": 3, "rate_bits": 2e8,
}  # fmt: skip
CODEC = {
    "codec": "sketch", "cells": "fixed32", "index": "bitmap", "density": 0.05, "elements": 1 << 20, "backend": "cpu",
    "gpu": None, "threads": 1, "encode_s": 0.001, "decode_s": 0.003, "memcpy_s": 0.0004, "message_bytes": 400_000,
    "dense_bytes": 4 << 20, "rounds": 7, "items": 52_000, "lost": 0, "wrong": 0, "mean_relative_error": None,
}  # fmt: skip


def test_bytes_and_steps_of_the_wire() -> None:
    assert wire_model.bytes_over_link(100, "sum", 2) == 100
    assert wire_model.bytes_over_link(100, "sum", 4) == 150
    assert wire_model.bytes_over_link(100, "switch", 64) == 100
    assert [wire_model.steps(name, 4) for name in ("sum", "switch")] == [6, 2]


def test_seconds_of_the_wire() -> None:
    second = 1e9 / 8 * wire_model.CARRIED  # bytes that 1 Gbps carries
    assert wire_model.wire_seconds(second, "switch", 4, 1) == pytest.approx(1, abs=1e-4)
    assert wire_model.wire_seconds(0, "sum", 4, 1) == 6 * wire_model.NETWORK_LATENCY
    assert wire_model.wire_seconds(1e9, "sum", 1, 1) == 0
    once = wire_model.exchange_seconds(second, 1, workers=4, gbps=1)
    assert once == pytest.approx(1, abs=1e-4)
    assert wire_model.exchange_seconds(second, 3, workers=4, gbps=1) == once + 12 * wire_model.NETWORK_LATENCY
    assert wire_model.exchange_seconds(1.5 * second, 1, workers=4, gbps=1, switch=True) == pytest.approx(1, abs=1e-4)


def test_the_model_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="operation 'broadcast'"):
        wire_model.wire_seconds(1, "broadcast", 2, 1)
    with pytest.raises(ValueError, match="rate above 0"):
        wire_model.wire_seconds(1, "sum", 2, 0)


def test_densities_grow_with_sizes() -> None:
    for codec in ("packed", "sketch"):
        densities = [throughput.density_for(size, codec) for size in throughput.SIZES]
        assert densities == sorted(densities)
        assert 0 < densities[0] < densities[-1] <= 1
    assert throughput.density_for(1, "packed") == 1 - 1 / 32


def test_gbps_count_one_gradient() -> None:
    assert throughput.gbps(10**9, 32) == 1
    assert throughput.codec_record("lossless", CODEC)["gbps"] == pytest.approx((1 << 20) * 32 / 0.004 / 1e9)


def test_wrong_results_are_no_results() -> None:
    with pytest.raises(RuntimeError, match="3 decoded elements"):
        throughput.codec_record("lossless", {**CODEC, "wrong": 3})
    assert throughput.codec_record("fixed", {**CODEC, "lost": 7})["lost"] == 7
    with pytest.raises(RuntimeError, match="2 items lost"):
        rig.require_right([{**ALL_REDUCE, "lost": 2}])


def test_wrong_sums_over_nccl_fail_and_absent_ones_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def bench(context: Context, workers: int) -> list[dict]:
        if workers == 2:
            raise Unavailable("no NCCL")
        rig.require_right([{**ALL_REDUCE, "wrong": 1}])
        return []

    monkeypatch.setattr(throughput, "_bench_nccl", bench)
    found = throughput.measure_nccl(Context(quick=True, gpu=True))
    assert found["missing"] == ["2 workers: no NCCL"]
    assert "1 elements of a sum were wrong" in found["failed"]
    assert "Failed over NCCL" in "".join(throughput.section([{"results": {"nccl": found}}]).parts)


def test_the_model_beside_a_measurement() -> None:
    record = throughput.modelled(ALL_REDUCE)
    assert record["bytes"] == pytest.approx(400_000)
    assert record["modelled"] == pytest.approx(600_000 * 8 / 2e8, rel=0.02)
    assert record["error"] == pytest.approx(record["modelled"] / 0.02 - 1)


def test_losses_are_compared_bit_by_bit() -> None:
    one = {"model": "ncf", "workers": 2, "rate": "200mbit", "sent": None}
    plain = {**one, "variant": "DDP", "losses": [2.0, 1.0, 0.5], "seconds": [4.0, 2.0, 2.0]}
    other = {**one, "variant": "sketch", "losses": [2.0, 1.0, 0.55], "seconds": [2.0, 1.0, 1.0], "sent": 0.1}
    clock.compare([other, plain])
    assert other["equal_steps"] == 2
    assert other["largest_difference"] == pytest.approx(0.1)
    assert other["speedup"] == other["whole_speedup"] == 2
    assert clock.over_time(other) == [(2.0, 2.0), (3.0, 1.0), (4.0, 0.55)]
    _assert_well_formed(clock.section([{"results": {"runs": [plain, other]}}]).parts)
    through = {**other, "variant": "switch"}
    assert [row.ours for row in clock.summary([{"results": {"runs": [plain, other, through]}}])] == ["2.00x"]
    assert clock.sent_share("sent 3.50% of what dense sums send\n") == pytest.approx(0.035)
    assert clock.sent_share("") is None


def test_losses_that_must_be_equal_and_are_not_are_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(context: Context, model: str, workers: int, steps: int, variant: str) -> dict:
        if (model, variant) in (("lstm", "DDP"), ("bert", "sketch")):
            raise RuntimeError("links are slow")
        losses = [1.0, 0.5 if (model, variant) == ("vgg", "packed") else 0.6]
        return {"model": model, "workers": workers, "rate": "200mbit", "variant": variant, "losses": losses,
                "seconds": [1.0, 1.0], "sent": None}  # fmt: skip

    monkeypatch.setattr(rig, "refuse_without_network", lambda *_: None)
    monkeypatch.setattr(clock, "train", train)
    results = clock.run(Context(quick=True))
    assert len(results["runs"]) == 14  # all that was measured is kept
    assert "vgg, packed: losses of 1 steps are wrong" in results["failed"]
    assert "lstm, 2 workers, DDP: RuntimeError: links are slow" in results["failed"]
    _assert_well_formed(clock.section([{"results": results}]).parts)
    assert len(clock.summary([{"results": results}])) == 3


def test_a_part_of_throughput_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def all_reduce(context: Context, workers: int, rate: str, transport: str, **options) -> list[dict]:
        if transport == "mpi":
            raise RuntimeError("3 elements of a sum were wrong")
        return [{**ALL_REDUCE, "transport": transport, "workers": workers}]

    monkeypatch.setattr(rig, "refuse_without_network", lambda *_: None)
    monkeypatch.setattr(rig, "all_reduce", all_reduce)
    monkeypatch.setattr(Context, "measure", lambda self, *words: [CODEC])
    results = throughput.run(Context(quick=True))
    assert len(results["codec"]) == 3 and results["network"]["switch"] and results["model"]
    assert results["failed"].count("3 elements of a sum were wrong") == 3
    _assert_well_formed(throughput.section([{"gpu": False, "results": results}]).parts)


def test_section_of_throughput() -> None:
    records = [throughput.reduced(ALL_REDUCE, over_dense_switch=7.0)]
    through = [{**records[0], "workers": 2, "transport": "switch"}]
    cpu = {"codec": [throughput.codec_record("lossless", CODEC)], "model": [throughput.modelled(ALL_REDUCE)],
           "network": {"mpi": records, "switch": through}}  # fmt: skip
    gpu = {"codec": cpu["codec"], "nccl": {"records": records, "missing": ["3 workers were not begun."]}}
    documents = [{"gpu": False, "results": cpu}, {"gpu": True, "results": gpu}]
    _assert_well_formed(throughput.section(documents).parts)
    assert [row.kind for row in throughput.summary(documents)] == ["measured"] * 4
    sketches = [{**records[0], "strategy": "sketch", "size": share, "speedup": 0.5 / share} for share in (0.08, 0.12, 0.9)]
    rows = throughput.summary([{"gpu": True, "results": {"nccl": {"records": sketches, "missing": []}}}])
    assert [(row.paper, row.ours) for row in rows[1:]] == [("in a chart only", "4.17x"), ("60%", "12.0%")]
    missing = [{"results": {"codec": [], "network": {"unavailable": "No root."}}}, {"unavailable": "No GPU."}]
    assert "No root." in throughput.section(missing).parts[-1]
    assert throughput.summary(missing) == []


def _assert_well_formed(parts: list[str]) -> None:
    for part in parts:
        ElementTree.fromstring(f"<div>{part}</div>")
