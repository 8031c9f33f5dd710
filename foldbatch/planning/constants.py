"""The constants of a model that its plans read, and the memory that a batch's plan is written to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain
from operator import mul
from typing import NamedTuple

import numpy as np

from foldbatch.planning import table_loops as loops
from foldbatch.planning.facts import fact_names
from foldbatch.planning.layout import Layout
from foldbatch.scheduler.components import is_recursion, priority
from foldbatch.scheduler.trace import CellSignature, Column, Index, Ints

Flags = tuple[tuple[bool, ...], ...]  # per cell and feed, see `foldbatch.scheduler.trace.Form.integers`


class ModelConstants(NamedTuple):
    """The integers of a model that plans of its batches read, and the sizes of a batch's memory."""

    table: Index  # the model's header and records, for `table_loops.write_tables`
    base: int  # integers of memory that every batch takes
    per_value: int  # integers more for each value
    per_call: list[int]  # by cell, integers more for each call
    per_element: int  # integers more for each element of a sequence


@lru_cache(256)
def model_constants(
    cells: tuple[CellSignature, ...],
    arenas: int,
    layout: Layout,
    of_phases: tuple[tuple[int, ...], ...],
    integers: Flags,
) -> ModelConstants:
    """Return the constants of a model, given the cells of each phase, and which feeds are packed integers."""
    shapes, spans, columns = list[int](), list[int](), list[int]()
    widths = [width for cell in cells for width in cell.sequences]
    outputs = [arena for cell in cells for arena in cell.outputs]
    sequence, output = 0, 0
    for cell, flags in zip(cells, integers, strict=True):
        record = cell.arguments, len(cell.sequences), sequence, len(cell.outputs), output, len(cell.operands)
        shapes += (*record, len(spans) // loops.Operand.size, cell.recursive, sum(flags))
        shapes += [0] * (loops.Cell.size - loops.Cell.groups)
        for operand in cell.operands:
            ragged = -1 if operand.sequence is None else sequence + operand.sequence
            source = operand.arena, len(columns), len(operand.places), ragged, operand.member
            spans += [
                *source,
                operand.differentiable,
                -1,
                0,
                -1,
                *[0] * (loops.Operand.size - loops.Operand.repeats),
            ]
            columns += operand.places.tolist()
        sequence += len(cell.sequences)
        output += len(cell.outputs)
    lists = [number for width in widths for number in (width, *[0] * (loops.Sequence.size - 1))]
    phases, members = list[int](), list[int]()
    for group in of_phases:
        phases += (len(members), len(members) + len(group), is_recursion(cells, group))
        members += group
    facts = sum(1 for _ in fact_names(cells, arenas))
    kinds = len(cells)
    ends = (arenas + 1, 0, 0)
    bounds = 2 * kinds
    sizes = [(len(table), 0, 0) for table in (shapes, spans, lists)]
    sizes += [(0, 1, 0), (0, 0, 1), (bounds, 0, 1)]
    sizes += [(16 * kinds, 0, 4), (facts, 0, 0), (0, 1, 1), ends, ends, (kinds, 0, 2)]
    sizes += [
        (bounds + loops.DIGITS, 1, 2),
        (kinds + len(widths) + 1, 0, 0),
    ]  # for the index, `per_call` has more
    tables = shapes, spans, lists, columns, outputs, list(priority(cells)), phases, members, [*chain(*sizes)]
    _, _, _, *starts = accumulate(map(len, tables[:-1]), initial=loops.Model.size)
    counts = kinds, len(spans) // loops.Operand.size, len(widths), arenas, facts, layout.by_consumer
    numbers = np.array([*counts, len(of_phases), *starts, *chain.from_iterable(tables)], np.int64)
    base, value, call = map(sum, zip(*sizes, strict=True))
    rooms = [sum([len(o.columns) for o in c.operands], 1 + len(c.outputs) + len(c.sequences)) for c in cells]
    ragged = sum(o.sequence is not None for c in cells for o in c.operands)
    return ModelConstants(numbers, loops.Tables.size + base, value, [call + room for room in rooms], ragged)


def pack_sections(
    fixed: ModelConstants,
    values: int,
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    sections: Sequence[Column],
) -> tuple[Ints, Index]:
    """Return a packed trace of calls, elements and further sections, and memory for its tables.

    The sections stand where a packed trace has levels and feeds.
    """
    counts = [*map(len, calls)]
    parts = [part for cell_elements in elements for part in cell_elements]
    head = np.array([values, *counts, *map(len, parts)], np.int32)
    rows: Ints = np.concatenate([head, *calls, *parts, *sections], axis=None)
    return rows, allocate(fixed, values, counts, sum([part.size for part in parts]))


def allocate(fixed: ModelConstants, values: int, counts: Sequence[int], elements: int) -> Index:
    """Return memory for the plan of a batch.

    Args:
        fixed: the constants of the model.
        values: how many values the batch has.
        counts: how many calls it has, of each cell.
        elements: how many integers its sequences have.
    """
    size = fixed.base + values * fixed.per_value + sum(map(mul, counts, fixed.per_call))
    return np.empty(size + fixed.per_element * elements, np.int64)
