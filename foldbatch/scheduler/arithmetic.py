"""Index arithmetic: what merging and tables do to whole arrays of integers, in NumPy.

Everything else in the scheduler is bookkeeping per cell and operand; here is the work that grows with
the batch. `Arithmetic` names these functions, so that `foldbatch.engines.llvm.integers` can offer
the same ones as compiled loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler import turns
from foldbatch.scheduler.levels import levels_in
from foldbatch.scheduler.trace import Form, Index, Ints

_NONE = np.zeros(0, np.int32)
SHORT = 2**16  # keys below it are sorted by their digits, in linear time


def join(traces: Sequence[Ints], form: Form) -> tuple[Ints, Ints]:
    """Return packed traces as one, section by section, value numbers raised by the values before.

    Returns:
        The packed batch, and the heads of the examples: ``[examples, head] int32``.

    Raises:
        AssertionError: when a trace is of another form.
    """
    blocks = np.concatenate([_NONE, *traces])
    sizes = np.fromiter(map(len, traces), np.int64, len(traces))
    assert (sizes >= form.head).all(), "the traces differ in form"
    starts = np.cumsum(sizes) - sizes
    heads = blocks[starts[:, None] + np.arange(form.head)]
    rows = heads[:, form.counters].T.astype(np.int64)  # a line a section, then all is in the batch's order
    lengths = rows * form.widths[:, None]
    stops = form.head + np.cumsum(lengths, axis=0)
    fits = stops[-1] == sizes if len(stops) else sizes == form.head
    assert fits.all(), "the traces differ in form"
    origins = starts + stops - lengths
    flat = lengths.ravel()
    ends = np.cumsum(flat)
    total = int(ends[-1]) if len(ends) else 0
    index = np.repeat(origins.ravel() - ends + flat, flat)
    index += np.arange(total)
    packed = np.empty(form.head + total, np.int32)
    packed[: form.head] = heads.sum(axis=0)
    body = packed[form.head :]
    blocks.take(index, out=body, mode="clip")
    values = heads[:, 0].astype(np.int64)
    offsets = (np.cumsum(values) - values).astype(np.int32)
    numbered = int(np.count_nonzero(form.numbers))  # these sections come first
    shifts = np.repeat(np.tile(offsets, numbered), flat[: numbered * len(sizes)])
    body[: len(shifts)] += shifts
    stop = 0
    for section in range(numbered):
        start, stop = stop, stop + int(lengths[section].sum())
        if form.numbers[section] < form.widths[section]:  # the rest of a row is no value numbers
            section_rows = body[start:stop].reshape(-1, int(form.widths[section]))
            section_rows[:, form.numbers[section] :] -= np.repeat(offsets, rows[section])[:, None]
    return packed, heads


def sort(keys: NDArray[np.integer], size: int) -> tuple[Index, Index]:
    """Sort small numbers, all below `size`, and leave equal ones in their order.

    Returns:
        The order, and where each number's begin in it: ``[size + 1] int64``.

    >>> sort(np.array([1, 0, 1]), 3)
    (array([1, 0, 2]), array([0, 1, 3, 3]))
    """
    order = np.argsort(keys.astype(np.uint16) if size <= SHORT else keys, kind="stable")
    bounds = np.zeros(size + 1, np.int64)
    np.cumsum(np.bincount(keys, minlength=size), out=bounds[1:])
    return order, bounds


def group(keys: NDArray[Any]) -> tuple[Index, Index]:
    """Sort any numbers, and leave equal ones in their order.

    Returns:
        The order, and where each number that occurs begins in it, and the end.

    >>> group(np.array([5, 3, 5]))
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    order = np.argsort(keys.astype(np.uint16) if above(keys) <= SHORT else keys, kind="stable")
    ranked = keys[order]
    starts = np.flatnonzero(ranked[1:] != ranked[:-1])
    bounds = np.zeros(len(starts) + 2, np.int64)
    np.add(starts, 1, out=bounds[1:-1])
    bounds[-1] = len(keys)
    return order, bounds


