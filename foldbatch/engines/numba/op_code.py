"""Which compiled function does an op, and the whole numbers that it is told of places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from foldbatch.engines.numba import code, element_texts, line_texts, products, row_texts
from foldbatch.engines.numba.coder import Coder, contiguous
from foldbatch.engines.numba.compiling import Native, native, source_of
from foldbatch.engines.numba.element_texts import OF_BYTES
from foldbatch.engines.numba.loop_texts import EXPRESSIONS, KINDS, MEMORY
from foldbatch.engines.numba.nests import Part, Strides, by_rows, merged, parts
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.ops.random import GAMMA, WORD
from foldbatch.static.statements import Place, Statement


def encode_op(coder: Coder, statement: Statement) -> None:
    """Append the instructions of a statement that is no fused loop."""
    name = statement.op
    if name in EXPRESSIONS or name in element_texts.MORE or name in ("add", "cast"):
        _elementwise(coder, statement)
    else:
        ENCODERS[name](coder, statement)


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


def _given(statement: Statement) -> list[Place]:
    return [place for place in statement.reads if place is not None]


def _written(statement: Statement) -> Place:
    assert statement.write is not None
    return statement.write


def _visit(
    coder: Coder, text: str, places: Sequence[Place], axis: Axis, more: Sequence[int] = ()
) -> None:
    """Append a function of `element_texts` on places of one shape, the last of which is written."""
    for part, whole in _visited(places):
        strides = [s for p, place in enumerate(places) for s in (0 if whole else place.row, *part.strides[p])]
        pointers = [coder.at(place, part.offsets[p]) for p, place in enumerate(places)]
        coder.add(native(text), axis, pointers, [int(whole), *part.extents, *strides, *more])


def _visited(places: Sequence[Place]) -> list[tuple[Part, bool]]:
    """Return the parts in which a function goes through places; whether all rows are one run of its last axis."""
    rows = [place.row for place in places]
    axes = merged(places[0].shape, [Strides(place.row, place.strides) for place in places])
    whole = by_rows(axes, rows)
    if whole and not axes:
        axes = [(1, tuple(rows))]
    return [(part, whole) for part in parts(axes, element_texts.AXES, len(places))]


def _elementwise(coder: Coder, statement: Statement) -> None:
    write = _written(statement)
    reads = [aligned(place, write.shape) for place in _given(statement)]
    operands = [coder.dtype(place) for place in reads]
    text = element_texts.elementwise(statement.op, operands, coder.dtype(write))
    more = []
    if statement.op == "power":
        more = [int(np.float64(statement.attrs["exponent"]).view(np.int64))]
    _visit(coder, text, [*reads, write], axis_of(statement, reads), more)


def _copy(coder: Coder, statement: Statement) -> None:
    (read, *_), write = _given(statement), _written(statement)
    _copied(coder, aligned(read, write.shape), write, axis_of(statement, [read]))


def _copied(coder: Coder, read: Place, write: Place, axis: Axis) -> None:
    _visit(coder, element_texts.copy(coder.dtype(write)), [read, write], axis)


def copy_to(coder: Coder, place: Place, axis: Axis, cell: int) -> None:
    """Append a copy of a place to rows without gaps that begin at a cell."""
    size = prod(place.shape)
    target = Place(-1, axis, size, 0, place.shape, contiguous(place.shape))
    dtype = coder.dtype(place)
    item = np.dtype(dtype).itemsize
    for part, whole in _visited([place, target]):
        rows = [0, 0] if whole else [place.row, size]
        statics = [int(whole), *part.extents, rows[0], *part.strides[0], rows[1], *part.strides[1]]
        pointers = [coder.at(place, part.offsets[0]), (cell, part.offsets[1] * item)]
        coder.add(native(element_texts.copy(dtype)), axis, pointers, statics)


def _zeroed(coder: Coder, write: Place) -> None:
    _visit(coder, element_texts.zero(coder.dtype(write)), [write], write.axis)


def _section(place: Place, axis: int, start: int, extent: int) -> Place:
    """Return a part of a place, along an axis of its shape."""
    shape = (*place.shape[:axis], extent, *place.shape[axis + 1 :])
    return replace(place, shape=shape, offset=place.offset + start * place.strides[axis])


def _without(place: Place, axis: int, at: int = 0) -> Place:
    """Return a place at one index of an axis of its shape, without that axis."""
    shape = place.shape[:axis] + place.shape[axis + 1 :]
    strides = place.strides[:axis] + place.strides[axis + 1 :]
    return replace(place, shape=shape, strides=strides, offset=place.offset + at * place.strides[axis])


def _concat(coder: Coder, statement: Statement) -> None:
    write, axis, start = _written(statement), statement.attrs["axis"], 0
    extents = statement.attrs.get("extents")
    for i, read in enumerate(statement.reads):
        if read is None:
            assert extents is not None or i >= 0
            start += _missing_extent(statement, i)
            continue
        extent = read.shape[axis]
        _copied(coder, read, _section(write, axis, start, extent), axis_of(statement, [read, write]))
        start += extent
