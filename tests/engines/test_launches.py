"""Launch tables: every number of every launch is what the schedule says, and buffers are as high as they must be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.engines import numpy as numpy_engine
from foldbatch.engines.arrays import ArrayEngine
from foldbatch.engines.batch import ScheduledBatch
from foldbatch.engines.bindings import MIRROR, Bound, ConstantKey, KernelKey, bind, launch_tables
from foldbatch.engines.engine import EngineSettings
from foldbatch.engines.launch import (
    BASE,
    COPIES,
    FIELDS,
    FIRST,
    HEAD,
    INDEX,
    SPARE,
    STORES,
    WIDTH,
    LaunchTable,
    binding,
)
from foldbatch.engines.memory import BatchMemory
from foldbatch.scheduler.layout import LAYOUTS, Layout
from foldbatch.scheduler.schedule import ALL, Step
from foldbatch.scheduler.sharing import SHARES
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.statements import Binding, Routine
from tests.engines import interpret
from tests.engines.random_cells import Runnable, runnables

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))
shares: st.SearchStrategy[str | None] = st.sampled_from(list(SHARES))


def tables_of(bound: Bound, batch: ScheduledBatch) -> list[LaunchTable]:
    tables = launch_tables(bound, batch.schedule)
    return [tables.forward] if tables.backward is None else [tables.forward, tables.backward]


# -- which kernels run, on which levels, in which order


def _expected(bound: Bound, steps: list[Step], direction: str) -> Iterator[tuple[KernelKey, int, int]]:
    """Yield the kernel and the ranks of each level that must run, one by one."""
    for cell, stages, start, stop in steps:
        mirrored = direction == "backward" and stages != ALL
        for stage in [MIRROR[s] for s in stages] if mirrored else stages:
            if KernelKey(cell, direction, stage) in bound.keys:
                yield KernelKey(cell, direction, stage), start, stop


def _levels(bound: Bound, table: LaunchTable) -> Iterator[tuple[KernelKey, int, int]]:
    for kernel, first, last in table.launches[:, :HEAD].tolist():
        for start, stop in table.bounds[first:last].tolist():
            yield bound.keys[kernel], start, stop


@given(runnables(), layouts, shares, st.booleans())
@settings(max_examples=9)
def test_levels_run_in_the_order_of_the_schedule_and_backward_in_reverse(
    runnable: Runnable, layout: Layout, share: str | None, training: bool
) -> None:
    """Each step goes through its stages, those of the backward pass in the order that undoes them."""
    batch = runnable.batch(layout, share)
    bound = bind(runnable.model, numpy_engine.TARGET, training=training)
    tables = launch_tables(bound, batch.schedule)
    steps = list(batch.schedule.steps)
    assert list(_levels(bound, tables.forward)) == list(_expected(bound, steps, "forward"))
    assert (tables.backward is not None) == training
    if tables.backward is not None:
        found = list(_levels(bound, tables.backward))
        assert found == list(_expected(bound, steps[::-1], "backward"))
        assert len(found) == len(set(found)) or not batch.merged.trace.size


# -- what the bindings of a launch are


def _rows(bound: Bound, table: LaunchTable) -> Iterator[tuple[KernelKey, Routine, Any]]:
    for row in table.launches:
        yield bound.keys[row[0]], bound.routines[row[0]], row


def _bindings(routine: Routine, row: Any) -> Iterator[tuple[Binding, Axis, bool, list[int]]]:
    """Yield the bindings of a launch: whether each is a slot's, and its fields."""
    for number, slot in enumerate(routine.slots):
        yield slot.binding, slot.axis, True, binding(row, number)
    for number, result in enumerate(routine.results, len(routine.slots)):
        yield result.binding, result.place.axis, False, binding(row, number)


def _told(table: LaunchTable, at: int, expected: Any) -> bool:
    """Whether the index holds an array from a number on."""
    return at >= 0 and np.array_equal(table.index[at : at + len(expected)], expected)


