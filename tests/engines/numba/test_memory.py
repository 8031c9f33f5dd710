"""Addresses and arrays as pointers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.numba


def test_pointers_are_of_the_kind_asked_for() -> None:
    numba = pytest.importorskip("numba", reason="numba is not installed")
    from foldbatch.engines.numba.memory import POINTERS, flat, moved  # noqa: PLC0415 - it needs Numba

    f4, u1, i8 = POINTERS["pointer_f4"], POINTERS["pointer_u1"], POINTERS["pointer_i8"]

    @numba.njit
    def read(x: Any, bools: Any, address: Any, out: Any) -> None:
        out[0] = moved(f4(address), 2)[0] + flat(x)[1]
        out[1] = flat(bools)[1] + u1(address)[0]
        out[2] = i8(out.ctypes.data)[2]

    x, out = np.array([1.5, 2.5, 3.5], "float32"), np.array([0, 0, 5e-324])
    read(x, np.array([False, True]), x.ctypes.data, out)
    assert out.tolist() == [6, 1, 1]


def test_each_kind_has_a_pointer() -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    from foldbatch.engines.numba.loop_texts import MEMORY  # noqa: PLC0415 - it needs Numba
    from foldbatch.engines.numba.memory import POINTERS  # noqa: PLC0415 - it needs Numba

    assert set(POINTERS) >= {f"pointer_{kind}" for kind in MEMORY.values()}
