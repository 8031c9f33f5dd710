"""Level by level, in each level one cell after the other: steps that need no more planning than counting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from foldbatch.scheduler.arithmetic import Arithmetic
from foldbatch.scheduler.frontier import numbered, turns_of
from foldbatch.scheduler.trace import Index, Ints, Trace

_NONE = np.zeros(0, np.int64)


class Strata(NamedTuple):
    """The calls of some cells by level, and in each level by cell."""

    sizes: list[int]  # how many calls each cell has
    height: int  # how many levels there are
    places: Index  # ``[strata]``: the place of each stratum's cell among the cells
    order: Index  # ``[calls]``: the calls, stratum by stratum; they are numbered cell by cell
    bounds: Index  # ``[strata + 1]``: where each stratum begins, and the end


def strata_of(trace: Trace, cells: Sequence[int], arithmetic: Arithmetic) -> Strata:
    """Return the strata of the calls of some cells."""
    levels = [trace.levels[k] for k in cells]
    sizes, width = list(map(len, levels)), len(cells)
    joined = np.concatenate([np.zeros(0, np.int32), *levels])
    if not len(joined):
        return Strata(sizes, 0, _NONE, _NONE, np.zeros(1, np.int64))
    height = int(joined.max()) + 1
    keys = joined if width * height < 2**31 else joined.astype(np.int64)
    keys = keys * width + np.repeat(np.arange(width, dtype=keys.dtype), sizes)
    order, bounds = arithmetic.group(keys, width * height)
    return Strata(sizes, height, keys.take(order.take(bounds[:-1])) % width, order, bounds)


def level_by_level(
    strata: Strata, cells: Sequence[int], arithmetic: Arithmetic
) -> tuple[list[Ints], list[tuple[int, int]]]:
    """Plan some cells level by level, in each level the cells in turn.

    Returns the groups, per cell ``[n] int32``, and the turns; no group is empty.
    """
    numbers = numbered(strata.places, len(cells), arithmetic)
    groups = np.empty(len(strata.order), np.int32)
    groups[strata.order] = np.repeat(numbers, np.diff(strata.bounds))
    ends = accumulate(strata.sizes, initial=0)
    return [groups[a:b] for a, b in pairwise(ends)], turns_of(cells, strata.places, numbers)
