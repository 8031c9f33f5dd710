"""Who runs what: every example once, loads alike, the same on every rank."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.train.parallel.dealing import cost, deal, stretches
from foldbatch.trees import Tree

COSTS = st.lists(st.integers(0, 60), max_size=40)


@settings(max_examples=25)
@given(COSTS, st.integers(1, 9))
def test_examples_are_dealt_once_and_no_rank_has_an_example_too_many(costs, ranks):
    shares = deal(costs, ranks)
    assert sorted(place for share in shares for place in share) == list(range(len(costs)))
    assert all(share == sorted(share) for share in shares) and len(shares) == ranks
    loads = [sum(costs[place] for place in share) for share in shares]
    least = max(max(costs, default=0), sum(costs) / ranks)
    assert max(loads) <= 4 / 3 * least + max(costs, default=0) / 3
    for load, share in zip(loads, shares, strict=True):  # without its smallest it was the least loaded
        assert not share or load - min(costs[place] for place in share) <= min(loads)


@settings(max_examples=25)
@given(COSTS, st.integers(1, 9))
def test_stretches_follow_each_other_and_are_alike(costs, ranks):
    parts = stretches(costs, ranks)
    assert [place for part in parts for place in part] == list(range(len(costs))) and len(parts) == ranks
    weights = [max(each, 1) for each in costs]
    fair = sum(weights) / ranks
    assert all(sum(weights[i] for i in part) <= fair + max(weights, default=0) for part in parts)


def test_costs_are_nodes_not_examples():
    small, large = Tree.leaf(), Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))
    assert cost(large) == 3 and cost((large, "label")) == 3 and cost(5) == 1 and cost({"tree": large}) == 3
    assert deal([cost(tree) for tree in (large, small, small, small)], 2) == [[0], [1, 2, 3]]
