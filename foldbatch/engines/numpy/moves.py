"""Rows on their way between kernels and the buffers of a batch; what the text of a kernel calls.

The fields of a binding are those of the launch table, see `foldbatch.engines.launch`. An *arena* is a
buffer ``[height, *shape]``; where a call reads `width` rows side by side, they are one row of the kernel,
``[width, *shape]``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.launch import Ints
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.engines.sums import reduce_by_length, sum_rows
from foldbatch.params.parameters import Array


def located(
    fields: Sequence[int], index: Ints, buffers: Sequence[Array], shape: tuple[int, ...]
) -> tuple[Array, Ints | None, Array]:
    """Return where the rows of a binding are, for a whole launch.

    Returns:
        ``(rows, at, spare)``. Where the rows follow each other `at` is None, and row i is ``rows[i]``, of the
        given shape. Else it is ``rows[at[i]]``: `rows` is the whole arena then, and `at` is ``[*]``, or
        ``[*, width]``. ``spare: [*, *shape]`` is memory for copies of rows, without rows if there is none.
    """
    base, first, place, width, _, _, spare = fields
    arena = buffers[base]
    copies = _side_by_side(buffers[spare], width, shape) if spare >= 0 else np.empty((0, *shape), arena.dtype)
    if first >= 0:
        return _side_by_side(arena[first:], width, shape), None, copies
    at = index[place:]
    return arena, at if width == 1 else at[: len(at) // width * width].reshape(-1, width), copies


def _side_by_side(array: Array, width: int, shape: tuple[int, ...]) -> Array:
    """Return rows ``[*, *shape]`` of `width` rows of the array each."""
    if array.shape[1:] == shape:
        return array
    rows = len(array) // width
    return array[: rows * width].reshape(rows, *shape)


def put_rows(values: Array, arena: Array, at: Ints) -> None:
    """Write rows to other rows of an arena: ``values: [N, *shape]``, ``at: [N]``."""
    if len(at) == 1:  # as of a chain; an index array takes three times as long
        row = at.item()
        arena[row : row + 1] = values
    else:
        arena[at] = values


def spread(values: Array, arena: Array, at: Ints, copies: Ints) -> None:
    """Write the results of shared calls to a row of each call that they stand for.

    Shapes: ``values: [N, *shape]``, ``copies: [N + 1]``; those of call i are ``at[copies[i]:copies[i + 1]]``.
    """
    arena[at[copies[0] : copies[-1]]] = np.repeat(values, copies[1:] - copies[:-1], axis=0)


def sum_copies(arena: Array, at: Ints, copies: Ints, out: Array) -> Array:
    """Sum rows of shared calls, in order, and return `out`.

    Shapes: ``out: [N, *shape]``, ``copies: [N + 1]``; the rows of call i are ``at[copies[i]:copies[i + 1]]``.
    """
    reduce_by_length(np.add, arena, copies[:-1], copies[1:] - copies[:-1], out, at)
    return out


def add_rows(values: Array, arena: Array, at: Ints) -> None:
    """Add values to rows of an arena; those for one row are summed first, in order, so that bits repeat.

    Shapes: ``values: [N, *shape]``, ``at: [N]``, or ``[N, width]`` and ``values: [N, width, *shape]``.
    """
    rows = at.reshape(-1)
    parts = values.reshape(len(rows), *arena.shape[1:])
    if len(rows) == 1:
        row = rows.item()
        arena[row : row + 1] += parts
    elif _repeats(rows):
        sums = sum_rows(parts, rows, len(arena))
        arena[sums.rows] += sums.values
    else:
        arena[rows] += parts


def _repeats(rows: Ints) -> bool:
    ranked = np.sort(rows)
    return bool((ranked[1:] == ranked[:-1]).any())


def check_range(
    ids: NDArray[np.integer[Any]], size: int, start: int, owner: NDArray[np.integer[Any]] | None = None
) -> None:
    """Refuse ids below 0 or not below `size`.

    Shapes: ``ids: [N, ...]``, of calls from rank `start` on; ``owner: [N]``, where the rows are elements of
    sequences: which of the calls each is of.

    Raises:
        OutOfRangeError: with the rank of the call.
    """
    if ids.size == 0 or (ids.min() >= 0 and ids.max() < size):
        return
    at = tuple(int(i) for i in np.argwhere((ids < 0) | (ids >= size))[0])
    raise OutOfRangeError(start + int(at[0] if owner is None else owner[at[0]]), int(ids[at]), size)
