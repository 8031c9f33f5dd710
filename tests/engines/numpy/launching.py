"""Launches of a routine, put together by hand: where its slots and results are in the buffers of a batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.numpy import run
from foldbatch.engines.numpy.kernel import load
from foldbatch.params.parameters import Array
from foldbatch.static.op import Axis
from foldbatch.static.statements import Routine, Slot
from foldbatch.types import TensorType

Key = tuple[str, Any]


def run_table(table: LaunchTable, routine: Routine, buffers: Sequence[Array]) -> None:
    """Run a table of launches of one routine; tests of another engine put their own function here."""
    run(table, [load(routine).function], buffers)


@dataclass(frozen=True, slots=True)
class At:
    """Where rows are in a buffer, as `foldbatch.engines.launch` has it; `index` and `copies` are told as lists."""

    buffer: Array
    first: int = -1
    index: Sequence[int] | None = None
    width: int = 1
    copies: Sequence[int] | None = None
    stores: bool = False


@dataclass(slots=True)
class Batch:
    """Memory of a batch, and its launches.

    Attributes:
        slots: where the rows of slots are, by binding; parameters, constants, scratch and segments aside.
        results: where results go, by binding.
        offsets: by number of the ragged axis, where the elements of each call begin and the last ones end.
    """

    slots: Mapping[Key, At] = field(default_factory=dict)
    results: Mapping[Key, At] = field(default_factory=dict)
    offsets: Sequence[Sequence[int]] = ()
    buffers: list[Array] = field(default_factory=list)
    index: list[int] = field(default_factory=list)

    def run(self, routine: Routine, *launches: Sequence[tuple[int, int]]) -> None:
        """Run a routine for the levels of each launch."""
        rows, bounds = [], []
        for levels in launches:
            fields = [number for slot in routine.slots for number in self._slot(slot, levels, routine)]
            fields += [
                number for binding, _ in routine.results for number in self._fields(self.results[binding])
            ]
            rows.append([0, len(bounds), len(bounds) + len(levels), *fields])
            bounds += levels
        heights = [len(buffer) for buffer in self.buffers]
        parts = (np.array(rows), np.array(bounds).reshape(-1, 2), np.array(self.index), np.array(heights))
        table = LaunchTable(*(part.astype(np.int64) for part in parts))
        run_table(table, routine, self.buffers)

    def _slot(self, slot: Slot, levels: Sequence[tuple[int, int]], routine: Routine) -> list[int]:
        kind, key = slot.binding
        match kind:
            case "parameter":
                return self._fields(At(np.array(key.value)[None]))
            case "constant":
                return self._fields(At(np.array(key)[None]))
            case "scratch":
                return self._fields(At(poisoned(slot.type, self._widest(slot.axis, levels, routine))))
            case "segments":
                return [-1, -1, self._indexed(self.offsets[key]), 1, -1, 0, -1]
        at = self.slots[slot.binding]
        if at.index is None and (kind != "store" or at.stores):
            return self._fields(at)
        return self._fields(at, poisoned(slot.type, self._widest(slot.axis, levels, routine)))

    def _fields(self, at: At, spare: Array | None = None) -> list[int]:
        index, copies = (-1 if told is None else self._indexed(told) for told in (at.index, at.copies))
        number = -1 if spare is None else self._buffer(spare)
        return [self._buffer(at.buffer), at.first, index, at.width, copies, int(at.stores), number]

    def _buffer(self, array: Array) -> int:
        for number, buffer in enumerate(self.buffers):
            if buffer is array:
                return number
        self.buffers.append(array)
        return len(self.buffers) - 1

    def _indexed(self, numbers: Sequence[int]) -> int:
        self.index += [int(number) for number in numbers]
        return len(self.index) - len(numbers)

    def _widest(self, axis: Axis, levels: Sequence[tuple[int, int]], routine: Routine) -> int:
        if axis.rank == 0:
            return 1
        if axis.rank == 1:
            return max((stop - start for start, stop in levels), default=0)
        offsets = self.offsets[routine.slots[routine.segments[axis]].binding.key]
        return max((offsets[stop] - offsets[start] for start, stop in levels), default=0)


def poisoned(type_: TensorType, rows: int) -> Array:
    """Return rows of values that no kernel should read."""
    shape = (rows, *type_.shape)
    if type_.is_float:
        return np.full(shape, np.nan, type_.dtype)
    return np.full(shape, type_.dtype == "bool" or np.iinfo(type_.dtype).max, type_.dtype)
