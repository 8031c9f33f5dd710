"""Elementwise ops in ONNX: what has no operator of that meaning is made of several (`tests/test_edges.py` checks values)."""

from __future__ import annotations

import pytest

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install -e '.[onnx]'")

from foldbatch.exporting.operators import TRANSLATIONS, OnnxScope, OnnxWriter  # noqa: E402  # noqa: E402
from foldbatch.static.graph import apply, input_node  # noqa: E402
from foldbatch.static.op import CALL  # noqa: E402
from foldbatch.types import TensorType  # noqa: E402


def operators(name, given, count, **attributes):
    """The operators that an op becomes."""
    writer = OnnxWriter()
    node = apply(
        name, *(input_node(TensorType((3,), given), CALL, f"x{i}") for i in range(count)), **attributes
    )
    TRANSLATIONS[name](OnnxScope(writer, {}, {}), node, *(f"x{i}" for i in range(count)))
    return [made.op_type for made in writer.nodes]


def test_remainders_are_exact_before_they_are_floored():
    for name in ("mod", "floor_divide"):
        assert operators(name, "float32", 2)[0] == "Mod"


def test_only_floats_are_held_within_the_limits_of_integers():
    assert "Clip" in operators("cast", "float64", 1, dtype="int64")
    assert operators("cast", "int64", 1, dtype="int32") == ["Cast"]
    assert operators("cast", "float32", 1, dtype="float64") == ["Cast"]


def test_bools_are_compared_as_numbers():
    assert operators("less", "bool", 2) == ["Cast", "Cast", "Less"]
    assert operators("less_equal", "int32", 2) == ["LessOrEqual"]
