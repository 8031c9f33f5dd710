"""Rounds: walks whose next step depends on numbers that the model computes, batched across examples.

All examples run until each waits for a number; what is pending of all of them is one batch, a *round*; then
all go on. Values of earlier rounds that a round reads come in through *import cells*, whose output is their
feed. The integers that the rounds leave are the complete trace of each example, which runs once more, forward
and backward, as any batch does: no decision is taken twice, and no gradient flows through one.

A round's schedule depends on its integers alone. Rounds of equal integers, as most of a loop's are, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.functions.cells import CellFunction, Signature
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.noted import Noted, reads_of, refuse_leaks, refuse_other_type
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import Linked, link_learnt
from foldbatch.functions.values import Value, value_class
from foldbatch.model.columns import column
from foldbatch.model.drafts import PrunedDraft
from foldbatch.model.link import StagedBefore
from foldbatch.model.model import Model
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.trace import Index, Ints
from foldbatch.types import TensorType

KEPT = 256  # schedules of rounds
NUMBER, LENGTH = -1, -2  # what stands in a call's row beside what it reads: numbers, and lengths of lists


class RoundSchedule(Protocol):
    """A round made ready."""

    @property
    def orders(self) -> Sequence[Index]:
        """Per cell ``[n] int64``: the place of each rank's call."""


class Computing(Protocol):
    """What computes rounds: on an engine, for one phase and one step of random numbers."""

    training: bool

    @property
    def reads(self) -> Callable[..., int] | None:
        """What finds what calls read: `foldbatch.engines.llvm.round_loops.reads`, or nothing."""

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


@dataclass(eq=False, slots=True)
class Stretches:
    """The stretches of a round, in the order in which they ran: each ``[stretches] int64``."""

    first: int  # the first number of the round; numbers count from the beginning of the run
    examples: Index  # whose each is, by place in the batch
    sizes: Index  # how many numbers it took
    before: Index  # how many its example had taken before

    def in_examples(self, numbers: Index) -> Index:
        """Return numbers of the round as they count in their examples."""
        ahead = np.repeat(self.before - (np.cumsum(self.sizes) - self.sizes), self.sizes)
        own = numbers - self.first
        found: Index = own + ahead.take(own)
        return found


_EARLIER: dict[type[Value], Signature] = {}


def earlier(kind: type[Value]) -> Signature:
    """Return the import cell of a class of values."""
    if kind not in _EARLIER:
        cell = CellFunction(_same, "earlier")
        cell.hints["x"] = kind.type
        _EARLIER[kind] = cell.find({"x": 0})
    return _EARLIER[kind]


def _same(x: Any) -> Any:
    return x


@dataclass(eq=False, slots=True)
class _Reader:
    """How calls of a cell as they were noted become calls of the model, which may read less."""

    number: int  # of the cell in the model
    signature: Signature  # the cell
    # of a call's row, and of an element of each list that is read: the slot that reads each number, or what
    # else it is
    slots: list[Index]
    # of a call's row: its number, its operands and lengths of lists; None where that is all of it
    columns: list[int] | None
    lists: list[int]  # the numbers of its lists
    whole: bool  # whether these are all lists of the cell
    feeds: list[int]  # the numbers of its data
    told: list[int]  # what is told of it to a compiled function


@dataclass(eq=False, slots=True)
class _Table:
    """A round made ready; what is the same in all rounds of its form. Places are in all that was noted."""

    ready: RoundSchedule  # its schedule
    # the places of the numbers that are read of earlier rounds: by class, in the order of ranks
    imported: Index
    by: Index  # the places of the calls that read them
    kinds: bytes  # the numbers of the classes, as bytes
    counts: list[int]  # how many there are of each class
    # per arena the class of its values and its number, their numbers in the model, and in the round
    made: list[tuple[int, type[Value], int, Index, Index]]


_Parts = list[tuple[_Reader, Noted]]  # the cells of a round, and what was noted of each


@dataclass(eq=False, slots=True)
class _Numbers:
    """The numbers of a round, as its model counts them. Places are those in all that was noted."""

    # all that was noted: first come numbers of earlier rounds, then those of the round
    made: NDArray[np.int32]
    imported: Index  # the places of numbers that are read of earlier rounds, class by class
    by: Index  # the places of the calls that read them
    counts: list[int]  # how many there are of each class
    makers: Index  # of each number of the round the output that makes it, or -1


