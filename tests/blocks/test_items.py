"""Selecting items: of objects as Python does, of tuples when building, of sequences when tracing."""

from __future__ import annotations

import enum

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import (
    BlockTypeError,
    ExampleError,
    ExampleIndexError,
    ExampleKeyError,
    ExampleTypeError,
)
from tests.blocks.results import yields

ONE = fb.Scalar()
NUMBERS = fb.Map(ONE)
PAIRS = fb.Map(fb.AllOf(ONE, fb.Void(), fb.Identity()))


ITEMS_OBJECTS = [
    (fb.GetItem("a"), {"a": 1, "b": 2}, 1),
    (fb.GetItem(0), [1, 2], 1),
    (fb.GetItem(-1), (1, 2), 2),
    (fb.GetItem(slice(1, None)), [1, 2, 3], [2, 3]),
    (fb.GetItem((1, "x")), {(1, "x"): 3}, 3),
    (fb.GetItem(None), {None: 4}, 4),
    (fb.GetItem(True), {True: 5}, 5),
    (fb.GetItem("{brace} %s \\ ' \""), {"{brace} %s \\ ' \"": 6}, 6),
    (fb.GetItem(1) >> fb.GetItem("x"), [0, {"x": 7}], 7),
]


def test_items_of_objects_are_read_as_python_reads_them():
    for block, example, right in ITEMS_OBJECTS:
        assert block.eval(example) == right


def test_a_key_may_be_an_enum_whose_repr_is_no_expression():
    class Side(enum.StrEnum):
        LEFT = "left"

    class Place(enum.IntEnum):
        SECOND = 1

    assert fb.GetItem(Side.LEFT).eval({"left": 1}) == 1
    assert fb.GetItem(Place.SECOND).eval([1, 2]) == 2
    assert fb.GetItem(np.str_("left")).eval({"left": 1}) == 1
    with pytest.raises(ExampleError, match=r"at example 0.*Side.LEFT"):
        fb.GetItem(Side.LEFT).eval({})


def test_a_slice_takes_keywords_alone():
    with pytest.raises(TypeError):
        fb.Slice(1)


def test_a_number_without_an_element_is_named_with_the_example():
    for pairs in (fb.Record((NUMBERS, fb.Identity())), fb.Record((PAIRS, fb.Identity()))):
        program = fb.compile(pairs >> fb.Nth())
        for number in (2, -3):
            with pytest.raises(
                ExampleIndexError, match=f"at example 1.*one of 2 elements, found int {number};"
            ):
                program.run([([1, 2], 0), ([1, 2], number)])
        for number in ("a", 1.0, None, slice(0, 1)):
            with pytest.raises(
                ExampleTypeError, match="at example 0: expected an int as number of an element"
            ):
                program.run([([1, 2], number)])
    with pytest.raises(ExampleIndexError, match="at example 0"):
        fb.Nth().eval(("abc", 3))


def test_a_default_stands_for_what_an_object_lacks():
    yields(fb.GetItem("a", default=7), ({"a": 1}, 1), ({}, 7), ({"a": None}, None))
    yields(fb.GetItem(1, default=None), ([1, 2], 2), ((1,), None), ([], None), ({1: 3}, 3), ("ab", "b"))
    yields(fb.GetItem(-2, default="x") >> fb.Identity(), ([1, 2], 1), ([1], "x"))
    yields(fb.GetItem("a", default={"b": 4}) >> fb.GetItem("b") >> ONE, ({"a": {"b": 1}}, 1.0), ({}, 4.0))
    tree = fb.trees.parse_brackets("(S (A a) (B b))")
    third = fb.GetItem(2, default=None) >> fb.Optional(fb.GetItem("label") >> fb.Scalar("int32"))
    yields(third, (tree, 0), (tree[0], 0), (fb.trees.parse_brackets("(1 (2 a) (3 b) (4 c))", int), 4))
    assert repr(fb.GetItem("a", default=None)) == "GetItem('a', default=None)"
    assert repr(fb.GetItem("a")) == "GetItem('a')"


def test_a_wire_without_a_default_is_not_the_one_with_it():
    both = fb.Composition("both")
    with both.scope():
        lenient = fb.GetItem("a", default=0).reads(both.input)
        both.output.reads(fb.Scalar().reads(both.input["a"]), fb.Scalar().reads(lenient))
    assert both.eval({"a": 1}) == (1.0, 1.0)
    with pytest.raises(ExampleKeyError, match="expected an item 'a'"):
        both.eval({})


def test_items_are_the_pairs_of_a_map_sorted_by_key():
    yields(
        fb.blocks.Items(),
        ({"b": 2, "a": 1}, [("a", 1), ("b", 2)]),
        ({}, []),
        ({2: "x", 1: {}}, [(1, {}), (2, "x")]),
    )
    one = fb.Record((fb.OneHotFromList("ab"), ONE)) >> fb.Concat()
    total = fb.GetItem("scores") >> fb.blocks.Items() >> fb.Map(one) >> fb.Sum()
    yields(total, ({"scores": {"b": 2, "a": 3}}, [1.0, 1.0, 5.0]), ({"scores": {}}, [0.0, 0.0, 0.0]))
    with pytest.raises(
        ExampleTypeError, match=r"at example 0 \['scores'\]\.items\(\)\[1\]\[1\]: expected float32"
    ):
        total.eval({"scores": {"b": "two", "a": 3}})
    for scores, message in (
        ([1], "expected a mapping, found list of 1; give it a dict"),
        ({1: 2, "a": 3}, "expected keys that can be sorted, found keys of int, str; make all keys strings"),
    ):
        with pytest.raises(ExampleTypeError, match=rf"at example 0 \['scores'\]: {message}"):
            total.eval({"scores": scores})
    with pytest.raises(BlockTypeError, match="expected a Python object, found float32"):
        ONE >> fb.blocks.Items()
