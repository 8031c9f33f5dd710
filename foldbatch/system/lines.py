"""Where memory begins: with a line of the cache, so that rows of whole lines are read line by line."""

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import DTypeLike, NDArray

LINE = 64  # bytes; as long as the longest vectors


def aligned(shape: Sequence[int], dtype: DTypeLike) -> NDArray[np.generic]:
    """Return an array of undefined contents that begins with a line."""
    size = prod(shape) * np.dtype(dtype).itemsize
    memory = np.empty(size + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + size].view(dtype).reshape(shape)
