"""Rows on their way between kernels and arenas, those of shared calls copied and their cotangents summed.

Compiled loops do it where there are any: `moves`, by name, made of the text that `moves_for` gives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from foldbatch.engines.numba.named_loops import KINDS
from foldbatch.params import Array
from foldbatch.scheduler.schedule import CellTable, Index
from foldbatch.static.backends.numpy import reduce_by_length

Moves: TypeAlias = Mapping[str, Callable[..., None]]


def moves_for(hoisted: Iterable[str]) -> str:
    """Return a text that calls all loops needed, for `Backend.called_by`.

    Args:
        hoisted: the dtypes of weights whose products the runtime may make.

    >>> moves_for(["float32"])
    'spread_f4() spread_f8() sum_copies_f4() sum_copies_f8() product_rows_f4() outer_rows_f4()'
    """
    moving = [f"{name}_{kind}()" for name in ("spread", "sum_copies") for kind in ("f4", "f8")]
    kinds = [KINDS[dtype] for dtype in sorted(set(hoisted))]
    return " ".join(
        moving + [f"{name}_{kind}()" for kind in kinds for name in ("product_rows", "outer_rows")]
    )


def flat(array: Array) -> Array:
    """Return an array with all but its first axis in one.

    >>> flat(np.zeros((4, 2, 3))).shape
    (4, 6)
    """
    return array.reshape(len(array), math.prod(array.shape[1:]))


def spread(
    values: Array, arena: Array, table: CellTable, output: int, ranks: tuple[int, int], moves: Moves
) -> None:
    """Write an output of some ranks to its arena; of shared calls once for each call."""
    rows = table.written(output, *ranks)
    if table.copies is None:
        arena[rows] = values
        return
    copies = table.copies[ranks[0] : ranks[1] + 1]
    move = moves.get(f"spread_{KINDS.get(arena.dtype.name)}")
    if move is not None and values.flags.c_contiguous:
        move(flat(values), copies, rows, flat(arena))
    else:
        arena[rows] = np.repeat(values, np.diff(copies), axis=0)


def sum_copies(arena: Array, rows: Index, copies: Index, moves: Moves) -> Array:
    """Sum the rows of shared calls, in the order of the batch.

    Call i's are ``rows[copies[i]:copies[i + 1]]``, with `copies` counted from the first call's.
    """
    out = np.empty((len(copies) - 1, *arena.shape[1:]), arena.dtype)
    total = moves.get(f"sum_copies_{KINDS.get(arena.dtype.name)}")
    if total is not None:
        total(flat(arena), copies, rows, flat(out))
    else:
        reduce_by_length(np.add, arena, copies[:-1] - copies[0], np.diff(copies), out, rows)
    return out


def zero(array: Array, rows: Index) -> None:
    """Set rows, in ascending order, to zero."""
    if len(rows) and int(rows[-1]) - int(rows[0]) + 1 == len(rows):
        array[rows[0] : rows[-1] + 1] = 0
    elif len(rows):
        array[rows] = 0
