"""A code under way: cells for what instructions point to, and the instructions themselves; see `code`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import prod

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines.numba import code
from foldbatch.engines.numba.compiling import Native
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.statements import Place, Routine

KIND_OF = {
    "operand": code.BY_LAUNCH,
    "cotangent": code.BY_LAUNCH,
    "feed": code.BY_RANK,
    "kept": code.BY_RANK,
    "parameter": code.WHOLE,
    "constant": code.WHOLE,
    "scratch": code.WHOLE,
    "segments": code.SEGMENTS_OF,
    "store": code.STORED,
}  # of a slot's cell, by its binding


@dataclass(frozen=True, slots=True)
class Code:
    """A kernel's code, as `code` describes it.

    Attributes:
        numbers: ``[*] int64``.
        functions: those whose addresses are in it.
        room: the greatest of the numbers of cells, axes, and arguments of an instruction.
    """

    numbers: NDArray[np.int64]
    functions: tuple[Native, ...]
    room: int


@dataclass(slots=True)
class Coder:
    """A code under way: `add` appends an instruction."""

    routine: Routine
    cells: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    program: list[list[int]] = field(default_factory=list)
    statics: list[int] = field(default_factory=list)
    functions: list[Native] = field(default_factory=list)
    axes: dict[Axis, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.axes |= {UNBATCHED: code.ONE, CALL: code.CALLS}
        self.axes |= {axis: code.RAGGED + i for i, axis in enumerate(self.routine.segments)}

    def cell(self, binding: int, kind: int, axis: Axis = UNBATCHED, row_bytes: int = 0) -> int:
        """Return the number of a cell."""
        key = binding, kind, self.axes[axis], row_bytes
        return self.cells.setdefault(key, len(self.cells))

    def slot(self, number: int) -> int:
        """Return the number of the cell of a slot's rows."""
        slot = self.routine.slots[number]
        kind = KIND_OF[slot.binding.kind]
        if slot.axis is UNBATCHED and kind == code.BY_RANK:
            kind = code.WHOLE
        if kind in (code.WHOLE, code.SEGMENTS_OF):
            return self.cell(number, kind, CALL if kind == code.SEGMENTS_OF else UNBATCHED)
        return self.cell(number, kind, slot.axis, slot.type.size * np.dtype(slot.type.dtype).itemsize)

    def dtype(self, place: Place) -> str:
        """Return the dtype of a place's elements."""
        return self.routine.slots[place.slot].type.dtype

    def at(self, place: Place, more: int = 0) -> tuple[int, int]:
        """Return the pointer to a place's first element, or to one so many further on."""
        size = np.dtype(self.dtype(place)).itemsize
        return self.slot(place.slot), (place.offset + more) * size

    def add(
        self, function: Native, axis: Axis, pointers: Sequence[tuple[int, int]], statics: Sequence[int] = ()
    ) -> None:
        """Append an instruction: a function, the axis whose rows it is told, its pointers and whole numbers."""
        assert len(pointers) == function.count
        head = [function.address, function.count, self.axes[axis], len(self.statics)]
        self.program.append([*head, *chain.from_iterable(pointers)])
        self.statics += statics
        self.functions.append(function)

    def finish(self) -> Code:
        """Return the code."""
        segments = list(self.routine.segments.values())
        cells = [number for cell in self.cells for number in cell]
        size = sum(map(len, self.program))
        begin = code.HEAD + len(cells) + len(segments) + size
        for instruction in self.program:
            instruction[3] += begin
        head = [len(self.cells), len(segments), len(self.program), begin]
        flat = [*head, *cells, *segments, *chain.from_iterable(self.program), *self.statics]
        widest = max([0, *(function.count for function in self.functions)])
        room = max(len(self.cells), code.RAGGED + len(segments), widest + 1)
        return Code(np.array(flat, np.int64), tuple(dict.fromkeys(self.functions)), room)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array without gaps.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))
