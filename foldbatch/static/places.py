"""Places: elements of a slot at fixed strides, and views of values in the memory of others, as such.

A slice, a reshape or a transpose moves nothing, so a loop can read its elements where they lie.
Strides are found by letting NumPy take the same views of an array of bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from foldbatch.loops.cpython import address_of
from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, is_view
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
    return replace(place, shape=tuple(shape), strides=_spread(place.strides, place.shape, shape))


def _spread(strides: Sequence[int], shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a shape that broadcasts to another, along the axes of that."""
    missing = len(wanted) - len(shape)
    return tuple(
        0 if i < missing or shape[i - missing] != extent else strides[i - missing]
        for i, extent in enumerate(wanted)
    )


def section(place: Place, axis: int, start: int, extent: int) -> Place:
    shape = (*place.shape[:axis], extent, *place.shape[axis + 1 :])
    return replace(place, shape=shape, offset=place.offset + start * place.strides[axis])


def without(place: Place, axis: int, at: int = 0) -> Place:
    shape = place.shape[:axis] + place.shape[axis + 1 :]
    strides = place.strides[:axis] + place.strides[axis + 1 :]
    return replace(place, shape=shape, strides=strides, offset=place.offset + at * place.strides[axis])


def backward(place: Place, axis: int) -> Place:
    """Return a place with an axis of its shape from the last element to the first."""
    step = place.strides[axis]
    last = place.offset + (place.shape[axis] - 1) * step
    return replace(place, offset=last, strides=(*place.strides[:axis], -step, *place.strides[axis + 1 :]))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array without gaps."""
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def merged(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the fewest axes that visit a shape in order: extents, and each place's stride.

    Two axes are one where all places lie along both without gaps.

    >>> merged((2, 1, 3), [(3, 3, 1), (6, 0, 2)])
    [(6, (1, 2))]
    """
    axes: list[tuple[int, tuple[int, ...]]] = []
    for i, extent in enumerate(shape):
        if extent == 1:
            continue
        along = tuple(place[i] for place in strides)
        if axes and all(outer == extent * s for outer, s in zip(axes[-1][1], along, strict=True)):
            axes[-1] = (axes[-1][0] * extent, along)
        else:
            axes.append((extent, along))
    return axes


@dataclass(frozen=True, slots=True)
class Access:
    """The elements of a value in the buffer of `root`, which lies there row by row without gaps.

    Element ``(i, j, ...)`` of row `r` is number ``r * row + offset + i * strides[0] + j * strides[1] ...``
    of the buffer; `row` is 0 where the root is the same for all rows.
    """

    root: Node
    row: int
    offset: int
    strides: tuple[int, ...]

    def at(self, root: Node, row: int, offset: int) -> Access:
        """Return the same elements in the buffer of another root, which holds this root from `offset` on."""
        return replace(self, root=root, row=row, offset=self.offset + offset)


def access(node: Node) -> Access:
    """Return where a value's elements lie; its root is the node itself unless it is a view.

    A view that NumPy would have to copy (a reshape of a transpose) is a root too.
    """
    chain = [node]
    while is_view(chain[-1]):
        chain.append(chain[-1].inputs[0])
    root, start = chain[-1], _bytes(chain[-1])
    seen = start
    for view in reversed(chain[:-1]):
        view_of_seen = seen if view.op.name == "batch" else np.asarray(view.op.evaluate(view.attrs, seen))
        if view.type.size and not np.may_share_memory(view_of_seen, start):
            root, start = view, _bytes(view)
            view_of_seen = start
        seen = view_of_seen
    offset = address_of(seen) - address_of(start) if node.type.size else 0
    return Access(root, root.type.size if root.axis.rank else 0, offset, seen.strides)


def broadcast(access_of_operand: Access, shape: Sequence[int], wanted: Sequence[int]) -> Access:
    """Return the access to an operand of one shape in an op whose result has the shape `wanted`."""
    return replace(access_of_operand, strides=_spread(access_of_operand.strides, shape, wanted))


def _bytes(node: Node) -> Array:
    return np.empty(node.shape, np.int8)
