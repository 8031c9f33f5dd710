"""Plans of sums: which rows are added to which, worked out on the host, where the index arrays are.

A plan is one run of whole numbers: how many *targets* there are, the targets, where the terms of each begin
in what follows and where the last ones end, and the terms in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.launch import Ints


def plan_of(targets: NDArray[np.integer]) -> Ints:
    """Return the plan that adds term i to row ``targets[i]``, terms of one row in their order: ``[n]``.

    >>> plan_of(np.array([7, 2, 7])).tolist()
    [2, 2, 7, 0, 1, 3, 1, 0, 2]
    """
    order = np.argsort(targets, kind="stable")
    ranked = targets[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    parts = [[len(starts)], ranked[starts], starts, [len(order)], order]
    return np.concatenate([np.asarray(part, np.int64) for part in parts])


def joined(plans: Sequence[Ints], begin: int) -> tuple[Ints, list[int]]:
    """Return runs of numbers as one, and where each begins if the whole begins at `begin`."""
    sizes = [len(plan) for plan in plans]
    starts = (begin + np.cumsum([0, *sizes])[:-1]).tolist()
    return np.concatenate(plans) if plans else np.zeros(0, np.int64), starts
