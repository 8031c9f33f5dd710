"""Nodes: views into a tree; and a tree as its own root node."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.errors import ExampleIndexError, ExampleKeyError, ExampleTypeError
from foldbatch.trees import Tree, TreeNode

SENTENCE = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", "slept"), ("PUNCT", ".")))
NP, VP = SENTENCE.root[0], SENTENCE.root[1]
ARRAYS = {"parents", "labels", "tokens", "csr"}  # of all nodes of a tree: a node has them in `node.tree`
MAKERS = {"leaf", "from_nested", "build"}


def public(kind):
    return {name for name in dir(kind) if not name.startswith("_")}


def seen(node, name):
    """What an attribute shows: of a method, what it returns, and an iterator's items."""
    value = getattr(node, name)
    value = value() if callable(value) else value
    return list(value) if hasattr(value, "__next__") else value


def test_a_node_shows_its_label_token_children_and_parent():
    assert (NP.label, NP.token, NP.is_leaf, NP.index, len(NP)) == ("NP", None, False, 2, 2)
    assert [child.token for child in NP.children] == ["the", "film"]
    assert (VP.label, VP.token, VP.is_leaf, VP.children, len(VP)) == ("VP", "slept", True, [], 0)
    assert NP.parent == SENTENCE.root
    assert SENTENCE.root.parent is None
    assert repr(NP) == "TreeNode(2, label='NP', token=None, 2 children)"


def test_a_node_is_indexed_by_child_slice_and_field():
    root = SENTENCE.root
    assert root[-1].label == "PUNCT"
    assert [child.label for child in root[1:]] == ["VP", "PUNCT"]
    assert root["children"] == root.children == list(root)
    assert (NP["label"], VP["token"]) == ("NP", "slept")
    assert root[np.int64(1)] == VP


def test_a_tree_has_every_attribute_of_a_node_with_the_value_of_its_root():
    assert isinstance(SENTENCE, TreeNode)
    assert public(Tree) - public(TreeNode) == ARRAYS | MAKERS
    for tree in (SENTENCE, Tree.leaf("S", "so")):
        for name in public(TreeNode):
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


@settings(max_examples=25)
@given(st.from_type(Tree))
def test_a_node_shows_what_a_tree_of_its_subtree_would_show(tree):
    def copied(node):
        """The subtree as a tree of its own."""
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


def test_a_tree_equals_its_root_and_hashes_alike():
    assert SENTENCE.root == SENTENCE
    assert hash(SENTENCE) == hash(SENTENCE.root)
    assert {SENTENCE, SENTENCE.root, NP.parent, NP.root} == {SENTENCE}
    assert len(set(SENTENCE.nodes())) == 6
    assert Tree.from_nested(("D", "the")) != SENTENCE[0][0]  # the same subtree, in another tree


def test_nodes_of_equal_trees_are_equal_and_others_are_not():
    twin = pickle.loads(pickle.dumps(SENTENCE))
    assert twin.root[0] == NP
    assert NP != VP
    assert NP != "NP"
    assert Tree.leaf("NP").root != Tree.leaf("VP").root


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (3, ExampleIndexError, "node 5: expected a child's number below 3, found 3"),
        (-4, ExampleIndexError, "node 5: expected a child's number below 3, found -4"),
        ("lable", ExampleKeyError, "node 5: expected a field of 'label', 'token', 'children', found 'lable'"),
        (
            0.5,
            ExampleTypeError,
            "node 5: expected a child's number, a slice or a field's name, found float 0.5",
        ),
    ],
)
def test_a_key_that_a_node_lacks_is_named(key, error, message):
    with pytest.raises(error) as caught:
        SENTENCE[key]
    assert str(caught.value).startswith(message)


def test_a_leaf_asked_for_a_child_says_that_it_is_a_leaf():
    with pytest.raises(
        ExampleIndexError, match="node 3: expected an inner node, found a leaf asked for child 0"
    ):
        VP[0]
    assert issubclass(ExampleIndexError, IndexError)


def test_a_node_is_a_view_without_a_dictionary():
    assert not hasattr(NP, "__dict__")
    assert not hasattr(SENTENCE, "__dict__")
    assert TreeNode(SENTENCE, 2) == NP
