"""The writer: names and constants."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install 'foldbatch[onnx]'")

from foldbatch.exporting.writer import Writer


def test_equal_constants_have_one_name_also_in_a_body():
    writer = Writer()
    name = writer.constant([1.0, 2.0], "float32")
    assert writer.body().constant(np.array([1, 2], "float32")) == name
    assert writer.constant([1.0, 2.0], "float64") != name != writer.constant([[1.0, 2.0]], "float32")
    assert len(writer.constants) == 3


def test_names_are_given_once():
    writer = Writer()
    assert writer.name("x") != writer.body().name("x")
