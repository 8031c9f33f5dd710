"""What columns read, and what they leave to the program."""

import sys

import numpy as np
import pytest
from hypothesis import given

import foldbatch as fb
from foldbatch.blocks.columnar import statements
from foldbatch.blocks.columnar.kinds import (
    Forest,
    NodeColumn,
    ObjectColumn,
    Refused,
    apply,
    items_of,
    lengths_of,
    merge,
    planted,
    take_item,
)
from foldbatch.blocks.purity import pure
from foldbatch.trees import Tree
from tests.blocks.columnar.forests import batches
from tests.blocks.columnar.laws import check_same, refusal, why_not
from tests.blocks.columnar.test_columns import ADD, LEAF, declared, row

FOREST = Forest([Tree([2, 2, -1])])


def test_objects_of_several_kinds_are_no_column():
    nodes = NodeColumn(FOREST, np.array([0]))
    for other in (
        np.array([0]),
        ObjectColumn(np.array([0]), "a"),
        NodeColumn(Forest([]), np.array([0])),
        NodeColumn(FOREST, nodes.index, 1),
    ):
        with pytest.raises(Refused, match="several kinds"):
            merge([(np.array([0]), nodes), (np.array([1]), other)], 2)


TREE = Tree.from_nested(("S", ("NP", "I"), ("VP", "slept")))


def data(*objects):
    return ObjectColumn(np.arange(len(objects)), objects)


def test_items_of_lists_and_dicts_are_taken():
    taken = take_item(data({"a": [1, 2]}, {"a": [3]}), "a")
    lengths, items = items_of(taken)
    assert lengths.tolist() == [2, 1]
    assert [items.objects[code] for code in items.codes] == [1, 2, 3]
    assert [take_item(data([1], []), 0, (9,)).objects] == [[1, 9]]


def test_trees_become_nodes_of_a_forest():
    nodes = take_item(data((TREE, 1), (TREE, 2)), 0)
    assert nodes.index.tolist() == [2, 5]
    lengths, children = items_of(take_item(nodes, "children"))
    assert (lengths.tolist(), children.index.tolist(), children.depth) == ([2, 2], [0, 1, 3, 4], 1)
    assert lengths_of(nodes).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: take_item(data([1], []), 0), "without an item"),
        (lambda: take_item(data(np.zeros(3)), 0), "no trees, lists"),
        (lambda: take_item(planted(data(TREE)), "more"), "'more'"),
        (lambda: take_item(planted(data(TREE)), 2), "without an item"),
        (lambda: take_item(np.zeros(1), 0), "reads the item 0"),
        (lambda: lengths_of(data({"a": 1})), "goes through objects"),
        (lambda: lengths_of(np.zeros(1)), "what is no list"),
        (lambda: planted(data(TREE, 1)), "others are not"),
    ],
)
def test_what_has_no_column_is_refused(read, reason):
    with pytest.raises(Refused, match=reason):
        read()


TREES = [Tree([1, -1], [2, 1], ["a", "b"]), Tree.leaf(3, "a")]


def test_a_function_called_in_several_places_has_its_calls_in_order():
    shared = fb.ForwardDeclaration(output_type=2, name="shared")
    shared.resolve_to(fb.GetItem("label") >> fb.Scalar("int32") >> fb.Embedding(9, 2))
    both = fb.AllOf(shared(), fb.Map(shared()), shared() >> fb.Metric("label"))
    check_same(both, TREES)


def test_labels_keep_their_kinds():
    label = fb.InputTransform(pure(lambda t: (1, True, 1.0)[t.label - 1]))
    check_same(fb.AllOf(fb.Zeros(2), label) >> fb.Metric("m"), TREES)


def test_numbers_of_several_kinds_are_left_to_the_program():
    block = fb.InputTransform(pure(lambda t: t.label if t.label > 1 else 0.5)) >> fb.Scalar()
    assert "several kinds" in refusal(block, TREES)
    check_same(block, TREES[1:])


def test_nodes_are_no_results():
    assert "returns a node" in refusal(fb.Map(fb.Identity()), TREES)


LABEL = fb.GetItem("label")


def even_and_odd():
    even, odd = (fb.ForwardDeclaration(output_type=2, name=name) for name in ("even", "odd"))
    for one, other in ((even, odd), (odd, even)):
        one.resolve_to(fb.AllOf(LEAF_ROW, fb.Map(other()) >> fb.Sum()) >> ADD)
    return even()


LEAF_ROW = LABEL >> row()
INNER = declared(lambda tree: fb.Map(tree) >> fb.Sum())
OF_OBJECTS = fb.ForwardDeclaration(output_type=fb.types.OBJECT, name="of objects")
OF_OBJECTS.resolve_to(fb.OneOf(LEAF, {True: LABEL, False: fb.GetItem(0) >> OF_OBJECTS()}))


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (even_and_odd(), "calls another one"),
        (declared(lambda tree: fb.AllOf(INNER, fb.Map(tree) >> fb.Sum()) >> ADD), "calls another one"),
        (
            declared(
                lambda tree: fb.OneOf(LEAF, {True: LEAF_ROW, False: fb.GetItem(0) >> fb.GetItem(0) >> tree})
            ),
            "no child",
        ),
        (OF_OBJECTS(), "returns an object"),
    ],
)
def test_recursions_of_another_form_are_refused(block, reason):
    assert reason in why_not(block)


