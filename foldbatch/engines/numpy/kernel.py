"""A kernel: the compiled text of a routine, and what the text calls: rows moved, reduced, multiplied by id.

Tracebacks show the text, as `linecache` knows it.
"""

from __future__ import annotations

import itertools
import linecache
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines import sums
from foldbatch.engines.launch import Ints
from foldbatch.engines.numpy.spelling import NUMBERS, rounded
from foldbatch.engines.numpy.text import text_of, view
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.engines.sums import reduce_by_length, reduce_segments, sum_outer, sum_rows
from foldbatch.params.parameters import Array
from foldbatch.static.ops.elementwise import cast_into
from foldbatch.static.ops.random import random_bits
from foldbatch.static.ops.reduce import top_and_rest
from foldbatch.static.statements import Routine
from foldbatch.system.remembering import remembered


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


Function = Callable[[Ints, Sequence[int], Ints, Sequence[Array]], None]

GLOBALS: dict[str, Any] = {
    **NUMBERS,
    "inf": np.inf,
    "nan": np.nan,
    "np": np,
    "add_rows": add_rows,
    "cast_into": cast_into,
    "check_range": check_range,
    "linear_by": linear_by,
    "located": located,
    "put_rows": put_rows,
    "random_bits": random_bits,
    "rounded": rounded,
    "segment_is_max": segment_is_max,
    "segment_max": segment_max,
    "segment_position": segment_position,
    "segment_softmax": segment_softmax,
    "segment_sum": sums.segment_sum,
    "spread": spread,
    "sum_axes": sums.sum_axes,
    "sum_copies": sum_copies,
    "sum_first": sums.sum_first,
    "sum_outer": sums.sum_outer,
    "sum_outer_by": sum_outer_by,
    "sum_rows": sums.sum_rows,
    "top_and_rest": top_and_rest,
    "view": view,
}


@dataclass(frozen=True, slots=True)
class NumPyKernel:
    """A routine that runs.

    ``function(bounds, row, index, buffers)`` runs the levels ``bounds: [levels, 2] int64`` of a launch. `row`
    is its row of the launch table, ``index: [*] int64`` are all index arrays of the table, and `buffers` are
    those of the batch, ``[height, *shape]`` each. It raises OutOfRangeError where an id is out of range.
    """

    name: str
    source: str
    function: Function


@remembered
def load(routine: Routine, name: str) -> NumPyKernel:
    """Make the kernel of a routine; `name` tells it from those of the same routine of other cells."""
    source = text_of(routine)
    # two programs may have cells of one name, so the text itself tells the registered texts apart
    printed = name if name.isprintable() else ascii(name)  # a name of a file's choosing may hold anything
    filename = f"<foldbatch numpy kernel {printed} {zlib.crc32(source.encode()):08x}>"
    scope = dict(GLOBALS)
    exec(compile(source, filename, "exec"), scope)  # noqa: S102 - the text is our own
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return NumPyKernel(name, source, scope[routine.name])
