"""How long an exchange occupies links that we do not have: an arithmetic model, validated where links can be limited.

    wire_seconds(4e8, "sum", workers=8, gbps=100)                         # one all-reduce of 400 MB
    exchange_seconds("packed", 8, 100, index=1.5e6, payload=1.2e7)        # OR of the index, then SUM of the payload
    exchange_seconds("dense", 8, 100, payload=4e8)                        # what it is compared with

Every worker has one link of `gbps` in each direction, both used at once. An operation takes its steps, each with a
latency, and what crosses the busiest link in the busier direction, divided by the rate. Nothing else: no time to add,
no time to encode, nothing overlaps. So it flatters both sides; the experiment `throughput` shows by how much.

    operation   what every worker gets                      bytes over its link, of a buffer of S   steps
    sum, or     the sum or OR of all buffers, by a ring     2 (W-1)/W S                             2 (W-1)
    gather      all buffers, as they are                    (W-1) S                                 W-1
    switch      the sum or OR, from a switch                S                                       2

Sizes are those of the buffer that each worker brings, not what a ring makes of them.
"""

from __future__ import annotations

OPERATIONS = ("sum", "or", "gather", "switch")
STRATEGIES = ("dense", "packed", "sketch")

# Of a frame of 9,000 bytes, 8,948 are not headers of IP and TCP; Ethernet adds 14.
CARRIED = 8948 / 9014

# Links of the evaluation: one direction, in Gbps. NVLink is that of an H100 or H200, 900 GB/s in both directions.
NVLINK_GBPS = 3600.0
LINKS = {"10 Gbps": 10.0, "100 Gbps": 100.0, "400 Gbps": 400.0, "NVLink": NVLINK_GBPS}

# One step from worker to worker: what NCCL's tuner takes for a ring over a network, and over NVLink.
NETWORK_LATENCY = 14e-6
NVLINK_LATENCY = 4e-6


def bytes_over_link(size: float, operation: str, workers: int) -> float:
    """Of a buffer of `size` bytes, what a worker sends in one operation; for a gather, what it receives is as much."""
    _check(operation, workers)
    if operation == "switch":
        return size
    if operation == "gather":
        return (workers - 1) * size
    return 2 * (workers - 1) / workers * size


def steps(operation: str, workers: int) -> int:
    """How often somebody waits for a message of somebody else before it can send on."""
    _check(operation, workers)
    if operation == "switch":
        return 2
    return (workers - 1) * (1 if operation == "gather" else 2)


def wire_seconds(size: float, operation: str, workers: int, gbps: float, latency: float | None = None) -> float:
    """Of one operation on a buffer of `size` bytes of each worker. One worker alone needs no wire, but for a switch."""
    if gbps <= 0:
        raise ValueError(f"a link of {gbps} Gbps carries nothing; give a rate above 0.")
    if latency is None:
        latency = NVLINK_LATENCY if gbps >= NVLINK_GBPS else NETWORK_LATENCY
    carried = bytes_over_link(size, operation, workers)
    return steps(operation, workers) * latency + carried * 8 / (gbps * 1e9 * CARRIED)


def exchange_seconds(
    strategy: str,
    workers: int,
    gbps: float,
    *,
    payload: float,
    index: float = 0,
    switch: bool = False,
    latency: float | None = None,
) -> float:
    """Of all that a strategy exchanges: bytes of the index (none if dense) and of the payload of one worker's message.

    `packed` ORs indices first, and sums values when it knows the union; `sketch` sends both at once, so that it waits
    for one exchange only.
    """
    if strategy not in STRATEGIES:
        raise ValueError(f"there is no strategy '{strategy}' in the model; it knows {', '.join(STRATEGIES)}.")
    operation = "switch" if switch else "sum"
    if strategy == "dense" and index:
        raise ValueError("a dense sum has no index; leave it out.")
    if strategy == "packed":
        index_seconds = wire_seconds(index, "switch" if switch else "or", workers, gbps, latency)
        return index_seconds + wire_seconds(payload, operation, workers, gbps, latency)
    return wire_seconds(index + payload, operation, workers, gbps, latency)


def _check(operation: str, workers: int) -> None:
    if operation not in OPERATIONS:
        raise ValueError(f"there is no operation '{operation}' in the model; it knows {', '.join(OPERATIONS)}.")
    if workers < 1:
        raise ValueError(f"{workers} workers exchange nothing; give 1 or more.")
