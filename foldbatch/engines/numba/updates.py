"""Optimizers' steps and checks, and sums of rows, as compiled loops that Python calls with arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from foldbatch.engines.numba.compiling import compile_loop
from foldbatch.engines.numba.sum_texts import sum_copies_text
from foldbatch.params import Updates

Loop = Callable[..., None]
KIND_OF = {np.dtype("float32"): "f4", np.dtype("float64"): "f8"}

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


@cache
def compiled(text: str, dtype: np.dtype[Any]) -> Loop | None:
    """Return a loop for numbers of a dtype; None if it is not float32 or float64."""
    kind = KIND_OF.get(dtype)
    return compile_loop(text.format(f=kind)) if kind is not None else None


@cache  # a batch asks, and the text is long
def sum_copies(dtype: str) -> Loop | None:
    """Return what sums rows of an array: ``(rows [n, w], starts [m + 1], order [*], out [m, w])``."""
    kind = KIND_OF.get(np.dtype(dtype))
    return compile_loop(sum_copies_text(kind)) if kind is not None else None


UPDATES = Updates(partial(compiled, ADAM), partial(compiled, FAULTS))
