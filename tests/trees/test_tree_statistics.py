"""Figures of data sets of trees."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.trees import Tree, tree_statistics


@given(st.lists(st.from_type(Tree), min_size=1, max_size=6))
@settings(max_examples=15)
def test_the_figures_are_those_of_all_nodes(trees):
    figures = tree_statistics(iter(trees))
    nodes = [node for tree in trees for node in tree.nodes()]
    assert (figures.trees, figures.nodes) == (len(trees), len(nodes))
    assert figures.leaves == sum(node.is_leaf for node in nodes)
    for spread, values in (
        (figures.sizes, [t.size for t in trees]),
        (figures.heights, [t.height for t in trees]),
    ):
        assert (spread.minimum, spread.maximum) == (min(values), max(values))
        assert spread.median == np.median(values)
        assert np.isclose(spread.mean, np.mean(values))
    assert sum(arity * times for arity, times in figures.arities) == len(nodes) - len(trees)
    assert sum(times for _, times in figures.labels) == len(nodes)
    words = [node.token for node in nodes if node.token is not None]
    assert (figures.tokens, figures.words) == (len(words), len(set(words)))
    json.dumps(figures.to_plain())
