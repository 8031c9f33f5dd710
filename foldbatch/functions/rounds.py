"""Rounds: walks whose next step depends on numbers that the model computes, batched across examples.

All examples run until each waits for a number; the calls noted by then are one batch, a *round*; then
all go on. Values of earlier rounds that a round reads come in through *import cells*, whose output is their
feed. The integers that the rounds leave are the complete trace of each example, which runs once more, forward
and backward, as any batch does: no decision is taken twice, and no gradient flows through one.

A round's schedule depends on its integers alone. An engine may run a round from its notes; else rounds of
equal integers, as most of a loop's are, share a schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foldbatch.functions.cells import COUNTERS, CellFunction, Signature
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.noted import (
    Noted,
    bases_of,
    late_error,
    learn_wire,
    noted_of,
    reads_of,
    refuse_leaks,
    refuse_other_type,
    type_of,
)
from foldbatch.functions.notes import Notes, State, refuse_broken, taken_by
from foldbatch.functions.specs import DataSpec
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import Linked, link_learnt
from foldbatch.functions.values import Value, value_class
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import PrunedDraft
from foldbatch.model.link import StagedBefore
from foldbatch.model.model import Model
from foldbatch.model.replacing import Replacements
from foldbatch.model.rounds import CALL_NUMBER, LEFT_OUT, LENGTH
from foldbatch.model.small_batches import CellNotes, ListNotes, Round, RoundForm, SmallRun, Turns
from foldbatch.params.parameters import Array
from foldbatch.recorder.lists import CallLists
from foldbatch.scheduler.trace import Index, Ints
from foldbatch.system.remembering import Shared

KEPT = 256  # the most schedules of rounds that are kept
KEPT_BYTES = 16_000_000  # the most bytes of their keys, the notes; a schedule takes some ten times as much


# Runs a round or a small batch from its notes, given the asides that are asked for.
RunRound: TypeAlias = "Callable[[Round, Collection[str]], SmallRun | None]"


class RoundSchedule(Protocol):
    """A round made ready."""

    def order(self, cell: int, /) -> Index:
        """Return the place of each rank's call ``[n] int64``."""


class Computing(Protocol):
    """An engine that computes rounds, for one phase and one step of random numbers."""

    training: bool

    def alone(self) -> AbstractContextManager[None]:
        """Return the context in which rounds are computed."""

    def run_small(self, model: Model) -> RunRound:
        """Return `Engine.run_small` of the model's engine, with its memory, for this phase."""

    def ready(
        self, model: Model, calls: Sequence[Ints], elements: Sequence[tuple[Ints, ...]], values: int
    ) -> RoundSchedule:
        """Return a round's schedule and launch table; arguments are as in `Trace`."""

    def run(
        self, ready: Any, feeds: Sequence[Sequence[Array]], example: Callable[[int, int], int]
    ) -> Callable[[int, Index], Array]:
        """Compute a round; return a function that copies values out of it, given their arena and numbers.

        Args:
            ready: what `ready` returned.
            feeds: per cell and feed, the data by rank.
            example: gives the example of a cell's rank, for errors.
        """

    def keys(self, examples: Index, calls: Index) -> NDArray[np.int64]:
        """Return keys of random numbers ``[n]`` of examples and calls, given by their numbers."""


_EARLIER: Shared[type[Value], Signature] = Shared(1024)  # by class of values


def earlier(kind: type[Value]) -> Signature:
    """Return the import cell of a class of values."""
    signature = _EARLIER.get(kind)
    if signature is None:
        signature = _EARLIER[kind] = CellFunction(_identity, "earlier").of({"x": DataSpec(kind.type)})
    return signature


def _identity(x: object) -> object:
    return x


@dataclass(eq=False, slots=True)
class _Reader:
    """The columns and slots by which noted calls of a cell become calls of the model, which may read less."""

    number: int  # of the cell in the model
    signature: Signature
    # of a call's row, and of an element of each list that is read: the slot that reads each number; of other
    # numbers, `CALL_NUMBER` or `LENGTH`
    slots: list[Index]
    columns: list[int]  # the columns of a row that are read: its number, operands, lengths of lists
    lists: list[int]  # the numbers of the lists that are read
    feeds: list[int]  # the numbers of its data


