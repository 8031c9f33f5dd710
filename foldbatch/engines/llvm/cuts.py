"""How instructions are cut into parts for two cores: products by columns, fused loops by rows.

Each number of a product is a sum in an order that does not depend on the columns beside it. So the parts
yield what the whole does, to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from foldbatch.engines.llvm.coder import MOST, NO_CUT, Coder, InstructionCut, Pointers
from foldbatch.static.op import UNBATCHED
from foldbatch.static.statements import Statement

LANES = 16  # columns of a part are a multiple of that: a vector of float32, or two of float64
NARROW = 2 * LANES  # columns that are not worth cutting
READ_ONLY = ("parameter", "constant")  # kinds of bindings that no statement writes to
LOOP = 12  # multiplications that take as long as a number of a fused loop, about


def by_columns(
    pointers: Pointers, statics: Sequence[int], at: int, steps: Mapping[int, int], inner: int
) -> InstructionCut:
    """Return the cut of a product.

    Args:
        pointers: of the whole product.
        statics: its whole numbers.
        at: which of these is its number of columns.
        steps: by number, the pointers that move from column to column, by so many bytes.
        inner: multiplications for each column and row that the product is told of.
    """
    columns = statics[at]
    if columns < NARROW:
        return NO_CUT
    width = -(-columns // (MOST * LANES)) * LANES
    parts = []
    for first in range(0, columns, width):
        moved = [(cell, more + first * steps.get(i, 0)) for i, (cell, more) in enumerate(pointers)]
        parts.append((moved, [*statics[:at], min(width, columns - first), *statics[at + 1 :]]))
    return InstructionCut(columns * inner, parts)


def by_rows(coder: Coder, statement: Statement) -> InstructionCut:
    """Return the cut of a fused loop, each row of which is made of the same rows of its slots.

    A loop of several sweeps keeps a row in a buffer of one row, which two cores cannot share.
    """
    slots = [coder.routine.slots[number] for number in statement.slots]
    shared = [slot for slot in slots if slot.axis is not statement.axis]
    if statement.axis is UNBATCHED or any(slot.binding.kind not in READ_ONLY for slot in shared):
        return NO_CUT
    sizes = [slot.type.size * np.dtype(slot.type.dtype).itemsize for slot in slots]
    rows = [size if slot.axis is statement.axis else 0 for slot, size in zip(slots, sizes, strict=True)]
    numbers = sum(slot.type.size for slot in slots if slot.axis is statement.axis)
    return InstructionCut(LOOP * numbers, rows=rows)
