"""Functions of whole arrays of integers: traces are joined, equal numbers grouped, calls run in turns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foldbatch.planning.compiled import loops
from foldbatch.planning.table_loops import DIGITS
from foldbatch.scheduler.trace import Form, Index, Ints


def join(traces: Sequence[Ints], form: Form) -> tuple[Ints, Ints]:
    """Return packed traces as one, section by section, value numbers raised by the values before.

    Returns:
        The packed batch, and the heads of the examples: ``[examples, head] int32``.

    Raises:
        AssertionError: when a trace is of another form.
    """
    blocks = np.concatenate(traces) if traces else np.zeros(0, np.int32)
    heads, cursors = np.empty((len(traces), form.head), np.int32), np.empty(len(traces), np.int64)
    packed = np.empty(max(form.head, len(blocks) - (len(traces) - 1) * form.head), np.int32)
    packed[: form.head] = 0
    fits = loops().join(blocks, form.counters, form.widths, form.numbers, cursors, packed, heads)
    assert fits, "the traces differ in form"
    return packed, heads


def group(keys: NDArray[np.generic]) -> tuple[Index, Index]:
    """Sort whole numbers, and leave equal ones in their order.

    Returns:
        The order, and where each number that occurs begins in it, and the end: ``[groups + 1] int64``.

    >>> group(np.array([5, 3, 5]))
    (array([1, 0, 2]), array([0, 1, 3]))
    """
    count = len(keys)
    order, bounds, work = (np.empty(count + extra, np.int64) for extra in (0, 1, DIGITS))
    if keys.dtype == np.int32:
        groups = loops().group(np.ascontiguousarray(keys), count, order, bounds, work)
    else:
        groups = loops().group_long(np.ascontiguousarray(keys, np.int64), count, order, bounds, work)
    return order, bounds[: groups + 1]


def drain(
    places: Index,  # ``[calls]``: the cell of each call
    order: Index,  # ``[calls]``: the calls, each after those that it reads
    ends: Index,  # ``[calls + 1]``: where each call's readers begin in `readers`
    readers: Index,  # ``[reads]``: the calls that read a call's results
    waits: Index,  # ``[calls]``: how many results each call reads
    cells: int,  # how many cells there are
    preference: NDArray[np.float64],  # ``[cells]`` scores of the cells, or none
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
    calls, weights = len(places), np.ones(len(places))
    if not len(preference):
        loops().weigh(order, ends, readers, weights)
    groups, taken = np.full(calls, -1, np.int32), np.full(calls, -1)
    first, following = np.full(cells, -1), np.full(calls, -1)
    ready, remaining, scores = np.zeros(cells), np.zeros(cells), np.full(cells, -1.0)
    state = waits.copy(), ready, remaining, scores, first, following, np.zeros(cells, np.int32)
    count = loops().drain(places, ends, readers, weights, preference, *state, groups, taken)
    return groups, taken[:count]
