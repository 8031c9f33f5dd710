"""Products that the runtime makes for a recursion, before its first level and after its last.

What lies between is part of the loop over levels; see `scheduler.hoisting`. Compiled functions make them.
"""

from __future__ import annotations

import numpy as np

from foldbatch.engines.numba.named_loops import KINDS
from foldbatch.params import Array
from foldbatch.runtime.moves import Moves
from foldbatch.scheduler.schedule import Hoisted

MANY = 1000  # rows multiplied by a transposed weight for which a copy of it costs less than it saves


def multiply_known(split: Hoisted, values: Array, weight: Array, out: Array, moves: Moves) -> None:
    """Multiply what is known beforehand.

    Args:
        split: which rows these are.
        values: ``[rows, k]``, the arena.
        weight: ``[width * k, n]``.
        out: ``[m, n]``, the products.
        moves: compiled functions.
    """
    multiply, calls = moves[f"product_rows_{KINDS[weight.dtype.name]}"], split.counts.shape[1] - 1
    for column, part in enumerate(np.split(weight, len(split.counts))):
        first, last = split.known(column)
        multiply(values, split.rows[first:last], part, out, split.ranks[first:last], calls, 0)


def multiply_cotangents(
    split: Hoisted, values: Array, back: Array, g: Array, cotangents: Array, gradient: Array, moves: Moves
) -> None:
    """Make the weight's gradient, and add the cotangents of what is known beforehand.

    Args:
        split: which rows these are.
        values: ``[rows, k]``, the arena.
        back: ``[n, width * k]``, the transposed weight.
        g: ``[calls + m, n]``, the products' cotangents; the last m are made here.
        cotangents: ``[rows, k]``, the arena's.
        gradient: ``[width * k, n]``, the weight's.
        moves: compiled functions.
    """
    kind, calls, width = KINDS[g.dtype.name], split.counts.shape[1] - 1, len(split.counts)
    multiply, outer = moves[f"product_rows_{kind}"], moves[f"outer_rows_{kind}"]
    moves[f"sum_copies_{kind}"](g, split.starts, split.users, g[calls:])
    for column, part in enumerate(np.split(gradient, width)):
        first, last = split.known(column)
        start, rows = int(split.counts[column, 0]), split.rows
        columns = slice(column * len(part), (column + 1) * len(part))
        multiply(g, split.ranks[first:last], back[:, columns], cotangents, rows[first:last], 0, 1)
        outer(values, rows[start:last], g, split.ranks[start:last], part, 0)
