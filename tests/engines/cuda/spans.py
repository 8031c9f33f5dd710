"""Memory of the host: where an array lies, and an array over an address."""

from typing import NamedTuple

import numpy as np

from foldbatch.params.parameters import Array


class Span(NamedTuple):
    """Bytes of memory: their address, and how many."""

    pointer: int
    nbytes: int


def span_of(array: Array) -> Span:
    """Return where the elements of an array of the host lie, which has no gaps.

    >>> span_of(np.zeros(3)).nbytes
    24
    """
    return Span(array.__array_interface__["data"][0], array.nbytes)


def array_at(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> Array:
    """Return memory of the host as an array, which does not hold it.

    >>> numbers = np.arange(6)
    >>> array_at(span_of(numbers).pointer, (3,), (16,), "int64")
    array([0, 2, 4])
    """
    return np.asarray(_Interface(pointer, shape, strides, dtype))


class _Interface:
    def __init__(self, pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str) -> None:
        self.__array_interface__ = {
            "data": (pointer, False),
            "shape": shape,
            "strides": strides,
            "typestr": np.dtype(dtype).str,
            "version": 3,
        }