class Rounds:
    """What was learnt of the rounds of a walk: the model that computes them, and schedules.

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
        self._patterns: Index = np.zeros(0, np.int64)  # the slots of rows of all cells, see `_Reader.slots`
        # ``[slots, outputs]``: which read which, within a round
        self._wires: Index = np.zeros((0, 0), np.int64)
        self._imports: dict[type[Value], int] = {}  # the number of each import cell, in the order of these
        self._kinds: Index = np.zeros(0, np.int64)  # ``[slots]``: the place of its class in these, or -1
        self._classes: dict[type[Value], int] = {}  # the number of each class of values
        self._kinds_imported: Index = self._kinds  # those of import cells
        self._arenas: Index = self._kinds  # ``[outputs + 1]``: the arena of each output, -1 if it has none
        self._made: list[tuple[int, type[Value], int]] = []  # arenas of outputs: class, and its number
        self._none: list[tuple[NDArray[Any], ...]] = []
        self._bounds: list[list[int | None]] = []
        self._no_calls: list[Ints] = []
        self._no_elements: list[tuple[Ints, ...]] = []
        self._tables: dict[Any, _Table] = {}

    def read(self, own: dict[Parameter, Parameter]) -> None:
        """Read parameters of a program's own in the place of those of layers, see `Learnt.own`."""
        self._learnt.own = own

    def compute(
        self,
        computing: Computing,
        flat: Index,
        noted: dict[Signature, Noted],
        stretches: Stretches,
        store: Store,
        numbers: Sequence[int],
    ) -> None:
        """Compute what was noted since the last round, and put it into the store.

        Args:
            computing: what computes.
            flat: all numbers that were noted, as from `numbers_of`; they count from the beginning of the run.
            noted: what was noted.
            stretches: whose it is.
            store: the values of earlier rounds.
            numbers: the examples' numbers in the batch, for errors and random numbers.

        Raises:
            WalkError: when a call reads a value of another example or run.
            BadDataError: when a datum is not what its cell reads.
        """
        store.number(stretches.examples, stretches.sizes)
        for signature in noted:
            if signature not in self._first:
                self._admit(signature)
        table, example, numbered = None, store.example, flat
        while table is None:
            model = (self._linked or self._link()).model
            parts = [(self._readers[s], own) for s, own in noted.items() if s in self._readers]
            if not parts:
                return
            flat = numbered
            if len(parts) < len(noted) or not all(reader.whole for reader, _ in parts):
                flat = np.concatenate([array.ravel() for array in _arrays(parts)])
            key = _key(parts, flat, stretches, training=computing.training)
            table = self._tables.get(key)
            if table is None:
                table = self._table(computing, model, parts, flat, stretches, store, numbers)
                if table is None:
                    continue  # it has new wires
                self._tables[key] = table
                if len(self._tables) > KEPT:
                    del self._tables[next(iter(self._tables))]
        imported, end = flat.take(table.imported), 0
        if len(imported) and (
            np.minimum.reduce(imported) < 0
            or example.take(imported).tobytes() != example.take(flat.take(table.by)).tobytes()
            or store.kind.take(imported).tobytes() != table.kinds
        ):
            self._refuse(parts, stretches.first, store, numbers)
        orders, feeds = table.ready.orders, [*self._none]
        for (kind, k), count in zip(self._imports.items(), table.counts, strict=True):
            if count:
                start, end = end, end + count
                feeds[k] = (store.take(kind, imported[start:end]),)
        for reader, own in parts:
            if reader.feeds:
                data = self._data(computing, reader, own, stretches, store, numbers)
                feeds[reader.number] = tuple([column.take(orders[reader.number], axis=0) for column in data])
        of_cell = {reader.number: own for reader, own in parts}

        def whose(k: int, rank: int) -> int:
            return numbers[int(example[of_cell[k].rows[orders[k][rank], 0]])]

        take = computing.run(table.ready, feeds, whose)
        for arena, kind, number, values, places in table.made:
            store.add(kind, number, take(arena, values), places + stretches.first)

    def _admit(self, signature: Signature) -> None:
        """Learn of a cell."""
        learnt, outputs = self._learnt, [(signature, j) for j in range(len(signature.outputs))]
        learnt.admit([signature])
        learnt.results |= {*outputs}
        self._first[signature] = len(self._outputs)
        self._outputs += outputs
        slots = [(signature, i, -1) for i in range(len(signature.operands))]
        slots += [(signature, m, s) for s, (*_, ms) in enumerate(signature.sequences) for m in range(len(ms))]
        for slot in slots:
            self._slots[slot] = len(self._slots)
        self._wires = np.pad(self._wires, [(0, len(slots)), (0, len(outputs))])
        self._kinds = np.append(self._kinds, np.full(len(slots), -1))
        self._linked = None

    def _link(self) -> Linked:
        linked = self._linked = link_learnt(self._learnt, frozenset(), self._known)
        numbers = {signature: (k, kept) for k, (signature, kept) in enumerate(linked.cells)}
        self._imports = {kind: numbers.pop(earlier(kind))[0] for kind in self._imports}
        self._patterns = np.zeros(0, np.int64)
        self._readers = {
            signature: self._reader(k, signature, kept) for signature, (k, kept) in numbers.items()
        }
        model = linked.model
        self._kinds_imported = np.array([*map(self._number, self._imports)], np.int64)
        self._arenas = np.full(len(self._outputs) + 1, -1)
        for signature, reader in self._readers.items():
            begin, arenas = self._first[signature], model.signatures[reader.number].outputs
            self._arenas[begin : begin + len(arenas)] = arenas
        kinds = {arena: value_class(model.arenas[arena]) for arena in {*self._arenas.tolist()} - {-1}}
        self._made = [(arena, kind, self._number(kind)) for arena, kind in kinds.items()]
        feeds, self._bounds = model.feeds, linked.bounds
        self._none = [tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in own]) for own in feeds]
        cells = model.signatures
        self._no_calls = [np.zeros((0, 1 + c.arguments + len(c.sequences)), np.int32) for c in cells]
        self._no_elements = [tuple([np.zeros((0, w), np.int32) for w in c.sequences]) for c in cells]
        self._tables.clear()
        return linked

    def _reader(self, number: int, signature: Signature, kept: PrunedDraft) -> _Reader:
        operands, sequences = len(signature.operands), len(signature.sequences)
        lists = [i - operands for i in kept.arguments if i >= operands]
        rows = [NUMBER] * (1 + operands) + [LENGTH] * sequences
        for i in kept.arguments:
            if i < operands:
                rows[1 + i] = self._slots[signature, i, -1]
        members = [
            [self._slots[signature, m, s] for m in range(len(signature.sequences[s][2]))] for s in lists
        ]
        columns, outputs = [0, *(1 + i for i in kept.arguments)], len(signature.outputs)
        told = [len(rows), outputs, self._first[signature], len(self._patterns), len(lists)]
        for s, own in zip(lists, members, strict=True):
            told += (1 + operands + s, len(own))
        for own in (rows, *members):
            self._patterns = np.append(self._patterns, np.array(own, np.int64))
        return _Reader(
            number,
            signature,
            [np.array(own, np.int64) for own in (rows, *members)],
            None if len(columns) == signature.arguments else columns,
            lists,
            len(lists) == sequences,
            [*kept.feeds],
            told,
        )

    def _table(
        self,
        computing: Computing,
        model: Model,
        parts: _Parts,
        flat: Index,
        stretches: Stretches,
        store: Store,
        numbers: Sequence[int],
    ) -> _Table | None:
        """Schedule a round; None where it has wires that are new, so that the model must be linked again."""
        found = self._counted(computing.reads, parts, flat, stretches.first, store)
        if found is None:  # there is something to learn, or to refuse
            found = self._looked_at(parts, flat, stretches.first, store, numbers)
        if found is None:
            return None
        count = len(found.imported)
        total = count + store.known - stretches.first
        ready = self._scheduled(computing, model, parts, found.made, found.counts, total)
        by_rank, end = list[Index](), 0
        for k, own_count in zip(self._imports.values(), found.counts, strict=True):
            if own_count:
                by_rank.append(end + ready.orders[k])
                end += own_count
        imported, by = found.imported, found.by
        if by_rank:
            order = by_rank[0] if len(by_rank) == 1 else np.concatenate(by_rank)
            imported, by = imported.take(order), by.take(order)
        made, arenas = list[tuple[int, type[Value], int, Index, Index]](), self._arenas.take(found.makers)
        for arena, kind, number in self._made:
            at = (arenas == arena).nonzero()[0]
            if len(at):
                made.append((arena, kind, number, at + count, at))
        kinds = self._kinds_imported.repeat(found.counts).tobytes()
        return _Table(ready, imported, by, kinds, found.counts, made)

    def _counted(
        self, reads: Callable[..., int] | None, parts: _Parts, flat: Index, first: int, store: Store
    ) -> _Numbers | None:
        """Return the numbers of a round if nothing in it is new, and a compiled function finds them."""
        if reads is None:
            return None
        length, total, imports = len(flat), store.known - first, len(self._imports)
        told = [first, total, len(self._outputs), len(parts), imports]
        for reader, own in parts:
            told.append(len(own.rows))
            told += reader.told
        memory, made = np.empty(imports + 5 * length + total, np.int64), np.empty(length, np.int32)
        memory[:imports] = 0
        fixed = self._patterns, self._wires.ravel(), self._kinds
        count = reads(flat, np.array(told, np.int64), *fixed, store.example, memory, made)
        if count < 0:
            return None
        calls, makers = imports + length, imports + 2 * length
        places = memory[imports : imports + count], memory[calls : calls + count]
        return _Numbers(made, *places, memory[:imports].tolist(), memory[makers : makers + total])

    def _looked_at(
        self, parts: _Parts, flat: Index, first: int, store: Store, numbers: Sequence[int]
    ) -> _Numbers | None:
        """Return the numbers of a round, whatever is in it; None where wires are new, which are learnt."""
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
            self._refuse(parts, first, store, numbers)
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
        return _Numbers(made.astype(np.int32), imported, by_call.take(outside), counts, maker)

    def _number(self, kind: type[Value]) -> int:
        """Return the number of a class of values."""
        return self._classes.setdefault(kind, len(self._classes))

    def _learn(self, wires: Index, imported: Index) -> None:
        """Take over wires, slots and outputs that they read, and slots that read values of earlier rounds."""
        slots, learnt = [*self._slots], self._learnt
        for number, maker in wires.T.tolist():
            slot, source = slots[number], self._outputs[maker]
            refuse_other_type(slot[0], _type(slot), source[0].outputs[source[1]].type)
            learnt.wires.setdefault(slot, set()).add(source)
            self._wires[number, maker] = 1
        for number in imported.tolist():
            kind = value_class(_type(slots[number]))
            if kind not in self._imports:
                self._imports[kind] = -1
                self._admit(earlier(kind))
            learnt.wires.setdefault(slots[number], set()).add((earlier(kind), 0))
            self._kinds[number] = [*self._imports].index(kind)
        self._linked = None

    def _refuse(self, parts: _Parts, first: int, store: Store, numbers: Sequence[int]) -> NoReturn:
        """Refuse calls that read a value of another example or run, or an earlier one of another type."""
        reads, classes = reads_of([own for _, own in parts]), [*self._classes]
        refuse_leaks(reads, store.example, numbers)
        for place in np.flatnonzero(reads.numbers < first).tolist():
            slot, type_ = reads.slots[reads.slot[place]]
            refuse_other_type(slot[0], type_, classes[store.kind[reads.numbers[place]]].type)
        raise AssertionError("a call reads what it must not")

    def _scheduled(
        self,
        computing: Computing,
        model: Model,
        parts: _Parts,
        numbers: NDArray[np.int32],
        counts: Sequence[int],
        total: int,
    ) -> RoundSchedule:
        """Return a round's schedule.

        Args:
            computing: what computes.
            model: the model.
            parts: the cells.
            numbers: all that was noted, as the model numbers values.
            counts: how many values come from earlier rounds, of each class: they have the first numbers.
            total: how many values there are.
        """
        calls, elements, end = [*self._no_calls], [*self._no_elements], 0
        for k, own in zip(self._imports.values(), counts, strict=True):
            start, end = end, end + own
            calls[k] = np.arange(start, end, dtype=np.int32)[:, None]
        end = 0
        for reader, noted in parts:
            found: list[NDArray[np.int32]] = []
            for array in _arrays([(reader, noted)]):
                start, end = end, end + array.size
                found.append(numbers[start:end].reshape(array.shape))
            rows, *lists = found
            calls[reader.number] = rows if reader.columns is None else rows.take(reader.columns, axis=1)
            elements[reader.number] = tuple(lists)
        return computing.ready(model, calls, elements, total)

    def _data(
        self,
        computing: Computing,
        reader: _Reader,
        own: Noted,
        stretches: Stretches,
        store: Store,
        numbers: Sequence[int],
    ) -> list[NDArray[Any]]:
        """Return the data of a cell's calls, in their order."""
        columns, bounds = [], self._bounds[reader.number]
        for place, i in enumerate(reader.feeds):
            path, _, feed = reader.signature.feeds[i]
            if path:
                columns.append(column(own.feeds[i], feed.type, bounds[place], feed.declared))
            else:
                examples = np.asarray(numbers, np.int64).take(store.example.take(own.bases))
                columns.append(computing.keys(examples, stretches.in_examples(own.bases)))
        return columns


def _arrays(parts: _Parts) -> list[Index]:
    """Return what was noted in a round as far as the model reads it: rows, and elements of lists."""
    return [array for reader, own in parts for array in (own.rows, *[own.elements[s] for s in reader.lists])]


def _key(parts: _Parts, flat: Index, stretches: Stretches, *, training: bool) -> tuple[Any, ...]:
    """Return what makes rounds alike: their integers, but for which values of earlier rounds they read."""
    lengths = [own.lengths(s).tobytes() for reader, own in parts for s in reader.lists]
    cells = [(reader.number, len(own.rows)) for reader, own in parts]
    own = np.maximum(flat - stretches.first, -1)
    return training, *cells, *lengths, stretches.sizes.tobytes(), own.tobytes()


def _type(slot: Slot) -> TensorType:
    """Return the type of what is read at a slot."""
    signature, i, s = slot
    return (signature.operands[i] if s < 0 else signature.sequences[s][2][i])[1].type