@pytest.mark.parametrize(
    "block",
    [
        declared(lambda tree: fb.OneOf(LEAF, {True: LEAF_ROW, False: fb.GetItem(0) >> tree})),
        fb.Map(INNER),
        declared(
            lambda tree: fb.OneOf(
                LEAF, {True: LEAF_ROW, False: fb.AllOf(*[fb.GetItem(0) >> tree] * 2) >> ADD}
            )
        ),
    ],
)
def test_trees_whose_nodes_are_not_each_visited_once_are_left_to_the_program(block):
    assert "each node once" in refusal(block, [Tree([2, 2, -1], [1, 1, 1])])


def test_a_tree_that_may_be_too_deep_is_left_to_the_program(monkeypatch):
    monkeypatch.setattr(statements, "MOST_NODES", 2)
    assert "deeper" in refusal(INNER, [Tree([2, 2, -1])])


def test_objects_that_a_memo_looks_up_are_left_to_the_program():
    once = fb.ForwardDeclaration(output_type=2, name="once", memo=True)
    once.resolve_to(LEAF_ROW)
    part = {"label": 1}
    assert "several places" in refusal(fb.Map(once()), [[part, part]])
    check_same(fb.Map(once()), [Tree([2, 2, -1], [1, 1, 1])])


CALLING_TREES = [
    Tree([2, 2, -1], [1, 2, 1], ["a", "b", None]),
    Tree.leaf(1, "a"),
    Tree([1, -1], ["x", 7], ["a", None]),
]
CALLING_FOREST = Forest(CALLING_TREES)
ALL = NodeColumn(CALLING_FOREST, CALLING_FOREST.nodes)
NODES = [node for tree in CALLING_TREES for node in tree.nodes()]


def results(function, column=ALL):
    data = apply(function, column)
    return [data.objects[code] for code in data.codes.tolist()], len(data.objects)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (lambda t: t.is_leaf, 2),
        (lambda t: t.label == t.token, 5),
        (lambda t: t["label"] in (1, "x"), 4),
        (len, 3),
        (lambda t: t.size, 3),
    ],
)
def test_results_are_those_of_each_node(function, calls):
    assert results(function) == ([function(node) for node in NODES], calls)


def test_a_function_of_objects_is_called_for_those_present():
    column = ObjectColumn(np.array([2, 0, 2]), ("a", 0, "b"))
    assert results(pure(lambda word: word.upper()), column) == (["B", "A", "B"], 2)


BAD = [
    (lambda t: t.parent, ALL, "reads parent"),
    (lambda t: t.label < 2, ALL, "raises TypeError"),
    (lambda t: t, ALL, "reads the node as a whole"),
    (lambda t: t[0], ALL, "reads the item 0"),
    (lambda t: [t], ALL, "does more than read"),
    (lambda t: {t.label}, ALL, "does more than read"),
    (lambda x: x[0], ObjectColumn(np.array([0]), ([1],)), "reads an object that may change"),
    (pure(lambda x: [x]), ObjectColumn(np.array([0]), (1,)), "returns an object that may change"),
]


@pytest.mark.parametrize(("function", "column", "reason"), BAD)
def test_functions_that_do_not_fit_are_refused(function, column, reason):
    with pytest.raises(Refused, match=reason):
        apply(function, column)


def test_a_function_given_other_code_is_noticed():
    def mark(t):
        return t.label

    for function in (mark, pure(lambda t: t.label)):
        assert isinstance(apply(function, ALL), ObjectColumn)
        function.__code__ = (lambda t: print(t)).__code__
        with pytest.raises(Refused, match=r"is called at every visit, for it does more .*LOAD_GLOBAL"):
            apply(function, ALL)


def handler(number, frame):
    raise ValueError("of a handler")


def test_an_exception_of_a_handler_is_no_refusal():
    interrupting = pure(lambda x: handler(14, sys._getframe()))
    with pytest.raises(ValueError, match="of a handler"):
        apply(interrupting, ObjectColumn(np.array([0]), (1,)))


@given(examples=batches())
def test_a_forest_says_of_each_node_what_the_node_says(examples):
    forest = Forest(examples)
    nodes = [node for tree in examples for node in tree.nodes()]
    assert forest.size == len(nodes)
    assert [forest.node(i) for i in range(forest.size)] == nodes
    assert (forest.nodes - forest.first + 1).tolist() == [node.size for node in nodes]
    assert forest.arity.tolist() == [len(node) for node in nodes]
    assert forest.leaf.tolist() == [node.is_leaf for node in nodes]
    codes, labels = forest.labels
    assert [labels[code] for code in codes.tolist()] == [node.label for node in nodes]
    chosen = np.arange(0, forest.size, 2)
    for some in (chosen[::-1], forest.nodes):  # the second asks for tokens met before, too
        codes, tokens = forest.tokens(some)
        assert [tokens[code] for code in codes.tolist()] == [nodes[i].token for i in some.tolist()]
    starts, order = forest.children
    below = [order[s : s + n].tolist() for s, n in zip(starts, forest.arity, strict=True)]
    assert [[forest.node(i) for i in some] for some in below] == [node.children for node in nodes]


@pytest.mark.parametrize("labels", [["a", None, 3], [300, -1, 2**70], [1, 0, 255]])
def test_labels_may_be_of_any_kind(labels):
    codes, objects = Forest([Tree([2, 2, -1], labels)]).labels
    assert [objects[code] for code in codes.tolist()] == labels


@pytest.mark.parametrize(
    ("number", "expected"), [(0, 0), (1, 1), (2, 2), (-1, 2), (-3, 0), (3, None), (-4, None)]
)
def test_children_are_counted_as_python_does(number, expected):
    forest = Forest([Tree([3, 3, 3, -1])])
    child = forest.child(np.array([3]), number)
    assert child is None if expected is None else child.tolist() == [expected]
