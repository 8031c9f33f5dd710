"""A kernel's code, an array of integers that `walker` runs, and the coder that builds it.

A code is a header, the records of its *cells*, the bindings of its ragged axes' segments, the records of its
instructions, and *statics*, integers to which instructions point. A cell is an address that follows from the
launch and the level::

    header         number of cells, of ragged axes, of instructions; offset of the statics
    a cell         binding, kind (see below), axis, bytes of a row
    a ragged axis  binding of its segments
    an instruction address and number of pointers of its function; the axis whose rows it goes through; offset
                   of its statics; its cut, and multiplications a row; for each pointer a cell, and an offset
                   in bytes; then the parts of its cut, see `InstructionCut`

====================  ========================================================================================
``BY_LAUNCH``         rows of BASE from FIRST on, if they are consecutive; else copies of them in SPARE
``BY_RANK``           rows of BASE, by rank
``FROM_BASE``         BASE from its beginning
``TARGET``            rows of BASE from FIRST on, if they are consecutive; else BASE from its beginning
``STORED``            the same rows, if they are stored; else SPARE, from where they are added to BASE; so
                      is the scratch buffer of a gradient
``ENTRIES``           the level's part of the index of the binding; all of it if there are copies
``COPIES_OF``         the level's part of the bounds of copies: how many calls share each row
``SEGMENTS_OF``       the level's segments
``FIELDS_OF``         the launch's numbers for the binding
``ERRORS``            the record to which checks write errors
====================  ========================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from foldbatch.loops.compiling import Native
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.places import Place, contiguous
from foldbatch.static.statements import Routine, Statement

CODE_HEADER, CELL, INSTRUCTION = 4, 4, 6  # integers of the header, a cell, an instruction
SINGLE, CALLS, RAGGED = 0, 1, 2  # numbers of axes: one value for all, calls, the first ragged one
BY_LAUNCH, BY_RANK, FROM_BASE, TARGET, STORED = range(5)
ENTRIES, COPIES_OF, SEGMENTS_OF, FIELDS_OF, ERRORS = range(5, 10)
# The record of an error: whether there is one, the row, the wrong id, the size; the launch and its first
# call.
ERROR_WORDS = 6

MAX_PARTS = 4  # parts of an instruction
BY_ROWS = -1  # a cut into rows; other cuts are the number of parts, or 0 for none

KIND_OF = {  # of a slot's cell, by its binding
    **dict.fromkeys(("operand", "cotangent"), BY_LAUNCH),
    **dict.fromkeys(("feed", "kept"), BY_RANK),
    **dict.fromkeys(("parameter", "constant", "scratch"), FROM_BASE),
    "segments": SEGMENTS_OF,
    "store": STORED,
}


Pointers = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class InstructionCut:
    """The parts of an instruction, which yield the same bits in any order, and side by side."""

    work: int  # multiplications a row, about; they decide whether cutting pays
    # the pointers and statics of each part, in place of the instruction's
    parts: Sequence[tuple[Pointers, Sequence[int]]] = ()
    # without `parts`, a part is some rows: for each pointer, bytes from a row to the next
    rows: Sequence[int] = ()


NO_CUT = InstructionCut(0)


@dataclass(frozen=True, slots=True)
class KernelCode:
    """A kernel's code, in the form above."""

    numbers: NDArray[np.int64]  # ``[*] int64``
    functions: tuple[Native, ...]  # the functions whose addresses the code has
    room: int  # the largest number of cells, of axes, or of arguments of all parts of an instruction


