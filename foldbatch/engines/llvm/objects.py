"""The memory layout of NumPy's objects, for compiled code that gets their addresses.

Offsets are bytes from the beginning of an object. Source: `PyArrayObject` and `PyArray_Descr`, in the NumPy C
API.
"""

from __future__ import annotations

import numpy as np

# offsets in an array
DATA = object.__basicsize__  # the address of its numbers
TYPE = DATA - 8  # its type, as in every object of Python
AXES, EXTENTS, DTYPE, FLAGS = DATA + 8, DATA + 16, DATA + 40, DATA + 48
PLAIN = 0x101  # the flags of an array that is aligned, and C-contiguous
# offsets in a dtype: its letter, and its byte order
LETTER, ORDER = DATA + 9, DATA + 10


def letters(kind: str) -> str:
    """Return the letters of NumPy's dtypes that are of a kind of `numbers.TYPES`.

    >>> letters("f4"), "l" in letters("i8") or "q" in letters("i8")
    ('f', True)
    """
    return "".join(letter for letter in "ilqfd" if np.dtype(letter).str[1:] == kind)
