"""Optimizers' steps and checks of all parameters in one compiled call, and sums of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from foldbatch.engines.llvm.compiling import Native, compiled_text, native
from foldbatch.engines.llvm.objects import PLAIN
from foldbatch.engines.llvm.sum_texts import sum_copies_text
from foldbatch.params.parameters import Array, Change, Rule, SparseRows, Updates

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
    return bool(array.flags.num & PLAIN == PLAIN)


class Compiled(Updates):
    """Steps and checks compiled, in one call for all parameters."""

    helped = False

    def apply(
        self, changes: Sequence[Change], look: Callable[[Sequence[Change]], None] | None
    ) -> list[Change]:
        from foldbatch.engines.llvm.jobs import Jobs  # noqa: PLC0415 - it needs llvmlite

        jobs, others = Jobs(), list[Change]()
        fitting = list[tuple[Change, str]]()  # each with the kind of its numbers
        for change in changes:
            kind = _kind_of_change(change)
            others.append(change) if kind is None else fitting.append((change, kind))
        if look is not None:
            look(others)
            for change, kind in fitting:
                _add_check(jobs, change.gradient, kind)
            jobs.end_checks()
        constants: dict[Any, tuple[Native, Array, tuple[int, ...]]] = {}
        for change, kind in fitting:
            _add_step(jobs, change, kind, constants)
        if not self._run(jobs) and look is not None:
            look([change for change, _ in fitting])
        return others

    def good(self, gradients: Iterable[Any]) -> bool:
        from foldbatch.engines.llvm.jobs import Jobs  # noqa: PLC0415 - it needs llvmlite

        jobs = Jobs()
        for gradient in gradients:
            kind = _kind(gradient)
            if kind is None:
                return False
            _add_check(jobs, gradient, kind)
        return self._run(jobs)

    def _run(self, jobs: Any) -> bool:
        from foldbatch.engines.llvm import team  # noqa: PLC0415 - it needs llvmlite

        ran: bool = jobs.run(team.team() if self.helped else None)
        return ran


def _kind(gradient: Any) -> str | None:
    """Return the kind of a gradient's numbers; None where compiled code cannot read it."""
    values = gradient
    if isinstance(gradient, SparseRows):
        rows, values = gradient.rows, gradient.values
        if rows.dtype != np.int64 or rows.ndim != 1 or not _is_plain(rows):
            return None
        if values.shape != (len(rows), *gradient.shape[1:]):
            return None
    return KIND_OF.get(values.dtype) if _is_plain(values) else None


def _kind_of_change(change: Change) -> str | None:
    """Return the kind of a change's numbers; None where compiled code cannot make it."""
    _, p, moments, gradient, _, _, _, by_rows = change
    flags = p.flags.num & PLAIN
    for moment in moments:
        flags &= moment.flags.num
    fits = flags == PLAIN and (by_rows or not isinstance(gradient, SparseRows))
    return _kind(gradient) if fits else None


def _add_check(jobs: Any, gradient: Any, kind: str) -> None:
    values = gradient
    if isinstance(gradient, SparseRows):
        values, rows = gradient.values, gradient.rows
        jobs.add(native(NOT_ROWS), len(rows), (rows, jobs.answer), (0, 0), 0, gradient.shape[0])
    size = values.size
    jobs.add(_not_finite(kind), size, (values, jobs.answer), (values.itemsize, 0), size // 4)


def _add_step(
    jobs: Any, change: Change, kind: str, constants: dict[Any, tuple[Native, Array, tuple[int, ...]]]
) -> None:
    """Add the job of a change; `constants` are of those before the steps, what they are told, and strides."""
    _, p, moments, gradient, factor, rule, numbers, _ = change
    size = p.itemsize
    sparse = isinstance(gradient, SparseRows)
    key = kind, factor, id(rule), id(numbers), sparse
    if key not in constants:
        made = np.array([factor, *numbers], p.dtype)
        constants[key] = _step(rule, kind, rows=sparse), made, (*((size,) * (2 + len(moments))), 0)
    step, told, strides = constants[key]
    if not sparse:
        jobs.add(step, p.size, (p, gradient, *moments, told), strides, p.size)
    else:
        rows, values, width = gradient.rows, gradient.values, p.size // max(1, len(p))
        arrays, steps = (p, values, *moments, told, rows), (0, size * width, *((0,) * len(moments)), 0, 8)
        jobs.add(step, len(rows), arrays, steps, values.size, width)


@cache  # a batch asks, and the text is long
def sum_copies(dtype: str) -> Loop | None:
    """Return what sums rows of an array: ``(rows [n, w], starts [m + 1], order [*], out [m, w])``."""
    kind = KIND_OF.get(np.dtype(dtype))
    if kind is None:
        return None
    loop = compiled_text(sum_copies_text(kind), f"{kind}[,] i8[] i8[] {kind}[,]")
    return cast("Loop", loop)
