"""Blocks side by side: which item each is given, and in which order results come."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError


def numbers(value):
    """A result with arrays as floats."""
    if isinstance(value, tuple | list):
        return type(value)(map(numbers, value))
    return float(value) if hasattr(value, "dtype") else value


ONE = fb.Scalar()


@pytest.mark.parametrize("block", [fb.Scalar(), fb.Map(fb.Scalar())])
def test_what_has_no_items_is_refused(block):
    with pytest.raises(BlockTypeError, match="expected an object or a tuple"):
        fb.compile(block >> fb.Record((fb.Identity(),)))


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
