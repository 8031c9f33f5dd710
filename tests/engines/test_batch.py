"""From traces to tables with their data."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.engines.batch import schedule_batch
from foldbatch.scheduler.layout import LAYOUTS, Layout
from tests.scheduler.random_traces import Setting, settings_of

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


@given(settings_of(), layouts)
def test_data_lies_in_the_order_of_ranks(setting: Setting, layout: Layout) -> None:
    """So that a step's data is a slice; a shared rank has that of all its calls."""
    batch = schedule_batch(setting.traces, setting.signatures, setting.policy, layout, setting.cells.arenas)
    for k, table in enumerate(batch.schedule.cells):
        columns = batch.merged.trace.feeds[k]
        for ranked, column in zip(batch.feeds[k], columns, strict=True):
            assert np.array_equal(ranked, column[table.order])
        if table.copies is not None:
            assert len(table.order) < len(batch.merged.trace.calls[k])
            assert len({tuple(c[i] for c in batch.feeds[k]) for i in range(len(table.order))}) == len(
                table.order
            )


@given(settings_of())
def test_the_parts_of_a_batch_are_timed(setting: Setting) -> None:
    """And each example's result is kept as its trace holds it."""
    batch = schedule_batch(
        setting.traces, setting.signatures, setting.policy, LAYOUTS["consumer"], setting.cells.arenas
    )
    assert set(batch.seconds) == {"merge", "tables"}
    assert all(seconds >= 0 for seconds in batch.seconds.values())
    assert batch.results == tuple(trace.result for trace in setting.traces)
