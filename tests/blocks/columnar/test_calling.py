"""Functions are called once for all lanes that are alike in what they read."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from foldbatch.blocks.columnar.forest import Forest
from foldbatch.blocks.columnar.kinds import NodeColumn, ObjectColumn, Refused
from foldbatch.blocks.columnar.reading import apply
from foldbatch.blocks.purity import pure
from foldbatch.trees import Tree

TREES = [
    Tree([2, 2, -1], [1, 2, 1], ["a", "b", None]),
    Tree.leaf(1, "a"),
    Tree([1, -1], ["x", 7], ["a", None]),
]
FOREST = Forest(TREES)
ALL = NodeColumn(FOREST, FOREST.nodes)
NODES = [node for tree in TREES for node in tree.nodes()]


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
