"""How long an exchange occupies links that we do not have: an arithmetic model, compared with links that can be limited.

    wire_seconds(4e8, "sum", workers=8, gbps=100)               # one all-reduce of 400 MB of each worker
    exchange_seconds(3e7, 2, workers=8, gbps=100)               # of 30 MB that a worker sent in two rounds

Every worker has one link of `gbps` in each direction, both used at once. An operation takes its steps, each with a
latency, and what crosses a link in one direction, divided by the rate. Nothing else: no time to add, no time to encode,
nothing overlaps. So it flatters both sides; the experiment `throughput` shows by how much.

    operation   what every worker gets               bytes over its link, of a buffer of S   steps
    sum         the sum or OR, by a ring             2 (W-1)/W S                             2 (W-1)
    switch      the sum or OR, from a switch         S                                       2
"""

from __future__ import annotations

OPERATIONS = ("sum", "switch")

# Of a frame of 9,000 bytes, 8,948 are not headers of IP and TCP; Ethernet adds 14.
CARRIED = 8948 / 9014

# Links of the evaluation: one direction, in Gbps. NVLink is that of an H100 or H200, 900 GB/s in both directions.
NVLINK_GBPS = 3600.0
LINKS = {"10 Gbps": 10.0, "100 Gbps": 100.0, "400 Gbps": 400.0, "NVLink": NVLINK_GBPS}

# Assumptions of the model, not measured: seconds of one step from worker to worker, over a network and over NVLink.
NETWORK_LATENCY = 14e-6
NVLINK_LATENCY = 4e-6


def latency(gbps: float) -> float:
    """Of one step, over a link of this rate; also what the library is told when it chooses for the link."""
    return NVLINK_LATENCY if gbps >= NVLINK_GBPS else NETWORK_LATENCY


def link_seconds(carried: float, steps: int, gbps: float) -> float:
    """Of so many bytes in one direction, and so many waits for somebody else."""
    if gbps <= 0:
        raise ValueError(f"a link of {gbps} Gbps carries nothing; give a rate above 0.")
    return steps * latency(gbps) + carried * 8 / (gbps * 1e9 * CARRIED)


def bytes_over_link(size: float, operation: str, workers: int) -> float:
    """Of a buffer of `size` bytes, what a worker sends in one operation, and receives."""
    _check(operation, workers)
    return size if operation == "switch" else 2 * (workers - 1) / workers * size


def steps(operation: str, workers: int) -> int:
    """How often somebody waits for a message of somebody else before it can send on."""
    _check(operation, workers)
    return 2 if operation == "switch" else 2 * (workers - 1)


def wire_seconds(size: float, operation: str, workers: int, gbps: float) -> float:
    """Of one operation on a buffer of `size` bytes of each worker. One worker alone needs no wire, but for a switch."""
    return link_seconds(bytes_over_link(size, operation, workers), steps(operation, workers), gbps)


def exchange_seconds(sent: float, rounds: int, *, workers: int, gbps: float, switch: bool = False) -> float:
    """Of `sent` bytes of a worker, as the library counts them, which is as a ring sends them. Each further round waits."""
    operation = "switch" if switch else "sum"
    waits = max(0, rounds - 1) * wire_seconds(0, operation, workers, gbps)
    return wire_seconds(sent / bytes_over_link(1, "sum", workers), operation, workers, gbps) + waits


def _check(operation: str, workers: int) -> None:
    if operation not in OPERATIONS:
        raise ValueError(f"there is no operation '{operation}' in the model; it knows {', '.join(OPERATIONS)}.")
    if workers < 1:
        raise ValueError(f"{workers} workers exchange nothing; give 1 or more.")
