"""Figures of data sets of trees."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.trees import Tree, parse_brackets, tree_statistics


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


def test_long_lists_are_cut_off():
    figures = tree_statistics(parse_brackets(f"({i} (a w{i % 150}))", lambda x: x) for i in range(1500))
    assert len(figures.most_frequent) == 100
    text = str(figures)
    assert "'a' (1,500)" in text
    assert text.splitlines()[-1].startswith("1,500 tokens, 150 distinct words: 'w0' (10), ")
    assert text.endswith(" and 140 more")
    assert "1,501 labels: " in text
