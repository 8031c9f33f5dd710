"""Reductions over runs of rows, which are the elements of sequences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.sums import reduce_segments
from foldbatch.params.parameters import Array


def segment_max(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Find the greatest of runs of rows; an empty run gives zero. Shapes: as for `segment_sum`."""
    reduce_segments(np.maximum, x, starts, counts, out)


def segment_is_max(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Mark the first greatest row of each run (or the first NaN). Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    np.equal(x, np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0), out=out)
    np.logical_or(out, np.isnan(x), out=out)  # NaN equals nothing
    rows = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
    first = np.minimum.reduceat(np.where(out, rows, len(x)), starts, axis=0)
    np.equal(rows, np.repeat(first, counts, axis=0), out=out)


def segment_position(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Number the rows of each run from 0. Shapes: ``x, out: [sum(counts), *]``."""
    out[...] = (np.arange(len(x)) - np.repeat(starts, counts)).reshape(-1, *(1,) * (out.ndim - 1))


def segment_softmax(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Normalise exp(x) over each run, without overflow. Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    np.subtract(x, np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0), out=out)
    np.exp(out, out=out)
    np.divide(out, np.repeat(np.add.reduceat(out, starts, axis=0), counts, axis=0), out=out)
