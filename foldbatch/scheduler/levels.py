"""Levels and chains: how far calls are from what needs nothing.

A call's level is 0 where it needs nothing of its scope, else one more than the highest level that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.heights import reads_of
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.trace import CellSignature, Ints


def levels(
    policy: Policy,
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
    arithmetic: Arithmetic = NUMPY,
) -> tuple[Ints, ...]:
    """Return each call's level: 0 where it needs nothing of its scope, else one above all that it needs.

    Args:
        policy: its `scope` says which cells' calls count.
        cells: the cells.
        calls: as in `Trace.calls`, per cell; of one example or of a batch.
        elements: as in `Trace.elements`, per cell.
        values: as in `Trace.values`.
        arithmetic: what finds the levels of cells that call each other.

    Returns:
        Per cell ``[n] int32``.
    """
    cells = tuple(cells)
    return tuple(arithmetic.levels(cells, _scopes(policy.scope, cells), calls, elements, values))


@lru_cache(256)
def _scopes(
    scope: Callable[[CellSignature], int], cells: tuple[CellSignature, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return the cells of each scope in which calls may need others, by number."""
    scopes: dict[int, list[int]] = {}
    for k, cell in enumerate(cells):
        scopes.setdefault(scope(cell), []).append(k)
    needing = [own for own in scopes.values() if len(own) > 1 or cells[own[0]].recursive]
    return tuple(map(tuple, needing))


def lower_bound(
    cells: Sequence[CellSignature], calls: Sequence[Ints], elements: Sequence[Sequence[Ints]], values: int
) -> int:
    """Return a number of groups that no schedule can beat: per cell, its longest chain of calls.

    Arrays are as for `levels`.

    Source: Chen et al. 2023 (ED-Batch), section 3.
    """
    bound = sum(len(rows) > 0 for rows, cell in zip(calls, cells, strict=True) if not cell.recursive)
    for k in (k for k, cell in enumerate(cells) if cell.recursive and len(calls[k])):
        # a path from a call to one of the same cell never leaves the component
        members = [m for m, cell in enumerate(cells) if cell.component == cells[k].component]
        own = [calls[m] for m in members], [elements[m] for m in members]
        bound += max(longest_chains([cells[m] for m in members], *own, values, [m == k for m in members]))
    return bound


def longest_chains(
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
    counts: Sequence[bool],
) -> list[int]:
    """Return, for every call, the length of the longest path of calls that ends with it.

    Only calls of cells for which `counts` is true add to the length. Arrays are as for `levels`.
    """
    reads = [reads_of(cells[k], calls[k], elements[k]) for k in range(len(cells))]
    sweep = sorted((base, k, i) for k in range(len(cells)) for i, base in enumerate(calls[k][:, 0].tolist()))
    chain = [0] * values
    lengths = []
    for base, k, i in sweep:
        length = max((chain[value] for value in reads[k][i]), default=0) + counts[k]
        lengths.append(length)
        for value in range(base, base + len(cells[k].outputs)):
            chain[value] = length
    return lengths
