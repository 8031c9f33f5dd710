"""Where elements of a slot lie, as an expression: the slot, a reshape, a slice, or any strided view."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.static.places import Place
from foldbatch.static.statements import Slot


def view(array: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """Return elements of an array at fixed strides, counted in elements, as `Place` has them.

    Shapes: ``array: [N, *]`` or ``[*]``; the result has the shape that is asked for.

    >>> view(np.arange(8.0).reshape(2, 4), (2, 2), (4, 2), 1)
    array([[1., 3.],
           [5., 7.]])
    """
    if not array.flags.c_contiguous:  # data of examples may be one row broadcast; nobody writes to it
        array = np.ascontiguousarray(array)
    if array.size == 0 or 0 in shape:  # what has no elements may begin beyond the end
        return np.empty(shape, array.dtype)
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, offset * size, tuple(stride * size for stride in strides))


def expression(place: Place, slot: Slot, name: str, rows: str) -> str:
    """Return the expression of a place in the array ``[rows, *shape]`` of its slot, or ``[*shape]``.

    Args:
        place: the elements.
        slot: what they are elements of.
        name: of the slot's array.
        rows: the expression of the number of rows.

    >>> from foldbatch.static.op import CALL
    >>> from foldbatch.static.statements import Binding
    >>> from foldbatch.types import TensorType
    >>> slot = Slot(Binding("scratch", 0), TensorType((2, 6)), CALL)
    >>> expression(Place(0, CALL, 12, 2, (2, 3), (6, 1)), slot, "s0", "n")
    's0[:, :, 2:5]'
    >>> expression(Place(0, CALL, 12, 0, (4, 3), (3, 1)), slot, "s0", "n")
    's0.reshape((n, 4, 3))'
    >>> expression(Place(0, CALL, 12, 6, (3,), (2,)), slot, "s0", "n")
    'view(s0, (n, 3), (12, 2), 6)'
    """
    shape = slot.type.shape
    if place.axis is slot.axis and (place.row == math.prod(shape) or not place.axis.rank):
        batch = [rows] if place.axis.rank else []
        if (
            place.offset == 0
            and math.prod(place.shape) == math.prod(shape)
            and _has_strides_of(place, place.shape)
        ):
            return (
                name
                if place.shape == shape
                else f"{name}.reshape({_tuple([*batch, *map(str, place.shape)])})"
            )
        starts = _starts(place, shape)
        if starts is not None:
            bounds = zip(starts, place.shape, shape, strict=True)
            parts = [":" if size == whole else f"{i}:{i + size}" for i, size, whole in bounds]
            return f"{name}[{', '.join([':'] * len(batch) + parts)}]"
    extents = [rows, *map(str, place.shape)] if place.axis.rank else [str(extent) for extent in place.shape]
    strides = (place.row, *place.strides) if place.axis.rank else place.strides
    return f"view({name}, {_tuple(extents)}, {_tuple([str(stride) for stride in strides])}, {place.offset})"


def _has_strides_of(place: Place, shape: Sequence[int]) -> bool:
    """Whether its elements lie to each other as those of an array of this shape without gaps do."""
    strides = zip(place.shape, place.strides, _without_gaps(shape), strict=True)
    return all(stride == whole for extent, stride, whole in strides if extent > 1)


def _without_gaps(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _starts(place: Place, shape: Sequence[int]) -> list[int] | None:
    """Return where a slice of an array of this shape begins along each axis; None if it is no slice."""
    if len(place.shape) != len(shape) or not shape or 0 in shape or not _has_strides_of(place, shape):
        return None
    starts, rest = [], place.offset
    for extent, stride, whole in zip(place.shape, _without_gaps(shape), shape, strict=True):
        start, rest = divmod(rest, stride)
        if start + extent > whole:
            return None
        starts.append(start)
    return starts


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
