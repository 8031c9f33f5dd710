"""Blocks side by side."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ExampleKeyError


def test_records_take_items_by_key_and_keep_the_order_given() -> None:
    """Of a dict, pairs, or a tuple whose keys are 0, 1, ..."""
    b_first = fb.Record({"b": fb.Scalar(), "a": fb.Scalar("int32")})
    assert [x.dtype for x in b_first.eval({"a": 1, "b": 2})] == [np.float32, np.int32]
    pairs = fb.Record([("b", fb.Scalar()), ("a", fb.Scalar("int32"))])
    assert [float(x) for x in pairs.eval({"a": 1, "b": 2})] == [2, 1]
    assert [float(x) for x in fb.Record((fb.Scalar(), fb.Scalar())).eval([5, 6])] == [5, 6]
    assert fb.Record(()).eval("anything") == ()


def test_records_of_tuples_apply_a_block_to_each_member() -> None:
    """The tuple must have as many members."""
    pair = fb.AllOf(fb.Scalar(), fb.Scalar())
    doubled = pair >> fb.Record((fb.Identity(), fb.Function(lambda x: 2 * x)))
    assert [float(x) for x in doubled.eval(3)] == [3, 6]
    with pytest.raises(BlockTypeError, match="a tuple of 1"):
        fb.compile(pair >> fb.Record((fb.Identity(),)))
    with pytest.raises(BlockTypeError, match="an object with named items"):
        fb.compile(pair >> fb.Record({"a": fb.Identity()}))
    with pytest.raises(BlockTypeError, match="an object or a tuple"):
        fb.compile(fb.Scalar() >> fb.Record((fb.Identity(),)))


def test_dicts_tuples_and_arrays_stand_for_blocks() -> None:
    """On either side of >>."""
    assert [float(x) for x in ({"a": fb.Scalar()} >> fb.Identity()).eval({"a": 1})] == [1]
    block = fb.AllOf(fb.Scalar(), np.float32([1, 2])) >> fb.Concat()
    assert block.eval(0).tolist() == [0, 1, 2]
    assert (np.float32([1, 2]) >> fb.Function(lambda x: x + 1)).eval(None).tolist() == [2, 3]
    with pytest.raises(BlockTypeError, match="wrap it in Function"):
        fb.Scalar() >> (lambda x: x)


def test_a_missing_key_is_named_with_its_place() -> None:
    """Where in the model, and where in the data."""
    block = fb.Record({"left": fb.Record({"x": fb.Scalar()})})
    with pytest.raises(ExampleKeyError) as caught:
        fb.compile(block).run([{"left": {"x": 1}}, {"left": {}}])
    text = str(caught.value)
    assert "model['left']['x']" in text
    assert "at example 1 ['left']" in text
    assert "expected an item 'x'" in text


def test_one_block_may_stand_in_several_places_and_programs() -> None:
    """Blocks are values; a layer used twice shares its parameters."""
    layer = fb.Linear(1, init="ones")
    block = fb.Record({"a": fb.Vector(2) >> layer, "b": fb.Vector(2) >> layer})
    one, other = fb.compile(block), fb.compile(fb.Vector(2) >> layer)
    assert list(one.params) == ["linear.weight", "linear.bias"]
    one.params["linear.bias"] = [10]
    assert float(other.run([[1, 1]])[0][0]) == 12
