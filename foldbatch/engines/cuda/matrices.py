"""Statements that are matrix products of a library: where their matrices lie, before rows are known."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from foldbatch.engines.nests import leading, parts
from foldbatch.static.op import UNBATCHED, Axis
from foldbatch.static.places import Place
from foldbatch.static.statements import Routine, Statement, axis_of

FEW = 1024  # numbers of a weight that a kernel multiplies by itself, if no more than `SHORT` are added up
SHORT = 64


@dataclass(frozen=True, slots=True)
class Matrix:
    """Where a matrix lies: a slot, elements from its first row on, from row to row, and whether across."""

    slot: int
    offset: int
    lead: int
    across: bool


@dataclass(frozen=True, slots=True)
class Multiplied:
    """A product whose extent `by` (``m``, ``k`` or ``count``) is multiplied by the rows of an axis.

    The other fields are those of `driver.Product`; with matrices in the place of addresses.
    """

    axis: Axis
    dtype: str
    by: str
    m: int
    n: int
    k: int
    count: int
    a: Matrix
    b: Matrix
    c: Matrix
    steps: tuple[int, int, int]
    adds: bool = False


def multiplied(routine: Routine, statement: Statement) -> list[Multiplied]:
    """Return the products that a statement is; none where no library can do it, or a kernel does it sooner.

    Several products of a list run one after the other.
    """
    write = statement.result
    dtype = routine.slots[write.slot].type.dtype
    reads = statement.reads
    if dtype not in ("float32", "float64") or not prod(write.shape) or any(not prod(p.shape) for p in reads):
        return []
    made = {"linear": _linear, "matmul": _matmul, "sum_outer": _sum_outer}[statement.op](statement, dtype)
    return made or []


def _matrix(place: Place, rows: int, columns: int, row: int, column: int, offset: int = 0) -> Matrix | None:
    """Return a matrix of these extents and strides, if its rows or its columns lie without gaps."""
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Matrix(place.slot, place.offset + offset, max(row, columns), across=False)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Matrix(place.slot, place.offset + offset, max(column, rows), across=True)
    return None


def _linear(statement: Statement, dtype: str) -> list[Multiplied] | None:
    (x, weight), write = statement.reads, statement.result
    (k, n), axis = weight.shape, axis_of(statement, [x, write])
    if k * n <= FEW and k <= SHORT:
        return None
    axes, joined = leading(x, write)
    made = []
    many = 1 << 40  # rows of a level: a matrix of one row may have any lead
    for part in parts(axes, 1, 2):
        (extent,), ((x_step,), (y_step,)) = part.extents, part.strides
        count, m = (1, extent) if joined else (extent, 1)
        x_row, y_row = (x_step, y_step) if joined else (x.row, write.row)
        steps = (0, 0, 0) if joined else (x_step, 0, y_step)
        a = _matrix(x, many, k, x_row, x.strides[-1], part.offsets[0])
        b = _matrix(weight, k, n, *weight.strides)
        c = _matrix(write, many, n, y_row, write.strides[-1], part.offsets[1])
        if a is None or b is None or c is None or c.across or (a.across and not joined):
            return None
        made.append(Multiplied(axis, dtype, "m", m, n, k, count, a, b, c, steps))
    return made


def _matmul(statement: Statement, dtype: str) -> list[Multiplied] | None:
    (a, b), write = statement.reads, statement.result
    (m, k), n = a.shape, b.shape[1]
    if k * n <= FEW and k <= SHORT:
        return None
    matrices = [
        _matrix(a, m, k, *a.strides),
        _matrix(b, k, n, *b.strides),
        _matrix(write, m, n, *write.strides),
    ]
    left, right, result = matrices
    if left is None or right is None or result is None or result.across:
        return None
    axis, steps = axis_of(statement, [a, b, write]), (a.row, b.row, write.row)
    return [Multiplied(axis, dtype, "count", m, n, k, 1, left, right, result, steps)]


def _sum_outer(statement: Statement, dtype: str) -> list[Multiplied] | None:
    (x, g), write = statement.reads, statement.result
    (m, n), axis = write.shape, axis_of(statement, [x, g])
    axes, joined = leading(x, g)
    c = _matrix(write, m, n, *write.strides)
    if c is None or c.across:
        return None
    made: list[Multiplied] = []
    alone = axis is UNBATCHED
    for part in parts(axes, 1, 2):
        (extent,), ((x_step,), (g_step,)) = part.extents, part.strides
        x_row, g_row = (x_step, g_step) if joined else (x.row, g.row)
        one = alone and (extent == 1 or not joined)  # row
        for turn in [0] if joined else range(extent):
            a = _rows(x, m, x_row, part.offsets[0] + (0 if joined else turn * x_step), one=one)
            b = _rows(g, n, g_row, part.offsets[1] + (0 if joined else turn * g_step), one=one)
            if a is None or b is None:
                return None
            a = Matrix(a.slot, a.offset, a.lead, across=True)
            rows = extent if joined else 1
            made.append(Multiplied(axis, dtype, "k", m, n, rows, 1, a, b, c, (0, 0, 0), bool(made)))
    return made


def _rows(place: Place, columns: int, row: int, offset: int, *, one: bool) -> Matrix | None:
    """Return a matrix of rows of a place's last axis, if its columns lie without gaps."""
    if (place.strides[-1] != 1 and columns > 1) or (row < columns and not one):
        return None
    return Matrix(place.slot, place.offset + offset, max(row, columns), across=False)
