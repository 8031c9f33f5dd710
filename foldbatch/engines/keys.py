"""Keys for random numbers: one per call, from the step of training, the example and the call's place in it.

So what a call draws does not depend on the batch around it, on threads, or on the order of calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foldbatch.errors import BlockValueError, counted
from foldbatch.params.parameters import Array
from foldbatch.static.ops.random import GAMMA, WORD_MASK, mixed
from foldbatch.types import describe_value


def call_keys(seed: int, step: int, examples: Array, calls: Array) -> NDArray[np.int64]:
    """Return a key for each call: ``[n]``, like the calls' examples in the batch and numbers in these.

    >>> a, b = call_keys(0, 1, np.array([0, 0]), np.array([0, 1]))
    >>> a != b
    np.True_
    """
    key = np.full(len(calls), (seed * GAMMA + step) & WORD_MASK, np.uint64)
    for part in (examples, calls):
        key = mixed(key + np.uint64(GAMMA)) ^ np.asarray(part).astype(np.uint64)
    return mixed(key).view(np.int64)


def keyed(
    feeds: Sequence[tuple[Array, ...]],
    keys: Sequence[Sequence[int]],
    seed: int,
    step: int,
    examples: Sequence[Array],
) -> tuple[tuple[Array, ...], ...]:
    """Return the data of all cells with call numbers replaced by keys.

    `keys` are the feeds that hold numbers, per cell; `examples` the example of each row, per cell ``[n]``.
    """
    return tuple(
        tuple(
            call_keys(seed, step, numbers, column) if i in numbered else column
            for i, column in enumerate(columns)
        )
        for columns, numbered, numbers in zip(feeds, keys, examples, strict=True)
    )


def example_numbers(numbers: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return the numbers that examples have in a larger batch: ``[N]``; they decide which numbers these draw.

    Raises:
        BlockValueError: when there is not a whole number for each example.
    """
    array = np.asarray(numbers)
    if array.shape != (count,) or (count and array.dtype.kind not in "iu"):
        expected, actual = f"{counted(count, 'whole number')}", describe_value(numbers)
        raise BlockValueError("value_and_grad numbers", expected, actual, "give one for each example")
    return array.astype(np.int64)
