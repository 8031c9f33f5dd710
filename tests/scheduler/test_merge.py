"""Merging is concatenation with offsets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from foldbatch.engines.llvm.integers import compiled
from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.layout import LAYOUTS
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.tables import build
from foldbatch.scheduler.trace import CellSignature, Operand, Trace, pack, unpack
from tests.scheduler.random_traces import Setting, settings_of

READS = (Operand(0, (0,)),)


def assert_same(a: Trace, b: Trace) -> None:
    """Assert that two traces agree in everything, dtypes included."""

    def flat(x: object) -> list[object]:
        if isinstance(x, np.ndarray):
            return [(x.dtype, x.shape, x.tolist())]
        return [y for part in x for y in flat(part)] if isinstance(x, tuple) else [x]

    for name in ("calls", "elements", "levels", "feeds", "labels", "values", "result"):
        assert flat(getattr(a, name)) == flat(getattr(b, name)), name


@given(settings_of())
def test_every_example_lies_in_the_batch_moved_by_its_offset(setting: Setting) -> None:
    """Value numbers are raised by the values before; lengths, levels, data and labels stay as they are."""
    merged = setting.merged
    starts = [0] * len(setting.signatures)
    offset = 0
    for e, trace in enumerate(setting.traces):
        assert merged.offsets[e] == offset
        for k, cell in enumerate(setting.signatures):
            n = len(trace.calls[k])
            part = slice(starts[k], starts[k] + n)
            numbers = slice(0, 1 + cell.arguments)
            assert np.array_equal(merged.trace.calls[k][part, numbers], trace.calls[k][:, numbers] + offset)
            assert np.array_equal(
                merged.trace.calls[k][part, numbers.stop :], trace.calls[k][:, numbers.stop :]
            )
            assert np.array_equal(merged.trace.levels[k][part], trace.levels[k])
            assert (merged.examples(k)[part] == e).all()
            assert merged.counts[k][e] == n
            for whole, own in zip(merged.trace.feeds[k], trace.feeds[k], strict=True):
                assert np.array_equal(whole[part], own)
            assert merged.trace.labels[k][0][part] == trace.labels[k][0]
            starts[k] += n
        offset += trace.values
    assert merged.trace.values == offset
    assert starts == [len(rows) for rows in merged.trace.calls]


@given(settings_of())
def test_elements_of_sequences_move_with_their_calls(setting: Setting) -> None:
    """Call by call, in order."""
    merged = setting.merged
    for k, cell in enumerate(setting.signatures):
        for i in range(len(cell.sequences)):
            parts = [t.elements[k][i] + o for t, o in zip(setting.traces, merged.offsets, strict=True)]
            whole = merged.trace.elements[k][i]
            assert whole.dtype == np.int32
            assert whole.tolist() == [row for part in parts for row in part.tolist()]


@given(settings_of(examples=5))
def test_merging_is_associative(setting: Setting) -> None:
    """A batch may be merged from batches."""
    cells, traces = setting.signatures, setting.traces
    if not traces:
        return
    for cut in range(1, len(traces)):
        halves = [merge(part, cells).trace for part in (traces[:cut], traces[cut:])]
        assert_same(merge(halves, cells).trace, setting.merged.trace)


def test_a_batch_of_none_has_no_calls() -> None:
    """But arrays of the right widths."""
    cells = [CellSignature("a", 0, False, (), (0,), 2, (3,))]
    merged = merge([], cells)
    assert merged.trace.size == merged.trace.values == 0
    assert merged.trace.calls[0].shape == (0, 4)
    assert merged.trace.elements[0][0].shape == (0, 3)
    assert merged.examples(0).tolist() == []


@pytest.mark.parametrize("name", ["numpy", pytest.param("llvm", marks=pytest.mark.llvm)])
def test_a_batch_of_one_is_its_example(name: str) -> None:
    """Unless that may not be written to: compiled loops would refuse it, so a copy is scheduled."""
    if name == "llvm":
        pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    arithmetic = compiled() if name == "llvm" else NUMPY
    cells = (CellSignature("a", 0, False, (), (0,), 0), CellSignature("b", 1, True, READS, (0,), 1))
    rows = np.array([[0], [1]], np.int32), np.array([[2, 1], [3, 2]], np.int32)
    levels = np.zeros(2, np.int32), np.array([0, 1], np.int32)
    trace = pack(Trace(rows, ((), ()), levels, ((np.array([5, 5], np.int32),), ()), ((), ()), 4, "result"))
    assert merge([trace], cells, arithmetic).trace is trace
    assert trace.packed is not None
    fixed = trace.packed.copy()
    fixed.setflags(write=False)
    mapped = unpack(trace.form, fixed, [[], []], ((), ()))  # type: ignore[arg-type]
    copied = merge([mapped], cells, arithmetic)
    assert_same(copied.trace, replace(trace, result=None))
    schedule = build(copied, cells, POLICIES["by_component"], LAYOUTS["consumer"], 1, arithmetic=arithmetic)
    assert schedule.widths(1) == [1, 1]


def test_a_batch_too_large_for_its_integers_is_refused() -> None:
    """Value numbers have 32 bits."""
    cells = [CellSignature("a", 0, False, (), (0,), 0)]
    trace = Trace((np.zeros((1, 1), np.int32),), ((),), (np.zeros(1, np.int32),), ((),), ((),), 2**30)
    assert merge([trace], cells).trace.values == 2**30
    with pytest.raises(AssertionError, match="smaller batches"):
        merge([trace, trace], cells)


def test_traces_of_different_forms_are_no_batch() -> None:
    """Those of one program have one form; others are not to be mixed."""
    cells = [CellSignature("a", 0, False, (), (0,), 0)]
    rows, levels = (np.zeros((1, 1), np.int32),), (np.zeros(1, np.int32),)
    one = Trace(rows, ((),), levels, ((np.zeros(1, np.int32),),), ((),), 1)
    other = Trace(rows, ((),), levels, ((),), ((),), 1)
    with pytest.raises(AssertionError, match="differ in form"):
        merge([one, other], cells)
