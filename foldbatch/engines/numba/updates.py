"""Optimizers' steps and checks of all parameters in one compiled call, and sums of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from foldbatch.engines.numba.compiling import Native, compile_loop, native
from foldbatch.engines.numba.sum_texts import sum_copies_text
from foldbatch.params import Array, SparseRows
from foldbatch.updates import Change, Rule, Updates

Loop = Callable[..., None]
KIND_OF = {np.dtype("float32"): "f4", np.dtype("float64"): "f8"}

STEP = """\
# {kinds}
def loop(n_, {names}, c_, s_):
    factor_{numbers} = {constants}
    for i_ in range(n_):
        g = g_[i_] * factor_
        {reads}
        {lines}
        {writes}
"""
STEP_OF_ROWS = """\
# {kinds} i8
def loop(n_, {names}, c_, r_, s_):
    factor_{numbers} = {constants}
    width_ = u8(s_[0])
    for i_ in range(n_):
        start_, source_ = u8(r_[i_]) * width_, i_ * width_
        for j_ in range(width_):
            g = g_[source_ + j_] * factor_
            {reads}
            {lines}
            {writes}
"""

# x - x is 0 of a finite number, else NaN
NOT_FINITE = """\
# {k} i8
def loop(n, values, answer, s):
    bad = i4(0)
    for i in range(n):
        t = values[i] - values[i]
        bad = bad | i4(t != t)
    if bad != 0:
        answer[0] = 1
"""
NOT_ROWS = """\
# i8 i8
def loop(n, rows, answer, s):
    last, bad = i8(-1), i4(0)
    for i in range(n):
        bad = bad | i4(rows[i] <= last)
        last = rows[i]
    if (bad != 0) or (last >= s[0]):
        answer[0] = 1
"""


@cache
def step_text(rule: Rule, kind: str, *, rows: bool) -> str:
    """Return the text of a rule's step: on numbers of a kind side by side, or on `rows` of tables.

    >>> print(step_text(Rule(("m = keep * m + g", "p = p - m"), ("m",), ("keep",)), "f4", rows=False))
    # f4 f4 f4 f4
    def loop(n_, p_, g_, m_, c_, s_):
        factor_, keep = c_[0], c_[1]
        for i_ in range(n_):
            g = g_[i_] * factor_
            p, m = p_[i_], m_[i_]
            m = keep * m + g
            p = p - m
            p_[i_], m_[i_] = p, m
    <BLANKLINE>
    """
    tables, arrays = ("p", *rule.moments), ("p", "g", *rule.moments)
    place, indent = ("start_ + j_", 12) if rows else ("i_", 8)
    targets, sources = ", ".join(tables), ", ".join(f"{name}_[{place}]" for name in tables)
    return (STEP_OF_ROWS if rows else STEP).format(
        kinds=" ".join([kind] * (len(arrays) + 1)),
        names=", ".join(f"{name}_" for name in arrays),
        numbers="".join(f", {name}" for name in rule.numbers),
        constants=", ".join(f"c_[{i}]" for i in range(1 + len(rule.numbers))),
        reads=f"{targets} = {sources}",
        lines=f"\n{' ' * indent}".join(rule.lines),
        writes=f"{sources} = {targets}",
    )


@cache
def _step(rule: Rule, kind: str, *, rows: bool) -> Native:
    """Return a rule's step. Every product is rounded, as those of a gradient that comes scaled are."""
    return native(step_text(rule, kind, rows=rows), rounded=True)


@cache
def _not_finite(kind: str) -> Native:
    return native(NOT_FINITE.format(k=kind))


def _is_plain(array: Any) -> bool:
    """Return whether compiled code can read an array by its address."""
    flags = array.flags
    return bool(flags.c_contiguous and flags.aligned)


class Compiled(Updates):
    """Steps and checks compiled with Numba, in one call for all parameters."""

    helped = False

    def apply(self, changes: Sequence[Change]) -> list[Change]:
        """Change what can be changed by compiled code; return the others; see `Updates.apply`."""
        from foldbatch.engines.numba.jobs import Jobs  # noqa: PLC0415 - it needs Numba

        jobs, others = Jobs(), []
        constants: dict[Any, Array] = {}
        for change in changes:
            _, p, moments, gradient, factor, rule, numbers, by_rows = change
            kind, rows, values = KIND_OF.get(p.dtype), None, gradient
            if isinstance(gradient, SparseRows):
                rows, values = gradient.rows, gradient.values
            unfit = rows is not None and not (by_rows and rows.dtype == np.int64 and _is_plain(rows))
            if kind is None or unfit or not all(map(_is_plain, (p, values, *moments))):
                others.append(change)
                continue
            key = kind, factor, numbers
            told = constants.get(key)
            if told is None:
                told = constants[key] = np.array([factor, *numbers], p.dtype)
            function, size = _step(rule, kind, rows=rows is not None), p.itemsize
            if rows is None:
                places = [(p, size), (values, size), *[(moment, size) for moment in moments], (told, 0)]
                jobs.add(function, p.size, places, p.size)
            else:
                width = p.size // max(1, len(p))
                tables = [(moment, 0) for moment in moments]
                places = [(p, 0), (values, size * width), *tables, (told, 0), (rows, 8)]
                jobs.add(function, len(rows), places, values.size, width)
        self._run(jobs)
        return others

    def good(self, gradients: Iterable[Any]) -> bool:
        """Return whether all gradients are good; see `Updates.good`."""
        from foldbatch.engines.numba.jobs import Jobs  # noqa: PLC0415 - it needs Numba

        jobs, answer = Jobs(), np.zeros(1, np.int64)
        for gradient in gradients:
            values: Any = gradient
            if isinstance(gradient, SparseRows):
                rows, values, height = gradient.rows, gradient.values, gradient.shape[0]
                fits = rows.dtype == np.int64 and rows.ndim == 1 and _is_plain(rows)
                if not fits or values.shape != (len(rows), *gradient.shape[1:]):
                    return False
                jobs.add(native(NOT_ROWS), len(rows), [(rows, 0), (answer, 0)], 0, height)
            kind = KIND_OF.get(values.dtype)
            if kind is None or not _is_plain(values):
                return False
            jobs.add(_not_finite(kind), values.size, [(values, values.itemsize), (answer, 0)], values.size)
        self._run(jobs)
        return not answer[0]

    def _run(self, jobs: Any) -> None:
        from foldbatch.engines.numba import team  # noqa: PLC0415 - it needs Numba

        jobs.run(team.team() if self.helped else None)


@cache  # a batch asks, and the text is long
def sum_copies(dtype: str) -> Loop | None:
    """Return what sums rows of an array: ``(rows [n, w], starts [m + 1], order [*], out [m, w])``."""
    kind = KIND_OF.get(np.dtype(dtype))
    return compile_loop(sum_copies_text(kind)) if kind is not None else None