def above(keys: NDArray[Any]) -> int:
    """Return one more than the greatest number; negative ones are large.

    >>> above(np.array([5, 3])), above(np.array([-1], np.int8)), above(np.zeros(0, np.int32))
    (6, 256, 0)
    """
    return int(keys.view(f"u{keys.itemsize}").max()) + 1 if len(keys) else 0


def read(calls: Ints, columns: Index, order: Index) -> Index:
    """Return some columns of some rows, side by side: ``[rows * columns] int64``.

    >>> read(np.array([[1, 2, 3], [4, 5, 6]], np.int32), np.array([0, 2]), np.array([1, 0]))
    array([4, 6, 1, 3])
    """
    if len(columns) == 1:
        column: Index = calls[:, columns[0]].take(order).astype(np.int64)
        return column
    index = (order * calls.shape[1])[:, None] + columns
    values: Index = calls.ravel().take(index.ravel()).astype(np.int64)
    return values


def number(rows: Index, values: Index, used: int) -> tuple[int, bool]:
    """Give values that have no row (-1) the next ones, in order of first appearance.

    Args:
        rows: ``[*] int64``: the row of each value there is, which is changed.
        values: ``[n]``: some values' numbers.
        used: how many rows are taken.

    Returns:
        How many rows are taken now, and whether all these values got rows of their own.

    >>> rows = np.full(4, -1)
    >>> number(rows, np.array([2, 0, 2]), 5), rows
    ((7, False), array([ 6, -1,  5, -1]))
    """
    old = rows.take(values) >= 0
    fresh = values[~old] if old.any() else values
    taken = np.arange(used, used + len(fresh))
    rows[fresh[::-1]] = taken[::-1]  # of duplicates the first one stays
    is_first = rows.take(fresh) == taken
    if not is_first.all():
        fresh = fresh[is_first]
        rows[fresh] = taken[: len(fresh)]
    return used + len(fresh), len(fresh) == len(values)


def number_results(rows: Index, calls: Ints, order: Index, output: int, used: int) -> tuple[Index, int]:
    """Do what `number` does for one output of some calls, whose values are distinct.

    Args:
        rows: ``[*] int64``: the row of each value there is, which is changed.
        calls: ``[*, 1 + *] int32``: each call's first value, and more.
        order: ``[n]``: which of the calls.
        output: the output's number.
        used: how many rows are taken.

    Returns:
        The rows of these values: ``[n] int64``; and how many rows are taken now.

    >>> calls = np.array([[0], [1], [2]], np.int32)
    >>> number_results(np.array([-1, -1, 3, -1]), calls, np.array([0, 1, 2]), 1, 4)
    (array([4, 3, 5]), 6)
    """
    values = calls[:, 0].take(order).astype(np.int64)
    values += output
    result_rows = rows.take(values)
    without = np.flatnonzero(result_rows < 0)
    if len(without):
        taken = np.arange(used, used + len(without))
        result_rows[without] = taken
        rows[values[without]] = taken
    return result_rows, used + len(without)


def ranks(rows: Index, calls: Ints, column: int, size: int) -> tuple[Index, int | None]:
    """Order calls by the rows of one argument, all below `size`; calls of the same row keep their order.

    Where these rows are distinct no sort is needed.

    Args:
        rows: ``[*] int64``: the row of each value.
        calls: ``[n, *] int32``: their arguments.
        column: which one.
        size: how many rows there are.

    Returns:
        The order, ``[n] int64``; and, where in it each row is one more than the last, the first row.

    >>> ranks(np.array([7, 4, 2, 3]), np.array([[9, 1], [9, 2], [9, 3]], np.int32), 1, 8)
    (array([1, 2, 0]), 2)
    """
    keys = rows.take(calls[:, column])
    place = np.full(size, -1, np.int64)
    place[keys] = np.arange(len(keys))
    present = np.flatnonzero(place >= 0)
    if len(present) < len(keys):
        return np.argsort(keys, kind="stable"), None
    follow = len(present) > 0 and int(present[-1] - present[0]) == len(present) - 1
    return place.take(present), int(present[0]) if follow else None


