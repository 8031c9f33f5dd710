"""The Tree type: what it holds, how it compares and travels, and that depth does not matter to it."""

import copy
import pickle
import sys
import weakref

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.trees import Tree

DEPTH = 250_000
SENTENCE = Tree.from_nested(("S", ("NP", ("D", "the"), ("N", "film")), ("VP", "slept"), ("PUNCT", ".")))
NP, VP = SENTENCE.root[0], SENTENCE.root[1]


def nested(node):
    """Rebuild the nested form by recursion, to compare with."""
    if node.is_leaf:
        return (node.label,) if node.token is None else (node.label, node.token)
    return (node.label, *map(nested, node.children))


def test_nodes_stand_in_post_order():
    assert SENTENCE.parents.tolist() == [2, 2, 5, 5, 5, -1]
    assert SENTENCE.parents.dtype == np.int32
    assert SENTENCE.labels == ("D", "N", "NP", "VP", "PUNCT", "S")
    assert SENTENCE.tokens == ("the", "film", None, "slept", ".", None)


def test_a_leaf_is_true_although_it_has_length_zero():
    assert VP
    assert Tree.leaf("S")


def test_a_tree_counts_its_nodes_levels_and_words():
    assert (SENTENCE.size, SENTENCE.height) == (6, 2)
    assert [node.index for node in SENTENCE.nodes()] == [0, 1, 2, 3, 4, 5]
    assert [leaf.label for leaf in SENTENCE.leaves()] == ["D", "N", "VP", "PUNCT"]
    assert SENTENCE.words() == ("the", "film", "slept", ".")
    assert repr(SENTENCE) == "Tree('S', 6 nodes, height 2)"


def test_words_leaves_out_leaves_without_a_token_and_tokens_of_inner_nodes():
    assert Tree([2, 2, -1], tokens=["a", None, "b"]).words() == ("a",)


def test_a_single_leaf_is_a_tree_of_height_zero():
    leaf = Tree.leaf(3, "film")
    assert leaf == Tree.from_nested((3, "film")) == Tree([-1], [3], ["film"])
    assert (leaf.size, leaf.height, leaf.is_leaf, leaf.children, leaf.words()) == (1, 0, True, [], ("film",))
    assert Tree.from_nested((3,)).token is None


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


@pytest.mark.parametrize(
    "other",
    [
        Tree([2, 2, -1], ["a", "b", "c"]),
        Tree([1, 2, -1], ["a", "b", "d"]),
        Tree([1, 2, -1], ["a", "b", "c"], ["w", None, None]),
        Tree([1, -1], ["a", "b"]),
        "tree",
    ],
)
def test_trees_of_other_shape_labels_or_tokens_differ(other):
    assert Tree([1, 2, -1], ["a", "b", "c"]) != other


def test_a_tree_cannot_be_changed():
    with pytest.raises(AttributeError, match="immutable"):
        SENTENCE.labels = ()
    with pytest.raises(AttributeError, match="immutable"):
        del SENTENCE.labels
    with pytest.raises(ValueError, match="read-only"):
        SENTENCE.parents[0] = 1
    parents = np.array([1, -1])
    tree = Tree(parents)
    parents[0] = 7
    assert tree.parents[0] == 1


def test_a_tree_can_be_referred_to_weakly():
    tree = Tree.leaf("S")
    reference = weakref.ref(tree)
    assert reference() is tree
    del tree
    assert reference() is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, -1], ["a"]), ExampleError, "Tree.labels: expected 2 entries, as many as parents, found 1"),
        (([-1], ["a"], []), ExampleError, "Tree.tokens: expected 1 entries"),
        (
            ([1, -1], ["a", 0.5]),
            ExampleTypeError,
            "Tree.labels[1]: expected a str, an int or None, found float 0.5",
        ),
        (([-1], [True]), ExampleTypeError, "Tree.labels[0]: expected a str, an int or None"),
        (([-1], ["a"], [3]), ExampleTypeError, "Tree.tokens[0]: expected a str or None, found int 3"),
        (([2, 3, 4, 4, -1],), ExampleError, "Tree.parents[0]: expected post-order"),
    ],
)
def test_the_constructor_refuses_arrays_that_are_no_tree(arguments, error, message):
    with pytest.raises(error) as caught:
        Tree(*arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("word", "nested: expected a node, found str 'word'"),
        (("S", ("NP", "a"), "b"), "nested[2]: expected a node, found str 'b' beside other children"),
        (("S", ("NP", ("D", "the"), 3)), "nested[1][2]: expected a tuple or list, found int 3"),
        (("S", ()), "nested[1]: expected a label first, found an empty tuple"),
        (("S", [("NP", "a")]), "nested[1]: expected a label of str, int or None first, found tuple of 2"),
        ((0.5, "a"), "nested: expected a label of str, int or None first, found float 0.5"),
        (None, "nested: expected a tuple or list, found None"),
    ],
)
def test_from_nested_names_the_part_that_is_no_node(part, message):
    with pytest.raises(ExampleError) as caught:
        Tree.from_nested(part)
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith("write (label, child, child) or (label, 'token')")


def test_from_nested_refuses_a_list_inside_itself():
    loop = ["S", ["NP"]]
    loop[1].append(loop)
    with pytest.raises(
        ExampleError, match=r"nested\[1\]\[1\]: expected a tree, found an object that lies below"
    ):
        Tree.from_nested(loop)


def test_a_part_used_twice_side_by_side_becomes_two_nodes():
    shared = ("NP", "a")
    assert Tree.from_nested(("S", shared, ("X", shared), shared)).size == 5


def test_build_names_the_object_whose_label_or_token_has_another_type():
    chain = {"a": ["b", "c"]}
    with pytest.raises(
        ExampleTypeError, match=r"root\.children\[1\]: expected a label of str, int or None, found flo"
    ):
        Tree.build("a", lambda name: chain.get(name, []), label=lambda name: 0.5 if name == "c" else name)
    with pytest.raises(ExampleTypeError, match=r"root: expected a token of str or None, found int 3"):
        Tree.build("a", lambda name: [], token=lambda name: 3)


def test_build_does_not_take_new_objects_at_an_old_address_for_a_cycle():
    assert Tree.build([3], lambda part: [[part[0] - 1]] * 2 if part[0] else []).size == 15


def test_a_chain_of_a_quarter_of_a_million_levels_works_everywhere():
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
    assert repr(chain) == "Tree('x', 250001 nodes, height 250000)"
    assert chain.draw(levels=1).splitlines()[-1] == "└─ x … 249999 more below"
    assert next(chain.leaves()).index == 0
    middle = chain.root
    for _ in range(DEPTH // 2):
        middle = middle[0]
    assert (middle.size, middle.height, middle.words()) == (DEPTH // 2 + 1, DEPTH // 2, ("deep",))
    assert Tree.build(0, lambda depth: [depth + 1] if depth < DEPTH else []).height == DEPTH
    del part, chain, twin, middle


def test_a_star_of_a_hundred_thousand_leaves_works():
    size = 100_000
    star = Tree([size] * size + [-1])
    assert (len(star), star.height, star[-1].index) == (size, 1, size - 1)
    assert star.draw(nodes=2).splitlines() == ["*", "├─ *", "… 99999 more nodes"]


@pytest.mark.parametrize("name", ["labels", "tokens"])
def test_labels_and_tokens_are_sequences(name):
    with pytest.raises(
        ExampleTypeError, match=rf"Tree\.{name}: expected a list of 2 entries, found int 5; give"
    ):
        Tree([1, -1], **{name: 5})
