"""Where memory begins: with a line of the cache, so that rows of whole lines are read line by line."""

from collections.abc import Sequence
from ctypes import c_size_t
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes; as long as the longest vectors
HEAD = object.__basicsize__  # bytes of an array's object, behind which it holds the address of its numbers


def aligned(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of undefined contents that begins with a line."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -address_of(memory) % LINE
    return memory[start : start + size].view(dtype).reshape(shape)


def address_of(array: NDArray[Any]) -> int:
    """Return where an array's numbers begin. Source: `PyArrayObject`, in the NumPy C API.

    >>> rows = np.zeros((3, 5))[1:]
    >>> address_of(rows) == rows.__array_interface__["data"][0]  # which takes ten times as long
    True
    """
    return c_size_t.from_address(id(array) + HEAD).value
