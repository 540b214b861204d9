"""Sparsifiers: what is selected, and that the rest is not lost."""

import peelreduce
import pytest
import torch
from peelreduce.sparsifiers import Sparsifier
from torch.nn.parallel import DistributedDataParallel
from workers import run_workers


@pytest.mark.parametrize("sparsifier", [peelreduce.TopK(0.05), peelreduce.Threshold(1.5)])
def test_what_is_not_sent_waits(sparsifier: Sparsifier) -> None:
    draw = torch.Generator().manual_seed(1)
    memory: dict[str, torch.Tensor] = {}
    gone, came = torch.zeros(1000), torch.zeros(1000)
    for _ in range(20):
        gradient = torch.randint(-3, 4, (1000,), generator=draw).float() / 2  # sums are exact
        came += gradient
        sparsifier.apply(gradient, memory)
        gone += gradient
    assert gone.count_nonzero() > 0
    assert torch.equal(gone + memory["waiting"], came)


def test_top_k_takes_the_largest() -> None:
    gradient = torch.arange(-50.0, 50.0) + 0.25  # no two of one magnitude
    peelreduce.TopK(0.1).apply(gradient, {})
    assert gradient.nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 95, 96, 97, 98, 99]


def test_momentum_is_corrected() -> None:
    """As in the paper: u = m u + g, v = v + u; both are cleared where v is sent."""
    sparsifier = peelreduce.Threshold(2.5, momentum=0.5)
    memory: dict[str, torch.Tensor] = {}
    sent = []
    for _ in range(3):
        gradient = torch.tensor([1.0])
        sparsifier.apply(gradient, memory)
        sent.append(gradient.item())
    assert sent == [0.0, 2.5, 0.0]  # u: 1, 1.5, then 1 again; v: 1, 2.5, then 1
    assert memory["waiting"].item() == 1.0


def test_values_that_are_not_finite_are_sent() -> None:
    gradient = torch.tensor([0.1, float("nan"), float("inf"), 3.0])
    memory: dict[str, torch.Tensor] = {}
    peelreduce.Threshold(1.0).apply(gradient, memory)
    assert torch.isnan(gradient[1])
    assert gradient[2] == float("inf")
    assert gradient[0] == 0
    assert torch.isfinite(memory["waiting"]).all()


def test_nonsense_is_refused() -> None:
    for share in (0, -1, 1.5):
        with pytest.raises(ValueError, match="share must be"):
            peelreduce.TopK(share)
    with pytest.raises(ValueError, match="magnitude must be above 0"):
        peelreduce.Threshold(0)
    with pytest.raises(ValueError, match="momentum must be"):
        peelreduce.TopK(0.1, momentum=1)


def _train(rank: int, size: int) -> tuple:
    torch.manual_seed(5)
    model = DistributedDataParallel(torch.nn.Linear(400, 50))
    state = peelreduce.DDPState(sparsifier=peelreduce.TopK(0.02))
    model.register_comm_hook(state, peelreduce.allreduce_hook)
    losses = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(64, 400, generator=torch.Generator().manual_seed(rank))
    for _ in range(30):
        optimizer.zero_grad()
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    saved = state.state_dict()
    assert saved["sparsifier"]
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()]), state.stats()


def test_a_dense_model_is_trained_with_few_bytes() -> None:
    (losses, first, stats), (_, second, _) = run_workers(2, _train)
    assert torch.equal(first, second)
    assert losses[-1] < 0.9 * losses[0]
    assert stats["bytes_sent"] < 0.2 * stats["dense_bytes"]
