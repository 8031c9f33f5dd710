"""Products cut by columns yield the same bits; loops are cut where their rows are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.llvm.coder import Coder
from foldbatch.engines.llvm.cuts import LANES, NARROW, by_columns, by_rows
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.statements import Binding, Routine, Slot
from foldbatch.types import TensorType


@pytest.mark.parametrize("columns", [NARROW, 50, 300, 750, 751])
def test_the_parts_are_all_columns_once(columns: int) -> None:
    cut = by_columns([(0, 8), (1, 16), (2, 0)], [9, columns, 7], 1, {1: 40, 2: 4}, 5)
    assert cut.work == 5 * columns
    first = 0
    for pointers, statics in cut.parts:
        assert pointers == [(0, 8), (1, 16 + 40 * first), (2, 4 * first)]
        assert (statics[0], statics[2]) == (9, 7)
        assert first % LANES == 0
        first += statics[1]
    assert first == columns
    assert len(cut.parts) > 1


def test_few_columns_are_not_cut() -> None:
    assert not by_columns([(0, 0)], [NARROW - 1], 0, {0: 4}, 1000).parts


def slots() -> tuple[Slot, ...]:
    return (
        Slot(Binding("scratch", 0), TensorType((5,)), CALL),
        Slot(Binding("parameter", 0), TensorType((5,)), UNBATCHED),
        Slot(Binding("kept", 1), TensorType((2,), "float64"), CALL),
    )


def test_a_loop_moves_by_rows_where_it_has_them() -> None:
    coder = Coder(Routine("test", slots(), (), ()))

    def cut(axis: Any) -> list[int]:
        statement: Any = SimpleNamespace(axis=axis, slots=(0, 1, 2))
        return list(by_rows(coder, statement).rows)

    assert cut(CALL) == [20, 0, 16]
    assert cut(UNBATCHED) == []


@pytest.mark.llvm
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [1, 5, 40, 120])
def test_a_cut_product_has_the_bits_of_the_whole(dtype: str, rows: int) -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")
    from foldbatch.engines.llvm import products  # noqa: PLC0415 - it needs llvmlite
    from tests.engines.llvm.walking import run_native  # noqa: PLC0415 - so does it

    kind, cut_for = {"float32": "f4", "float64": "f8"}[dtype], products.blocks()
    text = products.native_text(kind, cut_for)
    more = {"more": products.functions_of(kind, cut_for), "source": products.source()} if cut_for else {}
    rng = np.random.default_rng(rows)
    x, weight = (rng.normal(size=shape).astype(dtype) for shape in ((rows, 70), (70, 150)))
    for w in (weight, np.ascontiguousarray(weight.T).T):
        steps = [stride // x.itemsize for stride in w.strides]
        statics = [1, 1, 70, 150, 2, 70, 1, *steps, 150, 0, 0, 0, 0]
        cut = by_columns([(0, 0), (1, 0), (2, 0)], statics, 3, {1: w.strides[1], 2: x.itemsize}, 70)
        whole, parts = np.zeros((rows, 150), dtype), np.zeros((rows, 150), dtype)
        run_native(text, rows, [x, w, whole], statics, **more)
        first = 0
        for pointers, numbers in cut.parts:
            assert [more for _, more in pointers] == [0, first * w.strides[1], first * x.itemsize]
            run_native(text, rows, [x, w[:, first:], parts[:, first:]], numbers, **more)
            first += numbers[3]
        np.testing.assert_array_equal(whole, parts)
        np.testing.assert_allclose(whole, x @ weight, rtol=1e-4, atol=1e-4)
