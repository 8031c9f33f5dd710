"""Chains: how far calls are from what needs nothing, along paths on which some calls count.

One sweep in Python finds them, which suffices because the numbers of a call's arguments are below its own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import chain

from foldbatch.scheduler.trace import CellSignature, Ints


def longest_chains(
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
    members: Collection[int],
    counted: Collection[int],
) -> dict[int, list[int]]:
    """Return, for each call of some cells, the length of the longest path of their calls that ends with it.

    Of these cells, only calls of those that are counted add to the length.
    """
    reads = {k: reads_of(cells[k], calls[k], elements[k]) for k in members}
    outputs = {k: (len(cells[k].outputs), k in counted) for k in members}
    sweep = sorted((base, k, i) for k in members for i, base in enumerate(calls[k][:, 0].tolist()))
    highest = [0] * values
    lengths = {k: [0] * len(calls[k]) for k in members}
    for base, k, i in sweep:
        count, adds = outputs[k]
        length = max(map(highest.__getitem__, reads[k][i]), default=0) + adds
        lengths[k][i] = length
        for value in range(base, base + count):
            highest[value] = length
    return lengths


def lower_bound(
    cells: Sequence[CellSignature], calls: Sequence[Ints], elements: Sequence[Sequence[Ints]], values: int
) -> int:
    """Return a number of groups that no schedule can beat: per cell, its longest chain of calls.

    Source: Chen et al. 2023 (ED-Batch), section 3.
    """
    bound = sum(len(rows) > 0 for rows, cell in zip(calls, cells, strict=True) if not cell.recursive)
    for k in (k for k, cell in enumerate(cells) if cell.recursive and len(calls[k])):
        # a path from a call to one of the same cell never leaves the component
        members = [m for m, cell in enumerate(cells) if cell.component == cells[k].component]
        chains = longest_chains(cells, calls, elements, values, members, [k])
        bound += max(chain.from_iterable(chains.values()))
    return bound


def reads_of(cell: CellSignature, rows: Ints, elements: Sequence[Ints]) -> list[list[int]]:
    """Return the values that each call reads, those of its sequences included.

    Shapes: ``rows: [n, 1 + arguments + sequences]``; per sequence ``[elements, width]``; n lists result.
    """
    reads: list[list[int]] = rows[:, 1 : 1 + cell.arguments].tolist()
    for sequence, part in enumerate(elements):
        stop = 0
        flat = part.tolist()
        for values, length in zip(reads, rows[:, 1 + cell.arguments + sequence].tolist(), strict=True):
            start, stop = stop, stop + length
            values.extend(value for element in flat[start:stop] for value in element)
    return reads
