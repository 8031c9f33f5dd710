"""Rounds: walks whose next step depends on numbers that the model computes, batched across examples.

All examples run until each waits for a number; what is pending of all of them is one batch, a *round*; then
all go on. Values of earlier rounds that a round reads come in through *import cells*, whose output is their
feed. The integers that the rounds leave are the complete trace of each example, which runs once more, forward
and backward, as any batch does: no decision is taken twice, and no gradient flows through one.

A round's schedule depends on its integers alone. Rounds of equal integers, as most of a loop's are, share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.functions.cells import CellFunction, Signature
from foldbatch.functions.learnt import Learnt, Output, Slot
from foldbatch.functions.noted import Noted, reads_of, refuse_leaks, refuse_other_type
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import Linked, bare_column, link_learnt
from foldbatch.functions.values import Value, value_class
from foldbatch.model.link import StagedBefore
from foldbatch.model.model import Model
from foldbatch.model.needed import PrunedDraft
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.trace import Index, Trace

KEPT = 1024  # schedules of rounds
NUMBER, LENGTH = -1, -2  # what stands in a call's row beside what it reads: numbers, and lengths of lists


class RoundSchedule(Protocol):
    """A round made ready."""

    @property
    def orders(self) -> Sequence[Index]:
        """Per cell ``[n] int64``: the place of each rank's call."""


class Computing(Protocol):
    """What computes rounds: on an engine, for one phase and one step of random numbers."""

    training: bool

    def ready(self, model: Model, trace: Trace) -> RoundSchedule:
        """Return a round's schedule and launch table; the trace has no levels yet."""

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


@dataclass(frozen=True, slots=True)
class Stretches:
    """The stretches of a round, in the order in which they ran: each ``[stretches] int64``.

    Attributes:
        first: the first number of the round; numbers count from the beginning of the run.
        examples: whose each is, by place in the batch.
        sizes: how many numbers it took.
        before: how many its example had taken before.
    """

    first: int
    examples: Index
    sizes: Index
    before: Index

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
    """How calls of a cell as they were noted become calls of the model, which may read less.

    Attributes:
        number: of the cell in the model.
        signature: the cell.
        slots: of a call's row, and of an element of each list that is read: the slot that reads each number,
            or what else it is.
        columns: of a call's row: its number, its operands and lengths of lists; None where that is all of it.
        lists: the numbers of its lists.
        feeds: the numbers of its data.
    """

    number: int
    signature: Signature
    slots: list[Index]
    columns: list[int] | None
    lists: list[int]
    feeds: list[int]


@dataclass(eq=False, slots=True)
class _Round:
    """What was noted in a round, as calls of the model.

    Attributes:
        parts: the cells that it calls, and what was noted of each.
        numbers: all rows and elements, part by part, as the model numbers values: those from earlier rounds
            first, by type.
        shapes: of the rows and elements.
        imported: the numbers of values from earlier rounds, in the run.
        counts: how many there are of each type.
        total: the numbers of the round itself.
    """

    parts: list[tuple[_Reader, Noted]]
    numbers: Index
    shapes: list[tuple[int, ...]]
    imported: Index
    counts: list[int]
    total: int

    def arrays(self) -> Iterator[tuple[_Reader, list[NDArray[np.int32]]]]:
        """Yield each cell with its rows, and the elements of its lists."""
        numbers, shapes, end = self.numbers.astype(np.int32), iter(self.shapes), 0
        for reader, _ in self.parts:
            found = []
            for _ in range(1 + len(reader.lists)):
                shape = next(shapes)
                start, end = end, end + prod(shape)
                found.append(numbers[start:end].reshape(shape))
            if reader.columns is not None:
                found[0] = found[0].take(reader.columns, axis=1)
            yield reader, found


@dataclass(eq=False, slots=True)
class _Table:
    """A round made ready; per arena the class of its values, their numbers, and places in what was noted."""

    ready: RoundSchedule
    arenas: list[tuple[int, type[Value], Index, Index]]


