"""Merged traces, rows of a layout, tables of a schedule."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.params.parameters import Array
from foldbatch.planning import merge as merging
from foldbatch.planning.layout import LAYOUTS, Layout
from foldbatch.planning.merge import merge
from foldbatch.planning.tables import build
from foldbatch.scheduler.schedule import ALL, CellTable, RowSpan, Schedule, Step
from foldbatch.scheduler.trace import CellSignature, Trace
from tests.backends import LLVM
from tests.planning.random_traces import Setting, settings_of
from tests.planning.rows import values_read

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))
BACKWARD = {"before": "after", "step": "step", "after": "before"}


def _rows(span: RowSpan, table: CellTable, start: int, stop: int) -> Array:
    start, stop = span.extent(table, start, stop)
    return np.arange(start, stop) if span.rows is None else span.rows[start:stop]


def _scheduled(setting: Setting, layout: Layout) -> Schedule:
    return build(setting.merged, setting.signatures, setting.policy, layout, setting.cells.arenas)


def _calls(setting: Setting, schedule: Schedule, cell: int, start: int, stop: int) -> list[list[int]]:
    """Return, for each rank, the first values of the calls it stands for: several where calls are shared."""
    bases = setting.merged.trace.calls[cell][:, 0]
    table = schedule.cells[cell]
    if table.copies is None:
        return [[int(bases[at])] for at in table.order[start:stop]]
    feeds = (
        np.stack(setting.merged.trace.feeds[cell], 1)
        if setting.cells.feeds[cell]
        else np.zeros((len(bases), 0))
    )
    alike = [np.flatnonzero((feeds == feeds[at]).all(1)) for at in table.order[start:stop]]
    return [bases[same].tolist() for same in alike]


@given(settings_of(), layouts)
def test_every_operand_finds_its_values_in_its_rows(setting: Setting, layout: Layout) -> None:
    """Arenas hold value numbers here; what a step reads is what the trace says its calls read."""
    schedule = _scheduled(setting, layout)
    arenas = [np.full(rows, -1) for rows in schedule.arena_rows]
    for step in schedule.steps:
        if "step" not in step.stages:
            continue
        table, cell = schedule.cells[step.cell], setting.signatures[step.cell]
        for span, operand in zip(table.operands, cell.operands, strict=True):
            found = arenas[span.arena][_rows(span, table, step.start, step.stop)]
            order = table.order[step.start : step.stop]
            expected = values_read(setting.merged.trace, setting.signatures, step.cell, operand, order)
            assert found.tolist() == expected.tolist()
        ranks = _calls(setting, schedule, step.cell, step.start, step.stop)
        for j, arena in enumerate(cell.outputs):
            values = [base + j for bases in ranks for base in bases]
            arenas[arena][table.written(j, step.start, step.stop)] = values
    for arena, values in enumerate(arenas):
        assert (values >= 0).all()
        assert np.array_equal(schedule.row_of[values], np.arange(schedule.arena_rows[arena]))


class Backward:
    """A backward pass on paper: cotangents are numbers, every reader contributes one that is drawn.

    The arenas of cotangents start full of NaN. An operand's contributions are made in any stage in
    which a kernel could make them; an output's cotangents must be complete where a kernel could
    first read them.
    """

    def __init__(self, setting: Setting, schedule: Schedule, rng: np.random.Generator) -> None:
        self.setting = setting
        self.schedule = schedule
        self.rng = rng
        self.arenas = [np.full(rows, np.nan) for rows in schedule.arena_rows]
        for arena, rows in zip(self.arenas, schedule.zero_rows, strict=True):
            arena[rows] = 0
        trace = setting.merged.trace
        self.gives = [
            [rng.integers(1, 1000, span.size).astype(float) for span in table.operands]
            for table in schedule.cells
        ]
        self.expected = np.zeros(trace.values)
        for k, cell in enumerate(setting.signatures):
            for i, operand in enumerate(cell.operands):
                if operand.differentiable:
                    order = schedule.cells[k].order
                    read = values_read(trace, setting.signatures, k, operand, order)
                    np.add.at(self.expected, read, self.gives[k][i])
        self.stage_of = [
            [self._stage(i in setting.cells.recursive_operands[k]) for i in range(len(cell.operands))]
            for k, cell in enumerate(setting.signatures)
        ]

    def _stage(self, recursive: bool) -> str:
        """Return a stage of the backward graph in which an operand's cotangent may be ready."""
        return str(self.rng.choice(["before", "step"] if recursive else ["before", "after"]))

    def run(self) -> None:
        """Run all steps in reverse order, and check every cotangent that is read."""
        for step in reversed(self.schedule.steps):
            stages = ALL if len(step.stages) == len(ALL) else [BACKWARD[stage] for stage in step.stages]
            for stage in stages:
                self._read(step, stage)
                self._contribute(step, stage)

    def _read(self, step: Step, stage: str) -> None:
        table, cell = self.schedule.cells[step.cell], self.setting.signatures[step.cell]
        ranks = _calls(self.setting, self.schedule, step.cell, step.start, step.stop)
        for j, arena in enumerate(cell.outputs):
            if stage == "before" and j in self.setting.cells.recursive_outputs[step.cell]:
                continue  # not before its turn
            found = self.arenas[arena][table.written(j, step.start, step.stop)]
            expected = [self.expected[base + j] for bases in ranks for base in bases]
            assert found.tolist() == expected

    def _contribute(self, step: Step, stage: str) -> None:
        table, cell = self.schedule.cells[step.cell], self.setting.signatures[step.cell]
        for i, (span, operand) in enumerate(zip(table.operands, cell.operands, strict=True)):
            if not operand.differentiable or self.stage_of[step.cell][i] != stage:
                continue
            arena = self.arenas[span.arena]
            rows = _rows(span, table, step.start, step.stop)
            start, stop = span.extent(table, step.start, step.stop)
            offset = span.start or 0
            given_ = self.gives[step.cell][i][start - offset : stop - offset]
            if span.first:
                assert span.rows is None
                arena[rows] = given_
            elif span.repeats:
                np.add.at(arena, rows, given_)
            else:
                assert len(set(rows.tolist())) == len(rows)
                arena[rows] += given_


