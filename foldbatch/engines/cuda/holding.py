"""Examples that a device holds: their calls in slots, and what each call reads, as arrays made once.

A *slot* is the calls of one cell on one level. An example's calls of a slot are numbered from 0; in a batch
they follow those of the examples before it. So a number of a batch's table is an example's and an offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foldbatch.engines.batch import Batch
from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.device import Device
from foldbatch.engines.launch import Ints
from foldbatch.errors import BackendError
from foldbatch.model.model import Model
from foldbatch.params import Array
from foldbatch.scheduler.schedule import ALL, CellTable, Schedule, Step


@dataclass(frozen=True, slots=True)
class HeldCell:
    """The calls of a cell, of all examples, those of an example one after the other.

    Attributes:
        starts: ``[examples + 1] int64``: where each example's calls begin.
        slots: ``[n] int32``: the slot of each call.
        numbers: ``[n] int32``: its number in the slot, among the example's.
        rows: ``[n, read, 2] int32``: for each row that it reads, which output that is (slot of the call that
            makes it, times outputs a cell, plus the output), and that call's number.
        feeds: ``[n, ...]`` each: the examples' data.
    """

    starts: Ints
    slots: Array
    numbers: Array
    rows: Array
    feeds: tuple[Array, ...]


@dataclass(frozen=True)
class Holding:
    """All examples that are held.

    Attributes:
        model: the model.
        device: where.
        steps: of all examples in one batch, in forward order; a step's slot is its place in `slots`, or -1.
        slots: ``[slots]``: the cell of each.
        counts: ``[examples, slots] int32``: the calls of each example in each slot.
        outputs: of a cell, at most.
        cells: their calls.
        reads: per cell and operand, how many rows a call reads.
    """

    model: Model
    device: Device
    steps: tuple[tuple[Step, int], ...]
    slots: tuple[int, ...]
    counts: Array
    outputs: int
    cells: tuple[HeldCell, ...]
    reads: tuple[tuple[int, ...], ...]

    @cached_property
    def on_device(self) -> tuple[DeviceArray, tuple[tuple[DeviceArray, ...], ...]]:
        """The counts, and of each cell starts, slots, numbers, rows and feeds, on the device."""
        put = self.device.put
        cells = (
            (put(c.starts), put(c.slots), put(c.numbers), put(c.rows), *map(put, c.feeds)) for c in self.cells
        )
        return put(self.counts), tuple(cells)

    @property
    def nbytes(self) -> int:
        """The bytes that the device holds."""
        counts, cells = self.on_device
        return counts.nbytes + sum(array.nbytes for arrays in cells for array in arrays)


def hold(model: Model, device: Device, batch: Batch) -> Holding:
    """Return the examples of a batch as held ones.

    Args:
        model: the model.
        device: where they are to be held.
        batch: all of them, planned as `Options` of layout ``producer`` and no sharing say.

    Raises:
        BackendError: when the model's examples cannot be held: it has sequences of any length in one call, or
            random numbers, or one launch would add to the cotangent of a value twice.
    """
    schedule = batch.schedule
    if any(model.keys):
        raise _refused("a model without random numbers", "one that draws some")
    if any(sums.ids.kind != "feed" for cell in model.cells for sums in cell.sums):
        raise _refused("tables whose ids examples give", "one whose ids a cell computes")
    if any(table.segments for table in schedule.cells):
        raise _refused("cells that read a fixed number of values", "one that reads a sequence in one call")
    groups = [step for step in schedule.steps if step.stop > step.start and "step" in step.stages]
    slot_of = {step: slot for slot, step in enumerate(groups)}
    outputs = max([1, *(len(table.outputs) for table in schedule.cells)])
    places = [_places(k, table, groups) for k, table in enumerate(schedule.cells)]
    examples = len(batch.results)
    counts = np.zeros((examples, len(groups)), np.int32)
    for table, (slots, _) in zip(schedule.cells, places, strict=True):
        np.add.at(counts, (table.examples, slots), 1)
    owners = _owners(schedule, model, places, outputs)
    cells = []
    for k, table in enumerate(schedule.cells):
        by_example = np.argsort(table.examples, kind="stable")
        starts = np.searchsorted(table.examples[by_example], np.arange(examples + 1)).astype(np.int64)
        rows = _rows(table, owners)
        _refuse_twice(table, places[k][0], rows, _after_all_levels(k, model, schedule))
        feeds = tuple([np.ascontiguousarray(data[by_example]) for data in batch.feeds[k]])
        slots, numbers = (array[by_example] for array in places[k])
        cells.append(HeldCell(starts, slots, numbers, np.ascontiguousarray(rows[by_example]), feeds))
    return Holding(
        model,
        device,
        tuple((step, slot_of.get(step, -1)) for step in schedule.steps),
        tuple(step.cell for step in groups),
        counts,
        outputs,
        tuple(cells),
        tuple(tuple(span.width for span in table.operands) for table in schedule.cells),
    )


def _refused(expected: str, found: str) -> BackendError:
    return BackendError("hold", expected, found, "give batches of examples, or of prepared ones")


def _places(k: int, table: CellTable, groups: Sequence[Step]) -> tuple[Array, Array]:
    """Return the slot of each rank of a cell, and its number among its example's calls there."""
    slots = np.zeros(len(table.order), np.int32)
    numbers = np.zeros(len(table.order), np.int32)
    examples = table.examples
    for slot, step in enumerate(groups):
        if step.cell == k:
            own = examples[step.start : step.stop]
            slots[step.start : step.stop] = slot
            begins = np.flatnonzero(np.diff(own, prepend=-1))
            lengths = np.diff(begins, append=len(own))
            numbers[step.start : step.stop] = np.arange(len(own)) - np.repeat(begins, lengths)
            assert len(np.unique(own[begins])) == len(begins), (
                "an example's calls of a slot follow each other"
            )
    return slots, numbers