@dataclass(slots=True)
class Coder:
    """Builds the code of a kernel: `add` appends an instruction, `finish` returns the code."""

    routine: Routine
    cells: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    program: list[list[int]] = field(default_factory=list)
    statics: list[int] = field(default_factory=list)
    statics_at: list[list[int]] = field(default_factory=list)
    functions: list[Native] = field(default_factory=list)
    axes: dict[Axis, int] = field(default_factory=dict)
    # by scratch slot, the binding of the gradient that fills it: it is computed right in the gradient's
    # memory
    gradients: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        slots, results = self.routine.slots, self.routine.results
        for number, (binding, place) in enumerate(results, len(slots)):
            slot = slots[place.slot]
            is_slot = place == Place(
                place.slot, UNBATCHED, 0, 0, slot.type.shape, contiguous(slot.type.shape)
            )
            is_slot = is_slot and [result.place.slot for result in results].count(place.slot) == 1
            if binding.kind == "gradient" and slot.binding.kind == "scratch" and is_slot:
                self.gradients[place.slot] = number
        self.axes |= {UNBATCHED: SINGLE, CALL: CALLS}
        self.axes |= {axis: RAGGED + i for i, axis in enumerate(self.routine.segments)}

    def cell(self, binding: int, kind: int, axis: Axis = UNBATCHED, row_bytes: int = 0) -> int:
        key = binding, kind, self.axes[axis], row_bytes
        return self.cells.setdefault(key, len(self.cells))

    def slot(self, number: int) -> int:
        """Return the cell of a slot's memory."""
        slot = self.routine.slots[number]
        if number in self.gradients:
            return self.cell(self.gradients[number], STORED)
        kind = KIND_OF[slot.binding.kind]
        if slot.axis is UNBATCHED and kind == BY_RANK:
            kind = FROM_BASE
        if kind in (FROM_BASE, SEGMENTS_OF):
            return self.cell(number, kind, CALL if kind == SEGMENTS_OF else UNBATCHED)
        return self.cell(number, kind, slot.axis, slot.type.size * np.dtype(slot.type.dtype).itemsize)

    def dtype(self, place: Place) -> str:
        return self.routine.slots[place.slot].type.dtype

    def at(self, place: Place, elements: int = 0) -> tuple[int, int]:
        """Return the pointer to an element of a place: a cell, and an offset in bytes."""
        size = np.dtype(self.dtype(place)).itemsize
        return self.slot(place.slot), (place.offset + elements) * size

    def add(
        self,
        function: Native,
        axis: Axis,
        pointers: Pointers,
        statics: Sequence[int] = (),
        cut: InstructionCut = NO_CUT,
    ) -> None:
        """Append an instruction: a function that goes through the rows of an axis."""
        assert len(pointers) == function.count
        assert len(cut.parts) <= MAX_PARTS
        kind = len(cut.parts) or (BY_ROWS if cut.rows else 0)
        head = [function.address, function.count, self.axes[axis], len(self.statics), kind, cut.work]
        self.statics += statics
        places = [3]  # of the offsets of statics in the instruction's record
        numbers = [*head, *chain.from_iterable(pointers), *cut.rows]
        for pointers_of_part, statics_of_part in cut.parts:
            places.append(len(numbers))
            numbers += [len(self.statics), *chain.from_iterable(pointers_of_part)]
            self.statics += statics_of_part
        self.program.append(numbers)
        self.statics_at.append(places)
        self.functions.append(function)

    def finish(self) -> KernelCode:
        """Return the code; offsets of statics count from its beginning now."""
        segments = list(self.routine.segments.values())
        cells = [number for cell in self.cells for number in cell]
        size = sum(map(len, self.program))
        begin = CODE_HEADER + len(cells) + len(segments) + size
        for instruction, places in zip(self.program, self.statics_at, strict=True):
            for place in places:
                instruction[place] += begin
        head = [len(self.cells), len(segments), len(self.program), begin]
        flat = [*head, *cells, *segments, *chain.from_iterable(self.program), *self.statics]
        widest = max([0, *(function.count for function in self.functions)])
        room = max(len(self.cells), RAGGED + len(segments), MAX_PARTS * (widest + 2))
        return KernelCode(np.array(flat, np.int64), tuple(dict.fromkeys(self.functions)), room)


# Each number of a product is a sum in an order that does not depend on the columns beside it. So parts yield
# the bits of the undivided product.
LANES = 16  # columns of a part are a multiple of this: a vector of float32, or two of float64
NARROW = 2 * LANES  # columns that are not worth cutting
READ_ONLY = ("parameter", "constant")  # kinds of bindings that no statement writes to
LOOP = 12  # multiplications that take as long as a number of a fused loop, about


def by_columns(
    pointers: Pointers, statics: Sequence[int], at: int, steps: Mapping[int, int], inner: int
) -> InstructionCut:
    """Return the cut of a product into columns, given its pointers and statics.

    Args:
        pointers: those of the undivided product.
        statics: its integers.
        at: which of these is the number of columns.
        steps: by pointer, the bytes from a column to the next.
        inner: the multiplications for each column and row.
    """
    columns = statics[at]
    if columns < NARROW:
        return NO_CUT
    width = -(-columns // (MAX_PARTS * LANES)) * LANES
    parts = []
    for first in range(0, columns, width):
        moved = [(cell, offset + first * steps.get(i, 0)) for i, (cell, offset) in enumerate(pointers)]
        parts.append((moved, [*statics[:at], min(width, columns - first), *statics[at + 1 :]]))
    return InstructionCut(columns * inner, parts)


def by_sweeps(coder: Coder, statement: Statement) -> InstructionCut:
    """Return the cut of a fused loop into rows, if each row reads and writes the same row of its slots.

    A loop of several sweeps stores a row in a buffer of one row, which two cores cannot share.
    """
    slots = [coder.routine.slots[number] for number in statement.slots]
    shared = [slot for slot in slots if slot.axis is not statement.axis]
    if statement.axis is UNBATCHED or any(slot.binding.kind not in READ_ONLY for slot in shared):
        return NO_CUT
    sizes = [slot.type.size * np.dtype(slot.type.dtype).itemsize for slot in slots]
    rows = [size if slot.axis is statement.axis else 0 for slot, size in zip(slots, sizes, strict=True)]
    numbers = sum(slot.type.size for slot in slots if slot.axis is statement.axis)
    return InstructionCut(LOOP * numbers, rows=rows)
