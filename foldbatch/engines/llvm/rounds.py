"""Rounds of deciding walks, and small batches, each in two calls of compiled code; see `round_loops`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any

import numpy as np

from foldbatch.engines import launch
from foldbatch.engines.arrays import BatchMemory, bring_value
from foldbatch.engines.batch import fetched
from foldbatch.engines.bindings import Bound
from foldbatch.engines.llvm import coder, table_loops, team, walker
from foldbatch.engines.llvm import round_loops as calls
from foldbatch.engines.llvm.round_loops import FeedRecord, Round, Runner
from foldbatch.engines.llvm.tables import Flags, launch_inputs, planner_inputs
from foldbatch.loops import cpython
from foldbatch.loops.compiling import compiled_function
from foldbatch.loops.cpython import SHIFT, SIGNS, address_of, readable
from foldbatch.model.columns import limits
from foldbatch.model.drafts import Feed
from foldbatch.model.rounds import FAILED, MIXED, SMALL_BATCH_VALUES
from foldbatch.params.parameters import Array
from foldbatch.scheduler.layout import Layout
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.record import SmallBatch
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.sharing import leaves, none_shared

MAX_NUMBERS = 16384  # limit of noted integers and of values; a larger round is planned as any batch
PLAIN = {"int64": calls.I8, "int32": calls.I4, "float64": calls.F8, "float32": calls.F4}
NO_REQUESTS: list[int] = []  # of a small batch: no walk waits for its values


@cache
def _compiled() -> tuple[Callable[..., int], Callable[..., int]]:
    modules = calls, cpython, table_loops, walker, coder, launch, team
    return compiled_function(calls.plan, "i8[]", *modules), compiled_function(calls.compute, "i8[]", *modules)


class RoundRunner:
    """Runs the rounds and small batches of a phase of a model, given its routines and their walker."""

    def __init__(self, bound: Bound, walks: Any) -> None:
        self._routines, self._walker = bound, walks
        self.buffers = bound.buffers
        self._arrays: list[Any] = []
        self._data: dict[int, Array] = {}  # memory for converted numbers, by buffer
        self.read = np.empty(MAX_NUMBERS, np.int64)  # memory for requested values
        self._lists: Any = None  # the lists of small batches that the table points to

    def feed(
        self, items: Any, feed: Feed, bound: int | None, cell: int, number: int, *, is_list: bool = True
    ) -> list[int]:
        """Return the record by which compiled code finds a feed's data: `round_loops.FeedRecord` as integers.

        Args:
            items: the list to which walks append the data.
            feed: the feed.
            bound: ids must be below this.
            cell: the cell's number in the model.
            number: the feed's number in the cell.
            is_list: whether `items` is a list of plain numbers; else Python brings the data as an array.
        """
        type_ = feed.type
        dtype = feed.declared or feed.type.dtype
        largest = 0
        buffer = self.buffers.get(("feed", cell, number), -1)
        kind = PLAIN.get(type_.dtype, calls.BROUGHT)
        if dtype.startswith(("int", "uint")):
            largest = min(limits(dtype)[1], 2**62 if bound is None else bound - 1)
        if any(self._integers[cell]) and self._integers[cell][number]:
            return [id(items), calls.IN_TRACE, largest, buffer, 0]
        if buffer < 0 or type_.shape or not kind or not is_list:
            return [id(items), calls.BROUGHT, 0, buffer, 0]
        memory = self._data.setdefault(buffer, np.empty(MAX_NUMBERS, type_.dtype))
        return [id(items), kind, largest if kind < calls.F8 else 2**24, buffer, address_of(memory)]

    def ready(
        self, policy: Policy, layout: Layout, memory: BatchMemory, integers: Flags | None = None
    ) -> RoundRunner | None:
        """Prepare for rounds, or for small batches; return this runner, or None if it cannot run them.

        Args:
            policy: the program's policy.
            layout: the program's layout.
            memory: the memory of buffers.
            integers: for small batches, which feeds are packed, see `scheduler.trace.Form`; None for rounds.
                Small batches share calls if the planner can find equal ones.
        """
        model = self._routines.model
        self._memory = memory
        self._lists = None
        self._integers = ((),) * len(model.cells) if integers is None else integers
        for share in (none_shared,) if integers is None else (leaves, none_shared):
            arguments = model.signatures, len(model.arenas), layout, share, self._integers
            self._constants, self._batch = planner_inputs(*arguments)
            if self._batch is not None:
                break
        return None if self._batch is None or policy.alone is None or not readable() else self

    def bind(
        self, header: Sequence[int], imports: Collection[int], data: Collection[int], *learnt: Index
    ) -> None:
        """Fill the runner's table for a model that has learnt no more since.

        Args:
            header: the header of a round and its records, see `round_loops`.
            imports: the import cells.
            data: the offsets of the feeds' records in the header.
            learnt: patterns, wires, kinds and arenas, see `round_loops.plan`.
        """
        arrays = self._allocate(header, imports)
        memory = self._memory
        codes = self._walker
        self._header = np.array(header, np.int64)
        fed = [at for at in data if header[at + FeedRecord.buffer] >= 0]
        self._array_feeds = [at for at in fed if header[at + FeedRecord.kind] == calls.BROUGHT]
        arrays_in_order: list[Any] = [  # in the order of `Runner`
            self._flat,
            self._header,
            *learnt,
            *[self._flat] * 4,  # until `set_store`
            *arrays,
            *codes.places,
            memory.addresses,
            memory.capacity,
            self._work,
        ]
        self._learnt = learnt  # kept alive: the table has their addresses only
        addresses = [array if isinstance(array, int) else address_of(array) for array in arrays_in_order]
        table = np.zeros(Runner.size, np.int64)
        table[: Runner.work_room] = addresses
        table[Runner.work_room] = codes.room
        table[Runner.max_noted] = MAX_NUMBERS
        table[Runner.whole_type] = id(int)
        table[Runner.real_type] = id(float)
        table[Runner.shift] = SHIFT
        table[Runner.signs] = SIGNS
        table[Runner.requested_values] = address_of(self.read)
        table[Runner.large] = walker.MIN_LARGE
        self._table = table
        self._plan, self._compute = _compiled()

    def begin(self, owners: list[Any], ends: list[int], asked: list[int], start: int) -> None:
        """Begin a batch: set its lists, see `Runner.owners`, and its first number; bring parameters."""
        self._table[Runner.owners : Runner.requested_values] = id(owners), id(ends), id(asked), start
        for parameter, number in self._routines.brought["parameter"]:
            bring_value(self._memory, number, parameter)

    def run_small_batch(self, batch: SmallBatch) -> bool:
        """Run a small batch from its notes; return False if it must run as any batch."""
        if batch.offsets[-1] > SMALL_BATCH_VALUES:
            return False
        if self._lists is None or self._lists is not batch.lists:
            self._bind_small_batch(batch)
        self.begin(batch.ends, batch.offsets, NO_REQUESTS, 0)

        def data(place: int) -> tuple[int, Array]:
            cell, number = self._places[place]
            return cell, batch.column(cell, number)

        return self.run(0, lambda _: None, data) != FAILED

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return values of the small batch by their numbers, which count from the batch's first value."""
        tables = self._arrays[5]
        row_of = tables[tables[table_loops.Tables.row_of] :]

        def take(arena: int, values: Index) -> Array:
            arena_rows: Array = self._memory.arrays[self.buffers["values", arena]]
            taken: Array = arena_rows.take(row_of.take(values), axis=0)
            return taken

        return fetched(numbers, self._routines.model.results, self._value_arenas, take)

    def _value_arenas(self) -> Index:
        """Return the arena of each value of the small batch, by number: ``[values]``, -1 for none."""
        rows = self._arrays[2]
        cells = self._routines.model.signatures
        arenas = np.full(rows[0], -1, np.int64)
        start = int(1 + self._header[Round.sections])
        for count, cell in zip(rows[1 : 1 + len(cells)].tolist(), cells, strict=True):
            width = 1 + cell.arguments + len(cell.sequences)
            start, first_values = start + count * width, rows[start : start + count * width : width]
            for output, arena in enumerate(cell.outputs):
                arenas[first_values + output] = arena
        return arenas

    def _bind_small_batch(self, batch: SmallBatch) -> None:
        """Fill the runner's table for small batches that are noted in these lists."""
        model, lists = self._routines.model, batch.lists
        widths = [w for cell in model.signatures for w in cell.sequences]
        header = [0, 0, 0, len(model.cells), 0, 0, 0, len(model.cells) + len(widths)]
        sections = list[int]()
        self._lists = None
        self._places = {}
        for k, (cell, feeds) in enumerate(zip(model.signatures, model.feeds, strict=True)):
            valued = 1 + cell.arguments
            sections += id(lists[k]), valued + len(cell.sequences), valued
            header += 0, 0, 0, 0, k, 0, len(feeds), 0, 0, 0
            for i, feed in enumerate(feeds):
                self._places[len(header)] = k, i
                header += self.feed(batch.feeds[k][i], feed, model.bounds[k][i], k, i)
        for width, items in zip(widths, lists[len(model.cells) :], strict=True):
            sections += id(items), width, width
        self._allocate(header)
        self.bind(header, (), self._places, np.array(sections, np.int64), *[self._flat] * 3)
        self._table[Runner.small_batch] = True
        self._lists = lists

    def set_store(self, *stored: Index) -> None:
        """Set the store's arrays: the example, class and place of each value, and the records of classes."""
        self._table[Runner.example : Runner.notes] = [address_of(array) for array in stored]

    def run(
        self, first: int, reserve: Callable[[Index], None], data: Callable[[int], tuple[int, Array] | None]
    ) -> int:
        """Run a round; return the class of the requested values, which are in `read` then.

        It is `MIXED` if they are of several classes, and `FAILED` if the round must run as any batch.

        Args:
            first: the first value number of the round.
            reserve: makes room in the store, given the rows that each buffer needs.
            data: returns the cell and the data of the feed whose record has this offset, in the order of
                calls; None if the cell has no calls.
        """
        header = self._header
        table = self._table
        memory = self._memory
        header[Round.first] = first
        small = self._plan(table)
        if small < 0:
            return FAILED
        if small:
            numbers = self._arrays[-2]
            heights = numbers[numbers[table_loops.Launches.heights] : numbers[table_loops.Launches.levels]]
            memory.fit(heights)
            reserve(heights)
        for place in self._array_feeds:
            self._bring(place, data(place))
        while (place := self._launch()) > 0:
            header[place + FeedRecord.kind] = calls.BROUGHT
            self._array_feeds.append(place)
            self._bring(place, data(place))
        return place if place == FAILED else MIXED - place

    def _launch(self) -> int:
        """Call `round_loops.compute`, with the helper if the batch before had work for it."""
        table = self._table
        helper = team.team()
        # as in `Walker.run`: the next round is like the one before
        has_work = self._memory.helped and table[Runner.large] >= walker.MIN_LARGE
        table[Runner.team] = helper.take() if has_work else 0
        try:
            return self._compute(table)
        finally:
            if table[Runner.team]:
                helper.leave()

    def _bring(self, place: int, data: tuple[int, Array] | None) -> None:
        """Put a feed's data, in rank order, where the round's kernels read them.

        Args:
            place: the offset of the feed's record in the header.
            data: the number of the cell, and a column with a datum for each of its calls; None where the
                compiled code has brought the data itself.
        """
        if data is not None:
            (cell, column) = data
            memory = self._arrays[5]
            tables = table_loops.Tables(memory)
            record = table_loops.Cell(memory, tables.cells_at + cell * table_loops.Cell.size)
            ranks = memory[tables.ranks + record.first_rank :][: len(column)]
            array = np.ascontiguousarray(column.take(ranks, axis=0))
            self._memory.bring(int(self._header[place + FeedRecord.buffer]), array)

    def _allocate(self, header: Sequence[int], imports: Collection[int] = ()) -> list[Any]:
        """Return the arrays of the runner's table from `Runner.notes` on, with room for any round."""
        if self._arrays:
            return self._arrays
        routines, fixed = self._routines, self._constants
        head_size = header[Round.imports] + header[Round.sections] + 1
        bound, size, width = launch_inputs(routines)
        for cell in imports:  # their values are copied from the store: no kernel runs
            at = bound[table_loops.Routines.kernels_at] + cell * table_loops.STAGES
            bound[at : at + table_loops.STAGES] = -1
        steps = (1 + routines.training) * (MAX_NUMBERS + table_loops.STAGES * len(routines.model.signatures))
        of_call = fixed.per_value + max(fixed.per_call) + fixed.per_element
        size += int(table_loops.Model(fixed.table).facts) + 2 * steps
        memory, tables = (
            np.empty(n, np.int64)
            for n in (head_size + 5 * MAX_NUMBERS, fixed.base + 2 * MAX_NUMBERS * of_call)
        )
        renumbered = np.empty(MAX_NUMBERS, np.int32)
        rows = np.empty(head_size + 4 * MAX_NUMBERS, np.int32)
        launches = bound, np.empty(size, np.int64), np.empty(steps * table_loops.STAGES * width, np.int64)
        arrays = [memory, renumbered, rows, fixed.table, self._batch, tables, *launches]
        flat, work = (np.empty(n, np.int64) for n in (MAX_NUMBERS, coder.ERROR_WORDS + 6 * self._walker.room))
        self._flat, self._work, self._arrays = flat, work, arrays  # in one line, which nothing interrupts
        return arrays