def _check_binding(
    bound: Bound,
    batch: ScheduledBatch,
    table: LaunchTable,
    key: KernelKey,
    what: Binding,
    slot: bool,
    fields: list[int],
) -> None:
    k, model, schedule = key.cell, bound.model, batch.schedule
    cell, signature = schedule.cells[k], model.signatures[k]
    kind, number = what
    match kind:
        case "operand" | "store" | "cotangent" if kind != "cotangent" or not slot:
            span, operand = cell.operands[number], signature.operands[number]
            where = "values" if kind == "operand" else "cotangents"
            assert fields[BASE] == bound.buffers[where, operand.arena]
            assert fields[WIDTH] == span.width == (len(operand.columns) or 1)
            assert fields[FIRST] == (-1 if span.start is None else span.start)
            assert fields[INDEX] == -1 if span.rows is None else _told(table, fields[INDEX], span.rows)
            assert fields[COPIES] == -1
            assert fields[STORES] == (kind != "operand" and span.first)
            spare = bound.types[fields[SPARE]] if fields[SPARE] >= 0 else None
            assert spare == (None if kind == "cotangent" else model.arenas[operand.arena])
        case "cotangent" | "value":
            arena = signature.outputs[number]
            where = "values" if kind == "value" else "cotangents"
            assert fields[BASE] == bound.buffers[where, arena]
            assert fields[FIRST] == -1
            assert _told(table, fields[INDEX], cell.outputs[number])
            copied = cell.copies is not None
            assert (fields[COPIES] >= 0) == copied
            assert not copied or _told(table, fields[COPIES], cell.copies)
            assert (fields[SPARE] >= 0) == (kind == "cotangent")
        case "segments":
            assert (fields[BASE], fields[FIRST]) == (-1, -1)
            assert _told(table, fields[INDEX], cell.segments[number])
        case "gradient":
            assert fields[BASE] == bound.buffers["gradient", number]
            levels = [key for key, _, _ in _levels(bound, table) if number in _gradients(bound, key)]
            assert fields[STORES] == (len(levels) == 1)
        case _:
            name: dict[str, Any] = {
                "parameter": ("parameter", number),
                "constant": ("constant", ConstantKey(number) if kind == "constant" else None),
                "feed": ("feed" if slot else "input", k, number),
                "kept": ("kept", k, number),
                "loss": ("loss", k, number),
                "metric": ("metric", k, number),
            }
            if kind != "scratch":
                assert fields[BASE] == bound.buffers[name[kind]]
            assert (fields[FIRST], fields[INDEX], fields[SPARE]) == (0, -1, -1)


def _gradients(bound: Bound, key: KernelKey) -> tuple[Any, ...]:
    return bound.gradients[bound.numbers[key]]


@given(runnables(), layouts, shares, st.booleans())
@settings(max_examples=8)
def test_every_binding_is_what_the_schedule_says(
    runnable: Runnable, layout: Layout, share: str | None, training: bool
) -> None:
    batch = runnable.batch(layout, share)
    for target in (numpy_engine.TARGET, interpret.FUSED):
        bound = bind(runnable.model, target, training=training)
        for table in tables_of(bound, batch):
            for key, routine, row in _rows(bound, table):
                size = HEAD + FIELDS * (len(routine.slots) + len(routine.results))
                assert (row[size:] == -1).all()
                for what, _, slot, fields in _bindings(routine, row):
                    _check_binding(bound, batch, table, key, what, slot, fields)


# -- buffers


def _extent(bound: Bound, batch: ScheduledBatch, key: KernelKey, axis: Axis, start: int, stop: int) -> int:
    """Return the rows of a level along an axis."""
    if axis is UNBATCHED:
        return 1
    if axis is CALL:
        return stop - start
    segments = batch.schedule.cells[key.cell].segments
    own = segments[bound.model.cells[key.cell].graph.axes.index(axis)]
    return int(own[stop] - own[start])


