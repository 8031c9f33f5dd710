"""Ops that change the batch axis: derivatives on every sample, their pairs, and who may call them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from foldbatch.errors import GraphError
from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.types import TensorType

VECTOR = TensorType((3,), "float64")
ELEMENTS = ragged()


@pytest.mark.parametrize(
    ("name", "attrs", "axis", "transposed"),
    [
        ("batch", {"axis": CALL}, UNBATCHED, "sum_batch"),
        ("batch", {"axis": ELEMENTS}, UNBATCHED, "sum_batch"),
        ("sum_batch", {}, CALL, "batch"),
        ("sum_batch", {}, ELEMENTS, "batch"),
        ("repeat", {"axis": ELEMENTS}, CALL, "segment_sum"),
        ("segment_sum", {}, ELEMENTS, "repeat"),
    ],
)
def test_each_is_the_gradient_of_its_partner(
    name: str, attrs: dict[str, Axis], axis: Axis, transposed: str
) -> None:
    x = input_node(VECTOR, axis)
    y = apply(name, x, **attrs)
    g = input_node(VECTOR, y.axis)
    (found,) = vjp([y], [g], [x])
    assert found is not None
    assert (found.op.name, found.axis, found.inputs) == (transposed, axis, (g,))


@pytest.mark.parametrize("length", [0, 1, 3])
def test_the_elements_of_a_sequence_are_summed(length: int) -> None:
    x = input_node(VECTOR, ELEMENTS)
    values = list(np.random.default_rng(0).normal(size=(length, 3)))
    (found,) = evaluate(Graph((x,), (ops.segment_sum(x),)), [values])
    np.testing.assert_allclose(found, np.sum(values, axis=0) if length else np.zeros(3))


def test_integers_are_summed_as_integers() -> None:
    x = input_node(TensorType((2,), "int32"), ELEMENTS)
    for values in ([], [np.array([1, 2], np.int32)]):
        (found,) = evaluate(Graph((x,), (ops.segment_sum(x),)), [values])
        assert found.dtype == np.int32


def test_a_call_is_repeated_for_the_elements_of_its_sequence() -> None:
    """Nobody need write it: any op on a call and on elements does it."""
    x, element = input_node(VECTOR), input_node(VECTOR, ELEMENTS)
    y = x * element
    assert (y.axis, y.inputs[0].op.name) == (ELEMENTS, "repeat")
    (found,) = evaluate(Graph((x, element), (y,)), [np.array([1.0, 2, 3]), [np.ones(3), np.full(3, 2.0)]])
    assert [row.tolist() for row in found] == [[1, 2, 3], [2, 4, 6]]


def test_the_gradient_of_a_table_sums_the_rows_of_equal_id() -> None:
    table, ids = input_node(TensorType((4, 2), "float64"), UNBATCHED), input_node(TensorType((3,), "int32"))
    y = ops.gather(table, ids)
    (found,) = vjp([y], [constant(np.array([[1.0, 2], [10, 20], [100, 200]]))], [table])
    assert found is not None
    (rows_,) = evaluate(Graph((table, ids), (found,)), [np.zeros((4, 2)), np.array([3, 1, 3])])
    assert rows_.tolist() == [[0, 0], [10, 20], [0, 0], [101, 202]]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda along: apply("batch", along[CALL], axis=CALL), "the same for the whole batch"),
        (lambda along: apply("sum_batch", along[UNBATCHED]), "a row per call"),
        (lambda along: apply("repeat", along[ELEMENTS], axis=ELEMENTS), "a row per call"),
        (lambda along: apply("repeat", along[UNBATCHED], axis=ELEMENTS), "a row per call"),
        (lambda along: apply("segment_sum", along[CALL]), "a sequence's elements"),
        (lambda along: apply("gather", along[CALL], constant(0)), "a table that is the same"),
        (
            lambda along: apply("sum_rows", along[CALL], constant([0, 1]), size=4),
            "a row for every integer id",
        ),
    ],
)
def test_a_tensor_along_the_wrong_axis_is_refused(
    call: Callable[[dict[Axis, Node]], Node], expected: str
) -> None:
    with pytest.raises(GraphError, match=expected):
        call({axis: input_node(VECTOR, axis) for axis in (CALL, UNBATCHED, ELEMENTS)})
