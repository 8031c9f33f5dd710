"""Elementwise ops in ONNX: what has no operator of that meaning is made of several (`tests/test_edges.py` checks values)."""

from __future__ import annotations

import pytest

onnx = pytest.importorskip("onnx", reason="needs ONNX: pip install 'foldbatch[onnx]'")

from foldbatch.exporting.elementwise import TRANSLATIONS, onnx_type  # noqa: E402
from foldbatch.exporting.writer import Scope, Writer  # noqa: E402
from foldbatch.static.graph import apply, input_node  # noqa: E402
from foldbatch.static.op import CALL, OPS  # noqa: E402
from foldbatch.types import TensorType  # noqa: E402


def operators(name, given, count, **attributes):
    """The operators that an op becomes."""
    writer = Writer()
    node = apply(
        name, *(input_node(TensorType((3,), given), CALL, f"x{i}") for i in range(count)), **attributes
    )
    TRANSLATIONS[name](Scope(writer, {}, {}), node, *(f"x{i}" for i in range(count)))
    return [made.op_type for made in writer.nodes]


def test_every_elementwise_op_has_a_translation():
    assert {name for name, op in OPS.items() if op.elementwise} <= TRANSLATIONS.keys()


def test_types_have_onnx_numbers():
    assert onnx_type("float32") == onnx.TensorProto.FLOAT


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
