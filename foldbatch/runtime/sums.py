"""Sums in a fixed order: of a parameter's gradients from several steps or parts, and of rows that repeat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from foldbatch.params import Array, Gradient, SparseRows
from foldbatch.scheduler.schedule import Index
from foldbatch.static.backends.numpy import sum_rows


def add_gradient(parts: list[Gradient], value: Gradient) -> None:
    """Add what a step found; dense gradients at once, as a deep batch may have many thousand steps."""
    last = parts[-1] if parts else None
    if isinstance(value, SparseRows):
        parts.append(value)
    elif isinstance(last, np.ndarray):
        last += value
    else:
        parts.append(np.array(value))


def add_repeated(array: Array, rows: Index, values: Array) -> None:
    """Add values to rows that may repeat, in the order of the batch: bitwise repeatable."""
    found = sum_rows(values, rows, len(array))
    array[found.rows] += found.values


def total(parts: Sequence[Gradient], sum_copies: Callable[..., None] | None = None) -> Gradient:
    """Return the sum of a parameter's gradients; sparse as long as all of them are.

    Rows are summed by `sum_copies` of `named_loops`, if it is given.
    """
    if len(parts) == 1:
        return parts[0]
    if all(isinstance(part, SparseRows) for part in parts):
        sparse = [part for part in parts if isinstance(part, SparseRows)]
        rows = np.concatenate([part.rows for part in sparse])
        return sum_rows(
            np.concatenate([part.values for part in sparse]), rows, sparse[0].shape[0], sum_copies
        )
    dense = (part.dense() if isinstance(part, SparseRows) else part for part in parts)
    return np.asarray(reduce(np.add, dense))  # sums of arrays without axes are no arrays
