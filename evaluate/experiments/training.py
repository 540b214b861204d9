"""Experiment 3: training with sketches that are too small, against lossless sums and top-k of the same size.

As in 4.1.1 of the paper, with VGG on Fashion-MNIST: gradients of four workers are summed through the library at several
fixed sizes, where what does not peel is estimated; losslessly; and after each worker has selected its largest values,
with and without error feedback. All begin with the same weights and see the same batches.
"""

from __future__ import annotations

import math

from .. import paper
from ..charts import Series, bars, lines
from ..numbers import number, percent, plain
from ..report import Section, SummaryRow, prose, table

NAME = "training"
TITLE = "Training at fixed sizes"
GPU = None

WORKERS = 4
SHARES = (0.02, 0.1, 0.5)
VGG11 = [[64], [128], [256] * 2, [512] * 2, [512] * 2]  # on a GPU, at 32 x 32
ESTIMATE, TOP_K, FEEDBACK, LOSSLESS = "estimates", "top-k", "top-k with error feedback", "lossless"
_POINTS = 40  # of a curve, at most
_DIVERGED = 100.0  # a loss above it will not come down again in the steps there are


def variants(*, quick: bool) -> list[tuple[str, float | None]]:
    """What is compared. Top-k sends as many values as the sketch has cells, and both have an index beside them."""
    if quick:
        return [(LOSSLESS, None), (ESTIMATE, 0.1), (TOP_K, 0.1), (FEEDBACK, 0.1), (ESTIMATE, 0.02)]
    chosen: list[tuple[str, float | None]] = [(LOSSLESS, None)]
    chosen += [(kind, share) for share in SHARES for kind in (ESTIMATE, TOP_K, FEEDBACK)]
    return [*chosen, (ESTIMATE, 1.2)]


def steps_for(*, quick: bool, on_gpu: bool) -> int:
    """The same on every machine, so that runs compare. Eleven runs of 50 took 107 s on an H200, five of 60 took 80 s on
    two cores."""
    if on_gpu:
        return 30 if quick else 50
    return 60 if quick else 150


def run(context) -> dict:
    import torch

    device = torch.device(context.device)
    compared = variants(quick=context.quick)
    course = _Course(device, full=context.device == "cuda", quick=context.quick)
    steps = steps_for(quick=context.quick, on_gpu=context.device == "cuda")
    context.say(f"{course.elements:,} parameters, {len(compared)} runs of {steps} steps")
    runs: list[dict] = []
    results = {
        "model": course.name,
        "data": course.data,
        "parameters": course.elements,
        "workers": WORKERS,
        "batch": course.batch,
        "steps": steps,
        "test_images": len(course.test_labels),
        "runs": runs,
    }
    for kind, share in compared:
        try:
            one = course.train(kind, share, steps)
        except Exception as error:  # noqa: BLE001: the report says so, and the other runs count
            one = {"failed": f"{type(error).__name__}: {error}"}
        one = {"kind": kind, "share": share, **one}
        said = one.get("failed") or f"loss {number(one['final_loss'])}, accuracy {percent(one['accuracy'])}"
        context.say(f"{label(one)}: {said}")
        runs.append(one)
        context.save(results)
    return results


