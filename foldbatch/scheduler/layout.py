"""Numbering the rows: a value lives where its consumer reads it.

In a tree every value has one consumer inside the recursion. Giving a value the row at which
that consumer will look makes the operands of a level consecutive rows of the arena: no gather
before a kernel, no scatter-add after its derivative. A value with several consumers lives at
the first; the others get an index array. `by_producer` instead numbers values as they are
made, and leaves every operand to an index array: the plain way, for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foldbatch.errors import UnknownNameError
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, Operand, Trace


@dataclass(slots=True)
class Rows:
    """The numbering so far: the row of each value (-1: none yet), and rows used per arena."""

    of_value: Index
    used: list[int]

    def append(self, arena: int, values: Index) -> None:
        """Give values that have no row yet the next rows of an arena, in order of first appearance."""
        fresh = values[self.of_value[values] < 0]
        rows = self.used[arena] + np.arange(len(fresh))
        self.of_value[fresh[::-1]] = rows[::-1]  # of duplicates the first one stays
        is_first = self.of_value[fresh] == rows
        if not is_first.all():
            fresh = fresh[is_first]
            self.of_value[fresh] = rows[: len(fresh)]
        self.used[arena] += len(fresh)


def ranked(trace: Trace, cell: int, order: Index) -> Index:
    """Return a cell's calls in rank order, as `Trace.calls` has them: ``[n, columns]``."""
    return trace.calls[cell].take(order, axis=0).astype(np.int64)


def values_read(
    trace: Trace,
    cells: Sequence[CellSignature],
    cell: int,
    operand: Operand,
    order: Index,
    calls: Index,
) -> Index:
    """Return the values an operand reads, in rank order.

    Shapes: ``order: [n]``; ``calls`` are those in that order (`ranked`); the result ``[n * width]``, or
    one number per element of a sequence.
    """
    if operand.sequence is None:
        first, width = operand.columns[0], len(operand.columns)
        if operand.columns == tuple(range(first, first + width)):
            return calls[:, 1 + first : 1 + first + width].ravel()
        return calls[:, [1 + column for column in operand.columns]].ravel()
    elements = trace.elements[cell][operand.sequence][:, operand.member]
    return elements[element_order(trace, cells, cell, operand.sequence, order)].astype(np.int64)


def element_order(
    trace: Trace, cells: Sequence[CellSignature], cell: int, sequence: int, order: Index
) -> Index:
    """Return the permutation of a sequence argument's elements that follows the calls' ranks."""
    lengths = trace.calls[cell][:, 1 + cells[cell].arguments + sequence].astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    ranked = lengths[order]
    shifts = starts[order] - (np.cumsum(ranked) - ranked)
    return np.repeat(shifts, ranked) + np.arange(int(ranked.sum()))


def by_consumer(
    trace: Trace, cells: Sequence[CellSignature], orders: list[Index], fixed: Sequence[bool], arenas: int
) -> Rows:
    """Number rows by first consumer; recursive cells choose first.

    Args:
        trace: the merged trace.
        cells: the cells.
        orders: by cell, the calls in rank order; the order of a cell that is not `fixed` is
            replaced by one that makes its first operand consecutive, where that is possible.
        fixed: whether a cell's order matters, because it runs in several groups.
        arenas: how many there are.
    """
    rows = Rows(np.full(trace.values, -1, np.int64), [0] * arenas)
    priority = sorted(range(len(cells)), key=lambda k: (not cells[k].recursive, cells[k].component))
    for k in priority:
        calls = ranked(trace, k, orders[k])
        for number, operand in enumerate(cells[k].operands):
            values = values_read(trace, cells, k, operand, orders[k], calls)
            rows.append(operand.arena, values)
            if number == 0 and not fixed[k] and operand.sequence is None and len(values):
                key = rows.of_value[values.reshape(len(orders[k]), -1)[:, 0]]
                orders[k] = orders[k][_ranks(key, rows.used[operand.arena])]
                calls = ranked(trace, k, orders[k])
    return rows


def _ranks(keys: Index, size: int) -> Index:
    """Return the stable order of keys below `size`; where they are distinct no sort is needed."""
    place = np.full(size, -1, np.int64)
    place[keys] = np.arange(len(keys))
    order: Index = place[place >= 0]
    return order if len(order) == len(keys) else np.argsort(keys, kind="stable")


def by_producer(
    trace: Trace, cells: Sequence[CellSignature], orders: list[Index], fixed: Sequence[bool], arenas: int
) -> Rows:
    """Number rows as values are made; the order of no cell is changed."""
    return Rows(np.full(trace.values, -1, np.int64), [0] * arenas)


Layout = Callable[[Trace, Sequence[CellSignature], list[Index], Sequence[bool], int], Rows]
LAYOUTS: dict[str, Layout] = {"consumer": by_consumer, "producer": by_producer}


def find_layout(name: str) -> Layout:
    """Return a layout by name.

    Raises:
        UnknownNameError: when there is none of that name.
    """
    if name not in LAYOUTS:
        raise UnknownNameError("layout", f"one of {', '.join(LAYOUTS)}", repr(name))
    return LAYOUTS[name]
