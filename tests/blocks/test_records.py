"""Blocks side by side: which item each is given, and in which order results come."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError


def numbers(value):
    """A result with arrays as floats."""
    if isinstance(value, tuple | list):
        return type(value)(map(numbers, value))
    return float(value) if hasattr(value, "dtype") else value


ONE = fb.Scalar()


EVERY_BLOCK = [
    (fb.Record({"b": ONE, "a": ONE}), {"a": 1, "b": 2, "c": 3}, (2.0, 1.0)),
    (fb.Record([("b", ONE), ("a", ONE)]), {"a": 1, "b": 2}, (2.0, 1.0)),
    (fb.Record([(1, ONE), (0, fb.Identity())]), [1, 2], (2.0, 1)),
    (fb.Record((ONE, ONE)), [1, 2], (1.0, 2.0)),
    (fb.Record([ONE]), [1], (1.0,)),
    (fb.Record(block for block in (ONE, ONE)), (1, 2), (1.0, 2.0)),
    (fb.Record({}), "whatever", ()),
    (fb.Record(()), "whatever", ()),
    (fb.Record({"a": {"b": ONE}}), {"a": {"b": 3}}, ((3.0,),)),
    (fb.Record({"a": (ONE, [ONE])}), {"a": [1, [2]]}, ((1.0, (2.0,)),)),
    (fb.Record(((ONE, ONE), (ONE, ONE))), [[1, 2], [3, 4]], ((1.0, 2.0), (3.0, 4.0))),
    (fb.Record((ONE, ONE)) >> (fb.Void(), fb.Identity()), [1, 2], (None, 2.0)),
    (fb.AllOf(), "whatever", None),
    (fb.Record((fb.Identity(), fb.AllOf())), [1, 2], (1, None)),
    (fb.AllOf(ONE), 1, (1.0,)),
    (fb.AllOf(ONE, fb.Identity(), fb.Void()), 1, (1.0, 1, None)),
    (fb.AllOf({"a": ONE}, {"a": fb.Identity()}), {"a": 1}, ((1.0,), (1,))),
    (
        ONE >> fb.AllOf(fb.Identity(), fb.Identity()) >> fb.AllOf(fb.GetItem(1), fb.GetItem(0)),
        1,
        (1.0, 1.0),
    ),
]


def test_every_block_is_given_its_item():
    for block, example, right in EVERY_BLOCK:
        assert numbers(block.eval(example)) == right


@pytest.mark.parametrize("block", [fb.Scalar(), fb.Map(fb.Scalar())])
def test_what_has_no_items_is_refused(block):
    with pytest.raises(BlockTypeError, match="expected an object or a tuple"):
        fb.compile(block >> fb.Record((fb.Identity(),)))


def test_a_record_of_nothing_gives_its_blocks_nothing():
    block = fb.Void() >> fb.Record({"a": np.float32(3), "b": (fb.Void(), fb.Zeros(2))})
    a, (nothing, b) = block.eval("whatever")
    assert (float(a), nothing, b.tolist()) == (3.0, None, [0.0, 0.0])
    with pytest.raises(BlockTypeError, match=r"\['a'\] Scalar.*: expected a Python object, found void"):
        fb.Void() >> fb.Record({"a": fb.Scalar()})


def test_paths_in_errors_index_the_blocks_as_python_would():
    """They begin at the innermost block that is known to be wrong, if none is at the whole model."""
    case = fb.OneOf(fb.Identity(), {1: fb.Linear(2)})  # may be given tensors
    either = fb.AllOf(fb.Identity(), fb.Map((fb.Identity(), case)))
    for make, where in [
        (lambda: fb.OneOf(len, {1: fb.Linear(2)}), "OneOf(len, {1: Linear(2)}).case(1)"),
        (lambda: fb.Record({"a": either}), "Record(...)['a'][1].map[1].case(1)"),
        (lambda: fb.compile(either), "model[1].map[1].case(1)"),
    ]:
        with pytest.raises(BlockTypeError) as caught:
            make()
        assert caught.value.where == f"{where} Linear(2)"