class _Course:
    """One network, from the same weights again and again."""

    def __init__(self, device, *, full: bool, quick: bool) -> None:
        import dataclasses

        import torch

        from ..gradients import example, make_workload, read_images

        vgg = example("vgg")
        self.device = device
        self.batch = 64 if full else 16
        torch.manual_seed(0)
        self.work, self.data = make_workload("vgg", full=False, batch=self.batch)
        self.name = "small VGG at 28 x 28"
        if full:
            self.work = dataclasses.replace(self.work, model=vgg.VGG(32, VGG11, 512))
            self.name = "VGG11 at 32 x 32"
        self.network = self.work.model.to(device)
        self.start = {name: value.clone() for name, value in self.network.state_dict().items()}
        self.elements = sum(parameter.numel() for parameter in self.network.parameters())
        images, labels, _ = read_images("t10k")
        tested = 4000 if full else 500 if quick else 1000
        self.test_images, self.test_labels = images[:tested].to(device), labels[:tested].to(device)
        self.accuracy = vgg.accuracy

    def train(self, kind: str, share: float | None, steps: int) -> dict:
        import peelreduce
        import torch

        from ..gradients import gradient_of, verify
        from ..one_process import Team

        self.network.load_state_dict(self.start)
        self.network.train()
        optimizer = self.work.make_optimizer(self.network.parameters())
        team = Team(WORKERS, self.device, estimate=share if kind == ESTIMATE else None)
        select = peelreduce.TopK(share) if kind in (TOP_K, FEEDBACK) else None
        memories: list[dict] = [{} for _ in range(WORKERS)]
        losses, tests, sent, lost, items, wrong = [], [], 0.0, 0, 0, 0
        for step in range(steps):
            pairs = [gradient_of(self.work, self.network, step, rank, self.device) for rank in range(WORKERS)]
            gradients = [gradient for gradient, _ in pairs]
            losses.append(float(torch.stack([loss for _, loss in pairs]).mean()))
            if not losses[-1] < _DIVERGED:  # NaN, too
                break
            if select is not None:
                for gradient, memory in zip(gradients, memories, strict=True):
                    select.apply(gradient, memory if kind == FEEDBACK else {})
            checked = step in (0, steps - 1) and kind != ESTIMATE
            before = [gradient.clone() for gradient in gradients] if checked else []
            outcome = team.sum(gradients)
            if checked:
                wrong += verify(before, gradients, outcome.report)
            sent += outcome.bytes_sent / outcome.report["dense_bytes"]
            lost += outcome.report["lost"]
            items += outcome.report["items"]
            self._apply(gradients[0].div_(WORKERS), optimizer)
            if (step + 1) % max(1, steps // 5) == 0 or step + 1 == steps:
                tests.append((step + 1, self._test()))
        done = len(losses)
        diverged = done < steps or not losses[-1] < _DIVERGED
        window = losses[-max(1, steps // 10) :]
        return {
            "losses": thin(losses),
            "tests": tests,
            "diverged_at": done if diverged else None,
            "final_loss": None if diverged else sum(window) / len(window),
            "accuracy": tests[-1][1] if tests and not diverged else self._test(),
            "sent_share": sent / max(1, done),
            "lost_share": lost / max(1, items),
            "wrong": None if kind == ESTIMATE else wrong,
        }

    def _apply(self, mean, optimizer) -> None:
        at = 0
        for parameter in self.network.parameters():
            parameter.grad = mean[at : at + parameter.numel()].view_as(parameter)
            at += parameter.numel()
        optimizer.step()

    def _test(self) -> float:
        right = self.accuracy(self.network, self.test_images, self.test_labels)
        self.network.train()
        return right


def thin(losses: list[float]) -> list[tuple[int, float]]:
    """Means over as many steps as leave few points: the loss of single batches is noise."""
    width = max(1, math.ceil(len(losses) / _POINTS))
    parts = [losses[at : at + width] for at in range(0, len(losses), width)]
    return [(at * width + len(part), sum(part) / len(part)) for at, part in enumerate(parts)]


def uncertainty(accuracy: float, images: int) -> float:
    """Half of the interval in which the accuracy on all images lies with 95%, as so many of them tell (binomial)."""
    return 1.96 * math.sqrt(accuracy * (1 - accuracy) / images)


def label(one: dict) -> str:
    return one["kind"] if one["share"] is None else f"{one['kind']}, {plain(one['share'])}"


def section(documents) -> Section:
    parts = [
        prose(
            "Four workers train VGG on Fashion-MNIST, and their gradients are summed through the library: all "
            "messages are real, though the workers share one machine. **Estimates**: a sketch of a fixed share of "
            "the dense size, and the median of its cells for what does not peel, as in the paper. **Lossless**: the "
            "library's default. **Top-k**: each worker sends as many of its largest values as the sketch has cells, "
            "summed losslessly; with *error feedback* what it does not send waits for the next step, and without, as "
            "in the paper, it is forgotten. Weights, batches and learning rate are the same for all. All of this is "
            "**measured**.\n\n"
            "*Sent* is what a worker sends, as a share of a dense ring. It is more than the size for estimates, "
            "because of the index, and for top-k, because workers select different values and the sum has those of "
            "all.\n\n"
            "The paper trains until nothing changes any more, and these are the first steps, once for each row. The "
            "interval of an accuracy, 95%, is that of the number of test images; what another seed would change was "
            "not measured and comes on top of it. At the smallest sizes hardly anything peels and all is estimated."
        )
    ]
    for document in documents:
        parts += _charts(document["results"])
    return Section(TITLE, parts)


def _charts(results: dict) -> list[str]:
    runs = [one for one in results["runs"] if "failed" not in one]
    what = f"{results['model']}, {number(results['parameters'] / 1e6)} million parameters"
    parts = [prose(f"{label(one)} failed: {one['failed']}") for one in results["runs"] if "failed" in one]
    tenth = [one for one in runs if one["share"] in (None, paper.ITERATION_SHARE)]
    sizes = [one for one in runs if one["kind"] in (ESTIMATE, LOSSLESS)]
    for title, some in (("all at 10%", tenth), ("estimates at several sizes", sizes)):
        curves = [
            Series(label(one), [(x, y if y < _DIVERGED else None) for x, y in one["losses"]], one["kind"] != LOSSLESS)
            for one in some
        ]
        parts.append(lines(f"Training loss, {title} ({what})", curves, x="step", y="loss", log_y=True))
    curves = [
        Series(label(one), [(step, 100 * right) for step, right in one["tests"]], one["kind"] != LOSSLESS)
        for one in tenth
    ]
    parts.append(lines(f"Test accuracy, all at 10% ({what})", curves, x="step", y="% of test images"))
    parts.append(_accuracies(results, runs, what))
    rows = [
        [
            one["kind"],
            None if one["share"] is None else plain(one["share"]),
            percent(one["sent_share"]),
            percent(one["lost_share"]) if one["kind"] == ESTIMATE else "none",
            number(one["final_loss"]) if one["diverged_at"] is None else f"diverged at step {one['diverged_at']}",
            percent(one["accuracy"]),
            f"±{percent(uncertainty(one['accuracy'], results['test_images']), 2)}",
            one["wrong"],
        ]
        for one in runs
    ]
    header = ["sum", "size", "sent", "estimated", "loss at the end", "test accuracy", "interval", "wrong"]
    note = (
        f"{what}; data: {results['data']}; {results['workers']} workers with batches of {results['batch']}, "
        f"{results['steps']} steps, {results['test_images']} test images. *Wrong*: elements of the first and the last "
        "sum, on all workers, that are not the sum of what was to be sent; sums between these are not compared."
    )
    return [*parts, table(header, rows, note)]


def _accuracies(results: dict, runs: list[dict], what: str) -> str:
    found = {(one["kind"], one["share"]): 100 * one["accuracy"] for one in runs}
    shares = sorted({one["share"] for one in runs if one["share"] is not None})
    series = [(kind, [found.get((kind, share)) for share in shares]) for kind in (ESTIMATE, TOP_K, FEEDBACK)]
    lossless = [(found[LOSSLESS, None], LOSSLESS)] if (LOSSLESS, None) in found else []
    title = f"Test accuracy after {results['steps']} steps, by size ({what})"
    return bars(title, [plain(share) for share in shares], series, y="% of test images", levels=lossless)


def summary(documents) -> list[SummaryRow]:
    results = documents[-1]["results"]
    found = {(one["kind"], one["share"]): one for one in results["runs"] if "failed" not in one}
    estimate, top = found.get((ESTIMATE, 0.1)), found.get((TOP_K, 0.1))
    feedback, lossless = found.get((FEEDBACK, 0.1)), found.get((LOSSLESS, None))
    if not (estimate and top):
        return []
    spread = uncertainty(estimate["accuracy"], results["test_images"])
    note = f"{results['model']}, {results['steps']} steps, the paper VGG19 to the end. Top-k: {percent(top['accuracy'])}"
    note += f", with error feedback: {percent(feedback['accuracy'])}" if feedback else ""
    note += f", lossless: {percent(lossless['accuracy'])}" if lossless else ""
    note += f". 95% interval by {results['test_images']:,} test images: ±{percent(spread, 2)}; one run each."
    return [
        SummaryRow(
            "Test accuracy with estimates at 10%", "better than top-k", percent(estimate["accuracy"]), None, note,
            "measured",
        )
    ]
