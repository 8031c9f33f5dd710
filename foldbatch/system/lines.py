"""Memory that begins where a line of the cache does, so that rows of whole lines are read line by line."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes; as long as the longest vectors


def aligned(shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
    """Return an array of undefined contents that begins with a line.

    >>> aligned([3, 5], "float32").ctypes.data % LINE
    0
    """
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.__array_interface__["data"][0] % LINE
    return memory[start : start + size].view(dtype).reshape(shape)