class _Table(NamedTuple):
    """The schedule that rounds of equal integers share; places count in all numbers of a round."""

    ready: RoundSchedule
    imported: Index  # the places of numbers that are read of earlier rounds: by class, in the order of ranks
    by: Index  # the places of the calls that read them
    kinds: bytes  # the numbers of the classes of `imported`, to compare with
    counts: list[int]  # how many of `imported` each class has
    value_numbers: Index  # the numbers of its values in the model, arena by arena
    sizes: list[int]  # how many values each arena has


# a round made ready, where the values of import cells lie, and how many each has; the numbers of values that
# are kept, as the model counts and as the run does, and how many each arena has
_Prepared = tuple[RoundSchedule, Index, list[int], Index, Index, list[int]]


class _Bound(NamedTuple):
    """A round's notes for an engine, valid until a cell or wire is new or a batch has other lists."""

    notes: Notes  # of the batch
    linked: Linked | None
    lists: list[CallLists]  # of all cells there
    round: Round
    run: RunRound | None  # None where there is no model
    fresh: list[CallLists]  # those of cells that the model does not have yet
    # per cell, the rows of its calls, how long one is, and how many numbers a call takes
    taken: Sequence[tuple[Sequence[int], int, int]]


@dataclass(eq=False, slots=True)
class RoundNotes:
    """The notes of a round that is to be computed: those of its batch since the last round."""

    computing: Computing  # the engine
    notes: Notes
    owners: list[int]  # per stretch of numbers, the example that took them, by place in the batch
    ends: list[int]  # per stretch, the number after its last one
    asked: list[int]  # the numbers of the values that walks wait for
    numbers: Sequence[int]  # the examples' numbers in the batch
    first: int = 0  # the first number of the round, from the beginning of the run


class _Round(NamedTuple):
    """The calls noted since the last round, as arrays."""

    round_notes: RoundNotes
    parts: list[tuple[_Reader, Noted]]  # the cells, and what was noted of each
    flat: Index  # all numbers of these
    sizes: Index  # ``[stretches] int64``: how many numbers each took


