"""Memory of a function's own, and pointers; the blocks themselves are tested in `test_products`."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from tests.engines.llvm.walking import run_native

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvm is not installed"),
]

TEXT = """# {k} {k}
def loop(n, a, b, s):
    first, second = one(), other()
    fetch(a)
    for i in range(n):
        first[i] = a[u8(7) - i]
    for i in range(n):
        t = moved(first, u8(7) - i)
        second[i] = t[u8(0)]
    for i in range(n):
        b[i] = second[i] + first[i]
"""


@pytest.mark.parametrize("kind", ["f4", "f8", "u8"])
def test_a_function_has_memory_until_it_returns(kind: str) -> None:
    from foldbatch.engines.llvm.tiles import fetch  # noqa: PLC0415 - it needs llvmlite
    from foldbatch.engines.llvm.vector_functions import stack  # noqa: PLC0415 - so does it

    x = np.arange(8).astype(kind)
    out = np.empty_like(x)
    more = {"one": stack(kind, 8), "other": stack(kind, 8), "fetch": fetch}
    run_native(TEXT.format(k=kind), 8, [x, out], [], more=lambda: more)
    assert out.tolist() == [7] * 8
