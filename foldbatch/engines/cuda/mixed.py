"""The precision ``mixed``: arenas hold values of float32 as bfloat16, everything else stays as it is.

A value is rounded where a cell writes it to an arena, and widened where a cell reads it. Loops and copies
widen what they load. For all other statements the routine first copies the rows of such an operand into
float32 memory of the level, and they read the copies. So products, sums and losses are of float32, and each
reader sees the rounded value, whatever batch it is in.
Cotangents are not rounded: many readers of a value add to its cotangent, and a sum of 8 bits loses small
terms. They pass a rounding as if it were none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from foldbatch.engines.bindings import Bound, bind_routines, stages_of
from foldbatch.engines.cuda.kernel_text import TARGET
from foldbatch.model.model import Model
from foldbatch.static.places import Place, contiguous
from foldbatch.static.routines import routine_of
from foldbatch.static.statements import Binding, Routine, Slot, Statement
from foldbatch.types import TensorType

MIXED = replace(TARGET, precision="mixed")
ROUNDED = "float32"  # the dtype of values that are rounded


@dataclass(frozen=True, slots=True)
class RoundedType(TensorType):
    """The type of rows of float32 that a buffer holds as bfloat16."""

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return 2 * self.size


def bind_mixed(model: Model, *, training: bool) -> Bound:
    """Make the routines of a phase of a model, which round what they hand to each other; see `bind`."""
    stages = dict(stages_of(model, training=training))
    routines = [widened(routine_of(stage, MIXED)) for stage in stages.values()]
    bound = bind_routines(model, MIXED, list(stages), routines, training=training)
    types = list(bound.types)
    for name, number in bound.buffers.items():
        type_ = types[number]
        is_value = name[0] == "values" or name[:2] == ("spare", "operand")
        if is_value and type_ is not None and type_.dtype == ROUNDED:
            types[number] = RoundedType(type_.shape, type_.dtype)
    return replace(bound, types=tuple(types))


def widened(routine: Routine) -> Routine:
    """Return a routine that reads operands of float32 where they are loaded one by one, else in copies.

    Routines share the memory of the copies: those of one type are numbered from -1 downward.
    """
    operands = {
        number
        for number, slot in enumerate(routine.slots)
        if slot.binding.kind == "operand" and slot.type.dtype == ROUNDED
    }
    read = [place.slot for statement in routine.statements for place in _copied(statement)]
    slots, copies, copied = list(routine.slots), list[Statement](), dict[int, int]()
    counts = Counter[TensorType]()
    for number in sorted(operands.intersection(read)):
        slot = routine.slots[number]
        copied[number] = len(slots)
        counts[slot.type] += 1
        slots.append(Slot(Binding("scratch", -counts[slot.type]), slot.type, slot.axis))
        shape = slot.type.shape
        source = Place(number, slot.axis, slot.type.size, 0, shape, contiguous(shape))
        copies.append(Statement("copy", slot.axis, (source,), replace(source, slot=copied[number])))

    def moved(statement: Statement) -> Statement:
        reads = [replace(place, slot=copied.get(place.slot, place.slot)) for place in statement.reads]
        return replace(statement, reads=tuple(reads)) if _copied(statement) else statement

    statements = (*copies, *map(moved, routine.statements))
    return replace(routine, slots=tuple(slots), statements=statements)


def _copied(statement: Statement) -> Sequence[Place]:
    """Return the places that a statement reads otherwise than element by element."""
    return () if statement.loop is not None or statement.op == "copy" else statement.reads
