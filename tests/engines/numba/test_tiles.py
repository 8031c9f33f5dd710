"""Memory of a function's own, and pointers; the blocks themselves are tested in `test_products`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

pytestmark = [
    pytest.mark.numba,
    pytest.mark.skipif(find_spec("numba") is None, reason="numba is not installed"),
]


@pytest.mark.parametrize("kind", ["f4", "f8", "u8"])
def test_a_function_has_memory_until_it_returns(kind: str) -> None:
    from numba import njit  # noqa: PLC0415 - optional

    from foldbatch.engines.numba import tiles, vector_functions  # noqa: PLC0415 - they need Numba

    flat, fetch, moved = vector_functions.flat, tiles.fetch, tiles.moved
    one, other = tiles.stack(kind, 8), tiles.stack(kind, 8)

    @njit
    def reversed_twice(x: Any, out: Any) -> None:
        first, second, a, b = one(), other(), flat(x), flat(out)
        fetch(a)
        for i in range(8):
            first[i] = a[7 - i]
        for i in range(8):
            second[i] = moved(first, 7 - i)[0]
        for i in range(8):
            b[i] = second[i] + first[i]

    x = np.arange(8).astype(kind)
    out = np.empty_like(x)
    reversed_twice(x, out)
    assert out.tolist() == [7] * 8
