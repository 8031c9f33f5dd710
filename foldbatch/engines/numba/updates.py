"""Optimizers' steps and checks, and sums of rows, as compiled loops that Python calls with arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from foldbatch.engines.numba.compiling import compile_loop
from foldbatch.engines.numba.sum_texts import sum_copies_text
from foldbatch.updates import Rule, Updates

Loop = Callable[..., None]
KIND_OF = {np.dtype("float32"): "f4", np.dtype("float64"): "f8"}

HEADER = "# {arrays}, i8[1], i8{numbers}\ndef loop({names}, rows_, width_, factor_{more}):"
STEP = """\
    {flat}, r_ = {flatten}, flat(rows_)
    for i_ in range(u8(rows_.shape[0])):
        start_, source_ = u8(r_[i_]) * u8(width_), i_ * u8(width_)
        for j_ in range(u8(width_)):
            g = g_[source_ + j_] * factor_
            {reads}
            {lines}
            {writes}
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


@cache
def step(rule: Rule, dtype: np.dtype[Any]) -> Loop | None:
    """Return a rule's loop for numbers of a dtype; see `foldbatch.updates.Updates`.

    Every product is rounded, so that a gradient times the factor is what it is when it comes scaled.
    """
    kind = KIND_OF.get(dtype)
    return compile_loop(step_text(rule, kind), rounded=True) if kind is not None else None


def step_text(rule: Rule, kind: str) -> str:
    """Return the text of a rule's loop.

    >>> print(step_text(Rule(("m = keep * m + g", "p = p - m"), ("m",), ("keep",)), "f4"))
    # f4[1]w, f4[1], f4[1]w, i8[1], i8, f4, f4
    def loop(p__, g__, m__, rows_, width_, factor_, keep):
        p_, g_, m_, r_ = flat(p__), flat(g__), flat(m__), flat(rows_)
        for i_ in range(u8(rows_.shape[0])):
            start_, source_ = u8(r_[i_]) * u8(width_), i_ * u8(width_)
            for j_ in range(u8(width_)):
                g = g_[source_ + j_] * factor_
                p = p_[start_ + j_]; m = m_[start_ + j_]
                m = keep * m + g
                p = p - m
                p_[start_ + j_] = p; m_[start_ + j_] = m
    <BLANKLINE>
    """
    tables, arrays = ("p", *rule.moments), ("p", "g", *rule.moments)
    header = HEADER.format(
        arrays=", ".join(f"{kind}[1]" + "w" * (name != "g") for name in arrays),
        numbers=f", {kind}" * (1 + len(rule.numbers)),
        names=", ".join(f"{name}__" for name in arrays),
        more="".join(f", {name}" for name in rule.numbers),
    )
    body = STEP.format(
        flat=", ".join(f"{name}_" for name in arrays),
        flatten=", ".join(f"flat({name}__)" for name in arrays),
        reads="; ".join(f"{name} = {name}_[start_ + j_]" for name in tables),
        lines="\n            ".join(rule.lines),
        writes="; ".join(f"{name}_[start_ + j_] = {name}" for name in tables),
    )
    return f"{header}\n{body}"


@cache  # a batch asks, and the text is long
def sum_copies(dtype: str) -> Loop | None:
    """Return what sums rows of an array: ``(rows [n, w], starts [m + 1], order [*], out [m, w])``."""
    kind = KIND_OF.get(np.dtype(dtype))
    return compile_loop(sum_copies_text(kind)) if kind is not None else None


UPDATES = Updates(step, partial(compiled, FAULTS))
