"""Merging is concatenation with offsets."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.scheduler import merge as merging
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.trace import CellSignature, Trace
from tests.backends import LLVM


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
    monkeypatch.setattr(merging, "MOST", 3)
    for batch in ([[1.0, 2.0], [3.0]], joined):
        with pytest.raises(ExampleError, match="batch: expected one of at most 3 values"):
            program.run(batch)
    assert program.run([[1.0]]) == [1.0]


def test_traces_of_different_forms_are_no_batch() -> None:
    """Those of one program have one form; others are not to be mixed."""
    cells = [CellSignature("a", 0, False, (), (0,), 0)]
    rows, levels = (np.zeros((1, 1), np.int32),), (np.zeros(1, np.int32),)
    one = Trace(rows, ((),), levels, ((np.zeros(1, np.int32),),), ((),), 1)
    other = Trace(rows, ((),), levels, ((),), ((),), 1)
    with pytest.raises(AssertionError, match="differ in form"):
        merge([one, other], cells)
