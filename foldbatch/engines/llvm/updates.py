"""Optimizers' steps and checks of all parameters in one compiled call, and sums of rows.

Steps and checks are *jobs*: functions on arrays, one after the other; a helper takes parts of large ones.
Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, cast

import numpy as np

from foldbatch.engines.llvm import team
from foldbatch.engines.llvm.compiling import Native, compiled_function, compiled_text, native
from foldbatch.engines.llvm.objects import DATA, PLAIN
from foldbatch.engines.llvm.sum_texts import sum_copies_text
from foldbatch.engines.llvm.team import Team, share
from foldbatch.engines.llvm.vector_functions import moved
from foldbatch.engines.llvm.words import at, call, i8, u8
from foldbatch.params.parameters import Array, Change, Rule, SparseRows, Updates
from foldbatch.system.lines import address_of

JOB_HEADER, STATIC = 6, 5  # numbers of a job before its places; which of them its function is told
PART_WORK, MAX_JOB_PARTS = 16_384, 64  # the work of a part, as of `Jobs.add`, and parts of a job
WORTH = 8 * PART_WORK  # the work from which asking for the helper pays


def _run(jobs: Any, count: Any, words: Any, room: Any, checks: Any, answer: Any) -> None:
    """Run jobs.

    Args:
        jobs: address of the jobs. Each is its function, how many arrays that takes, units, parts, work, and a
            number that the function is told; then the addresses of the arrays' objects, and the bytes of a
            unit in each.
        count: how many there are.
        words: address of what is shared with a helper, see `team`; 0 where there is none.
        room: address of memory for the arguments of all parts of a job.
        checks: after so many jobs the others are left if the answer is not 0.
        answer: address of a number.
    """
    where = jobs
    for number in range(count):
        if number == checks and at(answer)[0] != 0:
            return
        here = at(where)
        places, units, parts = here[1], here[2], here[3] if words != 0 else 1
        operands, apart, static = moved(here, JOB_HEADER), places + 2, where + 8 * STATIC
        for part in range(parts):
            to = moved(at(room), part * apart)
            first = i8(u8(units * part) // u8(parts))
            last = i8(u8(units * (part + 1)) // u8(parts))
            to[0], to[places + 1] = last - first, static
            for p in range(places):
                to[p + 1] = at(operands[p] + DATA)[0] + first * operands[places + p]
        if parts > 1:
            share(words, here[0], here[1], room, apart, parts, i8(u8(here[4]) // u8(parts)))
        else:
            call(here[0], at(room), at(static))
        where += 8 * (JOB_HEADER + 2 * here[1])


class Jobs:
    """Jobs that are put together one by one, and then run."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._arrays: list[Array] = []  # which live until the jobs have run
        self._count, self._work, self._room, self._checks = 0, 0, 0, 0
        self.answer = np.zeros(1, np.int64)  # ``[1] int64``: what checks write a 1 to where they find a fault

    def add(
        self,
        # what is called with a number of units, the addresses of arrays, and a whole number
        function: Native,
        units: int,  # how many units there are, one after the other
        arrays: Sequence[Array],  # see there
        steps: Sequence[int],  # the bytes from one unit to the next in each array
        work: int,  # how many numbers the job changes, or a quarter of those that it only reads
        static: int = 0,  # the whole number
    ) -> None:
        parts, count = (
            max(1, min(work // PART_WORK, units, MAX_JOB_PARTS)) if work > PART_WORK else 1,
            len(arrays),
        )
        self._numbers += (function.address, count, units, parts, work, static, *map(id, arrays), *steps)
        self._arrays += arrays
        self._count += 1
        self._work += work
        self._room = max(self._room, parts * (count + 2))

    def end_checks(self) -> None:
        """Let jobs that are added from now on depend on `answer`: unless it is 0, they will not run."""
        self._checks = self._count

    def run(self, helper: Team | None) -> bool:
        """Run them, large ones together with a helper, if it is idle; return whether all have run."""
        run = compiled_function(_run, "i8 i8 i8 i8 i8 i8", sys.modules[__name__], team)
        # an array of NumPy's would take thrice as long to make
        numbers, room = array("q", self._numbers), np.empty(self._room, np.int64)
        words = helper.take() if helper is not None and self._work >= WORTH else 0
        arguments = numbers.buffer_info()[0], self._count, words, address_of(room)
        try:
            run(*arguments, self._checks, address_of(self.answer))
        finally:
            if words and helper is not None:
                helper.leave()
        return not self.answer[0]


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
    """Return the text of a rule's step: on numbers of a kind side by side, or on `rows` of tables."""
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
        jobs, unfit = Jobs(), list[Change]()
        fitting = list[tuple[Change, str]]()  # each with the kind of its numbers
        for change in changes:
            kind = _kind_of_change(change)
            unfit.append(change) if kind is None else fitting.append((change, kind))
        if look is not None:
            look(unfit)
            for change, kind in fitting:
                _add_check(jobs, change.gradient, kind)
            jobs.end_checks()
        constants: dict[Any, tuple[Native, Array, tuple[int, ...]]] = {}
        for change, kind in fitting:
            _add_step(jobs, change, kind, constants)
        if not self._run(jobs) and look is not None:
            look([change for change, _ in fitting])
        return unfit

    def good(self, gradients: Iterable[Any]) -> bool:
        jobs = Jobs()
        for gradient in gradients:
            kind = _kind(gradient)
            if kind is None:
                return False
            _add_check(jobs, gradient, kind)
        return self._run(jobs)

    def _run(self, jobs: Any) -> bool:
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
        array = np.array([factor, *numbers], p.dtype)
        constants[key] = _step(rule, kind, rows=sparse), array, (*((size,) * (2 + len(moments))), 0)
    step, numbers_array, strides = constants[key]
    if not sparse:
        jobs.add(step, p.size, (p, gradient, *moments, numbers_array), strides, p.size)
    else:
        rows, values, width = gradient.rows, gradient.values, p.size // max(1, len(p))
        arrays, steps = (
            (p, values, *moments, numbers_array, rows),
            (0, size * width, *((0,) * len(moments)), 0, 8),
        )
        jobs.add(step, len(rows), arrays, steps, values.size, width)


@cache  # a batch asks, and the text is long
def sum_copies(dtype: str) -> Loop | None:
    """Return what sums rows of an array: ``(rows [n, w], starts [m + 1], order [*], out [m, w])``."""
    kind = KIND_OF.get(np.dtype(dtype))
    if kind is None:
        return None
    loop = compiled_text(sum_copies_text(kind), f"{kind}[,] i8[] i8[] {kind}[,]")
    return cast("Loop", loop)
