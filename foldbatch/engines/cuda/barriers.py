"""Which calls must wait for those before them: what they read and write, by buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from foldbatch.engines.cuda.control import Call, Ops
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.steps import Step, field
from foldbatch.engines.launch import BASE, SPARE


class Touches(NamedTuple):
    """Buffers that a call reads and writes, by number; words of the status by their places, as -1 - place."""

    reads: frozenset[int]
    writes: frozenset[int]


# By the first part of a name: which arguments are buffers that it reads, buffers that it writes, and places
# of the status that it writes. All other ops wait.
_RECORDS = {
    "zero_at_": ((), (0,), ()),
    "fill_at_": ((), (0,), ()),
    "total_at_": ((0,), (), (2,)),
    "add_rows_at_": ((0,), (3,), ()),
    "copy_at_": ((), (2,), ()),
    "flag_at_": ((0,), (), (2,)),
}


def waits(calls: Sequence[Call], ops: Ops, kernels: Sequence[Kernel]) -> list[bool]:
    """Return for each call whether it must wait until all before it are done.

    Those that need not wait for each other may run side by side, in any order.
    """
    made: list[bool] = []
    reads, writes = set[int](), set[int]()
    alone = False  # whether the call before waits for all, and all wait for it
    for call in calls:
        touches = touched(call, ops, kernels)
        waits = alone or touches is None
        if touches is not None:
            waits |= bool(touches.reads & writes or touches.writes & (reads | writes))
        made.append(waits)
        if waits:
            reads, writes = set(), set()
        if touches is not None:
            reads |= touches.reads
            writes |= touches.writes
        alone = touches is None
    return made


def touched(call: Call, ops: Ops, kernels: Sequence[Kernel]) -> Touches | None:
    """Return what a call touches; None where that is not known."""
    if call.step is not None:
        return _of_step(call.step, kernels)
    name = ops.ops[call.op].name
    for start, (reads, writes, places) in _RECORDS.items():
        if name.startswith(start):
            status = {-1 - call.arguments[k] for k in places}
            return Touches(
                frozenset(call.arguments[k] for k in reads),
                frozenset({*(call.arguments[k] for k in writes), *status}),
            )
    return None


def _of_step(step: Step, kernels: Sequence[Kernel]) -> Touches:
    """Return what a step touches; the same for all steps of a task, whatever the batch."""
    task, row, slots = step.task, step.row, kernels[step.row[0]].routine.slots
    reads, writes = set[int](), set[int]()
    for slot in task.reads | task.writes:
        kind = slots[slot].binding.kind
        if kind == "segments":
            continue
        own = writes if slot in task.writes else reads
        own.add(field(row, slot, BASE))
        if kind in ("operand", "cotangent", "store"):  # rows may be copied together, or be apart to be added
            own.add(field(row, slot, SPARE))
        if kind in ("operand", "cotangent"):
            reads.add(field(row, slot, BASE))
    writes |= {field(row, binding, BASE) for binding in task.brings}
    return Touches(frozenset(reads - {-1}), frozenset(writes - {-1}))