def _owners(
    schedule: Schedule, model: Model, places: Sequence[tuple[Array, Array]], outputs: int
) -> list[Array]:
    """Return per arena which output each row is, and the number of its call: ``[rows, 2] int32``."""
    owners = [np.zeros((rows, 2), np.int32) for rows in schedule.arena_rows]
    for k, table in enumerate(schedule.cells):
        slots, numbers = places[k]
        for j, rows in enumerate(table.outputs):
            owners[model.signatures[k].outputs[j]][rows] = np.stack([slots * outputs + j, numbers], 1)
    return owners


def _rows(table: CellTable, owners: Sequence[Array]) -> Array:
    """Return what each rank reads: ``[n, read, 2] int32``."""
    read = []
    for span in table.operands:
        rows = np.arange(span.size) + (span.start or 0) if span.rows is None else span.rows
        read.append(owners[span.arena][rows].reshape(len(table.order), span.width, 2))
    return np.concatenate([np.zeros((len(table.order), 0, 2), np.int32), *read], 1)


def _after_all_levels(k: int, model: Model, schedule: Schedule) -> frozenset[int]:
    """Return the operands of a cell whose cotangents one launch adds for all levels together."""
    if all(step.stages == ALL for step in schedule.steps if step.cell == k):
        return frozenset()  # its levels go through all stages one after the other
    backward = model.cells[k].training.backward
    targets = (target for name, stage in backward.items() if name != "step" for target, _ in stage.results)
    return frozenset(key for kind, key in targets if kind == "cotangent" and isinstance(key, int))


def _refuse_twice(table: CellTable, slots: Array, rows: Array, together: frozenset[int]) -> None:
    """Refuse a value that one operand reads twice in a launch: its cotangents would have to be sorted.

    The device gives each row that a launch adds to a thread of its own, so such a row must be there once.
    The operands in `together` are added by one launch for all levels, others by one for each level.
    """
    column = 0
    for i, span in enumerate(table.operands):
        own = rows[:, column : column + span.width]
        column += span.width
        launches = np.zeros_like(slots) if i in together else slots
        keys = np.stack(
            [
                np.repeat(table.examples, span.width),
                np.repeat(launches, span.width),
                own[..., 0].reshape(-1),
                own[..., 1].reshape(-1),
            ],
            1,
        )
        if len(np.unique(keys, axis=0)) < len(keys):
            where = "by a cell" if i in together else "on a level"
            raise _refused(f"values that are read once {where}", "one that is read twice")
