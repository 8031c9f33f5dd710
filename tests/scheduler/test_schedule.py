"""`verify` accepts what the planner makes and refuses what was tampered with."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from foldbatch.scheduler.layout import LAYOUTS, Layout
from foldbatch.scheduler.schedule import Schedule, Step, verify
from foldbatch.scheduler.tables import build
from tests.scheduler.random_traces import Setting, settings_of

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


def _scheduled(setting: Setting, layout: Layout) -> tuple[Schedule, tuple[tuple[int, ...], ...]]:
    schedule = build(setting.merged, setting.signatures, setting.policy, layout, setting.cells.arenas)
    return schedule, tuple(cell.outputs for cell in setting.signatures)


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
