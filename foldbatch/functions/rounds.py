"""Rounds: walks whose next step depends on numbers that the model computes, batched across examples.

All examples run until each waits for a number; what is pending of all of them is one batch, a *round*; then
all go on. Values of earlier rounds that a round reads come in through *import cells*, whose output is their
feed. The integers that the rounds leave are the complete trace of each example, which runs once more, forward
and backward, as any batch does: no decision is taken twice, and no gradient flows through one.

A round's schedule depends on its integers alone. An engine may plan it at once, by one compiled call; else
rounds of equal integers, as most of a loop's are, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.functions.cells import COUNTERS, CellFunction, Signature
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.noted import (
    Noted,
    bases_of,
    late_error,
    noted_of,
    reads_of,
    refuse_leaks,
    refuse_other_type,
)
from foldbatch.functions.notes import Lists, Notes, State, refuse_broken, taken_by
from foldbatch.functions.specs import DataSpec
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import Linked, link_learnt
from foldbatch.functions.values import Value, value_class
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import PrunedDraft
from foldbatch.model.link import StagedBefore
from foldbatch.model.model import Model
from foldbatch.model.replacing import Replacements
from foldbatch.model.rounds import CALL_NUMBER, FAILED, LEFT_OUT, LENGTH
from foldbatch.scheduler.trace import Index, Ints
from foldbatch.types import TensorType

KEPT = 256  # schedules of rounds
KEPT_BYTES = 16_000_000  # of what was noted in these rounds; a schedule takes some ten times as much


class RoundSchedule(Protocol):
    """A round made ready."""

    def order(self, cell: int, /) -> Index:
        """Return the place of each rank's call ``[n] int64``."""


class Computing(Protocol):
    """An engine that computes rounds, for one phase and one step of random numbers."""

    training: bool

    def alone(self) -> AbstractContextManager[None]:
        """Return the context in which rounds are computed."""

    def runner(self, model: Model) -> Any:
        """Return the engine's `RoundRunner`, which runs rounds at once; None if the engine has none."""

    def ready(
        self, model: Model, calls: Sequence[Ints], elements: Sequence[tuple[Ints, ...]], values: int
    ) -> RoundSchedule:
        """Return a round's schedule and launch table; arguments are as in `Trace`."""

    def run(
        self, ready: Any, feeds: Sequence[Sequence[NDArray[Any]]], example: Callable[[int, int], int]
    ) -> Callable[[int, Index], NDArray[Any]]:
        """Compute a round, and return what copies values out of it, given their arena and numbers.

        Args:
            ready: what `ready` returned.
            feeds: per cell and feed, the data by rank.
            example: gives the example of a cell's rank, for errors.
        """

    def keys(self, examples: Index, calls: Index) -> NDArray[np.int64]:
        """Return keys of random numbers ``[n]`` of examples and calls, given by their numbers."""


_EARLIER: dict[type[Value], Signature] = {}


def earlier(kind: type[Value]) -> Signature:
    """Return the import cell of a class of values."""
    if kind not in _EARLIER:
        _EARLIER[kind] = CellFunction(_same, "earlier").of({"x": DataSpec(kind.type)})
    return _EARLIER[kind]


def _same(x: Any) -> Any:
    return x


@dataclass(eq=False, slots=True)
class _Reader:
    """How calls of a cell as they were noted become calls of the model, which may read less."""

    number: int  # of the cell in the model
    signature: Signature
    # of a call's row, and of an element of each list that is read: the slot that reads each number, or what
    # else it is
    slots: list[Index]
    columns: list[int]  # of a row, those that are read: its number, operands, lengths of lists
    lists: list[int]  # their numbers
    feeds: list[int]  # the numbers of its data


class _Table(NamedTuple):
    """A round made ready, as all of its form are; places are those in all that was noted."""

    ready: RoundSchedule
    imported: Index  # the places of numbers that are read of earlier rounds: by class, in the order of ranks
    by: Index  # the places of the calls that read them
    kinds: bytes  # the numbers of the classes
    counts: list[int]  # how many there are of each class
    made: Index  # the numbers of its values in the model, arena by arena
    sizes: list[int]  # how many each has


# a round made ready, where the values of import cells lie, and how many each has; the numbers of values that
# are kept, as the model counts and as the run does, and how many each arena has
_Found = tuple[RoundSchedule, Index, list[int], Index, Index, list[int]]


