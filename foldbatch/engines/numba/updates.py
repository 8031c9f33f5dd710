"""Optimizers' steps and checks as compiled loops: one pass over a parameter in place of a dozen.

Only where Numba is loaded anyway, which it is once a program has the backend of that name; NumPy's steps
stay the text that explains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.numba.loop_compiler import compile_loop
from foldbatch.engines.numba.named_loops import KINDS, SUM_COPIES
from foldbatch.errors import BackendError

Loop = Callable[..., None]
_KIND_OF = {np.dtype(name): kind for name, kind in KINDS.items() if kind.startswith("f")}

# The numbers: the gradient's factor; each beta and 1 minus it; eps and rate, both corrected for the step.
# Nothing is added to the product with the factor, so that it is rounded as it is when it comes scaled.
ADAM = """\
# {f}[1]w, {f}[1], {f}[1]w, {f}[1]w, i8[1], i8, {f}, {f}, {f}, {f}, {f}, {f}, {f}
def loop(p, g, mean, square, rows, width, factor, keep, first, keep_square, second, eps, rate):
    a0, a1, a2, a3, r = flat(p), flat(g), flat(mean), flat(square), flat(rows)
    for i in range(u8(rows.shape[0])):
        start, source = u8(r[i]) * u8(width), i * u8(width)
        for j in range(u8(width)):
            t = a1[source + j] * factor
            m = keep * a2[start + j] + first * t
            v = keep_square * a3[start + j] + second * (t * t)
            a2[start + j] = m
            a3[start + j] = v
            a0[start + j] = a0[start + j] - rate * m / (sqrt(v) + eps)
"""

# x - x is 0 of a finite number, else NaN
FAULTS = """\
# {f}[1], i8[1], i8, i8[1]w
def loop(values, rows, height, answer):
    a0, r = flat(values), flat(rows)
    found, last = False, i8(-1)
    for i in range(u8(values.shape[0])):
        t = a0[i] - a0[i]
        found = found | (t != t)
    for i in range(u8(rows.shape[0])):
        found = found | (r[i] <= last)
        last = r[i]
    answer[0] = found | (last >= height)
"""

WHOLE = np.zeros(1, np.int64)  # the rows of a dense gradient, whose whole table is one row


def adam(dtype: np.dtype[Any]) -> Loop | None:
    """Return Adam's step on rows of flat tables.

    Its arguments are ``(p [n], g [r * width], mean [n], square [n], rows [r] int64, width)`` and the numbers
    ``(factor, beta1, 1 - beta1, beta2, 1 - beta2, eps, rate)``; ``rows`` are distinct and within the table.
    None where nothing is to be compiled.
    """
    return _loop(ADAM, dtype)


def faults(dtype: np.dtype[Any]) -> Loop | None:
    """Return what finds whether a gradient has a NaN, an infinity, or rows not ascending or not in the table.

    Its arguments are ``(values [n], rows [r] int64, height, answer [1] int64)``, where the answer is 0 or 1.
    None where nothing is to be compiled.
    """
    return _loop(FAULTS, dtype)


def takes(array: NDArray[Any]) -> bool:
    """Return whether loops can read an array of their dtype, flattened without a copy."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def _loop(text: str, dtype: np.dtype[Any]) -> Loop | None:
    return _compiled(text, dtype) if dtype in _KIND_OF and "numba" in sys.modules else None


@cache
def _compiled(text: str, dtype: np.dtype[Any]) -> Loop | None:
    try:
        return compile_loop(text.format(f=_KIND_OF[dtype]))
    except BackendError:  # it is there, but does not work with the NumPy there is
        return None


def sum_copies(dtype: str) -> Loop | None:
    """Return what sums rows of an array: ``(rows [n, w], starts [m + 1], order [*], out [m, w])``; see `engines.sums`."""
    kind = KINDS.get(dtype, "")
    return compile_loop(SUM_COPIES.format(f=kind)) if kind.startswith("f") else None
