"""Figures of the paper (Li, Xu, Chen, Dwivedula, Wu, He, Akella, Kim: Accelerating Distributed Deep Learning using
Lossless Homomorphic Compression), each named once, with the place where it stands. Nothing else in this folder is a
constant that was not measured here.
"""

from __future__ import annotations

import math

# 3.2, parallel peeling: cells per non-zero parameter.
GAMMA = 1.23
# 3.3: the size of Count Sketch and Bloom filter is less than this many times S_min.
SIZE_BOUND = 1.6

# Table 1.
MODELS = ("ncf", "lstm", "vgg", "bert")
NAMES = {"ncf": "NCF", "lstm": "LSTM", "vgg": "VGG19", "bert": "BERT-base"}
DATA_SETS = {"ncf": "ml-25m", "lstm": "GBW", "vgg": "CIFAR-10", "bert": "SQuAD"}
PARAMETERS = {"ncf": 29.7e6, "lstm": 426e6, "vgg": 140e6, "bert": 109e6}
SPARSITY = {"ncf": 0.989, "lstm": 0.945, "vgg": 0.304, "bert": 0.208}  # share of zeros, on average

# 4.1.1, figure of recovery: VGG19 on one worker; all is recovered from this share of the original size on.
RECOVERY_THRESHOLD = 0.856
# log log n + O(1) rounds: the first term.
RECOVERY_ROUNDS = 4.7

# 4.1.2, figure of throughput over NCCL: A100, one worker with one GPU, Gbps at small messages and at the worst.
CODEC_GBPS = 646.0
CODEC_GBPS_LEAST = 64.7
# The greatest speed-up over NCCL: four workers with one GPU each.
NCCL_SPEEDUP = 4.97
# The share of the original size from which on its throughput may fall below that of NCCL.
NCCL_BREAK_EVEN = 0.60
# Figure of throughput over ATP: the greatest speed-up over in-network aggregation.
ATP_SPEEDUP = 6.33
ATP_LINK_BITS = 10e9

# 4.2, figure of speed-ups of an iteration, messages of 10% of the original size.
ITERATION_SHARE = 0.10
ITERATION_SPEEDUP_NCCL = {"ncf": 2.01, "lstm": 1.31, "vgg": 3.45, "bert": 1.17}  # four workers, two A100 each, 100 Gbps
ITERATION_SPEEDUP_ATP = {
    "ncf": 3.33,
    "lstm": 3.37,
    "vgg": 3.74,
    "bert": 1.17,
}  # two workers, one RTX 2080 each, 10 Gbps
NCCL_WORKERS, ATP_WORKERS = 4, 2


def least_bits(elements: int, nonzeros: int, bits: int) -> float:
    """S_min of 3.3: n f(0, lambda) + n log(2^C - 1), for supports without structure; f(0, lambda) n is N H(n/N)."""
    if nonzeros == 0:
        return 0.0
    share = nonzeros / elements
    entropy = 0.0 if share >= 1 else -share * math.log2(share) - (1 - share) * math.log2(1 - share)
    return elements * entropy + nonzeros * math.log2(2.0**bits - 1)


def bloom_rate(elements: int, nonzeros: int, bits: int) -> float:
    """Epsilon of 3.3: how many of the zeros pass the filter."""
    zeros = elements / nonzeros - 1  # lambda
    return min(1.0, 1 / (math.log(2) ** 2 * GAMMA * bits * zeros)) if zeros > 0 else 1.0


def bloom_bits(elements: int, nonzeros: int, bits: int, gamma: float = GAMMA) -> float:
    """S of 3.3: a Bloom filter and a Count Sketch of gamma cells for whatever passes it."""
    rate = bloom_rate(elements, nonzeros, bits)
    return nonzeros / math.log(2) * math.log2(1 / rate) + gamma * bits * (nonzeros + rate * (elements - nonzeros))


def bitmap_bits(elements: int, nonzeros: int, bits: int, gamma: float = GAMMA) -> float:
    """What 3.2 has instead of the filter: a bit for every parameter."""
    return elements + gamma * bits * nonzeros
