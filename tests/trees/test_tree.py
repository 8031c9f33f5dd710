"""Trees: arrays in post-order, nodes that look at them, and figures of many."""

import copy
import json
import pickle
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.errors import ExampleError
from foldbatch.trees import Tree, TreeNode, tree_statistics
from foldbatch.trees.tree import as_parents, check_post_order, flatten, kids_of

DRAWN = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", ("V", "slept"))))


def test_every_node_has_a_line_with_its_label_and_token():
    assert DRAWN.draw().splitlines() == [
        "S",
        "├─ NP",
        "│  ├─ D the",
        "│  └─ N film",
        "└─ VP",
        "   └─ V slept",
    ]


def test_a_node_without_a_label_is_a_star_and_labels_may_be_integers():
    assert Tree([1, -1], [None, 0], ["w", None]).draw().splitlines() == ["0", "└─ * w"]


SENTENCE = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", "slept"), ("PUNCT", ".")))
NP, VP = SENTENCE.root[0], SENTENCE.root[1]
ARRAYS = {"parents", "labels", "tokens"}  # of all nodes of a tree: a node has them in `node.tree`
MAKERS = {"leaf", "from_nested", "build"}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def seen(node, name):
    """What an attribute shows: of a method, what it returns, and an iterator's items."""
    value = getattr(node, name)
    value = value() if callable(value) else value
    return list(value) if hasattr(value, "__next__") else value


def test_a_node_is_indexed_by_child_slice_and_field():
    root = SENTENCE.root
    assert root[-1].label == "PUNCT"
    assert [child.label for child in root[1:]] == ["VP", "PUNCT"]
    assert root["children"] == root.children == list(root)
    assert (NP["label"], VP["token"]) == ("NP", "slept")
    assert root[np.int64(1)] == VP


def test_a_tree_has_every_attribute_of_a_node_with_the_value_of_its_root():
    assert isinstance(SENTENCE, TreeNode)
    assert public(Tree) - public(type(NP)) == ARRAYS | MAKERS
    for tree in (SENTENCE, Tree.leaf("S", "so")):
        for name in public(type(NP)):
            assert seen(tree, name) == seen(tree.root, name), name
            assert type(seen(tree, name)) is type(seen(tree.root, name)), name
        assert (len(tree), list(tree), tree[:], bool(tree)) == (
            len(tree.root),
            [*tree.root],
            tree.root[:],
            True,
        )
        assert [tree[name] for name in ("label", "token", "children")] == [
            tree.label,
            tree.token,
            tree.children,
        ]
    assert (SENTENCE[0], SENTENCE[-1].label, SENTENCE.index, SENTENCE.parent) == (NP, "PUNCT", 5, None)
    assert repr(SENTENCE.root) == "TreeNode(5, label='S', token=None, 3 children)"


@settings(max_examples=12)
@given(st.from_type(Tree))
def test_a_node_shows_what_a_tree_of_its_subtree_would_show(tree):
    def copied(node):
        return Tree.build(node, list, label=lambda part: part.label, token=lambda part: part.token)

    for node in tree.nodes():
        alone = copied(node)
        for name in ("label", "token", "is_leaf", "size", "height", "words", "draw"):
            assert seen(node, name) == seen(alone, name), name
        first = node.index - node.size + 1
        for name in ("nodes", "leaves", "children"):
            assert [part.index - first for part in seen(node, name)] == [
                part.index for part in seen(alone, name)
            ]
        assert node.root == tree
        assert node.parent is None or node in list(node.parent)


DEPTH = 20_000


def nested(node):
    """Rebuild the nested form by recursion, to compare with."""
    if node.is_leaf:
        return (node.label,) if node.token is None else (node.label, node.token)
    return (node.label, *map(nested, node.children))


@given(st.from_type(Tree))
def test_height_children_and_leaves_agree_with_recursion(tree):
    def height(node):
        return 1 + max(map(height, node.children), default=-1)

    def words(node):
        if node.is_leaf:
            return [] if node.token is None else [node.token]
        return [word for child in node for word in words(child)]

    assert tree.height == height(tree.root)
    assert list(tree.words()) == words(tree.root)
    assert [node.index for node in tree.leaves()] == [
        node.index for node in tree.nodes() if not node.children
    ]
    assert all(child.parent == node for node in tree.nodes() for child in node)


@given(st.from_type(Tree))
def test_from_nested_and_build_undo_a_recursive_walk(tree):
    def walked(node):
        return (node.label, [walked(child) for child in node], node.token)

    built = Tree.build(
        walked(tree.root),
        children=lambda part: part[1],
        label=lambda part: part[0],
        token=lambda part: part[2],
    )
    assert built == tree
    leaf_tokens_only = [
        token if node.is_leaf else None for node, token in zip(tree.nodes(), tree.tokens, strict=True)
    ]
    plain = Tree(tree.parents, tree.labels, leaf_tokens_only)
    assert Tree.from_nested(nested(plain.root)) == plain


@given(st.from_type(Tree))
def test_equal_trees_hash_alike_and_survive_pickling_and_copying(tree):
    again = Tree(tree.parents.tolist(), list(tree.labels), list(tree.tokens))
    assert again == tree
    assert hash(again) == hash(tree)
    for twin in (pickle.loads(pickle.dumps(tree)), copy.copy(tree), copy.deepcopy(tree)):
        assert twin == tree
        assert twin.height == tree.height
    node = pickle.loads(pickle.dumps(tree.root))
    assert node == tree.root
    assert hash(node) == hash(tree.root)


