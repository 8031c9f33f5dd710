"""Plain numbers become numbers of a kind as NumPy has them."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.skipif(find_spec("llvmlite") is None, reason="llvm is not installed"),
]


@pytest.mark.parametrize("kind", ["i4", "i8", "u1", "u8"])
def test_whole_numbers_wrap_around(kind: str) -> None:
    from foldbatch.engines.llvm.numbers import TYPES, convert  # noqa: PLC0415 - it needs llvmlite

    for number in (0, -1, 2**63, 0xBF58476D1CE4E5B9):
        constant = convert(None, number, kind).at
        bits = TYPES[kind].width
        assert constant.constant % 2**bits == number % 2**bits
        assert -(2 ** (bits - 1)) <= constant.constant < 2 ** (bits - 1)


def test_floats_are_rounded_to_the_nearest() -> None:
    from foldbatch.engines.llvm.numbers import convert  # noqa: PLC0415 - it needs llvmlite

    for number in (0.1, 1 / 3, 355 / 512):
        text = str(convert(None, number, "f4").at).split()[1]
        assert np.array([int(text, 16)], np.uint64).view(np.float64)[0] == np.float32(number)


def test_a_fraction_is_no_whole_number() -> None:
    from foldbatch.engines.llvm.numbers import convert  # noqa: PLC0415 - it needs llvmlite

    with pytest.raises(TypeError, match=r"expected a whole number for i4, found 0\.5"):
        convert(None, 0.5, "i4")
