"""A compiled function is called where it is, not copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.numba.loop_compiler import compile_levels, compile_loop
from foldbatch.static.backends import BACKENDS

pytestmark = [
    pytest.mark.numba,
    pytest.mark.skipif("numba" not in BACKENDS, reason="numba is not installed"),
]
TEXT = """\
# f8[1]a, i8, f8[1]w
def loop(x, times, out):
    for i in range(x.shape[0]):
        out[i] = x[i] * f8(times)
"""


def test_a_compiled_function_is_called_by_its_symbol() -> None:
    """Arguments become what it takes: an array without gaps one that may have some, a small integer a large."""
    from numba import njit  # noqa: PLC0415 - optional

    from foldbatch.engines.numba.linking import linked  # noqa: PLC0415 - it needs Numba

    call = linked(compile_loop(TEXT), "foldbatch_test_times")

    @njit
    def twice(x: Any, times: Any, out: Any) -> None:
        call(x, times, out)
        call(out, 2, out)

    x, out = np.arange(3.0), np.empty(3)
    twice(x, np.int32(5), out)
    assert out.tolist() == [0, 10, 20]
    (code,) = twice.inspect_llvm().values()
    assert "foldbatch_test_times" in code
    assert "call" in code


def test_loops_over_levels_have_no_copy_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOLDBATCH_CACHE", "")  # what is read from there cannot be looked at
    compile_levels.cache_clear()
    cell = fb.Function(lambda s, x: fb.ops.tanh(fb.Linear(4)(fb.ops.concat([s, x]))))
    program = fb.compile(fb.Map(fb.Vector(4)) >> fb.Fold(cell, fb.Zeros(4)), "numba")
    found = [kernel.levels for each in program.model.cells for kernel in each.kernels if kernel.levels]
    assert found
    for levels in found:
        assert "product_f4(" in levels.source
        (code,) = levels.function.inspect_asm().values()  # type: ignore[attr-defined]
        assert "product_f4" in code
        assert code.count("vfmadd") < 60, "a product unrolls several hundred"
