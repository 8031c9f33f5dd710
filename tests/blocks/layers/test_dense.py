"""Linear is x @ weight + bias; Embedding is a row of its table, and never wraps an id."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError, ParameterError
from tests.knobs import knobs

RNG = np.random.default_rng(0)
WEIGHT, BIAS = RNG.normal(size=(3, 2)), RNG.normal(size=2)


@pytest.mark.parametrize("activation", [None, "tanh", ops.sigmoid])
def test_linear_is_numpys_product_over_the_last_axis(activation):
    for shape in [(3,), (4, 3), (2, 4, 3), (0, 3)]:
        program = fb.compile(fb.Tensor(shape, "float64") >> fb.Linear(2, activation))
        program.params["linear.weight"] = WEIGHT
        program.params["linear.bias"] = BIAS
        xs = RNG.normal(size=(5, *shape))
        act = {None: lambda y: y, "tanh": np.tanh, ops.sigmoid: lambda y: 1 / (1 + np.exp(-y))}[activation]
        for found, x in zip(program.run(xs), xs, strict=True):
            np.testing.assert_allclose(found, act(x @ WEIGHT + BIAS), rtol=1e-12)
            assert found.dtype == "float64"


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


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("shape", [(), (2,), (2, 2)])
def test_an_embedding_is_the_row_of_every_id(dtype, shape):
    program = fb.compile(fb.Tensor(shape, dtype) >> fb.Embedding(4, 2, init=RNG.normal(size=(4, 2))))
    ids = RNG.integers(0, 4, (3, *shape))
    for found, at in zip(program.run(ids), ids, strict=True):
        np.testing.assert_array_equal(found, program.params["embedding.weight"][at])


def test_an_embeddings_gradient_is_sparse_and_sums_over_equal_ids():
    block = (
        fb.Vector(2, "int32")
        >> fb.Embedding(5, 2, dtype="float64")
        >> fb.Function(lambda x: ops.sum(x * x) / 2)
        >> fb.Loss()
    )
    program = fb.compile(block)
    table = program.params["embedding.weight"]
    _, gradients = program.value_and_grad([[1, 3], [3, 3]])
    gradient = gradients["embedding.weight"]
    assert isinstance(gradient, fb.params.SparseRows)
    assert gradient.rows.tolist() == [1, 3]
    np.testing.assert_allclose(gradient.values, table[[1, 3]] * [[1.0], [3.0]])
    assert gradient.dense().shape == (5, 2)


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


def test_a_table_of_another_shape_is_refused():
    with pytest.raises(ParameterError, match=r"expected float32\[4,2\], found float64\[2,4\]"):
        fb.Embedding(4, 2, init=np.zeros((2, 4)))
