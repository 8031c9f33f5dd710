"""Products whose weight an id chooses for each row: one product for all rows of an id."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.sums import sum_outer
from foldbatch.params.parameters import Array

SMALL = 8192  # numbers of matrices copied to rows that cost as much as one product more


def linear_by(x: Array, table: Array, ids: Array, out: Array) -> None:
    """Multiply each row by the matrix of its id.

    Shapes: ``x: [n, *, k]``, ``table: [size, k, m]``, ``ids: [n]``, ``out: [n, *, m]``.
    """
    if 0 in x.shape:
        out[...] = 0
        return
    groups = list(_groups(ids))
    if len(ids) * table[0].size < SMALL * len(groups):
        rows = x.reshape(len(x), -1, x.shape[-1])
        out[...] = np.matmul(rows, table.take(ids, axis=0)).reshape(out.shape)
        return
    for i, rows in groups:
        out[rows] = x[rows] @ table[i]


def sum_outer_by(x: Array, g: Array, ids: Array, out: Array) -> None:
    """Sum the outer products of rows of equal id.

    Shapes: ``x: [n, *, k]``, ``g: [n, *, m]``, ``ids: [n]``, ``out: [size, k, m]``.
    """
    out[...] = 0
    if 0 in x.shape or 0 in g.shape:
        return
    for i, rows in _groups(ids):
        sum_outer(x[rows].reshape(-1, x.shape[-1]), g[rows].reshape(-1, g.shape[-1]), out[i])


def _groups(ids: Array) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each id that occurs, with its rows in their order."""
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    bounds = np.flatnonzero(np.diff(ranked, prepend=-1, append=-1)).tolist()
    for start, stop in itertools.pairwise(bounds):
        yield int(ranked[start]), order[start:stop]
