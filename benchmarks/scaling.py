"""A model on paper of data parallel training: what a step costs on many nodes, from figures of one.

A step of N ranks, each a core of its own node, costs::

    compute(batch / N) * imbalance(N) + update + exchange(N)

`compute` and `update` are measured on one core, `imbalance` is that of the real dealing on real trees, and
`exchange` follows from a network's latency and bandwidth. Nothing overlaps: an engine yields all gradients at
the end of the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from foldbatch.train.parallel import deal


@dataclass(frozen=True, slots=True)
class Network:
    """What connects nodes.

    Attributes:
        name: for tables.
        latency: seconds from one process to another.
        bandwidth: bytes a second, in and out of a node.
    """

    name: str
    latency: float
    bandwidth: float


ADDED = 4e9  # bytes a second that a rank adds: 0.3 ms for the gradients of two ranks at width 150, batch 64
ETHERNET = Network("10 Gbit Ethernet, TCP", 30e-6, 1.1e9)
INFINIBAND = Network("100 Gbit InfiniBand", 2e-6, 11e9)


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The dearest share of a batch, over the mean share: 1 is perfect.

    Attributes:
        dealt: as `deal` deals, by cost.
        counted: where ranks get equally many examples, in the order of the batch.
    """

    dealt: float
    counted: float


def imbalance(costs: Sequence[int], batch: int, ranks: int, batches: int = 20, seed: int = 0) -> Imbalance:
    """Return the mean imbalance over random batches.

    >>> imbalance([1] * 64, 8, 4)
    Imbalance(dealt=1.0, counted=1.0)
    """
    rng = np.random.default_rng(seed)
    dealt, counted = [], []
    for _ in range(batches):
        drawn = rng.choice(costs, batch, replace=False).tolist()
        mean = sum(drawn) / ranks
        dealt.append(max(sum(drawn[i] for i in share) for share in deal(drawn, ranks)) / mean)
        counted.append(max(sum(drawn[rank::ranks]) for rank in range(ranks)) / mean)
    return Imbalance(fmean(dealt), fmean(counted))


def exchange(ranks: int, dense: int, rows: int, network: Network) -> float:
    """Return the seconds of an exchange.

    The header is gathered in two rounds, rows in one. Slices of dense gradients go to all ranks, and their
    sums are gathered. Gathering takes log2 N steps; sending a slice to each rank takes N - 1. Each rank adds
    its slices, and the rows of all.

    Args:
        ranks: how many.
        dense: bytes of all dense gradients.
        rows: bytes of sparse gradients of all ranks together.
        network: that connects them.

    >>> exchange(1, 10**6, 10**6, ETHERNET)
    0.0
    """
    if ranks == 1:
        return 0.0
    steps = 4 * math.ceil(math.log2(ranks)) + ranks - 1
    share = (ranks - 1) / ranks
    return steps * network.latency + (2 * dense + rows) * share / network.bandwidth + (dense + rows) / ADDED


def interpolated(seconds: Mapping[int, float], batch: float) -> float:
    """Return the seconds of a batch of a size between those measured, or below the smallest.

    >>> interpolated({1: 1.0, 2: 1.5, 4: 2.5}, 3)
    2.0
    """
    sizes = sorted(seconds)
    return float(np.interp(batch, sizes, [seconds[size] for size in sizes]))
