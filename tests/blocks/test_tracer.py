"""Tracing: integers out, data checked, errors located."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.blocks.tracer import BadDataError, column
from foldbatch.types import TensorType


def total() -> fb.Block:
    """The sum of a nested list."""
    declared = fb.ForwardDeclaration(output_type="float32", name="total")
    pair = fb.Record((declared(), declared())) >> fb.Function(lambda a, b: a + b)
    declared.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: fb.Scalar(), True: pair}))
    return declared()


NESTED = st.recursive(st.integers(-9, 9), lambda inner: st.tuples(inner, inner).map(list), max_leaves=12)


@given(NESTED)
def test_a_trace_has_a_call_per_leaf_and_per_pair(example: Any) -> None:
    """Arguments come before the calls that read them; a trace is plain data."""
    trace = fb.compile(total()).lowered.tracer.trace(example)
    leaves = str(example).replace("[", "").replace("]", "").split(",")
    assert sorted(map(len, trace.calls)) == sorted([len(leaves), len(leaves) - 1])
    for rows in trace.calls:
        for base, *arguments in rows.tolist():
            assert all(argument < base for argument in arguments)
    again = pickle.loads(pickle.dumps(trace))
    assert all(np.array_equal(a, b) for a, b in zip(trace.calls, again.calls, strict=True))


@given(st.lists(NESTED, max_size=5))
def test_traces_do_not_depend_on_what_was_traced_before(examples: list[Any]) -> None:
    """Nor on an example that failed in between."""
    tracer = fb.compile(total()).lowered.tracer
    once = [tracer.trace(example) for example in examples]
    with pytest.raises(fb.errors.ExampleError):
        tracer.trace([1, "x"])
    twice = [tracer.trace(example) for example in examples]
    for a, b in zip(once, twice, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(a.calls, b.calls, strict=True))


@pytest.mark.parametrize(
    ("items", "type_", "bound"),
    [
        (["a"], TensorType(), None),
        ([1.5], TensorType((), "int32"), None),
        ([2**31], TensorType((), "int32"), None),
        ([1, 5], TensorType((), "int32"), 5),
        ([-1], TensorType((), "int32"), 5),
        ([[1], [1, 2]], TensorType((1,)), None),
        ([1], TensorType((1,)), None),
        ([None], TensorType(), None),
        ([2], TensorType((), "bool"), None),
    ],
)
def test_columns_of_wrong_data_are_refused(items: list[Any], type_: TensorType, bound: int | None) -> None:
    """Kind, shape, range."""
    with pytest.raises(BadDataError):
        column(items, type_, bound)


def test_columns_of_right_data_are_arrays_of_the_type() -> None:
    """An empty one too; integers will do for floats."""
    assert column([], TensorType((2,)), None).shape == (0, 2)
    assert column([1, 2], TensorType(), None).dtype == np.float32
    assert column([[1, 0]], TensorType((2,), "int64"), 2).tolist() == [[1, 0]]


def test_an_error_deep_inside_names_the_whole_way() -> None:
    """Through every call of the declaration."""
    with pytest.raises(fb.errors.ExampleTypeError) as caught:
        fb.compile(total()).run([[1, 2], [1, [2, [3, None]]]])
    assert "at example 1 [1][1][1]" in str(caught.value)
    assert "total.case(False) Scalar('float32')" in str(caught.value)


def test_a_failing_batch_changes_nothing() -> None:
    """Parameters are as they were, and the next batch runs."""
    program = fb.compile(fb.Vector(2) >> fb.Linear(1) >> fb.Function(fb.ops.sum) >> fb.Loss())
    before = {name: value.copy() for name, value in program.params.items()}
    value, _ = program.value_and_grad([[1, 2]])
    with pytest.raises(fb.errors.ExampleError):
        program.value_and_grad([[1, 2], [3]])
    assert program.value_and_grad([[1, 2]])[0] == value
    assert all(np.array_equal(before[name], program.params[name]) for name in before)


def test_bytes_of_a_very_deep_place_are_bounded() -> None:
    """The message of an error 5,000 levels down is still readable."""
    example: Any = "x"
    for _ in range(5_000):
        example = [1, example]
    with pytest.raises(fb.errors.ExampleTypeError) as caught:
        fb.compile(total()).run([example])
    assert len(str(caught.value)) < 1_000