@settings(max_examples=80)  # few draws have an operand that reads some rows of another one
@given(settings_of(), layouts, st.integers(0, 2**32 - 1))
def test_every_cotangent_is_the_sum_over_all_readers(setting: Setting, layout: Layout, seed: int) -> None:
    """Whatever stood in the buffer before, and complete whenever it is read."""
    schedule = _scheduled(setting, layout)
    backward = Backward(setting, schedule, np.random.default_rng(seed))
    backward.run()
    for k, cell in enumerate(setting.signatures):
        for base in setting.merged.trace.calls[k][:, 0]:
            for j, arena in enumerate(cell.outputs):
                assert backward.arenas[arena][schedule.row_of[base + j]] == backward.expected[base + j]


@given(settings_of(tree=True), layouts, st.integers(0, 2**32 - 1))
def test_in_trees_every_cotangent_is_stored_and_none_added(setting, layout, seed):
    """The same sums, where nothing is shared."""
    schedule = _scheduled(setting, layout)
    Backward(setting, schedule, np.random.default_rng(seed)).run()
    if layout is LAYOUTS["consumer"]:
        stored = sum(span.size for table in schedule.cells for span in table.operands if span.first)
        assert stored + sum(map(len, schedule.zero_rows)) == sum(schedule.arena_rows)


def assert_same(a: Trace, b: Trace) -> None:
    """Assert that two traces agree in everything, dtypes included."""

    def flat(x: object) -> list[object]:
        if isinstance(x, np.ndarray):
            return [(x.dtype, x.shape, x.tolist())]
        return [y for part in x for y in flat(part)] if isinstance(x, tuple) else [x]

    for name in ("calls", "elements", "levels", "feeds", "labels", "values", "result"):
        assert flat(getattr(a, name)) == flat(getattr(b, name)), name


def test_a_batch_too_large_for_its_integers_is_refused() -> None:
    """Value numbers have 32 bits."""
    cells = [CellSignature("a", 0, False, (), (0,), 0)]
    trace = Trace((np.zeros((1, 1), np.int32),), ((),), (np.zeros(1, np.int32),), ((),), ((),), 2**30)
    assert merge([trace], cells).trace.values == 2**30
    with pytest.raises(ExampleError, match="found one of 2,147,483,648; make smaller batches"):
        merge([trace, trace], cells)


@pytest.mark.parametrize("backend", ["numpy", *LLVM])
def test_so_is_one_of_a_program(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its examples were noted together or are joined."""
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), backend)
    joined = [*program.prepare([[1.0, 2.0]]), *program.prepare([[3.0]])]
    monkeypatch.setattr(merging, "MAX_VALUES", 3)
    for batch in ([[1.0, 2.0], [3.0]], joined):
        with pytest.raises(ExampleError, match="batch: expected one of at most 3 values"):
            program.run(batch, losses=True)  # else a few are no batch
    assert program.run([[1.0]]) == [1.0]


def test_traces_of_different_forms_are_no_batch() -> None:
    """Those of one program have one form; others are not to be mixed."""
    cells = [CellSignature("a", 0, False, (), (0,), 0)]
    rows, levels = (np.zeros((1, 1), np.int32),), (np.zeros(1, np.int32),)
    one = Trace(rows, ((),), levels, ((np.zeros(1, np.int32),),), ((),), 1)
    other = Trace(rows, ((),), levels, ((),), ((),), 1)
    with pytest.raises(AssertionError, match="differ in form"):
        merge([one, other], cells)
