"""Facts of a schedule: as many values as names, each what it says."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.engines.facts import Fact, fact_names, facts_of
from foldbatch.scheduler.layout import LAYOUTS, Layout
from foldbatch.scheduler.schedule import CellTable, Schedule
from foldbatch.scheduler.sharing import SHARES
from foldbatch.scheduler.tables import build
from tests.scheduler.random_traces import Setting, settings_of

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


def _is(name: Fact, value: int, schedule: Schedule, index: Any, widest: dict[int, tuple[int, ...]]) -> bool:
    """Whether a fact is what its name says."""
    if name[0] == "one":
        return value == 1
    if name[0] == "arena":
        return value == schedule.arena_rows[name[1]]
    table: CellTable = schedule.cells[name[1]]

    def lies(array: Any) -> bool:
        return value >= 0 and np.array_equal(index[value : value + len(array)], array)

    match name:
        case ("all", _):
            return value == len(table.order)
        case ("all", _, s):
            return value == table.segments[s][-1]
        case ("widest", k):
            return value == widest[k][0]
        case ("widest", k, s):
            return value == widest[k][1 + s]
        case ("copies", _):
            return value == -1 if table.copies is None else lies(table.copies)
        case ("output", _, j):
            return lies(table.outputs[j])
        case ("segments", _, s):
            return lies(table.segments[s])
    span = table.operands[name[2]]
    match name[0]:
        case "first":
            return value == (-1 if span.start is None else span.start)
        case "rows":
            return value == -1 if span.rows is None else lies(span.rows)
        case "gathered":
            return value == (span.start is None)
        case "stores":
            return value == span.first
        case "added":
            return value == (not span.first)
    raise AssertionError(name)


@given(settings_of(), layouts, st.sampled_from(list(SHARES)))
@settings(max_examples=60)
def test_facts_are_what_their_names_say(setting: Setting, layout: Layout, share: str | None) -> None:
    cells, arenas = setting.signatures, setting.cells.arenas
    schedule = build(setting.merged, cells, setting.policy, layout, arenas, SHARES[share])
    widest = {k: tuple(10 * k + i for i in range(1 + len(cell.sequences))) for k, cell in enumerate(cells)}
    names = list(fact_names(cells, arenas))
    values, index = facts_of(schedule, widest)
    assert len(names) == len(values) == len(set(names))
    assert all(_is(*pair, schedule, index, widest) for pair in zip(names, values, strict=True))
    assert (index.dtype, index.ndim) == (np.int64, 1)


def test_a_model_without_cells_has_one_fact_and_no_index() -> None:
    schedule = Schedule((), (), (), (), np.zeros(0, np.int64))
    facts, index = facts_of(schedule, {})
    assert facts == [1]
    assert list(fact_names((), 0)) == [("one",)]
    assert index.tolist() == []
