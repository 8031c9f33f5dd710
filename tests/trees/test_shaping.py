"""Trees of another arity: what stays of nodes, labels and words, for trees of any shape and depth."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.errors import BlockValueError, ExampleTypeError
from foldbatch.trees import Tree, binarise, collapse_unary, parse_brackets

DEPTH = 100_000
LABELS = st.sampled_from(["S", "NP", "VP", 3, None])


@st.composite
def trees(draw):
    """Draw a tree by its parents: each node stands below one of those that come later."""
    size = draw(st.integers(1, 25))
    counts, parents = [], [-1] * size
    for node in range(size):
        below = draw(st.integers(0, min(5, len(counts)))) if node < size - 1 else len(counts)
        for child in counts[len(counts) - below :]:
            parents[child] = node
        counts[len(counts) - below :] = [node]
    labels = [draw(LABELS) for _ in range(size)]
    inner = {parent for parent in parents if parent >= 0}
    tokens = [
        f"w{node}" if node not in inner or draw(st.integers(0, 9)) == 0 else None for node in range(size)
    ]
    return Tree(parents, labels, tokens)


INSERTED = "between"


def without_inserted(tree):
    """Return nested labels, tokens and children, nodes in between left out."""
    below = []
    for node in tree.nodes():
        count = len(node)
        children = below[len(below) - count :]
        del below[len(below) - count :]
        flat = [inner for child in children for inner in (child[2] if child[0] == INSERTED else [child])]
        below.append((node.label, node.token, flat))
    return below[0]


@given(trees(), st.sampled_from(["right", "left"]))
def test_binary_trees_hold_the_nodes_of_the_tree_and_others_in_between(tree, branching):
    made = binarise(tree, branching, label=lambda label: INSERTED)
    assert all(len(node) <= 2 for node in made.nodes())
    assert without_inserted(made) == without_inserted(tree)
    assert made.words() == tree.words()
    assert made.size == tree.size + sum(max(len(node) - 2, 0) for node in tree.nodes())
    assert Tree(made.parents, made.labels, made.tokens) == made  # they are in post-order
    assert binarise(made, branching) == made


@given(trees())
def test_collapsed_trees_have_no_node_of_one_child_and_the_same_words(tree):
    made = collapse_unary(tree)
    assert all(len(node) != 1 or node.token is not None for node in made.nodes())
    assert [leaf.token for leaf in made.leaves()] == [leaf.token for leaf in tree.leaves()]
    assert Tree(made.parents, made.labels, made.tokens) == made
    assert collapse_unary(made) == made
    chains = []
    collapse_unary(tree, lambda labels: chains.append(tuple(labels)))
    alone = [node for node in tree.nodes() if len(node) == 1 and node.token is None]
    assert made.size == tree.size - len(alone)
    assert sum(len(chain) - 1 for chain in chains) == len(alone)


def test_labels_of_nodes_in_between_and_of_chains_follow_a_rule():
    tree = parse_brackets("(S (NP (N a)) (VP (V b) (NP c) (PP d) (AP e)))")
    right, left = binarise(tree), binarise(tree, "left", label=lambda label: f"{label}|")
    assert [node.label for node in right.nodes()] == ["N", "NP", "V", "NP", "PP", "AP", None, None, "VP", "S"]
    assert [node.label for node in left.nodes()] == [
        "N",
        "NP",
        "V",
        "NP",
        "VP|",
        "PP",
        "VP|",
        "AP",
        "VP",
        "S",
    ]
    assert right[1][1].words() == ("c", "d", "e")
    assert left[1][0].words() == ("b", "c", "d")
    assert collapse_unary(tree)[0].label == "NP"
    chain = Tree([1, 2, -1], ["N", "NP", None], ["a", None, None])
    assert collapse_unary(chain) == Tree.leaf("NP", "a")
    assert collapse_unary(chain, lambda labels: labels[-1]) == Tree.leaf("N", "a")


def test_depth_and_width_cost_no_stack():
    deep = Tree([*range(1, DEPTH), -1], ["x"] * DEPTH, ["w"] + [None] * (DEPTH - 1))
    assert collapse_unary(deep) == Tree.leaf("x", "w")
    assert binarise(deep) == deep
    wide = Tree([DEPTH - 1] * (DEPTH - 1) + [-1])
    for branching in ("right", "left"):
        assert binarise(wide, branching).height == DEPTH - 2


@pytest.mark.parametrize("function", [binarise, collapse_unary])
def test_other_things_are_refused(function):
    tree = parse_brackets("(S (A (B a)) (C b) (D c))")
    for other in (tree[0], "(S a)", None):
        with pytest.raises(ExampleTypeError, match=f"{function.__name__}: expected a tree"):
            function(other)
    with pytest.raises(ExampleTypeError, match="label: expected a str, an int or None, found float 1.5"):
        function(tree, label=lambda label: 1.5)
    with pytest.raises(BlockValueError, match="expected branching as 'right' or 'left', found str 'up'"):
        binarise(tree, "up")
