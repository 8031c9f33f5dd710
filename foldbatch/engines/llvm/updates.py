"""Optimizers' steps and checks of all parameters in one compiled call, and sums of rows.

Steps and checks are *jobs*: functions on arrays, one after the other; a helper takes parts of large ones.
Importing this needs llvmlite.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import cast

import numpy as np

from foldbatch.engines.llvm import team
from foldbatch.engines.llvm.sum_texts import sum_copies_text
from foldbatch.engines.llvm.team import Team, share
from foldbatch.loops import cpython
from foldbatch.loops.compiling import Native, compiled_function, compiled_text, native
from foldbatch.loops.cpython import PLAIN, address_of
from foldbatch.loops.vector_functions import moved
from foldbatch.loops.words import at, call, i8, u8
from foldbatch.params.parameters import Array, Change, Gradient, Rule, SparseRows, Updates

JOB_HEADER, STATIC = 6, 5  # integers of a job before its places; the one that its function gets
PART_WORK, MAX_JOB_PARTS = 16_384, 64  # the work of a part, as in `Jobs.add`; the limit of parts of a job
WORTH = 8 * PART_WORK  # the work from which asking for the helper pays
NUMBERS_AT = cpython.WORD_BYTES * cpython.NUMBERS  # bytes in an array before the address of its numbers


def _run(jobs: int, count: int, words: int, room: int, checks: int, answer: int) -> None:
    """Run jobs one after the other, large ones together with a helper.

    Args:
        jobs: address of the records of jobs. A record has the job's function, the number of its arrays, of
            units and of parts, the work, and an integer for the function; then the addresses of the arrays'
            objects, and the bytes of a unit in each array.
        count: number of jobs.
        words: address of the words that are shared with a helper, see `team`; 0 without a helper.
        room: address of memory for the arguments of all parts of a job.
        checks: the number of jobs that are checks; if the answer is not 0 after them, no other job runs.
        answer: address of the checks' answer.
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
                to[p + 1] = at(operands[p] + NUMBERS_AT)[0] + first * operands[places + p]
        if parts > 1:
            share(words, here[0], here[1], room, apart, parts, i8(u8(here[4]) // u8(parts)))
        else:
            call(here[0], at(room), at(static))
        where += 8 * (JOB_HEADER + 2 * here[1])


class Jobs:
    """A list of jobs, which run in one compiled call."""

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._arrays: list[Array] = []  # kept alive until the jobs have run
        self._count, self._work, self._room, self._checks = 0, 0, 0, 0
        self.answer = np.zeros(1, np.int64)  # ``[1] int64``: checks write 1 if they find a fault

    def add(
        self,
        # it takes a number of units, the addresses of arrays, and an integer
        function: Native,
        units: int,  # the number of units, which lie one after the other in each array
        arrays: Sequence[Array],  # the arrays
        steps: Sequence[int],  # the bytes from one unit to the next in each array
        work: int,  # the count of numbers that the job changes, or a quarter of those that it only reads
        static: int = 0,  # the integer
    ) -> None:
        """Append a job; a job of much work is cut into parts, which a helper may take."""
        parts = max(1, min(work // PART_WORK, units, MAX_JOB_PARTS)) if work > PART_WORK else 1
        count = len(arrays)
        self._numbers += (function.address, count, units, parts, work, static, *map(id, arrays), *steps)
        self._arrays += arrays
        self._count += 1
        self._work += work
        self._room = max(self._room, parts * (count + 2))

    def end_checks(self) -> None:
        """End the checks: jobs that are added from now on run only if `answer` is still 0."""
        self._checks = self._count

    def run(self, helper: Team | None) -> bool:
        """Run the jobs, large ones together with an idle helper; return whether all have run."""
        run = compiled_function(_run, "i8 i8 i8 i8 i8 i8", sys.modules[__name__], team)
        # an array of NumPy's would take thrice as long to make
        numbers = array("q", self._numbers)
        room = np.empty(self._room, np.int64)
        words = helper.take() if helper is not None and self._work >= WORTH else 0
        arguments = numbers.buffer_info()[0], self._count, words, address_of(room)
        try:
            run(*arguments, self._checks, address_of(self.answer))
        finally:
            if words and helper is not None:
                helper.leave()
        return not self.answer[0]


Constants = dict[tuple[object, ...], tuple[Native, Array, tuple[int, ...]]]  # see `_add_step`
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
    """Return a rule's step, compiled. Every product is rounded, as in a gradient that arrives scaled."""
    return native(step_text(rule, kind, rows=rows), rounded=True)


@cache
def _not_finite(kind: str) -> Native:
    return native(NOT_FINITE.format(k=kind))


def _is_plain(array: Array) -> bool:
    """Return whether compiled code can read an array by its address."""
    return bool(array.flags.num & PLAIN == PLAIN)


class Compiled(Updates):
    """Steps and checks compiled, in one call for all parameters."""

    helped = False

    def apply(
        self, changes: Sequence[Change], look: Callable[[Sequence[Change]], None] | None
    ) -> list[Change]:
        """Apply the changes that compiled code can make, after checks; return the other changes.

        `look` raises for gradients that are not finite; it gets the changes that are not compiled, and all
        others if a compiled check has found a fault.
        """
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
        constants: Constants = {}
        for change, kind in fitting:
            _add_step(jobs, change, kind, constants)
        if not self._run(jobs) and look is not None:
            look([change for change, _ in fitting])
        return unfit

    def good(self, gradients: Iterable[Gradient]) -> bool:
        """Return whether all gradients are finite; False also if compiled code cannot read one of them."""
        jobs = Jobs()
        for gradient in gradients:
            kind = _kind(gradient)
            if kind is None:
                return False
            _add_check(jobs, gradient, kind)
        return self._run(jobs)

    def _run(self, jobs: Jobs) -> bool:
        return jobs.run(team.team() if self.helped else None)


def _kind(gradient: Gradient) -> str | None:
    """Return the kind of a gradient's numbers, "f4" or "f8"; None if compiled code cannot read it.

    Compiled code reads contiguous, aligned arrays of float32 or float64, and `SparseRows` of such.
    """
    values = gradient.values if isinstance(gradient, SparseRows) else gradient
    if isinstance(gradient, SparseRows):
        rows = gradient.rows
        if rows.dtype != np.int64 or rows.ndim != 1 or not _is_plain(rows):
            return None
        if values.shape != (len(rows), *gradient.shape[1:]):
            return None
    return KIND_OF.get(values.dtype) if _is_plain(values) else None


def _kind_of_change(change: Change) -> str | None:
    """Return the kind of a change's numbers, "f4" or "f8"; None if compiled code cannot make the change."""
    _, p, moments, gradient, _, _, _, by_rows = change
    flags = p.flags.num & PLAIN
    for moment in moments:
        flags &= moment.flags.num
    fits = flags == PLAIN and (by_rows or not isinstance(gradient, SparseRows))
    return _kind(gradient) if fits else None


def _add_check(jobs: Jobs, gradient: Gradient, kind: str) -> None:
    """Append the jobs that check a gradient: numbers are finite, rows ascend and lie in the table."""
    values = gradient.values if isinstance(gradient, SparseRows) else gradient
    if isinstance(gradient, SparseRows):
        rows = gradient.rows
        jobs.add(native(NOT_ROWS), len(rows), (rows, jobs.answer), (0, 0), 0, gradient.shape[0])
    size = values.size
    jobs.add(_not_finite(kind), size, (values, jobs.answer), (values.itemsize, 0), size // 4)


def _add_step(jobs: Jobs, change: Change, kind: str, constants: Constants) -> None:
    """Append the job of a change; `constants` caches functions, their numbers, and strides, by form."""
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
        rows = gradient.rows
        values = gradient.values
        width = p.size // max(1, len(p))
        arrays, steps = (
            (p, values, *moments, numbers_array, rows),
            (0, size * width, *((0,) * len(moments)), 0, 8),
        )
        jobs.add(step, len(rows), arrays, steps, values.size, width)


@cache  # every batch needs it, and the text is long
def sum_copies(dtype: str) -> Loop | None:
    """Return compiled code that adds up groups of rows; None for a dtype that it does not read.

    It is called as ``sum_copies(rows [n, w], starts [m + 1], order [n], out [m, w])``, and writes to
    ``out[i]`` the sum of the rows ``order[starts[i]:starts[i + 1]]``.
    """
    kind = KIND_OF.get(np.dtype(dtype))
    if kind is None:
        return None
    loop = compiled_text(sum_copies_text(kind), f"{kind}[,] i8[] i8[] {kind}[,]")
    return cast("Loop", loop)
