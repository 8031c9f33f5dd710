"""Optimizers' steps as compiled loops: one pass over a parameter in place of a dozen.

Only where Numba is loaded anyway, which it is once a program has the backend of that name; NumPy's steps
stay the text that explains.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

from foldbatch.errors import BackendError
from foldbatch.static.backends.loop_compiler import compile_loop
from foldbatch.static.backends.named_loops import KINDS

# The numbers: each beta and 1 minus it, then eps and rate, both already corrected for the step.
ADAM = """\
# {f}[1]w, {f}[1], {f}[1]w, {f}[1]w, {f}, {f}, {f}, {f}, {f}, {f}
def loop(p, g, mean, square, keep, first, keep_square, second, eps, rate):
    a0, a1, a2, a3 = flat(p), flat(g), flat(mean), flat(square)
    for i in range(u8(p.shape[0])):
        t = a1[i]
        m = keep * a2[i] + first * t
        v = keep_square * a3[i] + second * (t * t)
        a2[i] = m
        a3[i] = v
        a0[i] = a0[i] - rate * m / (sqrt(v) + eps)
"""


def adam(dtype: str) -> Callable[..., None] | None:
    """Return Adam's step on arrays ``[n]``: ``(p, g, mean, square, beta1, 1 - beta1, ..., eps, rate)``.

    None where nothing is to be compiled.
    """
    if "numba" not in sys.modules or dtype not in KINDS:
        return None
    return _compiled(ADAM.format(f=KINDS[dtype]))


@cache
def _compiled(text: str) -> Callable[..., None] | None:
    try:
        return compile_loop(text)
    except BackendError:  # it is there, but does not work with the NumPy there is
        return None
