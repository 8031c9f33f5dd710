"""Small batches and rounds of walks, each run by two calls of compiled code; see `round_loops`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache
from itertools import accumulate

import numpy as np

from foldbatch.engines import launch
from foldbatch.engines.arrays import BatchMemory, bring_value
from foldbatch.engines.batch import fetched
from foldbatch.engines.bindings import Bound
from foldbatch.engines.engine import EngineSettings
from foldbatch.engines.llvm import coder, team, walker
from foldbatch.engines.llvm import round_loops as calls
from foldbatch.engines.llvm.round_loops import FeedRecord, Round, Runner
from foldbatch.engines.llvm.walker import Walker
from foldbatch.loops import cpython
from foldbatch.loops.compiling import compiled_function
from foldbatch.loops.cpython import address_of, readable
from foldbatch.model.columns import limits
from foldbatch.model.drafts import Feed
from foldbatch.model.small_batches import Round as RoundNotes
from foldbatch.model.small_batches import SmallBatch, StoreArrays, Turns
from foldbatch.params.parameters import Array
from foldbatch.planning import table_loops
from foldbatch.planning.layout import find_layout
from foldbatch.planning.policies import find_policy
from foldbatch.planning.sharing import leaves, none_shared
from foldbatch.planning.tables import planner_inputs
from foldbatch.scheduler.schedule import Index

MAX_NUMBERS = 16384  # limit of noted integers and of values; a larger round is planned as any batch
PLAIN = {"int64": calls.I8, "int32": calls.I4, "float64": calls.F8, "float32": calls.F4}
NO_REQUESTS: list[int] = []  # of a small batch of blocks: no walk waits for its values
FAILED = -1  # what `round_loops.compute` returns of a round that must run by a schedule
MIXED = -2  # stands for the class of requested values that are of several classes


@cache
def _compiled() -> tuple[Callable[..., int], Callable[..., int]]:
    modules = calls, cpython, table_loops, walker, coder, launch, team
    return compiled_function(calls.plan, "i8[]", *modules), compiled_function(calls.compute, "i8[]", *modules)


class RoundRunner:
    """Runs the rounds and small batches of a phase of a model, given its routines and their walker."""

    def __init__(self, bound: Bound, codes: Walker, settings: EngineSettings) -> None:
        self._routines, self._walker = bound, codes
        self._policy, self._layout = find_policy(settings.policy), find_layout(settings.layout)
        self.buffers = bound.buffers
        self._arrays: list[Array] = []
        self._data: dict[int, Array] = {}  # memory for converted numbers, by buffer
        self._read = np.empty(MAX_NUMBERS, np.int64)  # memory for requested values
        self._memory: BatchMemory | None = None  # the memory of buffers that the table points to
        self._notes: SmallBatch | RoundNotes | None = None  # the notes whose lists the table points to
        self._turns: Turns | None = None  # those of the batch that the table points to
        self._store: StoreArrays | None = None  # and the arrays of the store
        self._arenas: Sequence[tuple[int, int]] = ()  # those whose values go there: `RoundForm.arenas`
        self._scalars: Mapping[int, Array] = {}  # by class of `RoundForm.scalars`, `_read` as its numbers
        # the class of the values that the last round was asked for; `MIXED` if they are of several classes
        self._kind = MIXED

    def run(self, notes: SmallBatch | RoundNotes, memory: BatchMemory) -> RoundRunner | None:
        """Run a small batch or a round; return this runner, or None if a schedule must run it.

        Args:
            notes: the notes; the addresses of their lists are written down when they first come.
            memory: the memory of buffers.
        """
        if memory is not self._memory or notes is not self._notes:
            self._notes = None  # until all is written
            if not self._prepare(memory, isinstance(notes, SmallBatch)):
                return None
            if isinstance(notes, SmallBatch):
                self._bind_batch(notes)
            else:
                self._bind_round(notes)
            self._notes = notes
        header, table = self._header, self._table
        if isinstance(notes, SmallBatch):
            self._begin(notes.ends, notes.offsets, NO_REQUESTS, 0)
            header[Round.first] = 0
        else:
            if notes.turns is not self._turns:
                self._begin(*notes.turns)
                self._turns = notes.turns
            if notes.store is not self._store:
                table[Runner.example : Runner.notes] = [address_of(array) for array in notes.store]
                self._store = notes.store
            header[Round.first] = notes.first
        small = self._plan(table)
        if small < 0:
            return None
        if small:
            self._fit(notes, memory)
        for place in self._array_feeds:
            self._bring(place, notes)
        while (place := self._launch()) > 0:
            header[place + FeedRecord.kind] = calls.BROUGHT
            self._array_feeds.append(place)
            self._bring(place, notes)
        self._kind = MIXED - place
        return None if place == FAILED else self

    @property
    def requested(self) -> list[object]:
        """The values that walks wait for, if all are plain numbers of one class; else an empty list."""
        read = self._scalars.get(self._kind)
        if read is None or self._turns is None:
            return []
        values: list[object] = read[: len(self._turns.requested)].tolist()
        return values

    def _feed(
        self, items: object, feed: Feed, bound: int | None, cell: int, number: int, *, is_list: bool = True
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

    def _prepare(self, memory: BatchMemory, is_batch: bool) -> bool:  # noqa: FBT001 - of a small batch of blocks
        """Prepare for small batches of blocks, or for rounds; return False if this runner cannot run them.

        Small batches share calls if the planner can find equal ones; the integers of their feeds are packed.
        """
        model = self._routines.model
        self._memory = memory
        self._turns = self._store = None
        self._integers = model.form.integers if is_batch else ((),) * len(model.cells)
        for share in (leaves, none_shared) if is_batch else (none_shared,):
            arguments = model.signatures, len(model.arenas), self._layout, share, self._integers
            self._constants, self._batch = planner_inputs(*arguments)
            if self._batch is not None:
                break
        return self._batch is not None and self._policy.alone is not None and readable()

    def _bind_round(self, notes: RoundNotes) -> None:
        """Fill the runner's table for the rounds of a form."""
        form, model, buffers = notes.form(), self._routines.model, self.buffers
        widths, patterns = [len(cell.sequences) for cell in model.signatures], list[int]()
        *sections, every = accumulate(widths, initial=len(widths))
        header = [0, 0, form.outputs, len(form.cells), len(form.imports), len(form.arenas), 0, every]
        self._places = {}
        for cell, class_ in form.imports:
            (arena,) = model.signatures[cell].outputs
            header += (cell, class_, buffers["values", arena])
        for arena, class_ in form.arenas:
            header += (arena, class_, buffers["values", arena])
        for noted in form.cells:
            k, feeds = noted.cell, model.feeds[noted.cell]
            header += (0, noted.columns, noted.outputs, noted.first_output, k, len(noted.lists), len(feeds))
            header += (id(noted.rows), len(noted.pattern), len(patterns))
            patterns += noted.pattern
            for i, read in enumerate(noted.lists):
                patterns += read.pattern
                header += (read.column, len(read.pattern), sections[k] + i, id(read.elements))
            for i, (feed, (items, is_list)) in enumerate(zip(feeds, noted.feeds, strict=True)):
                self._places[len(header)] = k, i
                header += self._feed(items, feed, model.bounds[k][i], k, i, is_list=is_list)
        learnt = np.array(patterns, np.int64), form.wires.ravel(), form.kinds, form.arena_of
        self._bind(header, [cell for cell, _ in form.imports], *learnt)
        self._arenas = form.arenas
        self._scalars = {class_: self._read.view(dtype) for class_, dtype in form.scalars.items()}

    def _bind(self, header: Sequence[int], imports: Collection[int], *learnt: Index) -> None:
        """Fill the runner's table for a model that has learnt no more since.

        Args:
            header: the header of a round and its records, see `round_loops`.
            imports: the import cells.
            learnt: patterns, wires, kinds and arenas, see `round_loops.plan`.
        """
        arrays = self._allocate(header, imports)
        memory = self._memory
        assert memory is not None, "the runner is prepared"
        codes = self._walker
        self._header = np.array(header, np.int64)
        fed = [at for at in self._places if header[at + FeedRecord.buffer] >= 0]
        self._array_feeds = [at for at in fed if header[at + FeedRecord.kind] == calls.BROUGHT]
        arrays_in_order: list[Array | int] = [  # in the order of `Runner`
            self._flat,
            self._header,
            *learnt,
            *[self._flat] * 4,  # of a round, the store: see `run`
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
        table[Runner.requested_values] = address_of(self._read)
        table[Runner.large] = walker.MIN_LARGE
        self._table = table
        self._plan, self._compute = _compiled()

    def _begin(
        self, owners: Sequence[object], ends: Sequence[object], requested: list[int], start: int
    ) -> None:
        """Begin a batch: set its lists, see `Runner.owners`, and its first number; bring parameters."""
        assert self._memory is not None, "the runner is prepared"
        self._table[Runner.owners : Runner.requested_values] = id(owners), id(ends), id(requested), start
        for parameter, number in self._routines.brought["parameter"]:
            bring_value(self._memory, number, parameter)

    def fetch(self, numbers: Sequence[int]) -> list[Array]:
        """Return values of the small batch by their numbers, which count from the batch's first value."""
        tables = self._arrays[5]
        row_of = tables[tables[table_loops.Tables.row_of] :]

        def take(arena: int, values: Index) -> Array:
            assert self._memory is not None, "the batch has run"
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

    def _bind_batch(self, batch: SmallBatch) -> None:
        """Fill the runner's table for small batches that are noted in these lists."""
        model, lists = self._routines.model, batch.lists
        widths = [w for cell in model.signatures for w in cell.sequences]
        header = [0, 0, 0, len(model.cells), 0, 0, 0, len(model.cells) + len(widths)]
        sections = list[int]()
        self._places = {}
        for k, (cell, feeds) in enumerate(zip(model.signatures, model.feeds, strict=True)):
            valued = 1 + cell.arguments
            sections += id(lists[k]), valued + len(cell.sequences), valued
            header += 0, 0, 0, 0, k, 0, len(feeds), 0, 0, 0
            for i, feed in enumerate(feeds):
                self._places[len(header)] = k, i
                header += self._feed(batch.feeds[k][i], feed, model.bounds[k][i], k, i)
        for width, items in zip(widths, lists[len(model.cells) :], strict=True):
            sections += id(items), width, width
        self._allocate(header)
        self._bind(header, (), np.array(sections, np.int64), *[self._flat] * 3)
        self._table[Runner.small_batch] = True

    def _fit(self, notes: SmallBatch | RoundNotes, memory: BatchMemory) -> None:
        """Make buffers, and the arrays of the store, as high as the planned round needs them."""
        numbers = self._arrays[-2]
        heights = numbers[numbers[table_loops.Launches.heights] : numbers[table_loops.Launches.levels]]
        memory.fit(heights)
        if isinstance(notes, RoundNotes):
            for arena, class_ in self._arenas:
                notes.reserve(class_, int(heights[self.buffers["values", arena]]))

    def _launch(self) -> int:
        """Call `round_loops.compute`, with the helper if the batch before had work for it."""
        table = self._table
        helper = team.team()
        # as in `Walker.run`: the next round is like the one before
        helped = self._memory is not None and self._memory.helped
        has_work = helped and table[Runner.large] >= walker.MIN_LARGE
        table[Runner.team] = helper.take() if has_work else 0
        try:
            return self._compute(table)
        finally:
            if table[Runner.team]:
                helper.leave()

    def _bring(self, place: int, notes: SmallBatch | RoundNotes) -> None:
        """Put a feed's data, in rank order, where the round's kernels read them.

        Args:
            place: the offset of the feed's record in the header.
            notes: what has the data: a column with a datum for each call of the cell.
        """
        cell, number = self._places[place]
        column = notes.column(cell, number)
        if column is not None:
            assert self._memory is not None, "the runner is prepared"
            memory = self._arrays[5]
            tables = table_loops.Tables(memory)
            record = table_loops.Cell(memory, tables.cells_at + cell * table_loops.Cell.size)
            ranks = memory[tables.ranks + record.first_rank :][: len(column)]
            array = np.ascontiguousarray(column.take(ranks, axis=0))
            self._memory.bring(int(self._header[place + FeedRecord.buffer]), array)

    def _allocate(self, header: Sequence[int], imports: Collection[int] = ()) -> list[Array]:
        """Return the arrays of the runner's table from `Runner.notes` on, with room for any round."""
        if self._arrays:
            return self._arrays
        routines, fixed = self._routines, self._constants
        head_size = header[Round.imports] + header[Round.sections] + 1
        table, size, width, _ = routines.constants
        bound = table.copy()
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
        assert self._batch is not None, "the runner is prepared"
        arrays: list[Array] = [memory, renumbered, rows, fixed.table, self._batch, tables, *launches]
        flat, work = (
            np.empty(n, np.int64) for n in (MAX_NUMBERS, coder.ErrorRecord.size + 6 * self._walker.room)
        )
        self._flat, self._work, self._arrays = flat, work, arrays  # in one line, which nothing interrupts
        return arrays
