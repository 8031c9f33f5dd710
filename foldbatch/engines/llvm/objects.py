"""Where NumPy's objects hold what they are, for compiled code that is given their addresses.

Bytes from the beginning of an object. Source: `PyArrayObject` and `PyArray_Descr`, in the NumPy C API.
"""

from __future__ import annotations

import numpy as np

# of an array
DATA = object.__basicsize__  # the address of its numbers
TYPE = DATA - 8  # what it is, as every object of Python
AXES, EXTENTS, DTYPE, FLAGS = DATA + 8, DATA + 16, DATA + 40, DATA + 48
PLAIN = 0x101  # flags of one without gaps, row by row, whose numbers lie where processors read them
# of a dtype: its letter, and how bytes are ordered
LETTER, ORDER = DATA + 9, DATA + 10


def letters(kind: str) -> str:
    """Return the letters of the dtypes that are of a kind.

    >>> letters("f4"), "l" in letters("i8") or "q" in letters("i8")
    ('f', True)
    """
    return "".join(letter for letter in "ilqfd" if np.dtype(letter).str[1:] == kind)