class Rounds:
    """The model that computes a walk's rounds, with schedules, wires and cells learnt so far.

    Slots and outputs of cells have numbers, in the order in which they were met.
    """

    def __init__(self) -> None:
        self.store = Store()  # the values of the batch that is under way
        self._learnt = Learnt()
        self._linked: Linked | None = None
        self._staged = StagedBefore()
        self._readers: dict[Signature, _Reader] = {}
        self._by_number: dict[int, _Reader] = {}  # the same, by the number of the cell in the model
        self._slots: dict[Slot, int] = {}
        self._outputs: list[Output] = []
        self._first: dict[Signature, int] = {}  # the number of a cell's first output
        # ``[slots, outputs]``: 1 where the slot has read the output within a round
        self._wires: Index = np.zeros((0, 0), np.int64)
        self._imports: dict[type[Value], int] = {}  # the number of each import cell, in the order of these
        self._kinds: Index = np.zeros(0, np.int64)  # ``[slots]``: place of its class there, or -1
        self._arenas: Index = self._kinds  # ``[outputs + 1]``: the arena of each output, -1 if it has none
        self._value_arenas: list[tuple[int, type[Value]]] = []  # arenas of outputs, and classes
        self._none: list[tuple[Array, ...]] = []  # the empty data of cells without calls
        self._bounds: list[list[int | None]] = []
        self._tables: dict[Any, _Table] = {}
        self._bound: _Bound | None = None
        # `Learnt.version` of the walk at the last small batch; -1 before the first
        self._followed = -1

    def read(self, replacements: Replacements) -> None:
        """Read a program's parameters in the place of those of layers."""
        self._learnt.replacements = replacements

    def compute(self, round_notes: RoundNotes) -> list[object]:
        """Compute the calls noted since the last round, and put their values into the store.

        Returns the numbers that are asked for, where the engine's runner has read them; else an empty list.

        Raises:
            WalkError: when a call reads a value of another example or run, or calls were noted in the midst
                of others.
            BadDataError: when a datum is not what its cell reads.
        """
        numbers = self._at_once(round_notes)
        if numbers is None:
            refuse_broken(round_notes.notes, round_notes.first + round_notes.notes.start)
            self._by_arrays(round_notes)
        return numbers or []

    def run_small(self, round_notes: RoundNotes, learnt: Learnt, asides: Collection[str]) -> bool:
        """Run a small batch, whose walks have ended, as a round; the values are in the store then.

        Return False where it must run as any batch: the engine says so, a cell or wire is new, or the walk
        has learnt one since the last small batch. Then the model of rounds learns it too, and is linked again
        with the next small batch.

        Args:
            round_notes: the notes of the batch.
            learnt: what traces of the walk have shown.
            asides: which of ``losses`` and ``metrics`` are asked for.
        """
        if not self._follow(learnt) or COUNTERS[0] == round_notes.notes.start:
            return False
        if self._linked is None:
            self._link()
        return self._at_once(round_notes, asides, is_batch=True) is not None

    def _follow(self, learnt: Learnt) -> bool:
        """Learn what traces of the walk have shown; return whether that is as it was at the last call."""
        if self._followed == learnt.version:
            return True
        first, self._followed = self._followed < 0, -1
        for signature in [cell for cell in learnt.cells if cell not in self._first]:
            self._admit(signature)
        for slot, outputs in learnt.wires.items():
            if not outputs <= self._learnt.wires.get(slot, set()):
                self._linked = None
                self._learnt.wires.setdefault(slot, set()).update(outputs)
                for signature, j in outputs:
                    self._wires[self._slots[slot], self._first[signature] + j] = 1
        self._followed = learnt.version
        return first

    def _at_once(
        self, round_notes: RoundNotes, asides: Collection[str] = (), *, is_batch: bool = False
    ) -> list[object] | None:
        """Compute a round, or a small batch, by the engine from its notes.

        Return the numbers that are asked for, if the engine has read them. Return None, with nothing
        computed, if the engine says so, a cell or wire is new, or a call is to be refused.
        """
        bound, store, notes = self._bound, self.store, round_notes.notes
        is_bound = bound is not None and bound.notes is notes and bound.linked is self._linked
        if bound is None or not is_bound or len(bound.lists) != len(notes.lists):
            bound = self._bound = self._bind(round_notes)
        last = COUNTERS[0] - notes.start
        taken = State.drawn + sum([len(rows) // width * numbers for rows, width, numbers in bound.taken])
        has_fresh = any([lists.rows for lists in bound.fresh])  # noqa: C419 - in half the time
        if bound.run is None or taken != last - round_notes.first or has_fresh:
            return None
        round_ = bound.round
        if store.reach(last) or round_.store.table is not store.table:
            round_.store = store.arrays
        store.total = last  # the engine sets their owners, and may ask for keys of their calls
        round_.first, round_.values, round_.is_batch = round_notes.first, last - round_notes.first, is_batch
        ran = bound.run(round_, asides)
        return None if ran is None else ran.requested

    def _bind(self, round_notes: RoundNotes) -> _Bound:
        """Return the notes of a batch's rounds for an engine: the last batch's if their lists are alike."""
        linked, notes, store, bound = self._linked, round_notes.notes, self.store, self._bound
        for kind in (*self._imports, *(kind for _, kind in self._value_arenas)):
            store.number(kind)  # now, as it may bring another table
        run = None if linked is None else round_notes.computing.run_small(linked.model)
        lists, column = [*notes.lists.values()], partial(self._column, round_notes)
        turns = Turns(round_notes.owners, round_notes.ends, round_notes.asked, notes.start)
        if bound is None or bound.linked is not linked or [*map(id, bound.lists)] != [*map(id, lists)]:
            fresh = [
                signature_lists
                for signature, signature_lists in notes.lists.items()
                if signature not in self._first
            ]
            taken = [
                (signature_lists.rows, signature.arguments, taken_by(signature))
                for signature, signature_lists in notes.lists.items()
            ]
            form = partial(self._form, notes)
            round_ = Round(form, column, store.reserve, turns, store.arrays)
            return _Bound(notes, linked, lists, round_, run, fresh, taken)
        bound.round.column, bound.round.turns, bound.round.store = column, turns, store.arrays
        return bound._replace(notes=notes, run=run)

    def _form(self, notes: Notes) -> RoundForm:
        """Return the cells of the model that were called in a batch, with its lists, and the wires so far."""
        number = self.store.number
        imports = [(k, number(kind)) for kind, k in self._imports.items()]
        arenas = [(arena, number(kind)) for arena, kind in self._value_arenas]
        cells = list[CellNotes]()
        for reader in [self._readers[signature] for signature in notes.lists if signature in self._readers]:
            signature, columns, (row, *members) = reader.signature, reader.columns, reader.slots
            lists, operands = notes.lists[signature], len(signature.operands)
            pattern = [slot if i in columns else LEFT_OUT for i, slot in enumerate(row.tolist())]
            read = [
                ListNotes(columns.index(1 + operands + s), lists.elements[s], slots.tolist())
                for s, slots in zip(reader.lists, members, strict=True)
            ]
            feeds = [(lists.feeds[i], bool(signature.feeds[i][0])) for i in reader.feeds]
            first, outputs = self._first[signature], len(signature.outputs)
            cells.append(
                CellNotes(reader.number, outputs, first, lists.rows, pattern, len(columns), read, feeds)
            )
        scalars = {number(kind): kind.type.dtype for _, kind in self._value_arenas if not kind.is_array}
        outputs, wired = len(self._outputs), (self._wires, self._kinds, self._arenas)
        return RoundForm(outputs, imports, arenas, cells, *wired, scalars)

    def _column(self, round_notes: RoundNotes, cell: int, place: int) -> Array | None:
        """Return some data of a cell of the model, in the order of calls, if it has any."""
        reader = self._by_number[cell]
        return self._data(round_notes, reader, place, round_notes.notes.lists[reader.signature])

    def _by_arrays(self, round_notes: RoundNotes) -> None:
        """Compute a round with a schedule, as any batch is computed, and put its values into the store."""
        round_, prepared = self._scheduled(round_notes)
        if prepared is None:
            return
        parts, store = round_.parts, self.store
        ready, places, counts, kept, kept_numbers, sizes = prepared
        feeds, end = [*self._none], 0
        for (kind, k), count in zip(self._imports.items(), counts, strict=True):
            if count:
                start, end = end, end + count
                feeds[k] = (store.take(store.number(kind), places[start:end]),)
        for reader, _ in parts:
            ranks, lists = ready.order(reader.number), round_notes.notes.lists[reader.signature]
            feed_data = [self._data(round_notes, reader, place, lists) for place in range(len(reader.feeds))]
            feeds[reader.number] = tuple([data.take(ranks, axis=0) for data in feed_data if data is not None])
        of_cell = {reader.number: noted for reader, noted in parts}

        def example_of(k: int, rank: int) -> int:
            return round_notes.numbers[int(store.example[of_cell[k].rows[ready.order(k)[rank], 0]])]

        take = round_notes.computing.run(ready, feeds, example_of)
        end = 0
        for (arena, kind), count in zip(self._value_arenas, sizes, strict=True):
            if count:
                start, end = end, end + count
                store.add(store.number(kind), take(arena, kept[start:end]), kept_numbers[start:end])

    def _scheduled(self, round_notes: RoundNotes) -> tuple[_Round, _Prepared | None]:
        """Return a round as arrays, and its schedule, bound to its values; None where nothing is computed."""
        store, start = self.store, round_notes.notes.start
        called = {signature: lists for signature, lists in round_notes.notes.lists.items() if lists.rows}
        noted, sizes = (
            noted_of(called, start),
            store.set_owners(round_notes.first, round_notes.owners, round_notes.ends, start),
        )
        for signature in noted:
            if signature not in self._first:
                self._admit(signature)
        while True:
            model = (self._linked or self._link()).model
            parts = [(self._readers[s], calls) for s, calls in noted.items() if s in self._readers]
            flat = np.concatenate([sizes[:0], *(array.ravel() for array in _arrays(parts))])
            round_ = _Round(round_notes, parts, flat, sizes)
            if not parts or (prepared := self._alike(round_, model)) is not None:
                return round_, prepared if parts else None

    def _alike(self, round_: _Round, model: Model) -> _Prepared | None:
        """Return a round with the schedule that rounds of equal integers share; None if it has new wires."""
        (round_notes, parts, flat, sizes), store = round_, self.store
        # rounds of one key share a schedule: values of earlier rounds that they read are no part of it
        lengths = [noted.lengths(s).tobytes() for reader, noted in parts for s in reader.lists]
        cells = [(reader.number, len(noted.rows)) for reader, noted in parts]
        round_numbers = np.maximum(flat - round_notes.first, -1).tobytes()
        key = round_notes.computing.training, *cells, *lengths, sizes.tobytes(), round_numbers
        table = self._tables.get(key)
        if table is None:
            table = self._table(round_, model)
            if table is None:
                return None
            self._tables[key] = table
            size = sum([len(noted) for *_, noted in self._tables])
            while len(self._tables) > KEPT or size > KEPT_BYTES:
                oldest = next(iter(self._tables))
                size -= len(oldest[-1])
                del self._tables[oldest]
        imported, example = flat.take(table.imported), store.example
        if len(imported) and (
            np.minimum.reduce(imported) < 0
            or example.take(imported).tobytes() != example.take(flat.take(table.by)).tobytes()
            or store.kind.take(imported).tobytes() != table.kinds
        ):
            self._refuse(round_)
        numbers = table.value_numbers + (round_notes.first - len(imported))
        return (
            table.ready,
            store.place.take(imported),
            table.counts,
            table.value_numbers,
            numbers,
            table.sizes,
        )

    def _admit(self, signature: Signature) -> None:
        """Take over a new cell: number its outputs and slots, and drop the model, to be linked again."""
        self._linked = None  # first, and `_first` last: what an interrupt leaves is done again
        learnt, outputs = self._learnt, [(signature, j) for j in range(len(signature.outputs))]
        learnt.admit([signature])
        learnt.results |= {*outputs}
        first, self._outputs = len(self._outputs), [*self._outputs, *outputs]
        slots = [(signature, i, -1) for i in range(len(signature.operands))]
        slots += [(signature, m, s) for s, (*_, ms) in enumerate(signature.sequences) for m in range(len(ms))]
        for slot in slots:
            self._slots.setdefault(slot, len(self._slots))
        wires = np.zeros((len(self._slots), len(self._outputs)), np.int64)
        wires[tuple(map(slice, self._wires.shape))] = self._wires
        self._wires = wires
        self._kinds = np.append(self._kinds, np.full(len(wires) - len(self._kinds), -1))
        self._first[signature] = first

    def _link(self) -> Linked:
        """Link, keep and return a model of the cells and wires so far, with its readers and arenas."""
        for signature in [cell for cell in self._learnt.cells if cell not in self._first]:
            self._admit(signature)
        linked = link_learnt(self._learnt, frozenset(), self._staged)
        numbers = {signature: (k, kept) for k, (signature, kept) in enumerate(linked.cells)}
        self._imports = {kind: numbers.pop(earlier(kind))[0] for kind in self._imports}
        model = linked.model
        self._readers = {
            signature: self._reader(k, signature, kept) for signature, (k, kept) in numbers.items()
        }
        self._by_number = {reader.number: reader for reader in self._readers.values()}
        self._arenas = np.full(len(self._outputs) + 1, -1)
        for signature, reader in self._readers.items():
            begin, arenas = self._first[signature], model.signatures[reader.number].outputs
            self._arenas[begin : begin + len(arenas)] = arenas
        kinds = {arena: value_class(model.arenas[arena]) for arena in {*self._arenas.tolist()} - {-1}}
        self._value_arenas = [*kinds.items()]
        feeds, self._bounds = model.feeds, linked.bounds
        self._none = [
            tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in cell_feeds]) for cell_feeds in feeds
        ]
        self._tables.clear()
        self._linked = linked
        return linked

    def _reader(self, number: int, signature: Signature, kept: PrunedDraft) -> _Reader:
        """Return the columns and slots by which rows and elements of a cell become integers of the model."""
        operands, sequences = len(signature.operands), len(signature.sequences)
        lists = [i - operands for i in kept.arguments if i >= operands]
        rows = [CALL_NUMBER] * (1 + operands) + [LENGTH] * sequences
        for i in kept.arguments:
            if i < operands:
                rows[1 + i] = self._slots[signature, i, -1]
        members = [
            [self._slots[signature, m, s] for m in range(len(signature.sequences[s][2]))] for s in lists
        ]
        slots = [np.array(slot_numbers, np.int64) for slot_numbers in (rows, *members)]
        columns = [0, *(1 + i for i in kept.arguments)]
        return _Reader(number, signature, slots, columns, lists, [*kept.feeds])

    def _table(self, round_: _Round, model: Model) -> _Table | None:
        """Make the schedule of a round and of others of equal integers, to be kept by `_alike`.

        Return None where the round has new wires: the model must then be linked again.
        """
        looked_up = self._looked_at(round_)
        if looked_up is None:
            return None
        numbers, imported, by, counts, makers = looked_up
        cells, end = model.signatures, 0
        calls = [np.zeros((0, 1 + cell.arguments + len(cell.sequences)), np.int32) for cell in cells]
        elements = [tuple([np.zeros((0, width), np.int32) for width in cell.sequences]) for cell in cells]
        for k, import_count in zip(self._imports.values(), counts, strict=True):
            start, end = end, end + import_count
            calls[k] = np.arange(start, end, dtype=np.int32)[:, None]
        end, count = 0, len(imported)
        for reader, noted in round_.parts:
            cut: list[NDArray[np.int32]] = []
            for array in _arrays([(reader, noted)]):
                start, end = end, end + array.size
                cut.append(numbers[start:end].reshape(array.shape))
            rows, *lists = cut
            calls[reader.number] = rows.take(reader.columns, axis=1)
            elements[reader.number] = tuple(lists)
        total = count + self.store.total - round_.round_notes.first
        ready = round_.round_notes.computing.ready(model, calls, elements, total)
        begins = zip(self._imports.values(), accumulate(counts, initial=0), strict=False)
        order = np.concatenate([by[:0], *[begin + ready.order(k) for k, begin in begins]])
        imported, by = imported.take(order), by.take(order)
        arenas = self._arenas.take(makers)
        value_rows = [(arenas == arena).nonzero()[0] + count for arena, _ in self._value_arenas]
        classes = np.array([*map(self.store.number, self._imports)], np.int64)
        kinds, sizes = classes.repeat(counts).tobytes(), [*map(len, value_rows)]
        return _Table(ready, imported, by, kinds, counts, np.concatenate(value_rows or [by[:0]]), sizes)

    def _looked_at(self, round_: _Round) -> tuple[NDArray[np.int32], Index, Index, list[int], Index] | None:
        """Return the numbers of a round, as its model counts; None where wires are new, which are learnt.

        Numbers of earlier rounds come first, class by class. The further items are the places of these, the
        places of the calls that read them, the count of each class, and the output of each number, or -1.
        """
        parts, flat, store, first = round_.parts, round_.flat, self.store, round_.round_notes.first
        total = store.total - first
        slot, caller, end = np.empty_like(flat), np.empty_like(flat), 0
        maker = np.full(total, -1)
        for reader, noted in parts:
            begin, width = end, noted.rows.shape[1]
            outputs = np.arange(len(reader.signature.outputs))
            maker[(noted.bases - first)[:, None] + outputs] = outputs + self._first[reader.signature]
            calls = np.arange(begin, begin + noted.rows.size, width)
            by = [calls, *[np.repeat(calls, noted.lengths(s)) for s in reader.lists]]
            for of_row, at in zip(reader.slots, by, strict=True):
                start, end = end, end + len(of_row) * len(at)
                slot[start:end].reshape(-1, len(of_row))[...] = of_row
                caller[start:end].reshape(-1, len(of_row))[...] = at[:, None]
        reading = (slot >= 0).nonzero()[0]
        read, by_call, at = flat.take(reading), caller.take(reading), slot.take(reading)
        within = read >= first
        calling = flat.take(by_call)
        if len(read) and (
            np.minimum.reduce(read) < 0
            or np.maximum.reduce(read - calling) >= 0
            or store.example.take(read).tobytes() != store.example.take(calling).tobytes()
        ):
            self._refuse(round_)
        inside, outside = within.nonzero()[0], (~within).nonzero()[0]
        wired = at.take(inside), maker.take(read.take(inside) - first)
        kinds = self._kinds.take(at.take(outside))
        if not self._wires[wired].all() or kinds.min(initial=0) < 0:
            self._learn(np.unique(np.stack(wired), axis=1), np.unique(at.take(outside)))
            return None
        if len(self._imports) > 1:
            outside = outside.take(np.argsort(kinds, kind="stable"))
        count = len(outside)
        imported = reading.take(outside)
        numbers = flat + (count - first)
        numbers[imported] = np.arange(count)
        if any(reader.signature.sequences for reader, _ in parts):
            lengths = (slot == LENGTH).nonzero()[0]
            numbers[lengths] = flat[lengths]
        counts = np.bincount(kinds, minlength=len(self._imports)).tolist()
        return numbers.astype(np.int32), imported, by_call.take(outside), counts, maker

    def _learn(self, wires: Index, imported: Index) -> None:
        """Add wires, pairs of a slot and an output, and slots that read values of earlier rounds."""
        slots, learnt, self._linked = [*self._slots], self._learnt, None
        for number, maker in wires.T.tolist():
            learn_wire(learnt, slots[number], self._outputs[maker])
            self._wires[number, maker] = 1
        for number in imported.tolist():
            kind = value_class(type_of(slots[number]))
            if kind not in self._imports:
                self._admit(earlier(kind))
                self._imports[kind] = -1
            learn_wire(learnt, slots[number], (earlier(kind), 0))
            self._kinds[number] = [*self._imports].index(kind)

    def _refuse(self, round_: _Round) -> NoReturn:
        """Refuse calls that read a value of another example or run, or an earlier one of another type."""
        reads, classes = reads_of([noted for _, noted in round_.parts]), [*self.store.classes]
        refuse_leaks(reads, self.store.example, round_.round_notes.numbers)
        for place in np.flatnonzero(reads.numbers < round_.round_notes.first).tolist():
            slot, type_ = reads.slots[reads.slot[place]]
            refuse_other_type(slot[0], type_, classes[self.store.kind[reads.numbers[place]]].type)
        raise AssertionError("a call reads what it must not")

    def _refused(self, round_notes: RoundNotes, error: BadDataError) -> Exception:
        """Return the error for the first datum of a round that its cell does not read, given a column's."""
        called = {signature: lists for signature, lists in round_notes.notes.lists.items() if lists.rows}
        store, start = self.store, round_notes.notes.start
        store.set_owners(round_notes.first, round_notes.owners, round_notes.ends, start)

        def number(base: int) -> int:
            return round_notes.numbers[int(store.example[base])]

        return late_error(called, start, number) or error

    def _data(self, round_notes: RoundNotes, reader: _Reader, place: int, lists: CallLists) -> Array | None:
        """Return some data of a cell, in the order of calls, if it has any."""
        path, _, feed = reader.signature.feeds[i := reader.feeds[place]]
        if not lists.rows:
            return None
        if path:
            bound = self._bounds[reader.number][place]
            try:
                return column(lists.feeds[i], feed.type, bound, feed.declared)
            except BadDataError as error:
                raise self._refused(round_notes, error) from None
        bases = bases_of(lists, reader.signature, round_notes.notes.start)
        examples = np.asarray(round_notes.numbers, np.int64).take(self.store.example.take(bases))
        # they count in their examples
        calls = self.store.counted(round_notes.first).take(bases - round_notes.first)
        return round_notes.computing.keys(examples, calls)


def _arrays(parts: Sequence[tuple[_Reader, Noted]]) -> list[Index]:
    """Return the arrays of a round as far as the model reads them: rows, and elements of lists."""
    return [
        array for reader, noted in parts for array in (noted.rows, *[noted.elements[s] for s in reader.lists])
    ]
