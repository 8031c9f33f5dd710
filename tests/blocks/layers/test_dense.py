"""Linear is x @ weight + bias; Embedding is a row of its table, and never wraps an id."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError
from tests.knobs import knobs

WEIGHT = np.random.default_rng(0).normal(size=(3, 2))


def test_linear_may_do_without_a_bias_and_begins_at_none():
    assert list(fb.compile(fb.Vector(3) >> fb.Linear(2, bias=False)).params) == ["linear.weight"]
    assert fb.compile(fb.Vector(3) >> fb.Linear(2)).params["linear.bias"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("init", "right"),
    [
        ("ones", np.ones((3, 2))),
        (0.5, np.full((3, 2), 0.5)),
        (WEIGHT, WEIGHT),
        (lambda rng, shape: np.full(shape, 2.0), np.full((3, 2), 2.0)),
    ],
)
def test_the_weight_begins_as_it_is_told(init, right):
    program = fb.compile(fb.Vector(3, "float64") >> fb.Linear(2, init=init))
    np.testing.assert_array_equal(program.params["linear.weight"], right)


def test_a_frozen_embedding_has_no_gradient():
    table = fb.Embedding(5, 2, trainable=False)
    block = fb.Scalar("int32") >> table >> fb.Linear(1) >> fb.Function(ops.sum) >> fb.Loss()
    _, gradients = fb.compile(block).value_and_grad([1, 2])
    assert list(gradients) == ["linear.weight", "linear.bias"]


@pytest.mark.parametrize("wrong", [-1, 4, 100, -(2**31)])
def test_an_id_out_of_range_is_an_error_and_never_another_row(wrong):
    for options in [{}, {"backend": "reference"}, {"batched": False}]:
        program = fb.compile(fb.Scalar("int32") >> fb.Embedding(4, 2), **knobs(options))
        with pytest.raises(
            ExampleError, match=f"at example 1: expected int32 from 0 to 3, found int {wrong}"
        ):
            program.run([0, wrong])
