"""`verify` accepts what the planner makes and refuses what was tampered with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foldbatch.scheduler.layout import LAYOUTS, Layout
from foldbatch.scheduler.schedule import CellTable, RowSpan, Schedule, Step, seeded, verify
from foldbatch.scheduler.tables import build
from tests.scheduler.random_traces import Setting, settings_of

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


def _scheduled(setting: Setting, layout: Layout) -> tuple[Schedule, tuple[tuple[int, ...], ...]]:
    schedule = build(setting.merged, setting.signatures, setting.policy, layout, setting.cells.arenas)
    return schedule, tuple(cell.outputs for cell in setting.signatures)


@given(settings_of(), layouts)
def test_every_schedule_is_accepted(setting: Setting, layout: Layout) -> None:
    """Under every policy and layout."""
    verify(*_scheduled(setting, layout))


@given(settings_of(), layouts, st.data())
def test_a_schedule_without_one_of_its_steps_is_refused(
    setting: Setting, layout: Layout, data: st.DataObject
) -> None:
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
def test_swapped_steps_are_refused_when_one_needs_the_other(
    setting: Setting, layout: Layout, data: st.DataObject
) -> None:
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


@given(settings_of(), layouts, st.data())
def test_two_values_in_one_row_are_refused(setting: Setting, layout: Layout, data: st.DataObject) -> None:
    """A duplicated row leaves another one empty, too."""
    schedule, outputs = _scheduled(setting, layout)
    wide = [
        (k, j)
        for k, table in enumerate(schedule.cells)
        for j, rows in enumerate(table.outputs)
        if len(rows) > 1
    ]
    assume(wide)
    k, j = data.draw(st.sampled_from(wide))
    table = schedule.cells[k]
    rows = table.outputs[j].copy()
    rows[-1] = rows[0]
    changed = replace(table, outputs=(*table.outputs[:j], rows, *table.outputs[j + 1 :]))
    cells = (*schedule.cells[:k], changed, *schedule.cells[k + 1 :])
    with pytest.raises(AssertionError, match=r"share a row|too early"):
        verify(replace(schedule, cells=cells), outputs)


@given(settings_of(), layouts, st.data())
def test_a_call_left_out_of_the_order_is_refused(
    setting: Setting, layout: Layout, data: st.DataObject
) -> None:
    """Another one in its place does not help."""
    schedule, outputs = _scheduled(setting, layout)
    wide = [k for k, table in enumerate(schedule.cells) if len(table.order) > 1]
    assume(wide)
    k = data.draw(st.sampled_from(wide))
    order = schedule.cells[k].order.copy()
    order[0] = order[1]
    cells = (*schedule.cells[:k], replace(schedule.cells[k], order=order), *schedule.cells[k + 1 :])
    with pytest.raises(AssertionError, match=f"cell {k}: order is no permutation"):
        verify(replace(schedule, cells=cells), outputs)


@given(settings_of(), layouts)
def test_cotangents_nobody_initialises_are_refused(setting: Setting, layout: Layout) -> None:
    """Nor may two of them store to one row."""
    schedule, outputs = _scheduled(setting, layout)
    arena = next((a for a, rows in enumerate(schedule.zero_rows) if len(rows)), None)
    assume(arena is not None)
    rows = list(schedule.zero_rows)
    for wrong in (rows[arena][1:], np.append(rows[arena], rows[arena][:1])):
        changed = (*rows[:arena], wrong, *rows[arena + 1 :])
        with pytest.raises(AssertionError, match=f"arena {arena}: a cotangent is not initialised, or twice"):
            verify(replace(schedule, zero_rows=changed), outputs)


def test_a_span_says_which_rows_a_range_of_calls_reads() -> None:
    """Consecutive rows, gathered ones, several a call, and those of sequences."""
    table = CellTable(np.arange(3), (), (), (np.array([0, 2, 2, 5]),), np.zeros(3, np.int64))
    assert RowSpan(0, 1, None, 3, 7, None, False, False).extent(table, 1, 3) == (8, 10)
    assert RowSpan(0, 2, None, 6, 7, None, False, False).extent(table, 1, 3) == (9, 13)
    assert RowSpan(0, 2, None, 6, None, np.arange(6), False, False).extent(table, 1, 3) == (2, 6)
    assert RowSpan(0, 1, 0, 5, 7, None, False, False).extent(table, 1, 3) == (9, 12)
    assert RowSpan(0, 1, 0, 5, 7, None, False, False).extent(table, 1, 2) == (9, 9)


def test_shared_calls_write_a_row_for_each_call() -> None:
    """Ranks 0 and 1 stand for two calls and one."""
    table = CellTable(
        np.array([0, 2]), (), (np.array([5, 6, 9]),), (), np.zeros(2, np.int64), np.array([0, 2, 3])
    )
    assert table.written(0, 0, 1).tolist() == [5, 6]
    assert table.written(0, 1, 2).tolist() == [9]


@given(settings_of(), layouts, st.data())
def test_nobody_stores_over_cotangents_that_are_there_when_backward_begins(
    setting: Setting, layout: Layout, data: st.DataObject
) -> None:
    """All rows of such arenas start at zero, all their readers add; others are as they were."""
    schedule, outputs = _scheduled(setting, layout)
    arenas = data.draw(st.sets(st.integers(0, setting.cells.arenas - 1)))
    found = seeded(schedule, arenas)
    verify(found, outputs)
    for arena, (rows, before) in enumerate(zip(found.zero_rows, schedule.zero_rows, strict=True)):
        expected = range(schedule.arena_rows[arena]) if arena in arenas else before.tolist()
        assert rows.tolist() == list(expected)
    for table, old in zip(found.cells, schedule.cells, strict=True):
        for span, same in zip(table.operands, old.operands, strict=True):
            assert span == same._replace(first=same.first and span.arena not in arenas)
        assert (table.order is old.order, table.outputs is old.outputs) == (True, True)
    assert (found.steps, found.arena_rows) == (schedule.steps, schedule.arena_rows)
