"""Rounds of walks that decide, and a few examples, each in two calls of compiled code: see `round_loops`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from ctypes import c_uint64, string_at
from functools import cache
from typing import Any

import numpy as np

from foldbatch.engines import launch
from foldbatch.engines.arrays import BatchMemory, bring_value
from foldbatch.engines.batch import fetched
from foldbatch.engines.bindings import Bound
from foldbatch.engines.llvm import coder, table_loops, team, walker
from foldbatch.engines.llvm import round_loops as calls
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.engines.llvm.round_loops import BUFFER_OF_FEED, FIRST, IMPORTS, KIND_OF_FEED, SECTIONS
from foldbatch.engines.llvm.tables import Flags, launch_numbers, plan_numbers
from foldbatch.model.columns import limits
from foldbatch.model.drafts import Feed
from foldbatch.model.rounds import FAILED, FEW, SEVERAL
from foldbatch.params.parameters import Array
from foldbatch.scheduler.layout import Layout
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.record import Few
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.sharing import leaves, nothing
from foldbatch.system.lines import address_of

LARGE = 16384  # numbers noted or made from which a round is planned as any batch
PLAIN = {"int64": calls.I8, "int32": calls.I4, "float64": calls.F8, "float32": calls.F4}
NOBODY: list[int] = []  # asks for numbers
# of whole numbers of Python: by how many bits the number of digits is moved, and what signs are among them
SHIFT, SIGNS = (0, 0) if sys.version_info < (3, 12) else (3, 3)


@cache
def readable() -> bool:
    """Whether lists and numbers of Python lie in memory as compiled code reads them."""
    held = [0] * calls.HELD
    held[calls.WHOLE_TYPE], held[calls.SHIFT], held[calls.SIGNS] = id(int), SHIFT, SIGNS
    numbers = [0, 1, 2**30 - 1, 2**30, 2**31 + 5, 2**60 - 1, -1, -(2**40), 2**60]
    given: list[Any] = [*numbers, 2.5]
    listed = bytes_of(given, list.__basicsize__).cast("Q")
    if listed[calls.SIZE] != len(given):  # before another word is taken for an address
        return False
    items = [c_uint64.from_address(listed[calls.ITEMS] + 8 * i).value for i in range(len(given))]
    real = bytes_of(given[-1], float.__basicsize__)
    if items != [*map(id, given)] or real.cast("Q")[calls.TYPE] != id(float):
        return False
    read = [_whole(number, held) for number in numbers]
    return read == [*numbers[:6], -1, -1, -1] and real.cast("d")[calls.REAL] == given[-1]


def bytes_of(thing: Any, size: int) -> memoryview:
    """Return a copy of so many bytes of an object, from its beginning; no byte behind it may be read."""
    return memoryview(string_at(id(thing), size))


def _whole(number: int, held: Sequence[int]) -> int:
    """Return a whole number as `round_loops.whole` does, of a copy of all its bytes and no more."""
    own = bytes_of(number, number.__sizeof__())
    head, halves = own[: 8 * calls.DIGITS].cast("Q"), own[8 * calls.DIGITS :].cast("I")
    size = calls.digits_of(head[calls.TAG], held) if head[calls.TYPE] == held[calls.WHOLE_TYPE] else -1
    if size > len(halves):
        return -1
    return size if size < 0 else sum([half << 30 * place for place, half in enumerate(halves[:size])])


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
        self._of: Any = None  # the lists that few examples note in, of which is told

    def feed(
        self, items: Any, feed: Feed, bound: int | None, cell: int, number: int, *, plain: bool = True
    ) -> list[int]:
        """Return what is told of data of a cell, which a list has where they are `plain`, below a bound."""
        type_, dtype, most = feed.type, feed.declared or feed.type.dtype, 0
        buffer, kind = self.buffers.get(("feed", cell, number), -1), PLAIN.get(type_.dtype, calls.GIVEN)
        if dtype.startswith(("int", "uint")):
            most = min(limits(dtype)[1], 2**62 if bound is None else bound - 1)
        if any(self._integers[cell]) and self._integers[cell][number]:
            return [id(items), calls.IN_TRACE, most, buffer, 0]
        if buffer < 0 or type_.shape or not kind or not plain:
            return [id(items), calls.GIVEN, 0, buffer, 0]
        memory = self._data.setdefault(buffer, np.empty(LARGE, type_.dtype))
        return [id(items), kind, most if kind < calls.F8 else 2**24, buffer, address_of(memory)]

    def ready(
        self, policy: Policy, layout: Layout, memory: BatchMemory, integers: Flags | None = None
    ) -> RoundRunner | None:
        """Return what runs rounds, given a program's policy, layout and memory; None where nothing does.

        Of few examples it is told which data are packed, see `scheduler.trace.Form`; they share calls where
        that is found in the same call.
        """
        model, self._memory, self._of = self._routines.model, memory, None
        self._integers = ((),) * len(model.cells) if integers is None else integers
        for share in (nothing,) if integers is None else (leaves, nothing):
            given = model.signatures, len(model.arenas), layout, share, self._integers
            self._fixed, self._batch = plan_numbers(*given)
            if self._batch is not None:
                break
        return None if self._batch is None or policy.alone is None or not readable() else self

    def bind(
        self, told: Sequence[int], imports: Collection[int], data: Collection[int], *learnt: Index
    ) -> None:
        """Take over what stays as long as nothing new comes.

        Told are what `round_loops` says, the import cells, where data are told of, and what was learnt:
        patterns, wires, kinds and arenas, see `round_loops.plan`.
        """
        arrays, memory, codes = self._room_of(told, imports), self._memory, self._walker
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
            0,
            0,
        )
        self._held = np.array(found, np.int64)
        self._plan, self._compute = _compiled()

    def begin(self, whose: list[Any], ends: list[int], asked: list[int], start: int) -> None:
        """Begin a batch, given its first number, and lists, see `round_loops.ASKED`."""
        self._held[calls.WHOSE : calls.READ_AT] = id(whose), id(ends), id(asked), start
        for parameter, number in self._routines.brought["parameter"]:
            bring_value(self._memory, number, parameter)

    def few(self, noted: Few) -> bool:
        """Run what a few examples noted; return whether that was done."""
        if noted.offsets[-1] > FEW:
            return False
        if self._of is None or self._of is not noted.lists:
            self._bind_few(noted)
        rows, packed = self._arrays[2], noted.packed
        if packed is not None:
            if len(packed) > LARGE:
                return False
            rows[: len(packed)] = packed
        self._held[calls.PACKED] = packed is not None
        self.begin(noted.ends, noted.offsets, NOBODY, 0)

        def data(place: int) -> tuple[int, Array]:
            cell, number = self._places[place]
            return cell, noted.column(cell, number)

        return self.run(0, lambda _: None, data) != FAILED

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return values of the few examples by their numbers, which count from the first one's."""
        tables = self._arrays[5]
        row_of = tables[tables[table_loops.ROW_OF] :]

        def take(arena: int, own: Index) -> Array:
            taken: Array = self._memory.arrays[self.buffers["values", arena]].take(row_of.take(own), axis=0)
            return taken

        return fetched(numbers, self._routines.model.results, self._value_arenas, take)

    def _value_arenas(self) -> Index:
        """Return the arena of each value of the few examples."""
        rows, cells = self._arrays[2], self._routines.model.signatures
        arenas, start = np.full(rows[0], -1, np.int64), int(1 + self._told[SECTIONS])
        for count, cell in zip(rows[1 : 1 + len(cells)].tolist(), cells, strict=True):
            width = 1 + cell.arguments + len(cell.sequences)
            start, own = start + count * width, rows[start : start + count * width : width]
            for output, arena in enumerate(cell.outputs):
                arenas[own + output] = arena
        return arenas

    def _bind_few(self, noted: Few) -> None:
        """Take over the lists that few examples note in."""
        model, lists = self._routines.model, noted.lists
        widths = [w for cell in model.signatures for w in cell.sequences]
        told = [0, 0, 0, len(model.cells), 0, 0, 0, len(model.cells) + len(widths)]
        sections, self._of, self._places = list[int](), None, {}
        for k, (cell, feeds) in enumerate(zip(model.signatures, model.feeds, strict=True)):
            if lists:
                valued = 1 + cell.arguments
                sections += id(lists[k]), valued + len(cell.sequences), valued, 1
            told += 0, 0, 0, 0, k, 0, len(feeds), 0, 0, 0
            for i, feed in enumerate(feeds):
                self._places[len(told)] = k, i
                own = noted.feeds[k][i] if lists else None
                told += self.feed(own, feed, model.bounds[k][i], k, i, plain=bool(lists))
        for width, own in zip(widths, lists[len(model.cells) :], strict=False):
            sections += id(own), width, width, 0
        self._room_of(told)
        self.bind(told, (), self._places, np.array(sections, np.int64), *[self._flat] * 3)
        self._held[calls.TUPLE_TYPE] = id(tuple)
        self._of = lists

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

    def _room_of(self, told: Sequence[int], imports: Collection[int] = ()) -> list[Any]:
        """Return the last arguments of `round_loops.plan`, from the memory on, as large as they get."""
        if self._arrays:
            return self._arrays
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
