"""The model on paper: no cheaper than its parts, and what dealing by cost gains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.scaling import ETHERNET, Network, exchange, imbalance, interpolated


def test_an_exchange_is_latency_of_nothing_and_bytes_of_much():
    assert math.isclose(exchange(4, 0, 0, ETHERNET), (4 * 2 + 3) * ETHERNET.latency)
    quick = Network("quick", 0.0, 1e9)
    assert math.isclose(exchange(2, 10**9, 0, quick), 1.0 + 0.25)  # half of it away, half of it back; added
    assert math.isclose(exchange(4, 0, 10**9, quick), 0.75 + 0.25)


@pytest.mark.parametrize("ranks", [2, 16])
def test_dealing_by_cost_is_nearer_to_perfect_than_by_count(ranks):
    costs = np.random.default_rng(0).integers(3, 100, size=500).tolist()
    found = imbalance(costs, 64, ranks)
    assert 1 <= found.dealt < found.counted


def test_a_batch_between_two_sizes_costs_what_lies_between():
    assert interpolated({4: 1.0, 8: 3.0}, 5) == 1.5
    assert interpolated({4: 1.0, 8: 3.0}, 1) == 1.0
