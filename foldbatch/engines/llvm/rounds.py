"""Rounds of walks that decide, each in two calls of compiled code: see `round_loops`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from ctypes import c_double, c_uint64
from functools import cache
from typing import Any

import numpy as np

from foldbatch.engines import launch
from foldbatch.engines.arrays import BatchMemory, bring_value
from foldbatch.engines.bindings import Bound
from foldbatch.engines.llvm import coder, table_loops, team, walker
from foldbatch.engines.llvm import round_loops as calls
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.engines.llvm.round_loops import BUFFER_OF_FEED, FIRST, IMPORTS, KIND_OF_FEED, SECTIONS
from foldbatch.engines.llvm.tables import launch_numbers, plan_numbers
from foldbatch.model.rounds import FAILED, SEVERAL
from foldbatch.params.parameters import Array
from foldbatch.scheduler.layout import Layout
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.sharing import nothing
from foldbatch.system.lines import address_of
from foldbatch.types import TensorType

LARGE = 16384  # numbers noted or made from which a round is planned as any batch
PLAIN = {"int64": calls.I8, "int32": calls.I4, "float64": calls.F8, "float32": calls.F4}
# of whole numbers of Python: by how many bits the number of digits is moved, and what signs are among them
SHIFT, SIGNS = (0, 0) if sys.version_info < (3, 12) else (3, 3)


@cache
def readable() -> bool:
    """Whether lists and numbers of Python lie in memory as compiled code reads them."""
    held = [0] * calls.HELD
    held[calls.WHOLE_TYPE], held[calls.SHIFT], held[calls.SIGNS] = id(int), SHIFT, SIGNS
    given: list[Any] = [0, 1, 2**30 - 1, 2**30, 2**31 + 5, 2**60 - 1, -1, 2**60, 2.5]

    def word(address: int, number: int) -> int:
        return c_uint64.from_address(address + 8 * number).value

    items = [word(word(id(given), calls.ITEMS), i) for i in range(word(id(given), calls.SIZE))]
    read = [calls.whole([word(item, w) for w in range(calls.DIGITS + 1)], held) for item in items]
    real = c_double.from_address(id(given[-1]) + 8 * calls.REAL).value
    return read == [*given[:6], -1, -1, -1] and real == given[-1] and word(id(2.5), calls.TYPE) == id(float)


@cache
def _compiled() -> tuple[Callable[..., int], Callable[..., int]]:
    modules = calls, table_loops, walker, coder, launch, team
    return compiled_function(calls.plan, "i8[]", *modules), compiled_function(calls.compute, "i8[]", *modules)


class RoundRunner:
    """Runs the rounds of a phase of a model, given its routines and what walks its launches."""

    def __init__(self, bound: Bound, walks: Any) -> None:
        self._routines, self._walker = bound, walks
        self.buffers = bound.buffers
        self._arrays: list[Any] = []
        self._data: dict[int, Array] = {}  # memory for plain numbers, by buffer
        self.read = np.empty(LARGE, np.int64)  # memory for numbers that are asked for

    def feed(
        self, items: list[Any], type_: TensorType, cell: int, number: int, most: int, *, plain: bool
    ) -> list[int]:
        """Return what is told of data of a cell, which a list has where they are `plain`, up to a number."""
        buffer, kind = self.buffers.get(("feed", cell, number), -1), PLAIN.get(type_.dtype, calls.GIVEN)
        if buffer < 0 or type_.shape or not kind or not plain:
            return [id(items), calls.GIVEN, 0, buffer, 0]
        memory = self._data.setdefault(buffer, np.empty(LARGE, type_.dtype))
        return [id(items), kind, most if kind < calls.F8 else 2**24, buffer, address_of(memory)]

    def ready(self, policy: Policy, layout: Layout, memory: BatchMemory) -> RoundRunner | None:
        """Return what runs rounds, given a program's policy, layout and memory; None where nothing does."""
        model, self._memory = self._routines.model, memory
        none = ((),) * len(model.cells)
        self._fixed, self._batch = plan_numbers(model.signatures, len(model.arenas), layout, nothing, none)
        return None if self._batch is None or policy.alone is None or not readable() else self

    def bind(
        self, told: Sequence[int], imports: Collection[int], data: Collection[int], *learnt: Index
    ) -> None:
        """Take over what stays as long as nothing new comes.

        Told are what `round_loops` says, the import cells, where data are told of, and what was learnt:
        patterns, wires, kinds and arenas, see `round_loops.plan`.
        """
        arrays, memory, codes = self._arrays or self._room(told, imports), self._memory, self._walker
        self._told = np.array(told, np.int64)
        own = [at for at in data if told[at + BUFFER_OF_FEED] >= 0]
        self._given = [at for at in own if told[at + KIND_OF_FEED] == calls.GIVEN]
        several: list[Any] = [self._flat, self._told, *learnt, *[self._flat] * 4, *arrays, *codes.places]
        several += memory.addresses, memory.capacity, self._work
        self._learnt = learnt  # nobody else may hold on to it
        found = [array if isinstance(array, int) else address_of(array) for array in several]
        found += (
            codes.room,
            LARGE,
            id(int),
            id(float),
            SHIFT,
            SIGNS,
            0,
            0,
            0,
            0,
            address_of(self.read),
            0,
            walker.FEW,
        )
        self._held = np.array(found, np.int64)
        self._plan, self._compute = _compiled()

    def begin(self, whose: list[int], ends: list[int], asked: list[int], start: int) -> None:
        """Begin a batch, given its first number, and lists, see `round_loops.ASKED`."""
        self._held[calls.WHOSE : calls.READ_AT] = id(whose), id(ends), id(asked), start
        for parameter, number in self._routines.brought["parameter"]:
            bring_value(self._memory, number, parameter)

    def point(self, *stored: Index) -> None:
        """Tell where the store has: of whom and what values are, their places, and the table of classes."""
        self._held[calls.EXAMPLE : calls.MEMORY] = [address_of(array) for array in stored]

    def run(
        self, first: int, reserve: Callable[[Index], None], data: Callable[[int], tuple[int, Array] | None]
    ) -> int:
        """Run a round from its first number on; return `FAILED`, or the class of numbers that are in `read`.

        These are all that are asked for, where they are of one class, else it is `SEVERAL`.

        Args:
            first: number of the round.
            reserve: makes room for values, so many in each buffer.
            data: returns the cell whose data are told of at a place, and these in the order of its calls;
                None where it has no calls.
        """
        told, held, memory = self._told, self._held, self._memory
        told[FIRST] = first
        small = self._plan(held)
        if small < 0:
            return FAILED
        if small:
            numbers = self._arrays[-2]
            heights = numbers[numbers[table_loops.HEIGHTS] : numbers[table_loops.LEVELS]]
            memory.fit(heights)
            reserve(heights)
        for place in self._given:
            self._bring(place, data(place))
        while (place := self._launch()) > 0:
            told[place + KIND_OF_FEED] = calls.GIVEN
            self._given.append(place)
            self._bring(place, data(place))
        return place if place == FAILED else SEVERAL - place

    def _launch(self) -> int:
        held, helper = self._held, team.team()
        # as `Walker.run`: the next round is like the one before
        held[calls.TEAM] = helper.take() if self._memory.helped and held[calls.LARGE] >= walker.FEW else 0
        try:
            return self._compute(held)
        finally:
            if held[calls.TEAM]:
                helper.leave()

    def _bring(self, place: int, found: tuple[int, Array] | None) -> None:
        if found is not None:
            (cell, column), tables = found, self._arrays[5]
            own = tables[table_loops.CELLS_AT] + cell * table_loops.CELL
            ranks = tables[tables[table_loops.RANKS] + tables[own + table_loops.FIRST] :][: len(column)]
            array = np.ascontiguousarray(column.take(ranks, axis=0))
            self._memory.bring(int(self._told[place + BUFFER_OF_FEED]), array)

    def _room(self, told: Sequence[int], imports: Collection[int]) -> list[Any]:
        """Return the last arguments of `round_loops.plan`, from the memory on, as large as they get."""
        routines, fixed = self._routines, self._fixed
        more = told[IMPORTS] + told[SECTIONS] + 1
        bound, size, width = launch_numbers(routines)
        for cell in imports:  # their values are copied to where others read them
            at = bound[table_loops.KERNELS_AT] + cell * table_loops.STAGES
            bound[at : at + table_loops.STAGES] = -1
        steps = (1 + routines.training) * (LARGE + table_loops.STAGES * len(routines.model.signatures))
        of_call = fixed.value + max(fixed.calls) + fixed.ragged
        size += int(fixed.numbers[table_loops.FACTS]) + 2 * steps
        memory, tables = (np.empty(n, np.int64) for n in (more + 5 * LARGE, fixed.more + 2 * LARGE * of_call))
        made, rows = np.empty(LARGE, np.int32), np.empty(more + 4 * LARGE, np.int32)
        launches = bound, np.empty(size, np.int64), np.empty(steps * table_loops.STAGES * width, np.int64)
        arrays = [memory, made, rows, fixed.numbers, self._batch, tables, *launches]
        flat, work = (np.empty(n, np.int64) for n in (LARGE, coder.FOUND + 6 * self._walker.room))
        self._flat, self._work, self._arrays = flat, work, arrays  # in one line, which nothing interrupts
        return arrays
