"""The reference interpreter: one instance, in the precision asked for."""

import numpy as np
import pytest

from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, apply, constant, input_node
from foldbatch.static.op import OPS, UNBATCHED, ragged
from foldbatch.types import TensorType
from tests.static.derivatives import sampled

VECTOR = TensorType((3,))
SAMPLES = [(op, sample) for op in OPS.values() for sample in op.samples]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_op_yields_the_shape_of_its_type_and_the_precision_asked_for(dtype: str) -> None:
    for op, sample in SAMPLES:
        inputs, y, values = sampled(op, sample, np.random.default_rng(0))
        (found,) = evaluate(Graph(inputs, (y,)), values, dtype)
        for value in found if y.axis.rank == 2 else [found]:
            assert np.shape(value) == y.shape, op.name
            assert np.asarray(value).dtype == (dtype if y.type.is_float else y.dtype), op.name


def test_floats_are_float64_by_default_whatever_the_graph_says() -> None:
    x = input_node(VECTOR)
    (third,) = evaluate(Graph((x,), (x / 3,)), [np.ones(3, "float32")])
    assert third.dtype == np.float64
    assert third[0] == 1 / 3


def test_a_constant_is_the_number_it_was_rounded_to() -> None:
    """0.1 in a float32 graph is the float32 nearest to 0.1, in the oracle as in the kernels."""
    x = input_node(TensorType(()))
    assert evaluate(Graph((x,), (x * 0.1,)), [1.0])[0] == np.float64(np.float32(0.1))


def test_a_cast_to_a_float_gives_the_precision_asked_for() -> None:
    x = input_node(TensorType((3,), "int32"))
    y = ops.cast(x, "float32") / 3
    assert evaluate(Graph((x,), (y,)), [np.ones(3, "int32")])[0][0] == 1 / 3
    assert evaluate(Graph((x,), (y,)), [np.ones(3, "int32")], "float32")[0].dtype == np.float32


def test_parameters_and_interior_inputs_are_read() -> None:
    x, w = input_node(VECTOR), Parameter(VECTOR, 2.0)
    y = x * w
    z = y + 1
    assert evaluate(Graph((x,), (z,)), [[1, 2, 3]])[0].tolist() == [3, 5, 7]
    assert evaluate(Graph((y,), (z,)), [[1.0, 2.0, 3.0]])[0].tolist() == [2, 3, 4]


def test_a_tensor_along_a_sequence_is_a_list() -> None:
    e, x = input_node(VECTOR, ragged()), input_node(VECTOR)
    outputs = (e + x, ops.segment_sum(e), apply("sum_batch", e), apply("batch", constant(5.0), axis=e.axis))
    each, per_call, total, five = evaluate(
        Graph((e, x), outputs), [[np.ones(3), np.full(3, 2)], np.full(3, 10)]
    )
    assert [v.tolist() for v in each] == [[11] * 3, [12] * 3]
    assert per_call.tolist() == total.tolist() == [3] * 3
    assert five == [5, 5]


def test_an_empty_sequence_sums_to_zero() -> None:
    e, w = input_node(VECTOR, ragged()), input_node(TensorType((3, 2)), UNBATCHED)
    outputs = (ops.segment_sum(e @ w), apply("sum_outer", e, e), ops.tanh(e))
    per_call, outer, each = evaluate(Graph((e, w), outputs), [[], np.ones((3, 2))])
    assert per_call.tolist() == [0, 0]
    assert outer.tolist() == np.zeros((3, 3)).tolist()
    assert each == []


def test_two_sequences_have_their_own_lengths() -> None:
    e, d = input_node(VECTOR, ragged()), input_node(VECTOR, ragged())
    total = ops.segment_sum(e) - ops.segment_sum(d)
    assert evaluate(Graph((e, d), (total,)), [[np.ones(3)] * 5, [np.ones(3)] * 2])[0].tolist() == [3, 3, 3]


def test_a_value_too_few_or_too_many_is_an_error() -> None:
    x = input_node(VECTOR)
    for values in ([], [np.ones(3), np.ones(3)]):
        with pytest.raises(ValueError, match="argument 2 is"):
            evaluate(Graph((x,), (x,)), values)
