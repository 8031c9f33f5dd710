"""A batch of held examples under way: the device makes its table, and then runs it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from foldbatch.engines.cuda.arrays import DeviceArray
from foldbatch.engines.cuda.drivers.driver import Span
from foldbatch.engines.cuda.due import DueRun
from foldbatch.engines.cuda.held_tables import HeldTables, refused
from foldbatch.engines.cuda.staging import GRAIN, Block
from foldbatch.engines.cuda.texts import holding as texts
from foldbatch.engines.cuda.texts.kernel_text import INDEX_AT
from foldbatch.engines.cuda.texts.records import RECORD
from foldbatch.engines.engine import Cotangents
from foldbatch.engines.launch import Ints
from foldbatch.params import Array, Gradient, Parameter

THREADS, BLOCKS = (256, 1), 512


class HeldRun(DueRun):
    """A batch of held examples; see `foldbatch.engines.engine.Run`.

    Args:
        held: its tables.
        others: as of `DueRun`.
    """

    def __init__(self, held: HeldTables, *others: Any) -> None:
        super().__init__(*others)
        device, model = self.device, self.model
        self._held = held
        examples, slots = held.packed.numbers[held.descriptor :][: texts.SLOTS + 1].tolist()
        self._offsets = device.empty((max(1, examples * slots),), "int64")
        self._numbers = device.empty((max(1, held.made),), "int64")
        self._data: dict[tuple[int, int], DeviceArray] = {}
        for key, _ in self.ready.phase.bound.brought["feed"]:
            type_, count = model.feeds[key[0]][key[1]].type, len(held.schedule.cells[key[0]].order)
            self._data[key] = device.empty((count, *type_.shape), type_.dtype)

    def backward(self, cotangents: Cotangents = ()) -> dict[Parameter, Gradient]:
        """Return gradients; see `Run.backward`."""
        if cotangents:
            raise refused("cotangents")
        return super().backward()

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Refuse: what the host does not number it cannot find.

        Raises:
            BackendError: always.
        """
        raise refused("its results")

    def _straight(self) -> None:
        """Do nothing: without a backward pass nobody can ask for what the batch computes."""

    def _brought(self, nbytes: int, feeds: Sequence[Sequence[Array]]) -> tuple[Block, Ints]:
        """Return a block for the table alone: the examples' data is on the device."""
        for key, number in self.ready.phase.bound.brought["feed"]:
            self.memory.bring(number, self._data[key])
        end = -(-nbytes // GRAIN) * GRAIN
        block = self.staging.next(end)
        self._table, self._end = Span(block.device.pointer, nbytes), end
        return block, block.host[:nbytes].view(np.int64)

    def _change(self, table: Ints) -> None:
        """Write where the device makes the rest: places in it are told from where the table begins."""
        held, calls = self._held, self._calls
        away = (self._numbers.pointer - self._table.pointer) // 8
        table[INDEX_AT] = away
        head = table[held.descriptor :]
        head[texts.OFFSETS], head[texts.MADE] = self._offsets.pointer, self._numbers.pointer
        for key, place in held.targets.items():
            table[place] = self._data[key].pointer if key in self._data else 0
        records = table[calls.records_at : len(calls.numbers)].reshape(-1, RECORD)
        ops = records[:, 0] & 0xFFFFFFFF
        for argument, chosen in self._moved().items():
            records[np.isin(ops, chosen), 1 + argument] += away

    def _moved(self) -> dict[int, list[int]]:
        """Return, by argument, the ops of which it is a place in what the device makes."""
        phase = self.ready.phase
        planned = {task.name for kernel in phase.kernels for task in kernel.tasks if task.planned >= 0}
        numbers = phase.ops.numbers
        return {
            2: [numbers[name] for name in planned],
            1: [number for name, number in numbers.items() if name.startswith("zero_at_")],
        }

    def _begin(self) -> None:
        """Let the device make the index arrays, the plans and the data."""
        held, device, table = self._held, self.device, self._table.pointer
        at = held.descriptor
        made = [self._offsets, self._numbers, *self._data.values()]
        counts, arrays = self._held_arrays()
        reads: list[Any] = [self._table, counts, *arrays]
        reads += made

        def run(name: str, blocks: int, *arguments: int) -> None:
            kernel = device.kernel(texts.TEXT, name)
            everything = table, at, *arguments
            blocks = max(1, min(BLOCKS, blocks))
            device.launch(kernel, blocks, THREADS, everything, reads=reads, writes=made)

        examples, slots = held.packed.numbers[at : at + 2].tolist()
        run("held_offsets", -(-slots // THREADS[0]))
        for cell in held.cells:
            run("held_rows", examples, cell, held.bases)
        run("held_ranges", held.ranges[1], *held.ranges)
        if held.plans[1]:
            run("held_plans", held.plans[1], *held.plans)

    def _held_arrays(self) -> tuple[DeviceArray, list[DeviceArray]]:
        assert self.ready.holding is not None, "its examples are held"
        counts, cells = self.ready.holding.on_device
        return counts, [array for arrays in cells for array in arrays]
