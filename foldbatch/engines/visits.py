"""Visits: from the gradients of cells' data to the gradients of blocks' data, in order of visits.

Two cells of one stretch of the tracing program may read the same datum, one before a recursion and
the other behind it. Then the datum's gradient is the sum of the gradients of both cells. Stretches nest
like brackets, and so do their calls: a call of the first cell opens, a call of the second closes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.results import Metrics, MetricValues, collect_metric
from foldbatch.errors import UnknownNameError
from foldbatch.params.parameters import Array
from foldbatch.types import TensorType

Place = tuple[int, int]  # cell and feed


@dataclass(frozen=True, slots=True)
class DataGradients:
    """A batch's gradients of data, by the calls that read it."""

    gradients: Mapping[Place, Array]  # by (cell, feed), ``[n, *shape]`` in the order of the cell's calls
    calls: Sequence[NDArray[np.int64]]  # per cell ``[n]``, growing: the number of each call
    examples: Sequence[NDArray[np.int64]]  # per cell ``[n]``: the example of each call


class InputGradients(Metrics):
    """The gradients of data, by the path of the block that reads them."""

    def __getitem__(self, name: str) -> MetricValues:
        if name not in self._values:
            expected = f"a block that reads floats, of {', '.join(self._values) or 'none'}"
            raise UnknownNameError("inputs", expected, repr(name), "print the names first")
        return self._values[name]


def gather(visits: DataGradients, type_: TensorType, reads: Sequence[Sequence[Place]]) -> MetricValues:
    """Return the gradients of all data, of this type, that blocks of one name read.

    `reads` has, for each place in the program that reads them, the feeds that hold them, those of cells that
    are called earlier first.
    """
    return collect_metric([_datum(visits, type_, places) for places in reads])


def _datum(
    visits: DataGradients, type_: TensorType, places: Sequence[Place]
) -> tuple[Array, NDArray[np.int64], NDArray[np.int64], list[object] | None]:
    """Return the gradients of one place's data, ``[n, *shape]``, with calls ``[n]`` and examples ``[n]``."""
    first = visits.calls[places[0][0]]
    total = np.zeros((len(first), *type_.shape), type_.dtype)
    for place in places:
        if place in visits.gradients:
            gradient = visits.gradients[place]
            opening, closing = matched(first, visits.calls[place[0]])
            total = total.astype(np.result_type(total, gradient))
            total[opening] += gradient[closing]
    return total, first, visits.examples[places[0][0]], None


def matched(
    opening: NDArray[np.int64], closing: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return pairs of brackets that belong together, as places in both arrays.

    Args:
        opening: ``[n]``, growing: where brackets open.
        closing: ``[n]``, growing: where they close, or the very same places.

    >>> opening, closing = matched(np.array([0, 1, 5]), np.array([2, 3, 6]))  # (())()
    >>> sorted(zip(opening.tolist(), closing.tolist()))
    [(0, 1), (1, 0), (2, 2)]
    """
    count = np.arange(len(opening))
    if np.array_equal(opening, closing):
        return count, count
    inside = count - np.searchsorted(closing, opening)
    closed = np.searchsorted(opening, closing) - count - 1
    return np.argsort(inside, kind="stable"), np.argsort(closed, kind="stable")
