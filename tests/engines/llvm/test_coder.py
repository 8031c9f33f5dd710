"""A code as numbers: cells once each, instructions that point to statics."""

from __future__ import annotations

from foldbatch.engines.llvm.coder import (
    BY_LAUNCH,
    BY_ROWS,
    CALLS,
    CELL,
    HEAD,
    INSTRUCTION,
    RAGGED,
    WHOLE,
    Coder,
    InstructionCut,
)
from foldbatch.engines.llvm.compiling import Native
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Routine, Slot
from foldbatch.types import TensorType

M = ragged()
SLOTS = (
    Slot(Binding("operand", 0), TensorType((2, 3)), CALL),
    Slot(Binding("kept", 0), TensorType((4,), "float64"), UNBATCHED),
    Slot(Binding("segments", 0), TensorType((), "int64"), M),
    Slot(Binding("kept", 1), TensorType((), "bool"), M),
)
ROUTINE = Routine("test", SLOTS, (), (), {M: 2})


def test_the_code_is_its_parts_one_after_the_other() -> None:
    coder = Coder(ROUTINE)
    one, two = Native(1000, 1), Native(2000, 2)
    coder.add(one, CALL, [coder.at(Place(0, CALL, 6, 2, (3,), (1,)))], [7, 8])
    coder.add(two, M, [coder.at(Place(1, UNBATCHED, 0, 3, (), ())), (coder.slot(0), 0)], [9])
    code = coder.finish()
    numbers = code.numbers.tolist()
    cells, ragged_axes, instructions, statics = numbers[:HEAD]
    assert (cells, ragged_axes, instructions) == (2, 1, 2)
    assert numbers[HEAD : HEAD + 2 * CELL] == [0, BY_LAUNCH, CALLS, 24, 1, WHOLE, 0, 0]
    assert numbers[HEAD + 2 * CELL] == 2
    first = numbers[HEAD + 2 * CELL + 1 :]
    assert first[: INSTRUCTION + 2] == [1000, 1, CALLS, statics, 0, 0, 0, 2 * 4]
    second = first[INSTRUCTION + 2 : 2 * INSTRUCTION + 6]
    assert second == [2000, 2, RAGGED, statics + 2, 0, 0, 1, 3 * 8, 0, 0]
    assert numbers[statics:] == [7, 8, 9]
    assert code.functions == (one, two)
    assert code.room >= 3


def test_cuts_stand_behind_the_pointers_of_the_whole() -> None:
    coder = Coder(ROUTINE)
    one = Native(1000, 1)
    coder.add(one, CALL, [(0, 0)], [5], InstructionCut(9, [([(0, 0)], [6]), ([(0, 40)], [7])]))
    coder.add(one, CALL, [(0, 0)], [8], InstructionCut(4, rows=[24]))
    code = coder.finish()
    statics = code.numbers.tolist()[HEAD - 1]
    first, second = (
        [1000, 1, CALLS, statics, 2, 9, 0, 0, statics + 1, 0, 0, statics + 2, 0, 40],
        [1000, 1, CALLS, statics + 3, BY_ROWS, 4, 0, 0, 24],
    )
    assert code.numbers.tolist()[HEAD + 1 : statics] == [*first, *second]
    assert code.numbers.tolist()[statics:] == [5, 6, 7, 8]
    assert code.room >= 2 * 3


def test_cells_are_shared_by_what_points_to_the_same_rows() -> None:
    coder = Coder(ROUTINE)
    assert coder.slot(0) == coder.slot(0)
    assert len({coder.slot(i) for i in range(4)}) == 4
    assert coder.dtype(Place(3, M, 1, 0, (), ())) == "bool"