class Rounds:
    """What was learnt of the rounds of a walk: the model that computes them, and schedules.

    Slots and outputs of cells have numbers, in the order in which they were met.
    """

    def __init__(self) -> None:
        self._learnt = Learnt()
        self._linked: Linked | None = None
        self._known = StagedBefore()
        self._readers: dict[Signature, _Reader] = {}
        self._slots: dict[Slot, int] = {}
        self._outputs: list[Output] = []
        self._first: dict[Signature, int] = {}  # the number of a cell's first output
        # ``[2, slots, outputs]``: which slots read which outputs, of this round or of earlier ones
        self._wires = np.zeros((2, 0, 0), bool)
        self._imports: dict[type[Value], int] = {}  # the number of each import cell, in the order of these
        self._kinds: Index = np.zeros(0, np.int64)  # ``[slots]``: the place of its class in these
        self._none: list[tuple[NDArray[Any], ...]] = []
        self._bounds: list[list[int | None]] = []
        self._tables: dict[Any, _Table] = {}

    def read(self, own: dict[Parameter, Parameter]) -> None:
        """Read parameters of a program's own in the place of those of layers, see `Learnt.own`."""
        self._learnt.own = own

    def compute(
        self,
        computing: Computing,
        noted: dict[Signature, Noted],
        stretches: Stretches,
        store: Store,
        numbers: Sequence[int],
    ) -> None:
        """Compute what was noted since the last round, and put it into the store.

        Args:
            computing: what computes.
            noted: what was noted; numbers count from the beginning of the run.
            stretches: whose it is.
            store: the values of earlier rounds.
            numbers: the examples' numbers in the batch, for errors and random numbers.

        Raises:
            WalkError: when a call reads a value of another example or run.
            BadDataError: when a datum is not what its cell reads.
        """
        store.number(stretches.examples, stretches.sizes)
        for signature, own in noted.items():
            if signature not in self._first:
                self._admit(signature)
            store.made_by(own.bases, len(signature.outputs), self._first[signature])
        found: _Round | None = None
        while found is None:
            linked = self._linked or self._link()
            parts = [(self._readers[s], own) for s, own in noted.items() if s in self._readers]
            if not parts:
                return
            found = self._round(parts, stretches, store, numbers)
        key = (
            computing.training,
            found.total,
            *found.counts,
            *[(reader.number, len(own.rows)) for reader, own in found.parts],
            found.numbers.tobytes(),
        )
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = self._table(computing, linked.model, found)
            if len(self._tables) > KEPT:
                del self._tables[next(iter(self._tables))]
        orders, feeds, end = table.ready.orders, [*self._none], 0
        for (kind, k), count in zip(self._imports.items(), found.counts, strict=True):
            if count:
                feeds[k] = (store.take(kind, found.imported[end : end + count].take(orders[k])),)
                end += count
        for reader, own in found.parts:
            if reader.feeds:
                order = orders[reader.number]
                data = self._data(computing, reader, own, stretches, store, numbers)
                feeds[reader.number] = tuple([column.take(order, axis=0) for column in data])
        of_cell = {reader.number: own for reader, own in found.parts}

        def example(k: int, rank: int) -> int:
            return numbers[int(store.example[of_cell[k].rows[orders[k][rank], 0]])]

        take = computing.run(table.ready, feeds, example)
        for arena, kind, values, places in table.arenas:
            store.add(kind, take(arena, values), places + stretches.first)

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
        more = [(0, 0), (0, len(slots)), (0, len(outputs))]
        self._wires = np.pad(self._wires, more)
        self._kinds = np.append(self._kinds, np.full(len(slots), -1))
        self._linked = None

    def _link(self) -> Linked:
        linked = self._linked = link_learnt(self._learnt, frozenset(), None, self._known)
        cells = {signature: (k, kept) for k, (signature, kept) in enumerate(linked.cells)}
        self._imports = {kind: cells.pop(earlier(kind))[0] for kind in self._imports}
        self._readers = {
            signature: self._reader(k, signature, kept) for signature, (k, kept) in cells.items()
        }
        feeds, self._bounds = linked.model.feeds, linked.bounds
        self._none = [tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in own]) for own in feeds]
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
        columns = [0, *(1 + i for i in kept.arguments)]
        return _Reader(
            number,
            signature,
            [np.array(own, np.int64) for own in (rows, *members)],
            None if len(columns) == signature.arguments else columns,
            lists,
            [*kept.feeds],
        )

    def _round(
        self,
        parts: list[tuple[_Reader, Noted]],
        stretches: Stretches,
        store: Store,
        numbers: Sequence[int],
    ) -> _Round | None:
        """Return a round as the model numbers it; None where it has new wires, so that the model grows."""
        arrays, slots, bases = [], list[Index](), []
        for reader, own in parts:
            arrays += [own.rows, *[own.elements[s] for s in reader.lists]]
            slots += reader.slots
            bases += [own.bases, *[np.repeat(own.bases, own.lengths(s)) for s in reader.lists]]
        flat = np.concatenate([array.ravel() for array in arrays])
        slot, by, end = np.empty_like(flat), np.empty_like(flat), 0
        for array, of_row, base in zip(arrays, slots, bases, strict=True):
            start, end = end, end + array.size
            slot[start:end].reshape(array.shape)[...] = of_row
            by[start:end].reshape(array.shape)[...] = base[:, None]
        reading = np.flatnonzero(slot >= 0)
        read, by, at = flat.take(reading), by.take(reading), slot.take(reading)
        example, first = store.example, stretches.first
        if len(read) and (
            read.min() < 0 or (read >= by).any() or (example.take(read) != example.take(by)).any()
        ):
            refuse_leaks(reads_of([own for _, own in parts]), example, numbers)
            raise AssertionError("a call reads what it must not")
        before, maker = read < first, store.maker.take(read)
        wires = before.view(np.int8), at, maker
        if not self._wires[wires].all():
            self._learn(np.unique(np.stack(wires), axis=1))
            return None
        from_before = np.flatnonzero(before)
        kinds = self._kinds.take(at.take(from_before))
        if len(self._imports) > 1:
            from_before = from_before.take(np.argsort(kinds, kind="stable"))
        count = len(from_before)
        np.add(flat, count - first, out=flat, where=slot > LENGTH)
        flat[reading.take(from_before)] = np.arange(count)
        counts = np.bincount(kinds, minlength=len(self._imports)).tolist()
        total = int(store.known) - first
        return _Round(parts, flat, [array.shape for array in arrays], read.take(from_before), counts, total)

    def _learn(self, wires: Index) -> None:
        """Take over wires: whether from an earlier round, the slot, and the output that it reads."""
        slots = [*self._slots]
        for before, number, maker in wires.T.tolist():
            slot, source = slots[number], self._outputs[maker]
            signature, i, s = slot
            node = signature.operands[i][1] if s < 0 else signature.sequences[s][2][i][1]
            refuse_other_type(slot, source, node.type)
            if before:
                kind = value_class(node.type)
                source = earlier(kind), 0
                if kind not in self._imports:
                    self._imports[kind] = -1
                    self._admit(earlier(kind))
                self._kinds[number] = [*self._imports].index(kind)
            self._wires[before, number, maker] = True
            self._learnt.wires.setdefault(slot, set()).add(source)
        self._linked = None

    def _table(self, computing: Computing, model: Model, found: _Round) -> _Table:
        """Schedule a round."""
        count = len(found.imported)
        calls = [np.zeros((0, 1 + c.arguments + len(c.sequences)), np.int32) for c in model.signatures]
        elements: list[Any] = [
            tuple([np.zeros((0, w), np.int32) for w in c.sequences]) for c in model.signatures
        ]
        end = 0
        for k, own in zip(self._imports.values(), found.counts, strict=True):
            start, end = end, end + own
            calls[k] = np.arange(start, end, dtype=np.int32)[:, None]
        values: dict[int, list[NDArray[np.int32]]] = {}
        for reader, (rows, *lists) in found.arrays():
            calls[reader.number], elements[reader.number] = rows, tuple(lists)
            for j, arena in enumerate(model.signatures[reader.number].outputs):
                values.setdefault(arena, []).append(rows[:, 0] + j)
        none: Any = tuple([() for _ in calls])
        trace = Trace(tuple(calls), tuple(elements), none, none, none, count + found.total)
        ready, arenas = computing.ready(model, trace), []
        for arena, several in values.items():
            own_values = np.concatenate(several).astype(np.int64)
            arenas.append((arena, value_class(model.arenas[arena]), own_values, own_values - count))
        return _Table(ready, arenas)

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
                columns.append(bare_column(own.feeds[i], feed, bounds[place]))
            else:
                examples = np.asarray(numbers, np.int64).take(store.example.take(own.bases))
                columns.append(computing.keys(examples, stretches.in_examples(own.bases)))
        return columns
