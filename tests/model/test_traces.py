"""Traces that fit a model are accepted, and what is accepted runs; every other number is refused."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import ExampleError
from foldbatch.program.program import Program
from foldbatch.program.traced import Prepared
from foldbatch.scheduler.trace import Trace, unpack
from tests.knobs import knobs
from tests.model.fitting import check_trace
from tests.programs import BlockProgram, programs


def a_program(**options: Any) -> Program:
    """Nested lists of ids: a ragged recursion, a cell after it, dropout, a labelled metric, narrow data."""
    tree = fb.ForwardDeclaration(output_type=[2, "float64"], name="tree")
    leaf = fb.Scalar("uint8") >> fb.Embedding(5, 2, dtype="float64")
    node = fb.Map(tree()) >> fb.Sum() >> fb.Linear(2, "tanh") >> fb.Dropout(0.5)
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: leaf, True: node}))
    square = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    flags = fb.InputTransform(lambda x: isinstance(x, list)) >> fb.Scalar("bool") >> fb.Metric("flag")
    seen = fb.AllOf(tree(), fb.InputTransform(str)) >> fb.Metric("seen")
    return fb.compile(
        fb.AllOf(tree() >> fb.AllOf(fb.Identity(), square) >> fb.GetItem(0), seen, flags, fb.Map(tree()))
        >> fb.AllOf(fb.GetItem(0), fb.GetItem(3)),
        "numpy",
        threads=1,
        **knobs(options),
    )


EXAMPLE: list[Any] = [[1, 2], [], [[3], 4]]


def check(program: Program, trace: Trace) -> None:
    check_trace(program.model, program.lowered.policy, trace)


def copied(trace: Trace) -> Trace:
    """Return a trace that may be written to."""
    assert trace.form is not None
    assert trace.packed is not None
    flags = trace.form.integers
    loose = [
        [x.copy() for x, integer in zip(columns, integers, strict=True) if not integer]
        for columns, integers in zip(trace.feeds, flags, strict=True)
    ]
    return unpack(trace.form, trace.packed.copy(), loose, trace.labels, trace.result)


@pytest.mark.parametrize("policy", ["auto", "by_component", "by_depth", "by_agenda"])
def test_what_was_traced_fits(policy):
    program = a_program(policy=policy)
    for example in (EXAMPLE, []):
        check(program, program.lowered.trace_all([example], [0])[0])


def cell_where(program: Program, fits: Callable[[Any], bool]) -> int:
    return next(k for k, cell in enumerate(program.model.signatures) if fits(cell))


def edit_levels(trace: Trace, k: int) -> None:
    trace.levels[k][-1] += 1


def edit_argument(trace: Trace, k: int) -> None:
    trace.elements[k][0][0, 0] = trace.calls[k][0, 0]


def edit_number(trace: Trace, k: int) -> None:
    trace.calls[k][-1, 0] = trace.values


def edit_order(trace: Trace, k: int) -> None:
    trace.calls[k][0, 0], trace.calls[k][1, 0] = trace.calls[k][1, 0], trace.calls[k][0, 0]


def edit_length(trace: Trace, k: int) -> None:
    trace.calls[k][0, -1] = -1


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (edit_levels, "the level that policy 'auto' gives a call"),
        (edit_argument, "values of earlier calls"),
        (edit_number, "a call's number to be one of its example"),
        (edit_order, "calls in the order of their numbers"),
        (edit_length, "lengths of 0 or more"),
    ],
)
def test_numbers_of_a_recursion_are_checked(edit, expected):
    program = a_program()
    k = cell_where(program, lambda cell: cell.recursive and cell.sequences)
    trace = copied(program.lowered.trace_all([EXAMPLE], [0])[0])
    edit(trace, k)
    with pytest.raises(ExampleError) as caught:
        check(program, trace)
    assert caught.value.expected == expected
    assert caught.value.where.startswith(program.model.signatures[k].name)


def test_two_calls_do_not_share_a_number():
    program = a_program()
    trace = copied(program.lowered.trace_all([EXAMPLE], [0])[0])
    leaves = cell_where(program, lambda cell: not cell.arguments and cell.outputs and not cell.sequences)
    nodes = cell_where(program, lambda cell: cell.recursive)
    trace.calls[leaves][0, 0] = trace.calls[nodes][0, 0]
    with pytest.raises(ExampleError, match="one number twice|order of their numbers"):
        check(program, trace)


def test_data_are_checked():
    program = a_program()
    for k, feeds in enumerate(program.model.feeds):
        for i, feed in enumerate(feeds):
            for wrong in (-1,) if i in program.model.keys[k] else (127, -1):
                trace = copied(program.lowered.trace_all([EXAMPLE], [0])[0])
                column = trace.feeds[k][i]
                column.view(np.int8 if column.dtype == bool else column.dtype)[-1] = wrong
                with pytest.raises(
                    ExampleError, match="expected (ids from 0 to 4|0 or 1|a key that is not below|an earl)"
                ):
                    check(program, trace)
            assert feed.type.dtype in ("int32", "bool", "int64")


@pytest.mark.parametrize(
    "result", [(), (0,), (0, 0), (10**6, []), (0, [-1]), (0, [True]), (0, ["x"]), None, 7]
)
def test_results_are_checked(result):
    program = a_program()
    trace = program.lowered.trace_all([EXAMPLE], [0])[0]
    with pytest.raises(ExampleError, match="result of example 0"):
        check(program, replace(trace, result=result))


def test_parts_and_their_shapes_are_checked():
    program = a_program()
    trace = program.lowered.trace_all([EXAMPLE], [0])[0]
    wide = tuple(rows.astype(np.int64) for rows in trace.calls)
    for other in (
        replace(trace, calls=wide),
        replace(trace, calls=trace.calls[:-1]),
        replace(trace, levels=tuple(part[:0] for part in trace.levels)),
        replace(trace, elements=((),) * len(trace.elements)),
        replace(trace, feeds=((),) * len(trace.feeds)),
        replace(trace, labels=tuple(tuple(x[:0] for x in part) for part in trace.labels)),
        replace(trace, values=2**31 - 1),
        replace(trace, values=-1),
    ):
        with pytest.raises(ExampleError):
            check(program, other)


def edited(trace: Trace, rng: np.random.Generator) -> Trace:
    """Return a trace with one integer changed, to a number of its own or to one far away."""
    trace = copied(trace)
    arrays = [
        *trace.calls,
        *trace.levels,
        *(x for parts in (trace.elements, trace.feeds) for p in parts for x in p),
    ]
    arrays = [array for array in arrays if array.size and array.dtype.kind == "i"]
    if arrays:
        array = arrays[rng.integers(len(arrays))].reshape(-1)
        array[rng.integers(array.size)] = rng.choice([*range(-1, max(3, trace.values)), 2**31 - 1])
    return trace


def loss_of(program: Program, *traces: Trace) -> float:
    """Run traces for their results and gradients; return the loss, or NaN where an id computed of data is wrong."""
    examples = [Prepared(trace, program._ready) for trace in traces]
    try:
        program.run(examples)
        return program.value_and_grad(examples, step=0)[0]
    except ExampleError as error:
        assert error.fix == "correct what computes the id"
        return float("nan")


def assert_refused_or_run(program: BlockProgram, policy: str) -> int:
    """Edit traces; check that those that fit run as in the oracle. Return how many fit."""
    compiled = fb.compile(program.block, "numpy", threads=1, options={"policy": policy}, debug=True)
    oracle = fb.compile(program.block, "reference", threads=1, options={"policy": policy})
    rng = np.random.default_rng(program.seed)
    fitting = 0
    for example in program.examples:
        trace = compiled.lowered.trace_all([example], [0])[0]
        check(compiled, trace)
        other = edited(trace, rng)
        try:
            check(compiled, other)
        except ExampleError:
            continue
        fitting += 1
        loss = loss_of(compiled, trace, other)
        if not np.isnan(loss):
            assert loss_of(oracle, trace, other) == pytest.approx(loss, rel=1e-6, abs=1e-6)
    return fitting


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(dropout=True))
def test_any_edited_trace_is_refused_or_runs(program):
    assert_refused_or_run(program, ("by_component", "by_depth", "by_agenda")[program.seed % 3])
