"""Errors of ids out of range name the example."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.engines.naming import Naming
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.errors import ExampleError


def test_an_id_out_of_range_becomes_an_error_of_its_example():
    program = fb.compile(fb.Scalar("int32") >> fb.Embedding(3, 2, name="words"), "numpy")
    batch = fb.program.schedule(program, [0, 1])
    error = OutOfRangeError(0, 7, 3)
    error.cell = 0
    with (
        pytest.raises(ExampleError, match="at example 5: expected ids from 0 to 2, found 7"),
        Naming(program.model, batch, 5),
    ):
        raise error
    with pytest.raises(ValueError, match="another"), Naming(program.model, batch, 5):
        raise ValueError("another")