def consecutive(rows: Index) -> bool:
    """Return whether rows follow each other, each one more than the last; there are some.

    >>> consecutive(np.array([3, 4, 5])), consecutive(np.array([3, 5, 4, 6]))
    (True, False)
    """
    if int(rows[-1]) - int(rows[0]) != len(rows) - 1:
        return False
    return bool((rows[1:] - rows[:-1] == 1).all())


def drain(
    places: Index,  # ``[calls]``: the cell of each call
    order: Index,  # ``[calls]``: the calls, each after those that it reads
    ends: Index,  # ``[calls + 1]``: where each call's readers begin in `readers`
    readers: Index,  # ``[reads]``: the calls that read a call's results
    waits: Index,  # ``[calls]``: how many results each call reads
    cells: int,  # how many cells there are
    preference: NDArray[np.float64],  # ``[cells]`` scores of the cells, or none
    weigh: Callable[..., object] = turns.weigh,  # does what `turns.weigh` does
    run: Callable[..., int] = turns.drain,  # does what `turns.drain` does
    form: Callable[[NDArray[Any]], Any] = np.ndarray.tolist,  # makes of an array what both are given
) -> tuple[Ints, Index]:
    """Run calls as they become ready, see `turns.drain`.

    Returns:
        For each call the turn of its cell in which it runs, -1 if it never does: ``[calls] int32``; and the
        cell of each turn: ``[turns] int64``.

    Two cells that take turns, three calls in a chain:

    >>> none = np.zeros(0)
    >>> drain(*map(np.array, ([0, 0, 1], [0, 2, 1], [0, 1, 1, 2], [2, 1], [0, 1, 1])), 2, none)
    (array([0, 1, 0], dtype=int32), array([0, 1, 0]))
    """
    calls, zeros = len(places), np.zeros(cells)
    follow, runs, weights = form(ends), form(readers), form(np.ones(calls))
    if not len(preference):
        weigh(form(order), follow, runs, weights)
    firsts, following = np.full(cells, -1), np.full(calls, -1)
    groups, taken = form(following.astype(np.int32)), form(following)
    state = [waits, zeros, zeros, zeros - 1, firsts, following, zeros.astype(np.int32)]
    count = run(form(places), follow, runs, weights, form(preference), *map(form, state), groups, taken)
    return np.array(groups, np.int32), np.array(taken[:count], np.int64)


@dataclass(frozen=True, slots=True)
class Costs:
    """Constants that weigh the time of planning, in microseconds, against that of the steps it saves.

    They are constants, measured once (`benchmarks/NOTES.md`, row "auto"), so that a batch is always planned
    alike: were they timed in each process, the same batch might be planned differently, and its sums rounded
    differently.
    """

    step: float  # what one step more takes, forward, backward and while it is planned, besides its calls
    weight: float  # what each number of its cell's parameters adds to that
    plan: float  # planning cells that call each other as calls become ready, besides their calls
    number: float  # what each number in the trace of their calls adds to that


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Some functions of this module by name, or others that do the same; and what they cost."""

    join: Callable[[Sequence[Ints], Form], tuple[Ints, Ints]]
    group: Callable[[NDArray[Any]], tuple[Index, Index]]
    drain: Callable[[Index, Index, Index, Index, Index, int, NDArray[np.float64]], tuple[Ints, Index]]
    levels: Callable[..., list[Ints]]  # as `levels_in`
    costs: Costs
    # does what `tables.build` does, where that is not done in NumPy: first it is given this object
    built: Callable[..., Any] | None = None
    # checks what walks have noted and makes columns of it, where that is not done in NumPy
    noted: Callable[..., Any] | None = None


NUMPY = Arithmetic(join, group, drain, levels_in, Costs(step=30.0, weight=0.001, plan=100.0, number=0.6))
