"""The plots: each from the files of docs/results that it names."""

from __future__ import annotations

import math

from evaluate.charts import Series, draw_bars, draw_lines

from .image import image
from .results import find, load

_DENSITY = "% of the elements non-zero on some worker"


def all_plots() -> dict[str, str]:
    return {
        "speedup.svg": speedup(),
        "training.svg": training(),
        "sizes.svg": sizes(),
        "codec.svg": codec(),
        "switch.svg": through_a_switch(),
        "strategies.svg": strategies(),
    }


def speedup() -> str:
    """The headline. A rate that was not measured yet is left out."""
    sources = [
        ("four hosts, 200 mbit, MPI", find("allreduce-mpi-200mbit")),
        ("four hosts, 1 gbit, MPI", load("allreduce-mpi-1gbit")),
        ("four ranks on GPU memory, NCCL sockets", load("allreduce-nccl")),
    ]
    series = [
        Series(name, [(100 * row["density"], row["speedup"]) for row in found.where(strategy="auto", pattern="uniform")])
        for name, found in sources
        if found is not None
    ]
    return image(
        draw_lines(
            "All-reduce, times as fast as dense",
            series,
            x=_DENSITY,
            y="times",
            log_x=True,
            log_y=True,
            levels=[(1, "dense MPI_Allreduce, ncclAllReduce")],
        )
    )


def training() -> str:
    rows = load("training-1gbit").rows
    columns = [("plain DDP", "ddp_s"), ("with the hook", "hook_s"), ("if nothing were sent", "nothing_s")]
    series = [(name, [1000 * row[key] if key in row else None for row in rows]) for name, key in columns]
    return image(
        draw_bars(
            "A training step, four workers at 1 gbit",
            [row["example"] for row in rows],
            series,
            y="milliseconds",
            references=["if nothing were sent"],
        )
    )


def sizes() -> str:
    rows = load("sizes-models").rows
    columns = [("packed", "packed"), ("sketch", "sketch"), ("bound without structure", "lower_bound")]
    return image(
        draw_bars(
            "Message, % of the dense gradient",
            [row["model"] for row in rows],
            [(name, [100 * row[key] for row in rows]) for name, key in columns],
            y="% of dense, log scale",
            log_y=True,
            references=["bound without structure"],
        )
    )


def codec() -> str:
    result = load("codec-gpu")
    series = [
        Series(
            name,
            [
                (100 * row["density"], row["tbps"])
                for row in result.where(codec=name, index="bitmap", pattern="uniform", bytes=2**29)
            ],
        )
        for name in ("packed", "sketch")
    ]
    paper = [(100 * row["density"], max(row["tbps"])) for row in result.where(codec="the paper's code")]
    series.append(Series("the paper's code at best", paper, reference=True))
    return image(
        draw_lines(
            "Encode + decode on one H200",
            series,
            x=_DENSITY,
            y="Tbps of the array",
            log_x=True,
            levels=[(2**32 / 255e-6 / 1e12, "copying it once")],
        )
    )


def through_a_switch() -> str:
    result = load("allreduce-switch")
    cases = [
        ("dense int32", {"strategy": "dense"}),
        ("packed 1%", {"strategy": "packed", "density": 0.01}),
        ("sketch 1%", {"strategy": "sketch", "density": 0.01}),
        ("packed rows 3.5%", {"strategy": "packed", "density": 0.035}),
        ("sketch rows 3.5%", {"strategy": "sketch", "density": 0.035}),
    ]
    series = [
        (name, [result.where(rate=rate, **case)[0]["speedup"] for _, case in cases])
        for name, rate in (("200 mbit", "200mbit"), ("1 gbit", "1gbit"))
    ]
    return image(
        draw_bars(
            "Through a switch, times as fast as the faster MPI_Allreduce",
            [name for name, _ in cases],
            series,
            y="times, log scale",
            log_y=True,
        )
    )


def strategies() -> str:
    """By formula: float32, four workers with supports of their own, nothing in rows."""
    workers = 4
    shares = [0.001 * 1.15**step for step in range(50) if 0.001 * 1.15**step < 0.95] + [0.95]
    ring = 2 * (workers - 1) / workers
    others = (workers - 1) / workers

    def own(union: float) -> float:
        return 1 - (1 - union) ** (1 / workers)

    def positions(share: float) -> float:  # of a coded list, in elements of 32 bits
        return -(share * math.log2(share) + (1 - share) * math.log2(1 - share)) / 32

    sent = {
        "dense": lambda union: ring,
        "packed": lambda union: ring * (1 / 32 + union),
        "sketch": lambda union: ring * (1 / 32 + 1.4 * union),
        "split": lambda union: others * (own(union) + positions(own(union)) + union + positions(union)),
        "gather": lambda union: (workers - 1) * (own(union) + positions(own(union))),
        "packed, through a switch": lambda union: 1 / 32 + union,
    }
    return image(
        draw_lines(
            "What a worker sends, % of the array, by formula",
            [Series(name, [(100 * union, 100 * rule(union)) for union in shares]) for name, rule in sent.items()],
            x=_DENSITY,
            y="% of the array",
            log_x=True,
            log_y=True,
        )
    )
