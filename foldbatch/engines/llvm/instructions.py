"""A routine as instructions: for each move, statement and result the compiled functions that do it.

Which function an op needs, and which whole numbers it is told, stands in `op_code`. What depends on the batch
is decided by the functions and by `walker`, from the launch; nothing is compiled for a routine but its fused
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

import numpy as np

from foldbatch.engines.llvm import move_texts
from foldbatch.engines.llvm.coder import (
    BY_RANK,
    COPIES_OF,
    ENTRIES,
    FIELDS_OF,
    TARGET,
    WHOLE,
    Coder,
    KernelCode,
    by_rows,
)
from foldbatch.engines.llvm.compiling import native
from foldbatch.engines.llvm.loop_texts import MEMORY, spell
from foldbatch.engines.llvm.op_code import encode_op
from foldbatch.engines.llvm.visits import copy_to
from foldbatch.engines.nests import Stretch, parts
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.places import Place, contiguous, merged
from foldbatch.static.statements import Binding, Result, Routine, Slot, Statement

DENSE = Stretch((0, 0), (0, 0, 0), ((0, 0, 0), (0, 0, 0)))  # what is told of a place without gaps in its rows
GIVEN = {"value": move_texts.VALUE, "cotangent": move_texts.COTANGENT, "store": move_texts.STORE}


def _nothing(coder: Coder) -> None:
    """Append no instruction."""


def encode(
    routine: Routine, first: Callable[[Coder], None] = _nothing, last: Callable[[Coder], None] = _nothing
) -> KernelCode:
    """Return a routine's code. What it needs of compiled functions is there afterwards.

    `first` and `last` append what each level does before and after all else.
    """
    coder = Coder(routine)
    first(coder)
    for i, slot in enumerate(routine.slots):
        if slot.binding.kind in ("operand", "cotangent"):
            _take(coder, i, slot)
    for statement in routine.statements:
        encode_statement(coder, statement)
    for i, slot in enumerate(routine.slots):
        if slot.binding.kind == "store":
            _give(coder, i, slot.binding, _whole(i, slot))
    for i, result in enumerate(routine.results, len(routine.slots)):
        _bring(coder, i, result)
    last(coder)
    return coder.finish()


def encode_statement(coder: Coder, statement: Statement) -> None:
    if statement.loop is not None:
        pointers = [(coder.slot(slot), 0) for slot in statement.slots]
        coder.add(native(spell(statement.loop)), statement.axis, pointers, cut=by_rows(coder, statement))
    else:
        encode_op(coder, statement)


def _whole(number: int, slot: Slot) -> Place:
    shape = slot.type.shape
    return Place(number, slot.axis, slot.type.size, 0, shape, contiguous(shape))


def _take(coder: Coder, number: int, slot: Slot) -> None:
    """Gather copies of an operand's rows, or sum the cotangents of an output, where the launch tells so."""
    function = native(move_texts.take(MEMORY[slot.type.dtype]))
    arena, fields = coder.cell(number, WHOLE), coder.cell(number, FIELDS_OF)
    entries = coder.cell(number, ENTRIES, slot.axis)
    copies = coder.cell(number, COPIES_OF, slot.axis)
    pointers = [(cell, 0) for cell in (arena, entries, copies, fields, coder.slot(number))]
    coder.add(function, slot.axis, pointers, [slot.type.size])


def _give(coder: Coder, number: int, binding: Binding, place: Place) -> None:
    dtype, axis = coder.dtype(place), place.axis if place.axis.rank else CALL
    function = native(move_texts.GIVE.format(k=MEMORY[dtype]))
    size = prod(place.shape)
    row_bytes = size * np.dtype(dtype).itemsize
    moved = [
        coder.cell(number, TARGET, axis, row_bytes),
        coder.cell(number, ENTRIES, axis),
        coder.cell(number, COPIES_OF, axis),
        coder.cell(number, FIELDS_OF),
    ]
    dense = place.strides == contiguous(place.shape)
    for part in [DENSE] if dense else _first_apart(place):
        values = coder.at(place, part.offsets[0])
        statics = [GIVEN[binding.kind], size, int(dense), part.offsets[1], *part.extents]
        statics += [place.row, *part.strides[0], *part.strides[1]]
        coder.add(function, axis, [values, *((cell, 0) for cell in moved)], statics)


def _first_apart(place: Place) -> Iterable[Stretch]:
    """Return a place in parts of three axes, beside an array without gaps.

    The first axis of its shape, which may tell rows of an arena from each other, is that of each part.
    """
    order = contiguous(place.shape)
    for part in parts(merged(place.shape[1:], [place.strides[1:], order[1:]]), move_texts.GIVE_AXES - 1, 2):
        strides = (place.strides[0], *part.strides[0]), (order[0], *part.strides[1])
        yield Stretch(part.offsets, (place.shape[0], *part.extents), strides)


def _bring(coder: Coder, number: int, result: Result) -> None:
    binding, place = result
    dtype = coder.dtype(place)
    match binding.kind:
        case "value" | "cotangent":
            _give(coder, number, binding, place)
        case "gradient":
            target = coder.cell(number, WHOLE), coder.cell(number, FIELDS_OF)
            function = native(move_texts.GRADIENT.format(k=MEMORY[dtype]))
            size = np.dtype(dtype).itemsize
            for part in parts(merged(place.shape, [place.strides, contiguous(place.shape)]), 3, 2):
                pointers = [
                    coder.at(place, part.offsets[0]),
                    (target[0], part.offsets[1] * size),
                    (target[1], 0),
                ]
                statics = [*part.extents, *part.strides[0], *part.strides[1], place.slot in coder.gradients]
                coder.add(function, UNBATCHED, pointers, statics)
        case _:
            axis = place.axis if place.axis.rank else CALL
            size = prod(place.shape)
            target_cell = coder.cell(number, BY_RANK, axis, size * np.dtype(dtype).itemsize)
            copy_to(coder, place, axis, target_cell)
