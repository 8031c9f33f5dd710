"""Instructions that visit the elements of places of one shape: to compute, to copy, to fill with zeros."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from foldbatch.engines.llvm import element_texts
from foldbatch.engines.llvm.coder import Coder
from foldbatch.engines.llvm.compiling import native
from foldbatch.engines.nests import Stretch, Strides, by_rows, merged, parts
from foldbatch.static.op import Axis
from foldbatch.static.places import Place, contiguous


def visit(coder: Coder, text: str, places: Sequence[Place], axis: Axis, more: Sequence[int] = ()) -> None:
    """Append a function of `element_texts` on places of one shape, the last of which is written."""
    for part, whole in visited(places):
        strides = [s for p, place in enumerate(places) for s in (0 if whole else place.row, *part.strides[p])]
        pointers = [coder.at(place, part.offsets[p]) for p, place in enumerate(places)]
        coder.add(native(text), axis, pointers, [int(whole), *part.extents, *strides, *more])


def visited(places: Sequence[Place]) -> list[tuple[Stretch, bool]]:
    """Return the parts of places that a function visits; whether all rows are one run of its last axis."""
    rows = [place.row for place in places]
    axes = merged(places[0].shape, [Strides(place.row, place.strides) for place in places])
    whole = by_rows(axes, rows)
    if whole and not axes:
        axes = [(1, tuple(rows))]
    return [(part, whole) for part in parts(axes, element_texts.AXES, len(places))]


def copied(coder: Coder, read: Place, write: Place, axis: Axis) -> None:
    """Append a copy of one place to another of its shape."""
    visit(coder, element_texts.copy(coder.dtype(write)), [read, write], axis)


def copy_to(coder: Coder, place: Place, axis: Axis, cell: int) -> None:
    """Append a copy of a place to rows without gaps that begin at a cell."""
    size = prod(place.shape)
    target = Place(-1, axis, size, 0, place.shape, contiguous(place.shape))
    dtype = coder.dtype(place)
    item = np.dtype(dtype).itemsize
    for part, whole in visited([place, target]):
        rows = [0, 0] if whole else [place.row, size]
        statics = [int(whole), *part.extents, rows[0], *part.strides[0], rows[1], *part.strides[1]]
        pointers = [coder.at(place, part.offsets[0]), (cell, part.offsets[1] * item)]
        coder.add(native(element_texts.copy(dtype)), axis, pointers, statics)


def zeroed(coder: Coder, write: Place) -> None:
    """Append what fills a place with zeros."""
    visit(coder, element_texts.zero(coder.dtype(write)), [write], write.axis)
