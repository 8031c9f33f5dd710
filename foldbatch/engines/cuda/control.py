"""The control table: all that a batch's step runs, one record of whole numbers a call, read by the device.

Kernels that run straight get their arguments with the launch. Kernels of a captured graph, and the persistent
kernel, find them here: the graph has the same launches for every batch, and one launch runs any number of
calls. A record is the number of an *op* and its arguments, after the address of the packed table. Word
``CONTROL_AT`` of that table tells where the records begin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound
from foldbatch.engines.cuda.kernels import Kernel
from foldbatch.engines.cuda.packing import SUMMED, Packed
from foldbatch.engines.cuda.status import WORDS
from foldbatch.engines.cuda.steps import BLOCKS, Step
from foldbatch.engines.cuda.texts.expressions import KINDS
from foldbatch.engines.cuda.texts.records import RECORD, RECORDS
from foldbatch.engines.launch import Ints
from foldbatch.engines.launches import Directions
from foldbatch.params import Parameter
from foldbatch.scheduler.schedule import Schedule

THREADS = 256  # of a block
TILE = 32  # rows and columns of a product that one block computes


class Op(NamedTuple):
    """What a record can ask for.

    Attributes:
        name: of the function in the text, see `texts.functions`.
        x: threads along the elements of a row.
        arguments: how many, after the address of the table.
    """

    name: str
    x: int
    arguments: int


class Call(NamedTuple):
    """A record before it is written.

    Attributes:
        op: its number.
        arguments: at most `RECORD` - 1.
        blocks: that can work side by side.
        step: the step that it is, of a launch table; None for what runs around these.
    """

    op: int
    arguments: tuple[int, ...]
    blocks: int
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Ops:
    """The ops of a phase.

    Attributes:
        ops: by number.
        numbers: by name.
    """

    ops: tuple[Op, ...]
    numbers: Mapping[str, int]


def ops_of(kernels: Sequence[Kernel]) -> Ops:
    """Return the ops of a phase: kernels, then tiles of products, then what runs around them."""
    ops = []
    for kernel in kernels:
        for task in kernel.tasks:
            if task.multiplied is None:
                ops.append(Op(task.name, task.threads[0], 3 if task.planned >= 0 else 2))
            else:
                ops.append(Op(task.tile, THREADS, 2))
    ops += [Op(name, THREADS, count) for name, count in RECORDS.items()]
    return Ops(tuple(ops), {op.name: number for number, op in enumerate(ops)})


def calls_of(ops: Ops, steps: Sequence[Step]) -> list[Call]:
    """Return the calls that steps of a launch table are."""
    numbers = ops.numbers
    return [
        Call(numbers[step.task.name or step.task.tile], step.arguments, step.blocks or _tiles(step), step)
        for step in steps
    ]


def _tiles(step: Step) -> int:
    """Return how many blocks can work side by side on a product."""
    p = step.task.multiplied
    assert p is not None
    m, _, count = step.extents
    return max(1, min(BLOCKS, count * -(-m // TILE) * -(-p.n // TILE)))


def calls_before(ops: Ops, bound: Bound, tables: Directions, schedule: Schedule) -> Iterator[Call]:
    """Yield the calls that set to zero what several levels add to."""
    for parameter, number in bound.brought["gradient"]:
        if tables.yields[parameter] > 1:
            yield _zero(ops, number, parameter.type.size * np.dtype(parameter.type.dtype).itemsize)
    if tables.backward is not None:
        for (k, i), number in bound.brought["input"]:
            nbytes = bound.model.feeds[k][i].type.nbytes * len(schedule.cells[k].order)
            if nbytes:
                yield _zero(ops, number, nbytes)


def calls_of_losses(ops: Ops, bound: Bound, schedule: Schedule) -> Iterator[Call]:
    """Yield the calls that add up losses, and write the sums to the status."""
    for place, ((k, i), number) in enumerate(bound.brought["loss"]):
        kind = KINDS[bound.model.cells[k].graph.losses[i].dtype]
        arguments = number, len(schedule.cells[k].order), WORDS + place
        yield Call(ops.numbers[f"total_at_{kind}"], arguments, 1)


def calls_of_zeros(ops: Ops, bound: Bound, packed: Packed) -> Iterator[Call]:
    """Yield the calls that set rows of cotangents to zero."""
    for arena, (place, count) in packed.zeros.items():
        nbytes = bound.model.arenas[arena].nbytes
        kind, words = ("i4", nbytes // 4) if nbytes % 4 == 0 else ("b1", nbytes)
        name, buffer = f"zero_at_{kind}", bound.buffers["cotangents", arena]
        yield Call(ops.numbers[name], (buffer, place, count, words), _blocks(count * words))


def calls_of_sums(ops: Ops, bound: Bound, packed: Packed) -> Iterator[Call]:
    """Yield the calls that add up the gradients of tables, see `sums_of`."""
    for at, ((k, i), (plan, rows)) in enumerate(packed.sums.items()):
        sums = bound.model.cells[k].sums[i]
        type_ = sums.parameter.type
        width = type_.size // max(1, type_.shape[0])
        values = bound.buffers[sums.values.kind, k, sums.values.key]
        target = len(bound.types) + SUMMED * at
        name = f"add_rows_at_{KINDS[type_.dtype]}"
        yield Call(ops.numbers[name], (values, plan, width, target), _blocks(len(rows) * width))
        yield Call(ops.numbers["copy_at_i8"], (plan + 1, len(rows), target + 1), _blocks(len(rows)))


def calls_of_flags(ops: Ops, bound: Bound, tables: Directions, packed: Packed) -> Iterator[Call]:
    """Yield the calls that look for a NaN or an infinity in gradients.

    The gradients are those of `flagged`, in this order; flag k stands in the status behind the losses.
    """
    place = WORDS + len(bound.brought["loss"])
    for parameter, number, rows in flagged(bound, tables, packed):
        type_ = parameter.type
        count = type_.size if rows < 0 else rows * (type_.size // max(1, type_.shape[0]))
        yield Call(ops.numbers[f"flag_at_{KINDS[type_.dtype]}"], (number, count, place), _blocks(count))
        place += 1


def flagged(bound: Bound, tables: Directions, packed: Packed) -> Iterator[tuple[Parameter, int, int]]:
    """Yield the gradients that a batch makes: of which parameter, in which buffer, of how many rows.

    The rows are those of a sum of rows, and -1 where the gradient is whole.
    """
    for parameter, number in bound.brought["gradient"]:
        if tables.yields[parameter]:
            yield parameter, number, -1
    for at, ((k, i), (_, rows)) in enumerate(packed.sums.items()):
        yield bound.model.cells[k].sums[i].parameter, len(bound.types) + SUMMED * at, len(rows)


def call_of_note(ops: Ops) -> Call:
    """Return the call that copies the status, and the device's word of faults, to a place of their own."""
    return Call(ops.numbers["note_at"], (), 1)


def _zero(ops: Ops, buffer: int, nbytes: int) -> Call:
    kind, words = ("i4", nbytes // 4) if nbytes % 4 == 0 else ("b1", nbytes)
    return Call(ops.numbers[f"fill_at_{kind}"], (buffer, words), _blocks(words))


def _blocks(elements: int) -> int:
    return max(1, min(1024, -(-elements // THREADS)))


def records_of(calls: Sequence[Call]) -> Ints:
    """Return calls as records: ``[calls, RECORD] int64``."""
    return np.array(
        [(call.op, *call.arguments, *(0,) * (RECORD - 1 - len(call.arguments))) for call in calls], np.int64
    ).reshape(-1, RECORD)
