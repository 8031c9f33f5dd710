"""Numbering the rows in NumPy, as the layouts say: an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from foldbatch.scheduler.components import priority
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, Ints, Operand, Trace, element_order, lengths_of
from tests.planning import arithmetic


@dataclass(slots=True)
class RowNumbering:
    """The numbering so far."""

    of_value: Index  # ``[values] int64``: the row of each value, -1 where it has none yet
    used: list[int]  # rows used per arena
    # by cell and operand, the first row and the number of rows that the operand reads; only for operands
    # whose rows are known to be consecutive
    runs: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def append(self, arena: int, values: Index) -> bool:
        """Give values that have no row yet the next rows of an arena, in order of first appearance.

        Returns whether all of them got new rows, which then are consecutive. Shapes: ``values: [n]``.
        """
        self.used[arena], alone = arithmetic.number(self.of_value, values, self.used[arena])
        return alone

    def append_results(self, arena: int, calls: Ints, order: Index, output: int) -> Index:
        """Give the next free rows to an output's values that have none yet; return the rows of all: ``[n]``.

        Args:
            arena: the arena of the values.
            calls: the calls of the cell.
            order: the order in which they run.
            output: the number of the output.
        """
        rows, self.used[arena] = arithmetic.number_results(
            self.of_value, calls, order, output, self.used[arena]
        )
        return rows


def values_read(
    trace: Trace, cells: Sequence[CellSignature], cell: int, operand: Operand, order: Index | None
) -> Index:
    """Return the values an operand reads, in rank order.

    Shapes: ``order: [n]``, None for the order of the trace; the result ``[n * width]``, or ``[elements]``
    for a ragged operand.
    """
    if operand.sequence is None:
        columns = operand.places
        if order is not None:
            return arithmetic.read(trace.calls[cell], columns, order)
        return trace.calls[cell][:, columns[0] if len(columns) == 1 else columns].astype(np.int64).ravel()
    elements = trace.elements[cell][operand.sequence][:, operand.member].astype(np.int64)
    return (
        elements
        if order is None
        else elements[element_order(lengths_of(trace, cells, cell, operand.sequence), order)]
    )


def by_consumer(
    trace: Trace,  # the merged trace
    cells: Sequence[CellSignature],
    # by cell ``[n]``, the calls in rank order. None is for a cell whose calls are all one group, and may run
    # in any order: where possible, its entry is replaced by an order that makes the rows of its first
    # operand consecutive
    orders: list[Index | None],
    arenas: int,  # the number of arenas
) -> RowNumbering:
    """Number rows by first consumer; recursive cells choose first."""
    rows = RowNumbering(np.full(trace.values, -1, np.int64), [0] * arenas)
    for k in priority(tuple(cells)):
        for number, operand in enumerate(cells[k].operands):
            calls, order, start = trace.calls[k], orders[k], rows.used[operand.arena]
            values = values_read(trace, cells, k, operand, order)
            size, alone = len(values), rows.append(operand.arena, values)
            if not size:
                continue
            if alone:
                rows.runs[k, number] = start, size
            elif number == 0 and order is None and operand.sequence is None:
                column, stop = 1 + operand.columns[0], rows.used[operand.arena]
                orders[k], first = arithmetic.ranks(rows.of_value, calls, column, stop)
                if first is not None and len(operand.columns) == 1:
                    rows.runs[k, number] = first, size
    return rows


def by_producer(
    trace: Trace, cells: Sequence[CellSignature], orders: list[Index | None], arenas: int
) -> RowNumbering:
    """Number rows as values are made; no order is changed. Arguments are those of `by_consumer`."""
    return RowNumbering(np.full(trace.values, -1, np.int64), [0] * arenas)


NUMBERINGS = {"consumer": by_consumer, "producer": by_producer}  # by layout
