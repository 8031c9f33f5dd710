"""The public functions and operators mean what NumPy's of the same name mean."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from foldbatch.errors import GraphError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import TensorType
from tests.static.ops.beside_numpy import CUBE, RNG, X, Y, check, run


def test_gelu_is_close_to_the_gaussian_it_approximates() -> None:
    """x times the probability that a normal variable is below x."""
    x = np.linspace(-6, 6, 1001)
    exact = x * np.array([0.5 * (1 + math.erf(v / math.sqrt(2))) for v in x])
    np.testing.assert_allclose(run(ops.gelu, x), exact, atol=5e-4)
    assert run(ops.gelu, np.array([0.0, 30, -30])).tolist() == [0, 30, 0]


@pytest.mark.parametrize("axis", [None, 0, np.int64(1), 2, -1, -3, (0, 2), (-1, 0), (0, 1, 2), ()])
def test_sums_and_means_take_numpys_axes(axis: Any) -> None:
    for keep in (False, True, np.True_, 0, 1):
        check(
            lambda x, k=keep: ops.sum(x, axis, keepdims=k),
            lambda x, k=keep: x.sum(axis, keepdims=bool(k)),
            CUBE,
        )
        check(
            lambda x, k=keep: ops.mean(x, axis, keepdims=k),
            lambda x, k=keep: x.mean(axis, keepdims=bool(k)),
            CUBE,
        )


WRONG: list[Any] = [
    lambda x: ops.min(x, 0.0),
    lambda x: ops.reshape(x, (1.5, 3)),
    lambda x: ops.broadcast_to(x, (2, 3.0)),
    lambda x: ops.pad(x, 0.5, 0),
    lambda x: ops.one_hot(x, "2"),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_settings_of_ops_are_whole_numbers_and_numpys_will_do(wrong: Any) -> None:
    with pytest.raises(
        GraphError, match="ops.(min|reshape|broadcast_to|pad|one_hot): expected (an axis|whole)"
    ):
        wrong(X)
    check(lambda x: ops.topk(x, np.int64(1))[0], lambda x: x.max(1, keepdims=True), X)
    check(lambda x: ops.reshape(x, np.array([3, 2])), lambda x: x.reshape(3, 2), X)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_max_and_argmax_take_numpys_axes(axis: int | None) -> None:
    check(lambda x: ops.max(x, axis), lambda x: np.max(x, axis), CUBE)
    check(lambda x: ops.max(x, axis, keepdims=True), lambda x: np.max(x, axis, keepdims=True), CUBE)
    check(lambda x: ops.argmax(x, axis), lambda x: np.argmax(x, axis), CUBE)
    check(lambda x: ops.argmax(x, axis), lambda x: np.argmax(x, axis), np.array([[1.0, 3, 3], [3, 0, 3]]))


def test_places_are_counted_in_32_bits() -> None:
    """Further ones were negative."""
    with pytest.raises(GraphError, match="argmax: expected fewer than 2\\*\\*31 elements along its axis"):
        ops.argmax(ops.broadcast_to(3.0, (2, 2**31)), axis=1)
    ops.argmax(ops.broadcast_to(3.0, (2**31 - 1, 2)), axis=0)


def test_cross_entropy_takes_logits_and_class_numbers() -> None:
    probability = np.exp(X) / np.exp(X).sum(1, keepdims=True)
    check(ops.cross_entropy, lambda _, label: -np.log(probability[[0, 1], label]), X, np.array([2, 0]))
    check(lambda x: ops.cross_entropy(x, 1), lambda _: -np.log(probability[0, 1]), X[0])


SHAPED = [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 2)), ((2, 3), (3, 4))]


@pytest.mark.parametrize(("left", "right"), SHAPED)
def test_matmul_is_numpys(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(ops.matmul, np.matmul, RNG.normal(size=left), RNG.normal(size=right))


def test_where_is_numpys() -> None:
    mask = X > 0
    check(ops.where, np.where, mask, X, Y)
    check(ops.where, np.where, mask, X[0], Y[:, :1])
    check(lambda c, x: ops.where(c, x, 0), lambda c, x: np.where(c, x, 0), mask, X)
    check(lambda c, x: ops.where(c, -1.5, x), lambda c, x: np.where(c, -1.5, x), mask, X)


def test_where_of_two_numbers_has_the_numbers_dtype_not_the_conditions() -> None:
    condition = input_node(TensorType((3,), "bool"))
    assert ops.where(condition, 1.0, 0.0).dtype == "float32"
    assert ops.where(condition, 1, 0).dtype == "int64"
    assert ops.where(condition, np.True_, np.False_).dtype == "bool"


def test_where_takes_a_number_and_a_parameter() -> None:
    parameter = Parameter(TensorType((3,), "float64"))
    assert ops.where(input_node(TensorType((3,), "bool")), parameter, 0).dtype == "float64"


def test_a_cast_to_its_own_dtype_is_the_tensor() -> None:
    x = input_node(TensorType((3,)))
    assert ops.cast(x, np.float32) is x


@pytest.mark.parametrize("ids", [3, np.array([0, 3]), np.array([[1, 1], [2, 0]])])
def test_gather_and_one_hot_look_ids_up(ids: Any) -> None:
    table = RNG.normal(size=(4, 2))
    check(lambda i: ops.gather(table, i), lambda i: table[i], np.asarray(ids))
    check(lambda i: ops.one_hot(i, 4, "float64"), lambda i: np.eye(4)[i], np.asarray(ids))


def test_gather_takes_a_python_number() -> None:
    (found,) = evaluate(Graph((), (ops.gather(constant(np.eye(3)), 1),)), [])
    assert found.tolist() == [0, 1, 0]


def _unstepped(key: Any) -> bool:
    keys = key if isinstance(key, tuple) else (key,)
    return all(not isinstance(k, slice) or k.step in (None, 1) for k in keys)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_indexing_is_numpys(data: st.DataObject) -> None:
    """Ints, slices, ``...`` and None, in any combination; negative and out-of-range bounds of slices."""
    array = data.draw(st.sampled_from([CUBE, X, X[0], X[0, 0]]))
    key = data.draw(hnp.basic_indices(array.shape, allow_newaxis=True).filter(_unstepped))
    check(lambda x: x[key], lambda x: x[key], array)


@pytest.mark.parametrize(
    "key", [np.int64(1), (np.int32(-1), 0), slice(-100, 100), slice(2, 1), (..., None, 0)]
)
def test_indexing_with_less_usual_keys_is_numpys(key: Any) -> None:
    check(lambda x: x[key], lambda x: x[key], CUBE)


def test_a_tensor_iterates_over_its_first_axis() -> None:
    x = input_node(TensorType((2, 3)))
    assert len(x) == 2
    assert [*iter(x)] == [x[0], x[1]]


def test_a_number_takes_the_dtype_of_the_tensor() -> None:
    for dtype in ("float32", "float64", "int32", "int64"):
        x = input_node(TensorType((3,), dtype))
        assert (x + 1).dtype == (2 * x).dtype == (x - True).dtype == dtype
    x = input_node(TensorType((3,)))
    assert (x * np.sqrt(2)).dtype == "float32"
    assert (x * np.pi).dtype == "float32"


def test_a_parameter_may_stand_wherever_a_tensor_may() -> None:
    x, parameter = input_node(TensorType((3,))), Parameter(TensorType((3,)))
    assert (parameter + x).axis is CALL
    assert ops.tanh(parameter).axis is UNBATCHED
    assert ops.concat([parameter, x]).axis is CALL


def test_a_function_without_an_operation_returns_its_operand() -> None:
    x = input_node(TensorType((2, 3)))
    same: list[Node] = [
        x[:],
        x[...],
        ops.reshape(x, (2, 3)),
        ops.broadcast_to(x, (2, 3)),
        ops.concat([x]),
        ops.sum(x, ()),
    ]
    assert all(y is x for y in same)


def test_every_public_function_is_documented_and_exported() -> None:
    for name in ops.__all__:
        assert getattr(ops, name).__doc__, name
    with pytest.raises(GraphError):
        ops.add()


@pytest.mark.parametrize("smoothing", [0, 0.1, 1.0])
@pytest.mark.parametrize("weights", [None, [0.5, 2.0, 0.0]])
def test_smoothing_gives_every_class_a_share_of_the_loss(weights, smoothing):
    logits, label = input_node(TensorType((2, 3), "float64")), input_node(TensorType((2,), "int32"))
    loss = ops.cross_entropy(
        logits, label, weights=None if weights is None else np.array(weights), smoothing=smoothing
    )
    scores, labels = np.array([[0.3, -1, 2], [1e4, 0, -1e4]]), np.array([2, 1])
    (smoothed,) = evaluate(Graph((logits, label), (loss,)), [scores, labels])
    scores = scores - scores.max(axis=-1, keepdims=True)
    chances = scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))
    factors = np.ones(3) if weights is None else np.array(weights)
    target = (1 - smoothing) * np.eye(3)[labels] * factors + smoothing * factors / 3
    np.testing.assert_allclose(smoothed, -(target * chances).sum(axis=-1), rtol=1e-12)


def test_no_smoothing_adds_no_ops() -> None:
    logits, label = input_node(TensorType((3,))), input_node(TensorType((), "int32"))
    assert ops.cross_entropy(logits, label, smoothing=0.0).inputs == (logits, label)