def _levels_of(bound: Bound, batch: ScheduledBatch, key: KernelKey) -> list[tuple[int, int]]:
    """Return the ranks of the levels on which a kernel runs, should it run at all."""
    if key.stage != "step":
        return [(0, len(batch.schedule.cells[key.cell].order))]
    return [(s.start, s.stop) for s in batch.schedule.steps if s.cell == key.cell and "step" in s.stages]


@given(runnables(), layouts, shares, st.booleans())
@settings(max_examples=8)
def test_buffers_are_as_high_as_the_widest_level_needs(
    runnable: Runnable, layout: Layout, share: str | None, training: bool
) -> None:
    """And no higher: scratch and copies of a recursion are those of a level, not of all calls."""
    batch = runnable.batch(layout, share)
    bound = bind(runnable.model, numpy_engine.TARGET, training=training)
    needed = np.zeros(len(bound.types), np.int64)

    def use(name: tuple[Any, ...], rows: int) -> None:
        needed[bound.buffers[name]] = max(needed[bound.buffers[name]], rows)

    for key, routine in zip(bound.keys, bound.routines, strict=True):
        table, levels = batch.schedule.cells[key.cell], _levels_of(bound, batch, key)
        for slot in routine.slots:
            kind, number = slot.binding
            extents = [_extent(bound, batch, key, slot.axis, *level) for level in levels]
            rows = max(extents, default=int(slot.axis is UNBATCHED))
            match kind:
                case "scratch":
                    use(("scratch", slot.type, number), rows)
                case "cotangent":
                    use(("spare", kind, key.cell, number), rows)
                case "operand" if table.operands[number].start is None:
                    use(("spare", kind, key.cell, number), rows * table.operands[number].width)
                case "store" if not table.operands[number].first:
                    use(("spare", kind, key.cell, number), rows * table.operands[number].width)
    tables = tables_of(bound, batch)
    for table in tables:
        np.testing.assert_array_equal(table.heights, tables[0].heights)
    for name, number in bound.buffers.items():
        height = int(tables[0].heights[number])
        match name[0]:
            case "values" | "cotangents":
                assert height == batch.schedule.arena_rows[name[1]]
            case "scratch" | "spare":
                assert height == needed[number]
            case "kept" | "loss":
                assert bound.types[number] is not None
            case _:
                assert (bound.types[number], height) == (None, 0)


def _exact(engine: ArrayEngine, batch: ScheduledBatch) -> dict[bool, BatchMemory]:
    """Return memory whose buffers are just as high as a batch needs them, even if that is no row."""
    memory = engine.memory()
    for training in (True, False):
        ready = engine.ready(batch, training=training)
        made = BatchMemory(ready.kernels.bound.types, poisoned=True)
        heights = ready.tables.forward.heights
        made.fit(heights)
        for number, type_ in enumerate(ready.kernels.bound.types):
            if type_ is not None:
                made.bring(number, made.arrays[number][: heights[number]].copy())
        for constant, number in ready.kernels.bound.brought["constant"]:
            made.bring(number, np.ascontiguousarray(constant.array)[None])
        memory[training] = made
    return memory


@given(runnables(), layouts, shares)
@settings(max_examples=8)
def test_heights_suffice(runnable: Runnable, layout: Layout, share: str | None) -> None:
    """A batch in memory that is just so high, and full of NaN, gives the bits that it gives in more."""
    batch = runnable.batch(layout, share)
    engine = numpy_engine.load(runnable.model, EngineSettings(debug=True))
    found = []
    for memory in (_exact(engine, batch), engine.memory()):
        run = engine.forward(engine.ready(batch, training=True), batch.feeds, memory)
        parts = [values for _, values in sorted(run.losses.items())]
        gradients = run.backward().values()
        dense = [g.dense() if isinstance(g, fb.params.SparseRows) else g for g in gradients]
        found.append([array.tobytes() for array in (*parts, *dense)])
        inferred = engine.forward(engine.ready(batch, training=False), batch.feeds, memory)
        found[-1] += [values.tobytes() for _, values in sorted(inferred.metrics.items())]
    assert found[0] == found[1]
