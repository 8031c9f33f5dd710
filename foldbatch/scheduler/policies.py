"""When each call runs: plain functions from a trace to levels.

A policy gives every call a level such that calls of one cell and level do not depend on each
other, and says how cells and levels interleave (`order`). Both policies here look at one
example at a time, so levels are computed once, when an example is traced, and merging batches
keeps them. Heights (distance from the leaves) need as many levels as the tallest example;
distances from the root would need nearly three times as many on parse trees.

Source: `by_depth` is Looks et al. 2017, section 2; `by_component` drains the strongly
connected components of the cell graph one after the other, as Cortex (Fegade et al. 2021) and
ED-Batch (Chen et al. 2023) do by other means. Where no component has more than one cell it
meets the lower bound; where cells call each other it may, rarely, use more groups than `by_depth`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foldbatch.errors import UnknownNameError
from foldbatch.scheduler.trace import CellSignature, Ints


@dataclass(frozen=True, slots=True)
class Policy:
    """A way of scheduling.

    `group(cell)` says which cells wait for each other level by level: calls of different groups
    run one group after the other.
    """

    name: str
    group: Callable[[CellSignature], int]


def _component(cell: CellSignature) -> int:
    return cell.component


def _one(cell: CellSignature) -> int:
    return 0


POLICIES = {
    "by_component": Policy("by_component", _component),
    "by_depth": Policy("by_depth", _one),
}


def find_policy(name: str) -> Policy:
    """Return a policy by name.

    Raises:
        UnknownNameError: when there is none of that name.
    """
    if name not in POLICIES:
        raise UnknownNameError("policy", f"one of {', '.join(POLICIES)}", repr(name))
    return POLICIES[name]


def levels(
    policy: Policy,
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
) -> tuple[Ints, ...]:
    """Return each call's level: 0 where it needs nothing of its group, else one more than that.

    Args:
        policy: which cells form a group.
        cells: the cells.
        calls: as in `Trace.calls`, per cell.
        elements: as in `Trace.elements`, per cell.
        values: as in `Trace.values`.
    """
    groups = [policy.group(cell) for cell in cells]
    found = [np.zeros(len(rows), np.int32) for rows in calls]
    for group in sorted(set(groups)):
        members = [k for k, g in enumerate(groups) if g == group]
        if any(cells[k].recursive for k in members) or len(members) > 1:
            _level(members, cells, calls, elements, values, found)
    return tuple(found)


def _level(
    members: Sequence[int],
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
    found: Sequence[Ints],
) -> None:
    # Calls are numbered in an order in which arguments come first, so one sweep suffices.
    # Plain lists: at a few dozen calls an example NumPy's overhead would dominate.
    level_of = [-1] * values
    reads = {k: _reads(cells[k], calls[k], elements[k]) for k in members}
    verdicts: dict[int, list[int]] = {k: [0] * len(calls[k]) for k in members}
    sweep = sorted((base, k, i) for k in members for i, base in enumerate(calls[k][:, 0].tolist()))
    for base, k, i in sweep:
        level = 1 + max((level_of[value] for value in reads[k][i]), default=-1)
        verdicts[k][i] = level
        for value in range(base, base + len(cells[k].outputs)):
            level_of[value] = level
    for k in members:
        found[k][:] = verdicts[k]


def _reads(cell: CellSignature, rows: Ints, elements: Sequence[Ints]) -> list[list[int]]:
    """Return the values that each call reads, those of its sequences included."""
    reads: list[list[int]] = rows[:, 1 : 1 + cell.arguments].tolist()
    for sequence, part in enumerate(elements):
        stop = 0
        flat = part.tolist()
        for mine, length in zip(reads, rows[:, 1 + cell.arguments + sequence].tolist(), strict=True):
            start, stop = stop, stop + length
            mine.extend(value for element in flat[start:stop] for value in element)
    return reads


def lower_bound(
    cells: Sequence[CellSignature], calls: Sequence[Ints], elements: Sequence[Sequence[Ints]], values: int
) -> int:
    """Return a number of groups that no schedule can beat: per cell, its longest chain of calls.

    Source: Chen et al. 2023 (ED-Batch), section 3.
    """
    kinds = range(len(cells))
    chains = (longest_chains(cells, calls, elements, values, [k == kind for k in kinds]) for kind in kinds)
    return sum(max(chain, default=0) for chain in chains)


def longest_chains(
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
    counts: Sequence[bool],
) -> list[int]:
    """Return, for every call, the calls of cells that count on its longest path, itself included."""
    reads = [_reads(cells[k], calls[k], elements[k]) for k in range(len(cells))]
    sweep = sorted((base, k, i) for k in range(len(cells)) for i, base in enumerate(calls[k][:, 0].tolist()))
    chain = [0] * values
    found = []
    for base, k, i in sweep:
        length = max((chain[value] for value in reads[k][i]), default=0) + counts[k]
        found.append(length)
        for value in range(base, base + len(cells[k].outputs)):
            chain[value] = length
    return found
