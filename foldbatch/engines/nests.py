"""Strides of places as whole numbers for compiled functions: few loops inside each other, rows outermost.

A compiled function has a fixed number of loops. Axes that all places visit without gaps become one; what is
left over is unrolled: one part of it for each turn, with its places further on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from foldbatch.static.op import UNBATCHED, Axis
from foldbatch.static.places import Place, merged
from foldbatch.static.statements import Statement, axis_of


@dataclass(frozen=True, slots=True)
class Stretch:
    """The part of a shape that one call of a function visits."""

    offsets: tuple[int, ...]  # of each place, the element where the part begins
    extents: tuple[int, ...]  # turns of the loops, the innermost last
    strides: tuple[tuple[int, ...], ...]  # of each place, along these loops


def parts(axes: Sequence[tuple[int, tuple[int, ...]]], loops: int, places: int) -> Iterator[Stretch]:
    """Yield the parts into which axes are cut for a function of so many loops; at least one."""
    unrolled, looped = axes[: max(0, len(axes) - loops)], list(axes[max(0, len(axes) - loops) :])
    looped = [(1, (0,) * places)] * (loops - len(looped)) + looped
    extents = tuple(extent for extent, _ in looped)
    strides = tuple(tuple(stride[p] for _, stride in looped) for p in range(places))
    for turn in product(*(range(extent) for extent, _ in unrolled)):
        offsets = tuple(
            sum(i * stride[p] for i, (_, stride) in zip(turn, unrolled, strict=True)) for p in range(places)
        )
        yield Stretch(offsets, extents, strides)


def by_rows(axes: Sequence[tuple[int, tuple[int, ...]]], rows: Sequence[int]) -> bool:
    """Return whether rows follow each other in all places as the turns of the only axis do."""
    if len(axes) > 1:
        return False
    extent, strides = axes[0] if axes else (1, tuple(rows))
    return all(row == extent * stride for row, stride in zip(rows, strides, strict=True))


def leading(x: Place, y: Place) -> tuple[list[tuple[int, tuple[int, ...]]], bool]:
    """Return the axes of two places without the last one, and whether these and the rows are one axis."""
    axes, rows = merged(x.shape[:-1], [x.strides[:-1], y.strides[:-1]]), (x.row, y.row)
    alone = x.axis is UNBATCHED and y.axis is UNBATCHED and len(axes) == 1
    if alone or by_rows(axes, rows):
        return axes or [(1, rows)], True
    return axes, False


@dataclass(frozen=True, slots=True)
class Factor:
    """How a matrix lies in a place: where it begins, and how far it is to the next row, column and matrix."""

    place: Place
    offset: int
    row: int
    column: int
    step: int = 0

    @property
    def turned(self) -> Factor:
        """The transposed matrix."""
        return replace(self, row=self.column, column=self.row)


@dataclass(frozen=True, slots=True)
class Product:
    """Products ``c = a b`` side by side, ``[m, k]`` times ``[k, n]``; rows multiply one of the extents."""

    by: str  # which extent: ``m``, ``k`` or ``count``
    axis: Axis  # along which the rows are
    count: int
    m: int
    k: int
    n: int
    a: Factor
    b: Factor
    c: Factor
    adds: bool = False  # whether it is added to the one before


def products_of(statement: Statement) -> Iterator[Product]:
    """Yield the products that a ``linear``, ``matmul`` or ``sum_outer`` is, one after the other."""
    (first_operand, second_operand), write = statement.reads, statement.result
    axis = axis_of(statement, [first_operand, second_operand, write])
    if statement.op == "matmul":
        (m, k), (_, n) = first_operand.shape, second_operand.shape
        a, b, c = (_factor(place, place.row) for place in (first_operand, second_operand, write))
        yield Product("count", axis, 1, m, k, n, a, b, c)
        return
    weight, second = (second_operand, write) if statement.op == "linear" else (write, second_operand)
    first, last = weight.shape
    axes, joined = leading(first_operand, second)
    for number, part in enumerate(parts(axes, 1, 2)):
        (extent,), steps = part.extents, [stride for (stride,) in part.strides]
        count, rows = (1, extent) if joined else (extent, 1)
        x, y = (
            Factor(place, offset, step if joined else place.row, place.strides[-1], 0 if joined else step)
            for place, offset, step in zip((first_operand, second), part.offsets, steps, strict=True)
        )
        if statement.op == "linear":
            yield Product("m", axis, count, rows, first, last, x, _factor(weight), y)
        else:
            yield Product("k", axis, count, first, rows, last, x.turned, y, _factor(weight), number > 0)


def _factor(place: Place, step: int = 0) -> Factor:
    row, column = place.strides
    return Factor(place, 0, row, column, step)
