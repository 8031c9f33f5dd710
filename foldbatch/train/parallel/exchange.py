"""Exchange: gradients of all ranks, added in the order of ranks, so that all ranks have the same bits.

Rows of sparse gradients are sent to every rank, and each rank adds them. Dense gradients are one vector: each
rank adds one slice of it, and sends the sum to the others, so a rank sends less than twice the size of the
vector, however many ranks there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.communicators import Communicator
from foldbatch.communicators.communicator import Bytes
from foldbatch.engines.sums import total
from foldbatch.params import Array, Gradient, SparseRows

Counts = tuple[int, ...]  # for each gradient, how many rows it has; DENSE where it is an array
DENSE = -1
SumCopies = Callable[[str], Callable[..., None] | None]


def counts_of(gradients: Mapping[str, Gradient]) -> Counts:
    """Return how many rows each gradient has, in the order of names."""
    named = [gradients[name] for name in sorted(gradients)]
    return tuple([len(each.rows) if isinstance(each, SparseRows) else DENSE for each in named])


def summed(
    communicator: Communicator,
    gradients: Mapping[str, Gradient],
    counts: Sequence[Counts],
    sum_copies: SumCopies = lambda dtype: None,
) -> tuple[dict[str, Gradient], int]:
    """Return the sums over all ranks, and how many bytes this rank sent.

    Args:
        communicator: of two ranks or more.
        gradients: of this rank, by name; all ranks have the same names.
        counts: for each rank, those of `counts_of`.
        sum_copies: of an engine: given a dtype, what sums rows, if it has something quicker than NumPy.

    A sum is sparse where the gradients of all ranks are.
    """
    names = sorted(gradients)
    sparse = [i for i in range(len(names)) if all(of[i] != DENSE for of in counts)]
    arrays = {name: _dense(gradients[name]) for number, name in enumerate(names) if number not in set(sparse)}
    sums: dict[str, Gradient] = {}
    sent = 0
    rows = [gradients[names[i]] for i in sparse]
    if rows:
        merged, sent = _sum_rows(communicator, rows, [[of[i] for i in sparse] for of in counts], sum_copies)
        sums |= zip([names[i] for i in sparse], merged, strict=True)
    for dtype in sorted({array.dtype for array in arrays.values()}, key=str):
        of_dtype = {name: array for name, array in arrays.items() if array.dtype == dtype}
        vector, more = _sum_slices(
            communicator, np.concatenate([array.reshape(-1) for array in of_dtype.values()])
        )
        sent += more
        ends = np.cumsum([array.size for array in of_dtype.values()])[:-1]
        for (name, array), part in zip(of_dtype.items(), np.split(vector, ends), strict=True):
            sums[name] = part.reshape(array.shape)
    return {name: sums[name] for name in gradients}, sent


def _dense(gradient: Gradient) -> Array:
    return np.asarray(gradient.dense() if isinstance(gradient, SparseRows) else gradient)


def _sum_slices(communicator: Communicator, vector: Array) -> tuple[Array, int]:
    """Return the sum of the ranks' vectors ``[n]``, in the vector itself; each rank adds one slice."""
    size, rank = communicator.size, communicator.rank
    bounds = [len(vector) * i // size for i in range(size + 1)]
    slices = [vector[first:last] for first, last in pairwise(bounds)]
    sizes = [part.nbytes for part in slices]
    received = communicator.all_to_all(_as_bytes(vector), sizes)
    own = reduce(np.add, [part.view(vector.dtype) for part in received])
    for part, summed_part in zip(slices, communicator.all_gather(_as_bytes(own), sizes), strict=True):
        part[...] = summed_part.view(vector.dtype)
    return vector, sum(sizes) + sizes[rank] * (size - 2)


def _sum_rows(
    communicator: Communicator,
    gradients: Sequence[Any],
    counts: Sequence[Sequence[int]],
    sum_copies: SumCopies,
) -> tuple[list[Gradient], int]:
    """Return the sums of sparse gradients; `counts` has, for each rank, how many rows each gradient has."""
    widths = [np.dtype(g.values.dtype).itemsize * math.prod(g.shape[1:]) for g in gradients]
    sizes = [sum(count * (8 + width) for count, width in zip(of, widths, strict=True)) for of in counts]
    texts = [_as_bytes(g.rows) for g in gradients] + [_as_bytes(np.asarray(g.values)) for g in gradients]
    received = communicator.all_gather(np.concatenate(texts), sizes)
    parts: list[list[SparseRows]] = [[] for _ in gradients]
    for data, of in zip(received, counts, strict=True):
        ends = np.cumsum([8 * count for count in of] + [n * w for n, w in zip(of, widths, strict=True)])
        pieces = np.split(data, ends[:-1])
        for number, (gradient, count) in enumerate(zip(gradients, of, strict=True)):
            rows: NDArray[np.int64] = pieces[number].copy().view(np.int64)
            values = pieces[len(of) + number].copy().view(gradient.values.dtype)
            parts[number].append(SparseRows(rows, values.reshape(count, *gradient.shape[1:]), gradient.shape))
    sent = sizes[communicator.rank] * (communicator.size - 1)
    return [total(each, sum_copies(each[0].values.dtype.name)) for each in parts], sent


def _as_bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
