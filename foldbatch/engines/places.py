"""Parts of places, as engines take statements apart: sections, single indices, broadcast operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from foldbatch.static.op import Axis
from foldbatch.static.statements import Place, Statement


def given(statement: Statement) -> list[Place]:
    """Return the places that a statement reads."""
    return [place for place in statement.reads if place is not None]


def written(statement: Statement) -> Place:
    """Return the place that a statement writes."""
    assert statement.write is not None
    return statement.write


def axis_of(statement: Statement, places: Sequence[Place]) -> Axis:
    """Return the axis that an op runs along, be it that its result has none."""
    return max((statement.axis, *(place.axis for place in places)), key=lambda axis: axis.rank)


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


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array without gaps.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
