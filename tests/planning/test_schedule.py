"""Schedules are legal, and what verifies them tells those that are not; traces become one."""

import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch import ops
from foldbatch.planning.layout import LAYOUTS, Layout
from foldbatch.planning.merge import Merged, merge
from foldbatch.planning.policies import POLICIES, scopes
from foldbatch.planning.tables import build
from foldbatch.scheduler.schedule import Schedule, Step, verify
from foldbatch.scheduler.trace import Trace, unpack
from foldbatch.trees import parse_brackets
from tests.planning import leveling
from tests.planning.random_traces import Setting, settings_of

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


def _scheduled(setting: Setting, layout: Layout) -> tuple[Schedule, tuple[tuple[int, ...], ...]]:
    schedule = build(setting.merged, setting.signatures, setting.policy, layout, setting.cells.arenas)
    return schedule, tuple(cell.outputs for cell in setting.signatures)


@given(settings_of(), layouts, st.data())
def test_a_schedule_without_one_of_its_steps_is_refused(setting, layout, data):
    """Be it only the before or the after of a recursive cell."""
    schedule, outputs = _scheduled(setting, layout)
    assume(schedule.steps)
    at = data.draw(st.integers(0, len(schedule.steps) - 1))
    with pytest.raises(AssertionError, match=r"does not run all stages|out of turn|too early"):
        verify(replace(schedule, steps=schedule.steps[:at] + schedule.steps[at + 1 :]), outputs)


@given(settings_of(), layouts, st.data())
def test_a_step_that_runs_twice_is_refused(setting: Setting, layout: Layout, data: st.DataObject) -> None:
    """Wherever the second time is."""
    schedule, outputs = _scheduled(setting, layout)
    assume(schedule.steps)
    step = data.draw(st.sampled_from(schedule.steps))
    at = data.draw(st.integers(0, len(schedule.steps)))
    with pytest.raises(AssertionError, match=r"runs twice or out of turn|too early"):
        verify(replace(schedule, steps=(*schedule.steps[:at], step, *schedule.steps[at:])), outputs)


def _depends(schedule: Schedule, outputs: tuple[tuple[int, ...], ...], later: Step, earlier: Step) -> bool:
    """Whether a step continues calls of the other, or reads a row that it writes."""
    if later.cell == earlier.cell and max(later.start, earlier.start) < min(later.stop, earlier.stop):
        return True
    if "step" not in later.stages or "step" not in earlier.stages:
        return False
    written = {
        (arena, int(row))
        for j, arena in enumerate(outputs[earlier.cell])
        for row in schedule.cells[earlier.cell].written(j, earlier.start, earlier.stop)
    }
    table = schedule.cells[later.cell]
    read = set()
    for span in table.operands:
        start, stop = span.extent(table, later.start, later.stop)
        rows = range(start, stop) if span.rows is None else span.rows[start:stop].tolist()
        read |= {(span.arena, row) for row in rows}
    return bool(read & written)


@given(settings_of(), layouts, st.data())
def test_swapped_steps_are_refused_when_one_needs_the_other(setting, layout, data):
    """And accepted when not: the verdict is exactly about dependence."""
    schedule, outputs = _scheduled(setting, layout)
    assume(len(schedule.steps) > 1)
    at = data.draw(st.integers(0, len(schedule.steps) - 2))
    steps = list(schedule.steps)
    dependent = _depends(schedule, outputs, steps[at + 1], steps[at])
    steps[at], steps[at + 1] = steps[at + 1], steps[at]
    swapped = replace(schedule, steps=tuple(steps))
    if dependent:
        with pytest.raises(AssertionError, match=r"too early|out of turn"):
            verify(swapped, outputs)
    else:
        verify(swapped, outputs)


TREES = [
    parse_brackets(text, labels=int)
    for text in (
        "(3 (2 a) (4 b))",
        "(1 c)",
        "(0 (1 (2 a) (3 c)) (4 (1 b) (0 (2 a) (3 b))))",
        "(2 (2 c) (1 c))",
    )
]


