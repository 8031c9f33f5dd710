"""Statements that are matrix products of a library: where their matrices lie, before rows are known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from foldbatch.engines.nests import Factor, Product, products_of
from foldbatch.static.op import UNBATCHED, Axis
from foldbatch.static.statements import Routine, Statement

# numbers of a weight that a kernel multiplies by itself, if no more than `MAX_TERMS` are added up
SMALL_WEIGHT = 1024
MAX_TERMS = 64
ANY_ROWS = 1 << 40  # rows of a level: a matrix of one row may have any lead


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
    products: list[Multiplied] = []
    for product in products_of(statement):
        if product.by != "k" and product.k * product.n <= SMALL_WEIGHT and product.k <= MAX_TERMS:
            return []
        parts = _sums(product, dtype) if product.by == "k" else _plain(product, dtype)
        if not parts:
            return []
        products += parts
    return products


def _plain(p: Product, dtype: str) -> list[Multiplied]:
    """Return a product as the library takes it; empty if a matrix does not lie as it must."""
    rows = ANY_ROWS if p.by == "m" else p.m
    a, b, c = _matrix(p.a, rows, p.k), _matrix(p.b, p.k, p.n), _matrix(p.c, rows, p.n)
    if a is None or b is None or c is None or c.across:
        return []
    steps = (p.a.step, p.b.step, p.c.step)
    return [Multiplied(p.axis, dtype, p.by, p.m, p.n, p.k, p.count, a, b, c, steps)]


def _sums(p: Product, dtype: str) -> list[Multiplied]:
    """Return products that are sums over rows, each of which is added to those before."""
    products, c = list[Multiplied](), _matrix(p.c, p.m, p.n)
    rows = 1 if p.axis is UNBATCHED and p.k == 1 else ANY_ROWS
    for turn in range(p.count):
        a, b = _matrix(p.a.turned, rows, p.m, turn), _matrix(p.b, rows, p.n, turn)
        if a is None or b is None or c is None or a.across or b.across or c.across:
            return []
        adds, a = p.adds or turn > 0, replace(a, across=True)
        products.append(Multiplied(p.axis, dtype, "k", p.m, p.n, p.k, 1, a, b, c, (0, 0, 0), adds))
    return products


def _matrix(factor: Factor, rows: int, columns: int, turn: int = 0) -> Matrix | None:
    """Return a matrix of these extents, if its rows or its columns lie without gaps."""
    row, column = factor.row, factor.column
    slot, offset = factor.place.slot, factor.place.offset + factor.offset + turn * factor.step
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        return Matrix(slot, offset, max(row, columns), across=False)
    if (row == 1 or rows == 1) and (column >= rows or columns == 1):
        return Matrix(slot, offset, max(column, rows), across=True)
    return None