def test_a_tree_cannot_be_changed():
    with pytest.raises(AttributeError, match="immutable"):
        SENTENCE.labels = ()
    with pytest.raises(AttributeError, match="immutable"):
        del SENTENCE.labels
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):  # compiled code trusts them
        SENTENCE.parents.flags.writeable = True
    with pytest.raises(ValueError, match="read-only"):
        SENTENCE.parents[0] = 1
    parents = np.array([1, -1])
    tree = Tree(parents)
    parents[0] = 7
    assert tree.parents[0] == 1


def test_a_chain_of_20_000_levels_works_everywhere():
    assert sys.getrecursionlimit() < DEPTH
    part = ("w", "deep")
    for _ in range(DEPTH):
        part = ("x", part)
    chain = Tree.from_nested(part)
    twin = pickle.loads(pickle.dumps(chain))
    assert (chain.height, chain.size, chain.words()) == (DEPTH, DEPTH + 1, ("deep",))
    assert twin == chain
    assert hash(twin) == hash(chain)
    assert copy.deepcopy(chain) == chain
    assert repr(chain) == "Tree('x', 20001 nodes, height 20000)"
    assert chain.draw(levels=1).splitlines()[-1] == "└─ x … 19999 more below"
    assert next(chain.leaves()).index == 0
    middle = chain.root
    for _ in range(DEPTH // 2):
        middle = middle[0]
    assert (middle.size, middle.height, middle.words()) == (DEPTH // 2 + 1, DEPTH // 2, ("deep",))
    assert Tree.build(0, lambda depth: [depth + 1] if depth < DEPTH else []).height == DEPTH
    del part, chain, twin, middle


def is_post_order(parents):
    """Say the same by definition: walk the tree recursively and see whether nodes come as 0, 1, 2, ..."""
    if (
        parents.count(-1) != 1
        or parents[-1] != -1
        or any(not -1 <= above < len(parents) for above in parents)
    ):
        return False
    order, seen = [], set()

    def walk(node):
        if node in seen:
            return
        seen.add(node)
        for child, above in enumerate(parents):
            if above == node:
                walk(child)
        order.append(node)

    walk(len(parents) - 1)
    return order == list(range(len(parents)))


@st.composite
def candidates(draw):
    """Parent lists that point upwards, sometimes post-order and sometimes not, and a few wild ones."""
    size = draw(st.integers(1, 9))
    upward = [draw(st.integers(node + 1, min(size - 1, node + 4))) for node in range(size - 1)] + [-1]
    if draw(st.booleans()):
        upward[draw(st.integers(0, size - 1))] = draw(st.integers(-3, size + 2))
    return upward


@given(candidates())
def test_check_accepts_exactly_the_parents_whose_recursive_walk_is_in_order(parents):
    try:
        check_post_order(as_parents(parents))
        accepted = True
    except ExampleError:
        accepted = False
    assert accepted == is_post_order(parents)


@given(st.from_type(Tree))
def test_every_child_is_listed_once_below_its_parent_in_order(tree):
    for node, kids in enumerate(kids_of(tree)):
        assert [*kids] == np.flatnonzero(tree.parents == node).tolist()


def test_flatten_tells_where_an_object_lies_and_shortens_long_places():
    places = []

    def expand(depth, where):
        places.append(where())
        return None, None, [depth + 1] if depth < 20 else []

    flatten(0, expand, "root", "[{}]", 1)
    assert places[:3] == ["root", "root[1]", "root[1][1]"]
    assert places[20] == "root[1][1]…16 steps…[1][1]"


@given(st.lists(st.from_type(Tree), min_size=1, max_size=6))
@settings(max_examples=15)
def test_the_figures_are_those_of_all_nodes(trees):
    figures = tree_statistics(iter(trees))
    nodes = [node for tree in trees for node in tree.nodes()]
    assert (figures["trees"], figures["nodes"]) == (len(trees), len(nodes))
    assert figures["leaves"] == sum(node.is_leaf for node in nodes)
    for spread, values in (
        (figures["sizes"], [t.size for t in trees]),
        (figures["heights"], [t.height for t in trees]),
    ):
        assert (spread["minimum"], spread["maximum"]) == (min(values), max(values))
        assert (spread["median"], spread["mean"]) == (np.median(values), pytest.approx(np.mean(values)))
    assert sum(arity * times for arity, times in figures["arities"].items()) == len(nodes) - len(trees)
    assert sum(figures["labels"].values()) == len(nodes)
    words = [node.token for node in nodes if node.token is not None]
    assert (figures["tokens"], figures["words"]) == (len(words), len(set(words)))
    json.dumps(figures)


@settings(max_examples=12)
@given(st.from_type(Tree))
def test_nodes_that_know_their_children_show_what_others_do(tree):
    for node in tree.nodes():
        (alone,) = pickle.loads(pickle.dumps([node]))
        assert (node, [*node], node[:], repr(node)) == (alone, [*alone], alone[:], repr(alone))
        with pytest.raises(AttributeError):
            node.label = "other"
