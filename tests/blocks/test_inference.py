"""Inference: types are known as soon as blocks are composed, and each block is looked at once."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.block import infer
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.inference import UnknownTypeError
from foldbatch.blocks.values import Object
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType

FLOAT, ROW = TensorType(()), TensorType((2,))
ONE = fb.Scalar()
TYPES = [
    VOID,
    OBJECT,
    ROW,
    TensorType((), "int64"),
    TupleType(()),
    TupleType((ROW, TupleType((OBJECT, VOID)))),
    SequenceType(TupleType((ROW, OBJECT))),
    BroadcastType(TupleType((ROW, VOID))),
    TupleType((SequenceType(SequenceType(ROW)), BroadcastType(OBJECT))),
]


TYPES_THAT = [
    (ONE, "object", "float32"),
    (fb.Identity(), None, None),
    (fb.Void(), "void", "void"),
    (fb.Identity() >> ONE, "object", "float32"),
    (fb.Pipe(), None, None),
    (fb.GetItem("a"), "object", "object"),
    (fb.GetItem(0), None, None),
    (fb.GetItem(0) >> ONE, None, None),  # of an object, or of a tuple
    (fb.OneHot(3) >> fb.Function(lambda x: (x, x[0])), "object", "(float32[3], float32)"),
    (fb.Map(ONE), "object", "[float32, ...]"),
    (fb.Map(fb.Identity()), None, None),
    (fb.Map(ONE) >> fb.NGrams(2), "object", "[(float32, float32), ...]"),
    (fb.Map(ONE) >> fb.Reduce(fb.Function(ops.add)), "object", "float32"),
    (
        fb.Map(ONE) >> fb.RNN(fb.Function(lambda x, h: (x, h)), fb.Zeros(2)),
        "object",
        "([float32, ...], float32[2])",
    ),
    (ONE >> fb.Broadcast(), "object", "repeat(float32)"),
    (fb.Record({"a": ONE, "b": fb.Void()}), "object", "(float32, void)"),
    (fb.Record((ONE, fb.Map(ONE))), "object", "(float32, [float32, ...])"),
    (fb.Record((ONE, fb.Identity())), None, None),
    (fb.AllOf(ONE, fb.Identity()), "object", "(float32, object)"),
    (fb.AllOf(fb.Void(), fb.Zeros(2)), "void", "(void, float32[2])"),
    (fb.OneOf(len, {1: ONE, 2: np.float32(1)}), "object", "float32"),
    (fb.OneOf(fb.Identity(), {1: ONE}), None, None),
    (fb.Optional(fb.Map(ONE)), "object", "[float32, ...]"),
    (fb.ForwardDeclaration(2, (3, "int32"))(), "float32[2]", "(float32[3], int32)"),
    (fb.ForwardDeclaration()(), "object", None),
    (ONE >> fb.Metric("m"), "object", "void"),
    (fb.Linear(3), None, None),
    (fb.Vector(2) >> fb.Linear(3), "object", "float32[3]"),
    (fb.FromTensor(fb.Parameter(ROW, 0.0, "w")), "void", "float32[2]"),
]


def test_types_that_are_known_of_a_block_alone():
    for block, reads, yields in TYPES_THAT:
        assert [None if t is None else str(t) for t in (block.input_type, block.output_type)] == [
            reads,
            yields,
        ]


def test_what_is_known_of_a_block_is_not_found_out_again():
    """However often it is put into others: 2**8 places here."""
    calls = []
    block = fb.Vector(2) >> fb.Function(lambda x: calls.append(x) or x)
    for _ in range(8):
        block = fb.AllOf(block, block) >> fb.GetItem(0)
    assert str(block.output_type) == "float32[2]"
    assert len(calls) == 1


def test_a_block_is_looked_at_for_every_kind_of_input():
    seen = []
    note = fb.Function(lambda x: seen.append(str(x.type)) or x)
    for before in (ONE, fb.Vector(2), ONE, fb.Scalar("int32"), fb.Vector(2)):
        assert (before >> note).output_type == before.output_type
    assert seen == ["float32", "float32[2]", "int32"]


def test_an_ill_typed_block_stays_ill_typed():
    wrong = fb.Function(lambda x: x[5])
    for _ in range(2):
        with pytest.raises(BlockTypeError):
            fb.Vector(2) >> wrong
    assert (fb.Vector(6) >> wrong).eval([0, 0, 0, 0, 0, 9]) == 9


def test_what_a_declaration_without_a_type_yields_is_not_known_yet():
    untyped = fb.ForwardDeclaration(name="untyped")
    with pytest.raises(UnknownTypeError):
        untyped().build(Builder.scratch("root"), Object("x"))
    late = fb.AllOf(untyped(), ONE) >> fb.GetItem(0) >> fb.Linear(3)  # no error yet
    assert late.output_type is None
    assert infer(late, Builder.scratch("root")) is None


def test_inference_leaves_nothing_in_the_program():
    """Losses, metrics and parameters that only inference has seen are no part of it."""
    layer = fb.Linear(1, name="used")
    fb.Vector(2) >> fb.Linear(3) >> fb.Function(ops.sum) >> fb.AllOf(fb.Loss(), fb.Metric("other"))
    program = fb.compile(fb.Vector(2) >> layer)
    assert list(program.params) == ["used.weight", "used.bias"]
    assert program.run([[1, 2]], losses=True).loss == 0.0


def test_errors_of_composition_begin_with_the_blocks_on_either_side():
    with pytest.raises(BlockTypeError, match=r"^Function\(tanh\) >> Concat\(axis=0\): expected a tuple"):
        ONE >> fb.Function(ops.tanh) >> fb.Concat()
    with pytest.raises(BlockTypeError, match=r"^Function\(tanh\) >> Concat\(axis=0\): expected a tuple"):
        fb.Pipe(ONE, fb.Function(ops.tanh), fb.Concat())
