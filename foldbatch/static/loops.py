"""A loop over rows as plain data, for engines to write in a language of theirs.

A loop visits its rows in order; in each row its sweeps run one after the other, each over the
elements of its shape. A sweep loads elements, computes, and stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foldbatch.static.graph import Node


@dataclass(frozen=True, slots=True)
class LoopBuffer:
    """An array that a loop works on, without gaps; a written array never overlaps another."""

    dtype: str
    ndim: int
    written: bool


@dataclass(frozen=True, slots=True)
class Element:
    """The place of an element: in buffer number `buffer`, at the strides of a `strided.Access`."""

    buffer: int
    row: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One op on elements; an operand is the number of a value of this sweep, or a constant's node."""

    node: Node
    operands: tuple[int | Node, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A pass over the elements of one shape. Loaded values are numbered first, then computed ones."""

    shape: tuple[int, ...]
    loads: tuple[Element, ...]
    operations: tuple[Operation, ...]
    stores: tuple[tuple[int, Element], ...]

    @property
    def places(self) -> tuple[Element, ...]:
        """All places it loads from and stores to."""
        return (*self.loads, *(place for _, place in self.stores))


@dataclass(frozen=True, slots=True)
class FusedLoop:
    """A loop: `batched` says whether it has rows at all, or runs once for the whole batch."""

    buffers: tuple[LoopBuffer, ...]
    sweeps: tuple[Sweep, ...]
    batched: bool


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops inside each other.

    Attributes:
        turns: how many turns each loop takes, the outermost first.
        strides: per place, its strides along each loop.
        by_rows: whether the first loop takes its turns once for every row.
    """

    turns: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    by_rows: bool


def nest(shape: Sequence[int], places: Sequence[Element], *, by_rows: bool) -> Nest:
    """Return the fewest loops that visit all elements of a shape, in every row if `by_rows`.

    Two axes are one where all places lie along both without gaps, and so are the rows and the first.

    >>> nest((2, 3), [Element(0, 6, 0, (3, 1)), Element(1, 6, 0, (3, 1))], by_rows=True)
    Nest(turns=(6,), strides=((1,), (1,)), by_rows=True)
    >>> nest((2, 3), [Element(0, 6, 0, (3, 1)), Element(1, 0, 0, (0, 1))], by_rows=False)
    Nest(turns=(2, 3), strides=((3, 1), (0, 1)), by_rows=False)
    """
    axes = [(extent, [place.strides[i] for place in places]) for i, extent in enumerate(shape) if extent != 1]
    if by_rows:
        axes.insert(0, (1, [place.row for place in places]))
    merged: list[tuple[int, list[int]]] = []
    for extent, strides in axes:
        if merged and all(outer == extent * s for outer, s in zip(merged[-1][1], strides, strict=True)):
            merged[-1] = (merged[-1][0] * extent, strides)
        else:
            merged.append((extent, strides))
    turns = tuple(extent for extent, _ in merged)
    return Nest(turns, tuple(tuple(s[i] for _, s in merged) for i in range(len(places))), by_rows)
