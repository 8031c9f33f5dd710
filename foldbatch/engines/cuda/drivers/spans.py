"""Sets of bytes, as lists of `driver.Span`: joined, one without another, and those of arrays of the host."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foldbatch.engines.cuda.drivers.driver import Span
from foldbatch.params import Array


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


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return the same bytes as spans in order that neither overlap nor adjoin.

    >>> joined([Span(8, 4), Span(0, 4), Span(4, 1), Span(6, 0)])
    [Span(pointer=0, nbytes=5), Span(pointer=8, nbytes=4)]
    """
    result: list[Span] = []
    for pointer, nbytes in sorted(span for span in spans if span.nbytes > 0):
        if result and pointer <= sum(result[-1]):
            last = result.pop()
            result.append(Span(last.pointer, max(sum(last), pointer + nbytes) - last.pointer))
        else:
            result.append(Span(pointer, nbytes))
    return result


def without(spans: Iterable[Span], removed: Iterable[Span]) -> list[Span]:
    """Return the bytes of `spans` that are not among those of `removed`.

    >>> without([Span(0, 10)], [Span(2, 3), Span(9, 5)])
    [Span(pointer=0, nbytes=2), Span(pointer=5, nbytes=4)]
    """
    removed = joined(removed)
    result: list[Span] = []
    for pointer, nbytes in joined(spans):
        start, end = pointer, pointer + nbytes
        for hole in removed:
            if hole.pointer < end and sum(hole) > start:
                result.append(Span(start, hole.pointer - start))
                start = sum(hole)
        result.append(Span(start, end - start))
    return [span for span in result if span.nbytes > 0]
