"""Places: elements of a slot at fixed strides, and parts of them, as ops and engines take them apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from foldbatch.static.op import Axis


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of a slot.

    Element ``(i, j, ...)`` of row r is number ``r * row + offset + i * strides[0] + j * strides[1] ...`` of
    the slot's elements.
    """

    slot: int  # the slot's number in the routine
    axis: Axis  # the axis of its rows: the slot's axis, unless one row serves all (then `row` is 0)
    row: int  # elements from one row to the next
    offset: int  # the first element of a row
    shape: tuple[int, ...]  # the shape of a row
    # elements from one to the next along each axis of the shape; below 0 where an axis is read backward
    strides: tuple[int, ...]


def aligned(place: Place, shape: Sequence[int]) -> Place:
    """Return a place as an operand of an op of another shape, to which it broadcasts."""
    missing = len(shape) - len(place.shape)
    strides = tuple(
        0 if i < missing or place.shape[i - missing] != extent else place.strides[i - missing]
        for i, extent in enumerate(shape)
    )
    return replace(place, shape=tuple(shape), strides=strides)


def section(place: Place, axis: int, start: int, extent: int) -> Place:
    """Return a part of a place, along an axis of its shape."""
    shape = (*place.shape[:axis], extent, *place.shape[axis + 1 :])
    return replace(place, shape=shape, offset=place.offset + start * place.strides[axis])


def without(place: Place, axis: int, at: int = 0) -> Place:
    """Return a place at one index of an axis of its shape, without that axis."""
    shape = place.shape[:axis] + place.shape[axis + 1 :]
    strides = place.strides[:axis] + place.strides[axis + 1 :]
    return replace(place, shape=shape, strides=strides, offset=place.offset + at * place.strides[axis])


def backward(place: Place, axis: int) -> Place:
    """Return a place with an axis of its shape from the last element to the first."""
    step = place.strides[axis]
    last = place.offset + (place.shape[axis] - 1) * step
    return replace(place, offset=last, strides=(*place.strides[:axis], -step, *place.strides[axis + 1 :]))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array without gaps.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