class _Bound(NamedTuple):
    """A runner of rounds with the addresses that it has been given, valid until a cell or wire is new."""

    notes: Notes  # of the batch
    linked: Linked | None
    lists: list[Lists]  # of all cells there
    runner: Any  # None where there is none
    fresh: list[Lists]  # those of cells that are not known yet
    # of all cells, the rows, how long one is, and how many numbers it takes
    taken: Sequence[tuple[Sequence[int], int, int]]
    # by where a runner is told of data: the cell, and their place among its data
    data: dict[int, tuple[_Reader, int]]
    read: dict[int, NDArray[Any]]  # by class, where its numbers are that are asked for, see `RoundRunner.run`


@dataclass(eq=False, slots=True)
class Pending:
    """A round to be computed: notes of a batch, whose lists have all calls since the last round."""

    computing: Computing  # what computes
    notes: Notes
    whose: list[int]  # of each stretch of numbers whose it is,
    ends: list[int]  # and the number after its last one
    asked: list[int]  # what is waited for, by number
    numbers: Sequence[int]  # the examples' numbers in the batch
    first: int = 0  # the first number of the round, from the beginning of the run


class _Round(NamedTuple):
    """The calls noted since the last round, as arrays."""

    pending: Pending
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
        self._known = StagedBefore()
        self._readers: dict[Signature, _Reader] = {}
        self._slots: dict[Slot, int] = {}
        self._outputs: list[Output] = []
        self._first: dict[Signature, int] = {}  # the number of a cell's first output
        # ``[slots, outputs]``: which read which, within a round
        self._wires: Index = np.zeros((0, 0), np.int64)
        self._imports: dict[type[Value], int] = {}  # the number of each import cell, in the order of these
        self._kinds: Index = np.zeros(0, np.int64)  # ``[slots]``: the place of its class in these, or -1
        self._arenas: Index = self._kinds  # ``[outputs + 1]``: the arena of each output, -1 if it has none
        self._made: list[tuple[int, type[Value]]] = []  # arenas of outputs, and their classes
        self._none: list[tuple[NDArray[Any], ...]] = []  # data of cells without calls
        self._bounds: list[list[int | None]] = []
        self._tables: dict[Any, _Table] = {}
        self._own: _Bound | None = None

    @property
    def linked(self) -> Linked | None:
        """The model that computes rounds; another one once something new has come."""
        return self._linked

    def read(self, replacements: Replacements) -> None:
        """Read a program's parameters in the place of those of layers."""
        self._learnt.replacements = replacements

    def compute(self, given: Pending) -> list[Any]:
        """Compute what was noted since the last round, and put it into the store.

        Returns numbers that are asked for, where they are read at once, else nothing.

        Raises:
            WalkError: when a call reads a value of another example or run, or calls were noted in the midst
                of others.
            BadDataError: when a datum is not what its cell reads.
        """
        found = self._at_once(given)
        if found is None:
            refuse_broken(given.notes, given.first + given.notes.start)
            self._by_arrays(given)
        return found or []

    def _at_once(self, given: Pending) -> list[Any] | None:
        """Compute a round at once; None where that was not done: where anything is new or wrong."""
        own, store, notes = self._own, self.store, given.notes
        known = own is not None and own.notes is notes and own.linked is self._linked
        if own is None or not known or len(own.lists) != len(notes.lists):
            own = self._own = self._bound(given)
        last = COUNTERS[0] - notes.start
        taken = State.drawn + sum([len(rows) // width * each for rows, width, each in own.taken])
        if own.runner is None or taken != last - given.first or any([lists.rows for lists in own.fresh]):  # noqa: C419 - in half the time
            return None
        if store.reach(last):
            own.runner.set_store(store.example, store.kind, store.place, store.table)

        def data(place: int) -> tuple[int, NDArray[Any]] | None:
            reader, number = own.data[place]
            return self._data(given, reader, number, notes.lists[reader.signature])

        def reserve(heights: Index) -> None:
            for arena, kind in self._made:
                store.reserve(store.number(kind), int(heights[own.runner.buffers["values", arena]]))

        store.known = last  # whose these are is told in the run, which may ask for keys of their calls
        kind = own.runner.run(given.first, reserve, data)
        if kind == FAILED:
            return None
        read = own.read.get(kind)
        return [] if read is None else read[: len(given.asked)].tolist()

    def _bound(self, given: Pending) -> _Bound:
        """Return a runner for rounds of a batch, bound to the addresses of its lists and the store."""
        linked, notes, store, own = self._linked, given.notes, self.store, self._own
        runner: Any = None if linked is None else given.computing.runner(linked.model)
        lists = [*notes.lists.values()]
        alike = own is not None and own.linked is linked and own.runner is runner
        if own is None or not alike or [*map(id, own.lists)] != [*map(id, lists)]:
            self._own = None  # what a runner that is interrupted was told is told again
            data = {} if linked is None or runner is None else self._told(linked, runner, notes)
            fresh = [held for signature, held in notes.lists.items() if signature not in self._first]
            taken = [(held.rows, each.arguments, taken_by(each)) for each, held in notes.lists.items()]
            plain = [kind for _, kind in self._made if runner is not None and not kind.several]
            read = {store.number(kind): runner.read.view(kind.type.dtype) for kind in plain}
            own = _Bound(notes, linked, lists, runner, fresh, taken, data, read)
        if runner is not None:
            runner.begin(given.whose, given.ends, given.asked, notes.start)
            runner.set_store(store.example, store.kind, store.place, store.table)
        return own._replace(notes=notes)

    def _told(self, linked: Linked, runner: Any, notes: Notes) -> dict[int, tuple[_Reader, int]]:
        """Bind a runner to lists, wires and arenas; return data by their place among the words for it."""
        store, data = self.store, dict[int, tuple[_Reader, int]]()
        readers = [self._readers[signature] for signature in notes.lists if signature in self._readers]
        widths, patterns = [len(cell.sequences) for cell in linked.model.signatures], list[int]()
        *sections, every = accumulate(widths, initial=len(widths))
        told = [0, 0, len(self._outputs), len(readers), len(self._imports), len(self._made), 0, every]
        for kind, k in self._imports.items():
            (arena,) = linked.model.signatures[k].outputs
            told += (k, store.number(kind), runner.buffers["values", arena])
        for arena, kind in self._made:
            told += (arena, store.number(kind), runner.buffers["values", arena])
        for reader in readers:
            signature, columns, (row, *members) = reader.signature, reader.columns, reader.slots
            lists, feeds = notes.lists[signature], linked.model.feeds[reader.number]
            told += (0, len(columns), len(signature.outputs), self._first[signature], reader.number)
            told += (len(members), len(feeds), id(lists.rows), len(row), len(patterns))
            patterns += [slot if i in columns else LEFT_OUT for i, slot in enumerate(row)]
            patterns += [slot for own in members for slot in own]
            for i, (s, own) in enumerate(zip(reader.lists, members, strict=True)):
                column = columns.index(1 + len(signature.operands) + s)
                told += (column, len(own), sections[reader.number] + i, id(lists.elements[s]))
            for place, (i, feed) in enumerate(zip(reader.feeds, feeds, strict=True)):
                data[len(told)] = reader, place
                bound, plain = self._bounds[reader.number][place], bool(signature.feeds[i][0])
                told += runner.feed(lists.feeds[i], feed, bound, reader.number, place, is_list=plain)
        learnt = np.array(patterns, np.int64), self._wires.ravel(), self._kinds, self._arenas
        runner.bind(told, self._imports.values(), data, *learnt)
        return data

    def _by_arrays(self, given: Pending) -> None:
        """Compute a round as any batch: what was noted becomes arrays."""
        round_, found = self._scheduled(given)
        if found is None:
            return
        parts, store = round_.parts, self.store
        ready, places, counts, kept, kept_numbers, sizes = found
        feeds, end = [*self._none], 0
        for (kind, k), count in zip(self._imports.items(), counts, strict=True):
            if count:
                start, end = end, end + count
                feeds[k] = (store.take(store.number(kind), places[start:end]),)
        for reader, _ in parts:
            ranks, lists = ready.order(reader.number), given.notes.lists[reader.signature]
            own = [self._data(given, reader, place, lists) for place in range(len(reader.feeds))]
            feeds[reader.number] = tuple([data.take(ranks, axis=0) for _, data in filter(None, own)])
        of_cell = {reader.number: own for reader, own in parts}

        def whose(k: int, rank: int) -> int:
            return given.numbers[int(store.example[of_cell[k].rows[ready.order(k)[rank], 0]])]

        take = given.computing.run(ready, feeds, whose)
        end = 0
        for (arena, kind), count in zip(self._made, sizes, strict=True):
            if count:
                start, end = end, end + count
                store.add(store.number(kind), take(arena, kept[start:end]), kept_numbers[start:end])

    def _scheduled(self, given: Pending) -> tuple[_Round, _Found | None]:
        """Return a round as arrays, and made ready; None where nothing is computed."""
        store, start = self.store, given.notes.start
        called = {signature: lists for signature, lists in given.notes.lists.items() if lists.rows}
        noted, sizes = noted_of(called, start), store.own(given.first, given.whose, given.ends, start)
        for signature in noted:
            if signature not in self._first:
                self._admit(signature)
        while True:
            model = (self._linked or self._link()).model
            parts = [(self._readers[s], own) for s, own in noted.items() if s in self._readers]
            flat = np.concatenate([sizes[:0], *(array.ravel() for array in _arrays(parts))])
            round_ = _Round(given, parts, flat, sizes)
            if not parts or (found := self._alike(round_, model)) is not None:
                return round_, found if parts else None

    def _alike(self, given: _Round, model: Model) -> _Found | None:
        """Return a round as others of its form; None where it has wires that are new."""
        (pending, parts, flat, sizes), store = given, self.store
        # what makes rounds alike: their integers, but for which values of earlier rounds they read
        lengths = [own.lengths(s).tobytes() for reader, own in parts for s in reader.lists]
        cells = [(reader.number, len(own.rows)) for reader, own in parts]
        own_numbers = np.maximum(flat - pending.first, -1).tobytes()
        key = pending.computing.training, *cells, *lengths, sizes.tobytes(), own_numbers
        table = self._tables.get(key)
        if table is None:
            table = self._table(given, model)
            if table is None:
                return None
            self._tables[key] = table
            held = sum([len(noted) for *_, noted in self._tables])
            while len(self._tables) > KEPT or held > KEPT_BYTES:
                oldest = next(iter(self._tables))
                held -= len(oldest[-1])
                del self._tables[oldest]
        imported, example = flat.take(table.imported), store.example
        if len(imported) and (
            np.minimum.reduce(imported) < 0
            or example.take(imported).tobytes() != example.take(flat.take(table.by)).tobytes()
            or store.kind.take(imported).tobytes() != table.kinds
        ):
            self._refuse(given)
        numbers = table.made + (pending.first - len(imported))
        return table.ready, store.place.take(imported), table.counts, table.made, numbers, table.sizes

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
        for signature in [each for each in self._learnt.cells if each not in self._first]:
            self._admit(signature)
        linked = link_learnt(self._learnt, frozenset(), self._known)
        numbers = {signature: (k, kept) for k, (signature, kept) in enumerate(linked.cells)}
        self._imports = {kind: numbers.pop(earlier(kind))[0] for kind in self._imports}
        model = linked.model
        self._readers = {
            signature: self._reader(k, signature, kept) for signature, (k, kept) in numbers.items()
        }
        self._arenas = np.full(len(self._outputs) + 1, -1)
        for signature, reader in self._readers.items():
            begin, arenas = self._first[signature], model.signatures[reader.number].outputs
            self._arenas[begin : begin + len(arenas)] = arenas
        kinds = {arena: value_class(model.arenas[arena]) for arena in {*self._arenas.tolist()} - {-1}}
        self._made = [*kinds.items()]
        feeds, self._bounds = model.feeds, linked.bounds
        self._none = [tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in own]) for own in feeds]
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
        slots = [np.array(own, np.int64) for own in (rows, *members)]
        columns = [0, *(1 + i for i in kept.arguments)]
        return _Reader(number, signature, slots, columns, lists, [*kept.feeds])

    def _table(self, given: _Round, model: Model) -> _Table | None:
        """Schedule a round; None where it has wires that are new, so that the model must be linked again."""
        found = self._looked_at(given)
        if found is None:
            return None
        numbers, imported, by, counts, makers = found
        cells, end = model.signatures, 0
        calls = [np.zeros((0, 1 + cell.arguments + len(cell.sequences)), np.int32) for cell in cells]
        elements = [tuple([np.zeros((0, width), np.int32) for width in cell.sequences]) for cell in cells]
        for k, own_count in zip(self._imports.values(), counts, strict=True):
            start, end = end, end + own_count
            calls[k] = np.arange(start, end, dtype=np.int32)[:, None]
        end, count = 0, len(imported)
        for reader, noted in given.parts:
            cut: list[NDArray[np.int32]] = []
            for array in _arrays([(reader, noted)]):
                start, end = end, end + array.size
                cut.append(numbers[start:end].reshape(array.shape))
            rows, *lists = cut
            calls[reader.number] = rows.take(reader.columns, axis=1)
            elements[reader.number] = tuple(lists)
        total = count + self.store.known - given.pending.first
        ready = given.pending.computing.ready(model, calls, elements, total)
        begins = zip(self._imports.values(), accumulate(counts, initial=0), strict=False)
        order = np.concatenate([by[:0], *[begin + ready.order(k) for k, begin in begins]])
        imported, by = imported.take(order), by.take(order)
        arenas = self._arenas.take(makers)
        made = [(arenas == arena).nonzero()[0] + count for arena, _ in self._made]
        classes = np.array([*map(self.store.number, self._imports)], np.int64)
        kinds, sizes = classes.repeat(counts).tobytes(), [*map(len, made)]
        return _Table(ready, imported, by, kinds, counts, np.concatenate(made or [by[:0]]), sizes)

    def _looked_at(self, given: _Round) -> tuple[NDArray[np.int32], Index, Index, list[int], Index] | None:
        """Return the numbers of a round, as its model counts; None where wires are new, which are learnt.

        First come numbers of earlier rounds, class by class. Then are told where these stand, where the calls
        do that read them, how many there are of each class, and which output makes each number, or -1.
        """
        parts, flat, store, first = given.parts, given.flat, self.store, given.pending.first
        total = store.known - first
        slot, caller, end = np.empty_like(flat), np.empty_like(flat), 0
        maker = np.full(total, -1)
        for reader, own in parts:
            begin, width = end, own.rows.shape[1]
            outputs = np.arange(len(reader.signature.outputs))
            maker[(own.bases - first)[:, None] + outputs] = outputs + self._first[reader.signature]
            calls = np.arange(begin, begin + own.rows.size, width)
            by = [calls, *[np.repeat(calls, own.lengths(s)) for s in reader.lists]]
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
            self._refuse(given)
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
        made = flat + (count - first)
        made[imported] = np.arange(count)
        if any(reader.signature.sequences for reader, _ in parts):
            lengths = (slot == LENGTH).nonzero()[0]
            made[lengths] = flat[lengths]
        counts = np.bincount(kinds, minlength=len(self._imports)).tolist()
        return made.astype(np.int32), imported, by_call.take(outside), counts, maker

    def _learn(self, wires: Index, imported: Index) -> None:
        """Take over wires, slots and outputs that they read, and slots that read values of earlier rounds."""
        slots, learnt, self._linked = [*self._slots], self._learnt, None
        for number, maker in wires.T.tolist():
            slot, source = slots[number], self._outputs[maker]
            refuse_other_type(slot[0], _type(slot), source[0].outputs[source[1]].type)
            learnt.wires.setdefault(slot, set()).add(source)
            self._wires[number, maker] = 1
        for number in imported.tolist():
            kind = value_class(_type(slots[number]))
            if kind not in self._imports:
                self._admit(earlier(kind))
                self._imports[kind] = -1
            learnt.wires.setdefault(slots[number], set()).add((earlier(kind), 0))
            self._kinds[number] = [*self._imports].index(kind)

    def _refuse(self, given: _Round) -> NoReturn:
        """Refuse calls that read a value of another example or run, or an earlier one of another type."""
        reads, classes = reads_of([own for _, own in given.parts]), [*self.store.classes]
        refuse_leaks(reads, self.store.example, given.pending.numbers)
        for place in np.flatnonzero(reads.numbers < given.pending.first).tolist():
            slot, type_ = reads.slots[reads.slot[place]]
            refuse_other_type(slot[0], type_, classes[self.store.kind[reads.numbers[place]]].type)
        raise AssertionError("a call reads what it must not")

    def _refused(self, given: Pending, error: BadDataError) -> Exception:
        """Return the error for the first datum of a round that its cell does not read, given a column's."""
        called = {signature: lists for signature, lists in given.notes.lists.items() if lists.rows}
        store, start = self.store, given.notes.start
        store.own(given.first, given.whose, given.ends, start)

        def number(base: int) -> int:
            return given.numbers[int(store.example[base])]

        return late_error(noted_of(called, start), number) or error

    def _data(
        self, given: Pending, reader: _Reader, place: int, lists: Lists
    ) -> tuple[int, NDArray[Any]] | None:
        """Return the number of a cell, and some of its data, in the order of calls, if it has any."""
        path, _, feed = reader.signature.feeds[i := reader.feeds[place]]
        if not lists.rows:
            return None
        if path:
            bound = self._bounds[reader.number][place]
            try:
                return reader.number, column(lists.feeds[i], feed.type, bound, feed.declared)
            except BadDataError as error:
                raise self._refused(given, error) from None
        bases = bases_of(lists, reader.signature, given.notes.start)
        examples = np.asarray(given.numbers, np.int64).take(self.store.example.take(bases))
        calls = self.store.counted(given.first).take(bases - given.first)  # they count in their examples
        return reader.number, given.computing.keys(examples, calls)


def _arrays(parts: Sequence[tuple[_Reader, Noted]]) -> list[Index]:
    """Return the arrays of a round as far as the model reads them: rows, and elements of lists."""
    return [array for reader, own in parts for array in (own.rows, *[own.elements[s] for s in reader.lists])]


def _type(slot: Slot) -> TensorType:
    signature, i, s = slot
    return (signature.operands[i] if s < 0 else signature.sequences[s][2][i])[1].type
