"""Inference: types are known as soon as blocks are composed, and each block is looked at once."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.block import infer
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.inference import UnknownTypeError
from foldbatch.blocks.values import Object
from foldbatch.errors import BlockTypeError

ONE = fb.Scalar()


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