def model() -> fb.Block:
    """Sequences of values, ids, vectors (which are not packed) and labels of metrics."""
    tree = fb.ForwardDeclaration(output_type=2, name="tree")
    length = fb.InputTransform(lambda node: [len(node), 1.0]) >> fb.Vector(2)
    below = fb.GetItem("children") >> fb.Map(tree()) >> fb.Sum()
    label = fb.GetItem("label") >> fb.Scalar("int32") >> fb.Embedding(5, 2)
    state = fb.AllOf(label, below, length) >> fb.Function(lambda a, b, c: a + b + c)
    measured = fb.AllOf(fb.GetItem(0), fb.Metric("state")) >> fb.GetItem(0)
    tree.resolve_to(fb.AllOf(state, fb.GetItem("label")) >> measured)
    loss = fb.Function(ops.sum) >> fb.Loss()
    return tree() >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0)


def traced(trees: Sequence[Any]) -> tuple[fb.Program, list[Trace]]:
    program = fb.compile(model(), "numpy")
    return program, program.lowered.trace_all(trees, range(len(trees)))


def assert_same(one: Trace, other: Trace) -> None:
    arrays = [
        [*t.calls, *(x for parts in t.elements for x in parts), *t.levels, *(x for f in t.feeds for x in f)]
        for t in (one, other)
    ]
    for a, b in zip(*arrays, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert np.array_equal(a, b)
    assert (one.labels, one.values, one.size) == (other.labels, other.values, other.size)
    assert [*one.counts] == [*map(len, one.calls)] == [*other.counts]


def assert_alike(one: Merged, other: Merged) -> None:
    assert_same(one.trace, other.trace)
    assert all(np.array_equal(a, b) for a, b in zip(one.counts, other.counts, strict=True))
    assert np.array_equal(one.offsets, other.offsets)


def apart(trace: Trace) -> Trace:
    return unpack(trace.form, trace.packed, trace.loose, trace.labels, trace.result)


def test_examples_traced_together_have_the_traces_that_they_have_alone():
    program, together = traced(TREES)
    for tree, trace in zip(TREES, together, strict=True):
        alone = program.lowered.trace_all([tree], [0])[0]
        assert_same(trace, alone)
        assert trace.result == alone.result
        assert np.array_equal(trace.packed, alone.packed)
        assert_same(pickle.loads(pickle.dumps(trace)), alone)


@pytest.mark.parametrize(("first", "last"), [(0, 4), (0, 2), (1, 4), (2, 3), (1, 1)])
def test_a_run_of_examples_noted_together_is_the_batch_of_their_packed_traces(first, last):
    program, together = traced(TREES)
    cells = program.model.signatures
    run = together[first:last]
    fast = merge(run, cells)
    if run:
        assert run[0].origin[0].joined is not None, "nothing has been packed so far"
    assert_alike(fast, merge([apart(trace) for trace in run], cells))
    if run:
        assert run[0].origin[0].joined is None, "packed traces need no record"
        assert_alike(merge(run, cells), fast)


@given(settings_of())
@pytest.mark.parametrize("high", [1, 2, 64])
def test_levels_of_the_oracle_by_arrays_are_those_of_the_sweep(high: int, setting: Setting) -> None:
    trace = setting.merged.trace
    for policy in POLICIES.values():
        found, cells = [], setting.signatures
        for few in (10**9, -1):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(leveling, "PYTHON_CALLS", few)
                patch.setattr(leveling, "HIGH", high)
                within = scopes(policy.scope, cells)
                found.append(leveling.levels_in(cells, within, trace.calls, trace.elements, trace.values))
        for sweep, arrays in zip(*found, strict=True):
            assert sweep.dtype == arrays.dtype == np.int32
            assert np.array_equal(sweep, arrays)
