"""Gradients of the four models of the paper: what several workers would sum, from the models in examples/.

    captured = capture("vgg", torch.device("cuda"), full=True, steps=150)
    captured.gradients          # of four workers: different batches at the same weights, flat float32 tensors

Models are trained for some steps first, by one worker, since gradients at random weights have other zeros. What was
captured is kept, so that experiments of one run share it. Images are those of Fashion-MNIST where it is found: in the
folder that the environment variable FASHION_MNIST names, or else where the package dataset-fashion-mnist puts them.
"""

from __future__ import annotations

import importlib
import os
import pathlib
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
WORKERS = 4
_WARM_UP = 3  # steps whose times do not count
_SLICE = 1 << 25  # elements that are looked at at once, so that temporaries stay small


@dataclass
class Captured:
    """Gradients of one model, and what a step takes on one worker."""

    model: str
    full: bool
    gradients: list[torch.Tensor]
    steps: int  # of training before
    data: str  # what it was trained with
    compute_s: float  # forward, backward and optimizer: median of the steps

    @property
    def elements(self) -> int:
        return self.gradients[0].numel()

    def facts(self) -> dict[str, Any]:
        """For a document."""
        union = 0
        for parts in slices(*self.gradients):
            union += int(torch.stack([part != 0 for part in parts]).any(0).sum())
        zeros = [share_of_zeros(gradient) for gradient in self.gradients]
        return {
            "full": self.full,
            "parameters": self.elements,
            "steps": self.steps,
            "data": self.data,
            "compute_s": self.compute_s,
            "sparsity": statistics.mean(zeros),
            "union_density": union / self.elements,
        }


def capture(model: str, device: torch.device, *, full: bool, steps: int, workers: int = WORKERS) -> Captured:
    key = (model, str(device), full, steps, workers)
    if key not in _captured:
        _captured[key] = _capture(model, device, full, steps, workers)
    return _captured[key]


_captured: dict[tuple, Captured] = {}


def steps_before(model: str, *, quick: bool) -> int:
    """The zeros of VGG come with training, those of the others from what a batch does not touch."""
    if model == "vgg":
        return 40 if quick else 150
    return 12 if quick else 25


def _capture(model: str, device: torch.device, full: bool, steps: int, workers: int) -> Captured:
    torch.manual_seed(0)
    work, data = make_workload(model, full=full)
    network = work.model.to(device).train()
    optimizer = work.make_optimizer(network.parameters())
    times = []
    for step in range(steps):
        batch = [part.to(device) for part in work.draw_batch(step, 0)]
        wait(device)
        begin = time.perf_counter()
        optimizer.zero_grad()
        work.loss_of(network, *batch).backward()
        optimizer.step()
        wait(device)
        times.append(time.perf_counter() - begin)
    del optimizer
    gradients = [gradient_of(work, network, steps, rank, device)[0] for rank in range(workers)]
    if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients):
        raise RuntimeError(f"after {steps} steps the gradient is not finite; train with a smaller learning rate.")
    compute = statistics.median(times[_WARM_UP:] or times)
    return Captured(model, full, gradients, steps, data, compute)


def gradient_of(work: Any, network: torch.nn.Module, step: int, rank: int, device: torch.device) -> tuple[Any, Any]:
    """Of one worker's batch, flat, and the loss; units drop out by step and rank, whoever asks."""
    network.zero_grad(set_to_none=True)
    batch = [part.to(device) for part in work.draw_batch(step, rank)]
    torch.manual_seed(step * 1000 + rank)
    loss = work.loss_of(network, *batch)
    loss.backward()
    with torch.no_grad():
        flat = torch.cat([parameter.grad.flatten() for parameter in network.parameters()])
    network.zero_grad(set_to_none=True)
    return flat, loss.detach()


def make_workload(model: str, *, full: bool, batch: int | None = None) -> tuple[Any, str]:
    """The workload of an example, and a word on its data."""
    if model != "vgg":
        return example(model).make_workload(full=full, batch=batch), "drawn, by Zipf's law"
    images, labels, data = read_images("train")
    return example("vgg").make_workload(images, labels, full=full, batch=batch), data


def read_images(part: str) -> tuple[torch.Tensor, torch.Tensor, str]:
    """Images and classes, and where they are from. `part` is train or t10k."""
    vgg = example("vgg")
    folder = pathlib.Path(os.environ.get("FASHION_MNIST") or vgg.PACKAGE)
    try:
        return *vgg.read_images(folder, part), "Fashion-MNIST"
    except OSError:
        return *draw_images(6000 if part == "train" else 1000, part), "drawn images, since Fashion-MNIST was not found"


def draw_images(count: int, part: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten shapes, each somewhere and under noise."""
    draw = torch.Generator().manual_seed(0 if part == "train" else 1)
    shapes = torch.nn.functional.interpolate(
        torch.rand(10, 1, 5, 5, generator=torch.Generator().manual_seed(2)), size=(20, 20), mode="bilinear"
    )[:, 0]
    labels = torch.randint(10, (count,), generator=draw)
    images = 0.3 * torch.rand(count, 28, 28, generator=draw)
    for image, label, place in zip(images, labels, torch.randint(8, (count, 2), generator=draw).tolist(), strict=True):
        image[place[0] :, place[1] :][:20, :20] += 0.7 * shapes[label]
    return (255 * images.clamp(0, 1)).to(torch.uint8), labels


def example(name: str) -> Any:
    """A module of examples/, which import each other by their bare names."""
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    return importlib.import_module(name)


def share_of_zeros(gradient: torch.Tensor) -> float:
    return 1 - int(torch.count_nonzero(gradient)) / gradient.numel()


def slices(*arrays: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """The same part of all arrays, one part after another."""
    return zip(*(array.split(_SLICE) for array in arrays), strict=True)


def count_wrong(addends: list[torch.Tensor], total: torch.Tensor, error_bound: float) -> int:
    """Elements of a sum that is said to be lossless which are farther from it than any order of additions in float32
    makes them, and than `error_bound`, that of fixed-point numbers. NaN is wrong."""
    epsilon = torch.finfo(torch.float32).eps
    wrong = 0
    for got, *parts in slices(total, *addends):
        exact = parts[0] + parts[1] if len(parts) == 2 else sum(part.double() for part in parts)  # two: half a unit off
        magnitude = sum(part.abs() for part in parts)
        wrong += int((~((got - exact).abs() <= error_bound + len(parts) * epsilon * magnitude)).sum())
    return wrong


def verify(addends: list[torch.Tensor], totals: list[torch.Tensor], report: dict[str, Any]) -> int:
    """How many elements of a lossless sum are wrong, on all workers: 0, since any other number is an error."""
    wrong = count_wrong(addends, totals[0], report["error_bound"])
    for total in totals[1:]:  # all get the same bits
        wrong += int((total != totals[0]).sum())
    if wrong or report["lost"]:
        of = f"{len(totals) * totals[0].numel():,} elements of a lossless sum ({report['strategy']}) on all workers"
        raise RuntimeError(f"{wrong:,} of {of} are wrong, and {report['lost']:,} items were lost.")
    return wrong


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def each_model(
    models: tuple[str, ...], measure: Callable[[str], dict], save: Callable[[dict], object]
) -> dict[str, dict]:
    """What was measured of each, or a sentence where it failed: the others are measured all the same. All that there is
    so far is saved after each."""
    found = {}
    for model in models:
        try:
            found[model] = measure(model)
        except Exception as error:  # noqa: BLE001: whatever it was, the report says so
            traceback.print_exc()
            found[model] = {"failed": f"{type(error).__name__}: {error}"}
        save(found)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return found
