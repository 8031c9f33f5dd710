"""Linear and Embedding: values, gradients, misuse."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockTypeError, BlockValueError, ExampleError, ParameterError


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        (None, lambda x: x),
        ("relu", lambda x: np.maximum(x, 0)),
        ("tanh", np.tanh),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x))),
        ("softplus", lambda x: np.log1p(np.exp(x))),
        (fb.ops.square, np.square),
    ],
)
def test_linear_is_x_w_plus_b(activation: object, function: object) -> None:
    """Then the activation; weight [in, out], bias [out]."""
    program = fb.compile(fb.Vector(3, "float64") >> fb.Linear(2, activation))
    program.params["linear.bias"] = [0.5, -0.5]
    x = np.array([1.0, -2.0, 3.0])
    expected = function(x @ program.params["linear.weight"] + [0.5, -0.5])
    np.testing.assert_allclose(program.run([x])[0], expected, rtol=1e-12)
    assert program.params["linear.weight"].shape == (3, 2)


def test_linear_takes_matrices_and_may_have_no_bias() -> None:
    """The last axis is the one that is multiplied."""
    program = fb.compile(fb.Tensor([2, 3]) >> fb.Linear(4, bias=False, init="ones", name="dense"))
    assert list(program.params) == ["dense.weight"]
    assert program.run([[[1, 2, 3], [0, 0, 1]]])[0].tolist() == [[6] * 4, [1] * 4]


def test_embedding_reads_rows_and_its_gradient_is_sparse() -> None:
    """A row read twice gets both gradients; rows not read get none."""
    table = fb.Embedding(4, 2, init=np.arange(8.0).reshape(4, 2))
    program = fb.compile(fb.Map(fb.Scalar("int64") >> table) >> fb.Function(lambda x: fb.ops.sum(fb.ops.segment_sum(x))) >> fb.Loss())
    value, gradients = program.value_and_grad([[1, 3, 1]])
    assert value == 2 + 3 + 6 + 7 + 2 + 3
    assert isinstance(gradients["embedding.weight"], fb.SparseRows)
    assert gradients["embedding.weight"].dense().tolist() == [[0, 0], [2, 2], [0, 0], [1, 1]]


def test_a_frozen_embedding_has_no_gradient() -> None:
    """It is never computed."""
    frozen = fb.Embedding(4, 2, trainable=False)
    program = fb.compile(fb.Scalar("int32") >> frozen >> fb.Linear(1) >> fb.Function(fb.ops.sum) >> fb.Loss())
    assert program.value_and_grad([1])[1].keys() == {"linear.weight", "linear.bias"}


@pytest.mark.parametrize("bad", [-1, 4, 10**6])
def test_ids_out_of_range_are_errors_and_never_wrap(bad: int) -> None:
    """Also ids that are computed; the program goes on working."""
    read = fb.compile(fb.Scalar("int32") >> fb.Embedding(4, 2))
    with pytest.raises(ExampleError, match="from 0 to 3"):
        read.run([1, bad])
    computed = fb.compile(fb.Scalar("int32") >> fb.Function(lambda i: i + 0 * i) >> fb.Embedding(4, 2))
    with pytest.raises(ExampleError, match=r"example 1.*from 0 to 3"):
        computed.run([1, bad])
    assert len(read.run([1, 2])) == len(computed.run([1, 2])) == 2


def test_misuse_is_refused() -> None:
    """Sizes at once, inputs when compiled."""
    for make in (lambda: fb.Linear(0), lambda: fb.Linear(2.5), lambda: fb.Embedding(0, 2), lambda: fb.Embedding(2, True)):
        with pytest.raises(BlockValueError, match="positive"):
            make()
    with pytest.raises(BlockTypeError, match="an activation of"):
        fb.Linear(2, "magic")
    with pytest.raises(ParameterError):
        fb.Embedding(2, 2, init=np.ones((3, 2)))
    with pytest.raises(BlockTypeError, match="integer tensor of ids"):
        fb.compile(fb.Scalar() >> fb.Embedding(2, 2))
    with pytest.raises(BlockTypeError, match="float"):
        fb.compile(fb.Scalar("int32") >> fb.Linear(2))
