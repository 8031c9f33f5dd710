"""Sums in a fixed order: of a parameter's gradients from several places or parts, and of rows that repeat.

Sums of many rows are made of sums of fewer: added one by one, a million float32 rows would lose half of their
digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import cast

import numpy as np
from numpy.typing import NDArray

from foldbatch.params.parameters import Array, Gradient, Remote, SparseRows, dense, numbers_of
from foldbatch.planning.integers import group


def sum_rows(
    values: Array, ids: Array, size: int, sum_copies: Callable[..., None] | None = None
) -> SparseRows:
    """Return the gradient of a table: the sums of the rows that have equal ids, with ids ascending.

    Rows are added in the order of the batch, so that the sums are the same to the bit in every run.

    Args:
        values: the rows to be added, ``[N, ..., *]``.
        ids: the id of each row, ``[N, ...]``, below `size`.
        size: the number of rows of the table.
        sum_copies: compiled code that adds the rows up, called as ``sum_copies(rows [n, w], starts [m + 1],
            order [n], out [m, w])``; None for NumPy.
    """
    flat = ids.reshape(-1)
    rows = values.reshape(len(flat), *values.shape[ids.ndim :])
    if (flat[1:] > flat[:-1]).all():  # shared calls read each row once
        return SparseRows(flat.astype(np.int64), np.array(rows), (size, *rows.shape[1:]))
    order, bounds = group(flat)
    starts, shape = bounds[:-1], rows.shape[1:]
    distinct, sums = flat[order[starts]].astype(np.int64), np.empty((len(starts), *shape), rows.dtype)
    if sum_copies is not None:
        width = math.prod(shape)
        matrix = np.ascontiguousarray(rows).reshape(len(flat), width)
        sum_copies(matrix, bounds, order, sums.reshape(len(starts), width))
    elif len(starts) < len(flat):
        segment_sum(rows[order], starts, bounds[1:] - starts, sums)
    else:
        sums = rows[order]
    return SparseRows(distinct, sums, (size, *shape))


def segment_sum(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Sum runs of rows; an empty run gives zero.

    Shapes: ``starts, counts: [n]``; ``x: [sum(counts), *]``; ``out: [n, *]``.
    """
    reduce_segments(np.add, x, starts, counts, out)


PLAIN_ROWS = 16  # rows that are added one by one


def sum_first(x: Array, out: Array) -> None:
    """Sum over the first axis: the first half of the rows plus the second, until few are left.

    Shapes: ``x: [n, *]``, ``out: [*]``. Rounding errors grow with log n only.
    """
    while len(x) > PLAIN_ROWS:
        half = len(x) // 2
        sums = x[half:].copy() if len(x) % 2 else np.empty_like(x[:half])
        np.add(x[:half], x[half : 2 * half], out=sums[:half])
        x = sums
    np.add.reduce(x, axis=0, out=out)


def sum_axes(x: Array, axes: tuple[int, ...], out: Array) -> None:
    """Sum over some axes, in ascending order. NumPy sums in pairs only where elements are neighbours."""
    if axes[-1] == x.ndim - 1 and x.strides[-1] == x.itemsize:
        np.add.reduce(x, axis=axes, out=out)
        return
    front = np.moveaxis(x, axes, range(len(axes)))
    count = math.prod(front.shape[: len(axes)])  # -1 would stand for any number where there are no rows
    sum_first(front.reshape(count, *front.shape[len(axes) :]), out)


# rows that one product sums where there are many, and the number of products from which that pays
PRODUCT_ROWS, MIN_PRODUCTS = 1024, 16


def sum_outer(x: Array, g: Array, out: Array) -> None:
    """Sum the outer products of rows. Shapes: ``x: [n, k]``, ``g: [n, m]``, ``out: [k, m]``."""
    if len(x) <= MIN_PRODUCTS * PRODUCT_ROWS:
        np.matmul(x.T, g, out=out)
    else:
        sums = np.zeros(out.shape)
        for i in range(0, len(x), PRODUCT_ROWS):
            sums += x[i : i + PRODUCT_ROWS].T @ g[i : i + PRODUCT_ROWS]
        out[...] = sums


MIN_RUNS, MIN_WIDTH = 64, 32  # runs, and numbers in a row, from which it pays not to go run by run


def reduce_segments(
    ufunc: np.ufunc, x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array
) -> None:
    """Reduce runs of rows; an empty run gives zero. Shapes: as for `segment_sum`."""
    if len(x) == 0:
        out[...] = 0
    elif len(counts) >= MIN_RUNS and x[0].size >= MIN_WIDTH:
        reduce_by_length(ufunc, x, starts, counts, out)
    elif counts.all():
        ufunc.reduceat(x, starts, axis=0, out=out)
    else:
        out[...] = 0
        full = np.flatnonzero(counts)
        out[full] = ufunc.reduceat(x, starts[full], axis=0)


def reduce_by_length(
    ufunc: np.ufunc,
    x: Array,
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    out: Array,
    ids: NDArray[np.int64] | None = None,
) -> None:
    """Reduce runs of one length together: five times as fast as ``reduceat``, which goes run by run.

    Shapes: as for `segment_sum`. With ``ids: [sum(counts)]`` the runs are those of ``x[ids]``, an array that
    is never made as a whole.
    """
    for count in np.unique(counts):
        runs = np.flatnonzero(counts == count)
        if count == 0:
            out[runs] = 0
            continue
        places = starts[runs] + np.arange(count)[:, None]
        rows = x[places if ids is None else ids[places]]  # [count, runs, *]
        if ufunc is np.add and count > PLAIN_ROWS:
            sums = np.empty_like(rows[0])
            sum_first(rows, sums)
            out[runs] = sums
        else:
            out[runs] = rows[0] if count == 1 else ufunc.reduce(rows, axis=0)


def total(parts: Sequence[Gradient], sum_copies: Callable[..., None] | None = None) -> Gradient:
    """Return the sum of a parameter's gradients, as they come from several kernels or parts of a batch.

    The sum is `SparseRows` if all gradients are, else an array.

    Args:
        parts: the gradients, arrays or `SparseRows`, each of the parameter's shape.
        sum_copies: compiled code that adds up rows of equal id, see `sum_rows`; None for NumPy.
    """
    if len(parts) == 1:
        return parts[0]
    remote = next((array for array in map(numbers_of, parts) if isinstance(array, Remote)), None)
    if remote is not None:
        return cast("Gradient", remote.total(parts))
    if all(isinstance(part, SparseRows) for part in parts):
        sparse = [part for part in parts if isinstance(part, SparseRows)]
        rows = np.concatenate([part.rows for part in sparse])
        return sum_rows(
            np.concatenate([part.values for part in sparse]), rows, sparse[0].shape[0], sum_copies
        )
    arrays = map(dense, parts)
    if len(parts) <= PLAIN_ROWS:
        return np.asarray(reduce(np.add, arrays))  # sums of arrays without axes are no arrays
    first = next(arrays)
    sums = first.astype(np.float64)
    for array in arrays:
        sums += array
    return sums.astype(first.dtype)
