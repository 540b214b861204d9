"""What the package tells: statistics, logs, and a profile before anything is switched on."""

import json
import math
import pathlib

import peelreduce
import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers


class Scalars:
    """Takes what a SummaryWriter takes."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.rows.append((tag, scalar_value, global_step))


def _rows(rank: int, step: int) -> torch.Tensor:
    return torch.randint(2000, (50,), generator=torch.Generator().manual_seed(10 * step + rank))


def _train(rank: int, size: int, folder: str, options: dict) -> dict:
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Embedding(2000, 16))
    state = peelreduce.DDPState(**options)
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    scalars = Scalars()
    path = pathlib.Path(folder) / f"{rank}.jsonl"
    loggers = [peelreduce.StepLogger(state, path), peelreduce.StepLogger(state, scalars)]
    for step in range(4):
        model.zero_grad()
        loss = model(_rows(rank, step)).pow(2).sum()
        loss.backward()
        for logger in loggers:
            logger.step(loss=loss.item())
    loggers[0].close()
    gradient = model.module.weight.grad
    return {"stats": state.stats(), "scalars": scalars.rows, "lines": path.read_text(), "gradient": gradient}


def test_logs_say_what_each_step_did(tmp_path: pathlib.Path) -> None:
    results = run_workers(2, _train, str(tmp_path), {})
    stats = results[0]["stats"]
    rows = [json.loads(line) for line in results[0]["lines"].splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert sum(row["bytes_sent"] for row in rows) == stats["bytes_sent"] > 0
    assert stats["bytes_saved"] == stats["dense_bytes"] - stats["bytes_sent"] > 0
    bucket = next(iter(rows[-1]["buckets"].values()))
    both = torch.cat([_rows(0, 3), _rows(1, 3)]).unique().numel()
    assert bucket["density"] == pytest.approx(both / 2000)
    assert bucket["strategy"] in ("split", "gather", "packed")
    tags = {tag for tag, _, _ in results[0]["scalars"]}
    assert {"peelreduce/bytes_sent", "peelreduce/loss", "peelreduce/seconds"} <= tags
    sent = [value for tag, value, _ in results[0]["scalars"] if tag == "peelreduce/bytes_sent"]
    assert sent == [row["bytes_sent"] for row in rows]


def test_estimates_have_a_fixed_size_and_say_what_they_lost(tmp_path: pathlib.Path) -> None:
    small = run_workers(2, _train, str(tmp_path), {"estimate": 0.02})[0]
    large = run_workers(2, _train, str(tmp_path), {"estimate": 0.5})[0]
    exact = run_workers(2, _train, str(tmp_path), {"strategy": "dense"})[0]
    reports = [next(iter(one["stats"]["buckets"].values()))["last"] for one in (small, large)]
    assert reports[0]["strategy"] == reports[1]["strategy"] == "sketch"
    assert reports[0]["lost"] > 0
    assert reports[1]["lost"] == 0
    assert reports[0]["bytes_sent"] < 0.2 * reports[1]["bytes_sent"]
    errors = [(one["gradient"] - exact["gradient"]).norm() / exact["gradient"].norm() for one in (small, large)]
    assert errors[1] < 1e-5 < errors[0]


def test_a_profile_tells_what_is_gained() -> None:
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Embedding(20_000, 64), torch.nn.Linear(64, 8))
    batches = [torch.randint(20_000, (40,)) for _ in range(4)]

    def steps():
        for batch in batches:
            model.zero_grad()
            model(batch).sum().backward()
            yield

    found = peelreduce.profile(model, steps(), bandwidths=["100mbit", "10gbit"], bucket_bytes=1 << 20)
    assert [part.names for part in found.parts] == [["1.bias", "1.weight", "0.weight"]]
    (part,) = found.parts
    own = sum(batch.unique().numel() for batch in batches) / 4
    assert part.density == pytest.approx((own * 64 + 520) / part.elements)
    assert part.union_density == pytest.approx((torch.cat(batches).unique().numel() * 64 + 520) / part.elements)
    assert found.speedup("100mbit") > 10
    assert part.bytes_share["100mbit"] < 0.1
    dense = 2 * 3 / 4 * part.elements * 4 / 12.5e6
    assert math.isclose(found.dense_seconds("100mbit"), dense, rel_tol=0.01)
    assert "faster by" in str(found)


def test_misuse_gets_a_sentence(tmp_path: pathlib.Path) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="yield that often"):
        peelreduce.profile(model, range(4))
    with pytest.raises(ValueError, match='such as "10gbit", not "fast"'):
        peelreduce.profile(model, range(4), bandwidths=["fast"])
    with pytest.raises(ValueError, match="Two workers or more"):
        peelreduce.profile(model, range(4), workers=1)
    with pytest.raises(TypeError, match=r"reads a peelreduce\.DDPState, not str"):
        peelreduce.StepLogger("state", tmp_path / "log")
    with pytest.raises(TypeError, match="a file name or to a SummaryWriter"):
        peelreduce.StepLogger(peelreduce.DDPState(), 7)
    with pytest.raises(ValueError, match="share of a bucket's bytes"):
        peelreduce.DDPState(estimate=0)
    with pytest.raises(ValueError, match="Estimates come from sketches"):
        peelreduce.DDPState(estimate=0.1, strategy="split")
