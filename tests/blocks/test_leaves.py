"""Blocks that read objects: values, and what they refuse."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, ExampleError, ExampleIndexError, ExampleKeyError, ExampleTypeError


@pytest.mark.parametrize(
    ("block", "datum", "expected"),
    [
        (fb.Scalar(), 3, np.float32(3)),
        (fb.Scalar("int32"), np.int64(7), np.int32(7)),
        (fb.Scalar("bool"), True, np.bool_(True)),
        (fb.Scalar("float64"), 0.1, np.float64(0.1)),
        (fb.Vector(2), (1, 2.5), np.array([1, 2.5], np.float32)),
        (fb.Tensor([2, 1], "int64"), [[1], [2]], np.array([[1], [2]])),
        (fb.Vector(0), [], np.zeros(0, np.float32)),
        (fb.GetItem("a") >> fb.Scalar(), {"a": 1}, np.float32(1)),
        (fb.GetItem(-1) >> fb.Scalar(), [1, 2], np.float32(2)),
        (fb.GetItem((1, 2)) >> fb.Scalar(), {(1, 2): 5}, np.float32(5)),
        (fb.InputTransform(len) >> fb.Scalar("int32"), "abc", np.int32(3)),
    ],
)
def test_objects_become_tensors_of_the_declared_type(block: fb.Block, datum: object, expected: np.generic) -> None:
    """Value, shape and dtype."""
    found = block.eval(datum)
    assert isinstance(found, np.ndarray)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("block", "datum", "kind", "message"),
    [
        (fb.Scalar(), "3", ExampleTypeError, "expected float32, found str '3'; convert it first"),
        (fb.Scalar(), None, ExampleTypeError, "expected float32, found None"),
        (fb.Scalar("int32"), 1.5, ExampleTypeError, "expected int32, found float 1.5"),
        (fb.Scalar("int32"), 2**40, ExampleError, "expected int32, found int 1099511627776; declare int64"),
        (fb.Vector(2), [1, 2, 3], ExampleError, "expected float32[2], found list [1, 2, 3] of shape (3,)"),
        (fb.Vector(2), [1, [2]], ExampleTypeError, "expected float32[2], found list [1, [2]]"),
        (fb.Vector(2), 5, ExampleError, "expected float32[2], found int 5"),
        (fb.GetItem("b") >> fb.Scalar(), {"a": 1}, ExampleKeyError, "expected an item 'b', found dict with keys ['a']"),
        (fb.GetItem(3) >> fb.Scalar(), [1], ExampleIndexError, "expected an item 3, found list of 1"),
        (fb.GetItem("a") >> fb.Scalar(), 7, ExampleTypeError, "expected an item 'a', found int 7"),
        (fb.InputTransform(lambda x: 1 / x) >> fb.Scalar(), 0, ExampleError, "ZeroDivisionError"),
    ],
)
def test_data_that_does_not_fit_is_named(block: fb.Block, datum: object, kind: type[Exception], message: str) -> None:
    """Block, example number, what was expected and what was found; never a bare error of Python or NumPy."""
    program = fb.compile(block)
    with pytest.raises(kind) as caught:
        program.run([datum])
    assert message in str(caught.value)
    assert "at example 0" in str(caught.value)
    assert str(caught.value).startswith("model")


def test_errors_are_the_built_in_ones_too() -> None:
    """Code that catches KeyError, TypeError or ValueError goes on working."""
    with pytest.raises(KeyError):
        (fb.GetItem("b") >> fb.Scalar()).eval({})
    with pytest.raises(TypeError):
        fb.Scalar().eval("x")
    with pytest.raises(ValueError, match="float32"):
        fb.Vector(2).eval([1])


def test_tensors_are_no_objects() -> None:
    """Reading twice is a mistake found when compiling."""
    with pytest.raises(BlockTypeError, match="expected a Python object, found float32"):
        fb.compile(fb.Scalar() >> fb.Scalar())
    with pytest.raises(BlockTypeError, match="expected a Python object"):
        fb.compile(fb.Scalar() >> fb.InputTransform(abs))
    with pytest.raises(BlockTypeError, match="a function"):
        fb.InputTransform(3)


def test_items_of_tuples_are_taken_when_building() -> None:
    """Also negative and slices."""
    pair = fb.AllOf(fb.Scalar(), fb.Scalar("int32"))
    assert (pair >> fb.GetItem(-1)).eval(4).dtype == np.int32
    assert len((pair >> fb.GetItem(slice(0, 1))).eval(4)) == 1
    with pytest.raises(BlockTypeError, match="an index from -2 to 1"):
        fb.compile(pair >> fb.GetItem(2))
    with pytest.raises(BlockTypeError, match="an int or a slice"):
        fb.compile(pair >> fb.GetItem("a"))


def test_void_and_identity() -> None:
    """One swallows, one passes on."""
    assert fb.Void().eval(object()) is None
    assert (fb.Scalar() >> fb.Identity()).eval(2) == 2
    thing = object()
    assert fb.Identity().eval(thing) is thing


def test_repr_builds_the_block_again() -> None:
    """For blocks without functions."""
    for block in (fb.Scalar("int32"), fb.Vector(3), fb.Tensor([1, 2], "bool"), fb.GetItem("a"), fb.Identity()):
        again = eval(f"fb.{block!r}")  # noqa: S307
        assert repr(again) == repr(block)
