"""Items that nobody reads: refused where data have an order, and a block reads them by position."""

from __future__ import annotations

from collections import deque, namedtuple

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError
from foldbatch.trees import Tree
from tests.blocks.results import yields

ONE = fb.Scalar()
PAIR = fb.Record((ONE, ONE))
Named = namedtuple("Named", "a b c")  # noqa: PYI024 - a plain one, as in data of old


def leaf_count() -> fb.Block:
    """Counts the leaves of a binary tree."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    both = fb.Record((tree(), tree())) >> fb.Function(lambda a, b: a + b)
    tree.resolve_to(fb.OneOf(lambda t: t.is_leaf, {True: fb.FromTensor(np.float32(1)), False: both}))
    return tree()


def test_a_child_that_is_not_read_is_refused_with_its_place_and_what_to_do():
    program = fb.compile(leaf_count(), backend="numpy")
    binary = fb.trees.parse_brackets("(S (A a) (B b))")
    ternary = fb.trees.parse_brackets("(S (A a) (B (C c) (D d) (E e)))")
    assert [float(x) for x in program.run([binary])] == [2.0]
    with pytest.raises(ExampleError) as caught:
        program.run([binary, ternary])
    assert str(caught.value) == (
        "tree.case(False) Record((tree(), tree())) at example 1 [1]: expected 2 items, found 3; read all "
        "children with Map and ChildSumTreeLSTM, or binarise the trees, or use TreeLSTM(arity=3) with a "
        "Record for each number of children; Record(..., rest='ignore') drops the rest"
    )
    with pytest.raises(ExampleError, match=r"at example 0: expected 2 items, found 3"):
        program.run([Tree.from_nested(("S", ("A", "a"), ("B", "b"), ("C", "c")))])


WHATEVER_HAS = [
    [1, 2, 3],
    (1, 2, 3),
    Named(1, 2, 3),
    np.arange(3),
    np.ones((3, 1))[:, 0],
    range(3),
    deque([1, 2, 3]),
    "123",
]


def test_whatever_has_an_order_is_counted():
    for example in WHATEVER_HAS:
        with pytest.raises(
            ExampleError, match="at example 0: expected 2 items, found 3; give a block for each"
        ):
            fb.Record((fb.Identity(), fb.Identity())).eval(example)


def test_a_rest_may_be_ignored():
    block = fb.Record((ONE, ONE), rest="ignore")
    yields(block, ([1, 2], (1.0, 2.0)), ([1, 2, 3], (1.0, 2.0)), (np.arange(9), (0.0, 1.0)))
    yields(fb.Record((ONE, ONE, ONE)) >> fb.Record((fb.Identity(),), rest="ignore"), ([1, 2, 3], (1.0,)))
    assert repr(block) == "Record((Scalar('float32'), Scalar('float32')), rest='ignore')"
    assert repr(fb.Record({"a": ONE}, rest="ignore")) == "Record({'a': Scalar('float32')}, rest='ignore')"
    with pytest.raises(BlockTypeError, match="expected a tuple of 1"):
        fb.Record((ONE, ONE)) >> fb.Record((fb.Identity(),))
    with pytest.raises(
        BlockValueError, match=r"Record: expected rest as one of 'error', 'ignore', found str"
    ):
        fb.Record((ONE,), rest="drop")


def test_what_is_read_by_key_or_has_no_order_is_not_counted():
    class Halves:
        def __getitem__(self, key):
            return key

    class Words(Halves):
        def __len__(self):
            return 9  # of the phrase, say

    yields(fb.Record({0: ONE, 1: ONE}), ([1, 2, 3], (1.0, 2.0)))
    yields(PAIR, ({0: 1, 1: 2, "more": 3}, (1.0, 2.0)), (Halves(), (0.0, 1.0)), (Words(), (0.0, 1.0)))
    yields(fb.Record(()), ([1, 2, 3], ()))
    yields(fb.AllOf(fb.GetItem(0) >> ONE, fb.GetItem(1) >> ONE), ([1, 2, 3], (1.0, 2.0)))
