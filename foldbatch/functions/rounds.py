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
from functools import cache
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import WalkError
from foldbatch.functions.cells import Cell, Signature
from foldbatch.functions.learnt import Learnt, Output
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import Linked, bare_column, learn_wire, link_learnt
from foldbatch.model.model import Model
from foldbatch.model.needed import PrunedDraft
from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.trace import Index, Trace
from foldbatch.types import TensorType

KEPT = 1024  # schedules of rounds
LEAK = "compute it in the walk of each example that uses it"


class Scheduled(Protocol):
    """A round made ready."""

    @property
    def orders(self) -> Sequence[Index]:
        """Per cell ``[n] int64``: the place of each rank's call."""

    @property
    def arenas(self) -> Index:
        """``[values] int64``: the arena of each value, -1 where a number stands for none."""


class Computing(Protocol):
    """What computes rounds: on an engine, for one phase and one step of random numbers."""

    policy: Policy
    training: bool

    def ready(self, model: Model, trace: Trace) -> Scheduled:
        """Return a round's schedule and launch table."""

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
class Noted:
    """What was noted of a cell: rows ``[n, arguments]``, elements per list ``[m, width]``, and data."""

    rows: Index
    elements: list[Index]
    feeds: list[list[Any]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The stretches of a round, in the order in which they ran.

    Attributes:
        first: the first number of the round; numbers count from the beginning of the run.
        examples: whose each is, by place in the batch.
        sizes: how many numbers it took.
        before: how many its example had taken before.
    """

    first: int
    examples: list[int]
    sizes: list[int]
    before: list[int]

    def in_examples(self, numbers: Index) -> Index:
        """Return numbers of the round as they count in their examples."""
        sizes = np.array(self.sizes, np.int64)
        ahead = np.repeat(np.array(self.before, np.int64) - (np.cumsum(sizes) - sizes), sizes)
        found: Index = numbers - self.first + ahead.take(numbers - self.first)
        return found


@cache
def earlier(type_: TensorType) -> Signature:
    """Return the import cell of a type."""
    cell = Cell(_same, "earlier")
    cell.hints["x"] = type_
    return cell.find({"x": 0})


def _same(x: Any) -> Any:
    return x


@dataclass(eq=False, slots=True)
class _Reader:
    """How calls of a cell as they were noted become calls of the model, which may read less.

    Attributes:
        number: of the cell in the model.
        signature: the cell.
        operands: the numbers of its operands.
        columns: of a call's row: its number and its operands.
        lengths: of a call's row: the lengths of its lists.
        types: of the operands.
        lists: the numbers of its lists, with the types of an element's members.
        feeds: the numbers of its data.
    """

    number: int
    signature: Signature
    operands: list[int]
    columns: list[int]
    lengths: list[int]
    types: list[TensorType]
    lists: list[tuple[int, list[TensorType]]]
    feeds: list[int]


def _reader(number: int, signature: Signature, kept: PrunedDraft) -> _Reader:
    count = len(signature.operands)
    own = [i for i in kept.arguments if i < count]
    lists = [i - count for i in kept.arguments if i >= count]
    return _Reader(
        number,
        signature,
        own,
        [0, *(1 + i for i in own)],
        [1 + count + s for s in lists],
        [signature.operands[i][1].type for i in own],
        [(s, [node.type for _, node in signature.sequences[s][2]]) for s in lists],
        [*kept.feeds],
    )


@dataclass(eq=False, slots=True)
class _Part:
    """The calls of a cell in a round: ``calls [n, 1 + operands]``, ``lengths [n, lists]``, elements, data."""

    reader: _Reader
    calls: Index
    lengths: Index
    elements: list[Index]
    noted: Noted

    @property
    def arrays(self) -> list[tuple[Index, int, list[TensorType]]]:
        """The arrays of numbers: with the first column that reads, and the types of those."""
        lists = zip(self.elements, self.reader.lists, strict=True)
        return [(self.calls, 1, self.reader.types), *((flat, 0, types) for flat, (_, types) in lists)]

    def bases(self, number: int) -> Index:
        """Return the numbers of the calls that the rows of an array of numbers belong to."""
        bases = self.noted.rows[:, 0]
        return bases if number == 0 else np.repeat(bases, self.lengths[:, number - 1])


@dataclass(eq=False, slots=True)
class _Table:
    """A round made ready, and per arena its values' numbers, and their places among what was noted."""

    ready: Scheduled
    arenas: list[tuple[int, Index, Index]]


class Rounds:
    """What was learnt of the rounds of a walk: the model that computes them, and schedules."""

    def __init__(self) -> None:
        self._learnt = Learnt()
        self._linked: Linked | None = None
        self._readers: dict[Signature, _Reader] = {}
        self._imports: dict[TensorType, int] = {}  # the number of each import cell, in the order of these
        self._none: list[tuple[NDArray[Any], ...]] = []
        self._bounds: list[list[int | None]] = []
        self._tables: dict[Any, _Table] = {}

    def compute(
        self,
        computing: Computing,
        noted: dict[Signature, Noted],
        stretch: Stretch,
        store: Store,
        numbers: Sequence[int],
    ) -> None:
        """Compute what was noted since the last round, and put it into the store.

        Args:
            computing: what computes.
            noted: what was noted; numbers count from the beginning of the run.
            stretch: whose it is.
            store: the values of earlier rounds.
            numbers: the examples' numbers in the batch, for errors and random numbers.

        Raises:
            WalkError: when a call reads a value of another example or run.
            BadDataError: when a datum is not what its cell reads.
        """
        store.number(stretch.examples, stretch.sizes)
        for signature in noted:
            if signature not in self._learnt.cells:
                self._admit(signature)
        table: _Table | None = None
        while table is None:
            linked = self._linked or self._link()
            parts = [
                _part(self._readers[s], own, stretch.first) for s, own in noted.items() if s in self._readers
            ]
            found = self._imported(parts, stretch, store, numbers)
            if found is None:
                continue  # a type is imported for the first time
            imported = found
            integers = [a for part in parts for a in (part.lengths, part.calls, *part.elements)]
            cells = [part.reader.number for part in parts]
            key = computing.training, tuple(map(len, imported)), tuple(stretch.sizes), *cells
            key += tuple([a.tobytes() for a in integers])
            table = self._tables.get(key)
            if table is None:
                table = self._table(computing, linked, parts, imported, stretch, store, numbers)
                if table is not None:
                    self._tables[key] = table
                    if len(self._tables) > KEPT:
                        del self._tables[next(iter(self._tables))]
        orders, feeds = table.ready.orders, [*self._none]
        for (type_, k), taken in zip(self._imports.items(), imported, strict=True):
            if len(taken):
                feeds[k] = (store.take(type_, taken.take(orders[k])),)
        for part in parts:
            k = part.reader.number
            feeds[k] = tuple(
                [
                    column.take(orders[k], axis=0)
                    for column in self._data(computing, part, stretch, store, numbers)
                ]
            )
        cell_of = {part.reader.number: part for part in parts}

        def example(k: int, rank: int) -> int:
            return numbers[int(store.example[cell_of[k].noted.rows[orders[k][rank], 0]])]

        take = computing.run(table.ready, feeds, example)
        for arena, values, places in table.arenas:
            store.add(linked.model.arenas[arena], take(arena, values), places + stretch.first)

    def _admit(self, signature: Signature) -> None:
        """Learn of a cell."""
        learnt = self._learnt
        learnt.cells[signature] = None
        learnt.parameters |= dict.fromkeys(signature.parameters())
        learnt.results |= {(signature, j) for j in range(len(signature.outputs))}
        self._linked = None

    def _link(self) -> Linked:
        linked = self._linked = link_learnt(self._learnt, frozenset(), None)
        cells = {signature: (k, kept) for k, (signature, kept) in enumerate(linked.cells)}
        self._imports = {type_: cells.pop(earlier(type_))[0] for type_ in self._imports}
        self._readers = {signature: _reader(k, signature, kept) for signature, (k, kept) in cells.items()}
        feeds, self._bounds = linked.model.feeds, linked.model.bounds
        self._none = [tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in own]) for own in feeds]
        self._tables.clear()
        return linked

    def _imported(
        self, parts: Sequence[_Part], stretch: Stretch, store: Store, numbers: Sequence[int]
    ) -> list[Index] | None:
        """Number the values that come from earlier rounds before those of this one; return which they are.

        They are returned by type, in the order of `_imports`; None where a type is new among these.
        """
        found: dict[TensorType, list[tuple[Index, int, Any]]] = {type_: [] for type_ in self._imports}
        taken: dict[TensorType, list[Index]] = {type_: [] for type_ in self._imports}
        count = 0
        for part in parts:
            for number, (array, skipped, types) in enumerate(part.arrays):
                old = array[:, skipped:] < 0
                if not old.any():
                    continue
                for c, type_ in enumerate(types):
                    rows = old[:, c].nonzero()[0]
                    if not len(rows):
                        continue
                    if type_ not in self._imports:
                        self._imports[type_] = -1
                        self._admit(earlier(type_))
                        return None
                    read = array[rows, skipped + c] + stretch.first
                    own = part.bases(number).take(rows)
                    if read.min() < 0 or (store.example.take(read) != store.example.take(own)).any():
                        _leak(part, own, read, store, numbers)
                    found[type_].append((array, skipped + c, rows))
                    taken[type_].append(read)
                    count += len(rows)
        next_ = 0
        for places, reads in zip(found.values(), taken.values(), strict=True):
            for (array, c, rows), read in zip(places, reads, strict=True):
                array[rows, c] = np.arange(next_ - count, next_ - count + len(read))
                next_ += len(read)
        for part in parts:
            for array, _, _ in part.arrays:
                np.add(array, count, out=array)
        return [np.concatenate(reads) if reads else np.zeros(0, np.int64) for reads in taken.values()]

    def _table(
        self,
        computing: Computing,
        linked: Linked,
        parts: Sequence[_Part],
        imported: Sequence[Index],
        stretch: Stretch,
        store: Store,
        numbers: Sequence[int],
    ) -> _Table | None:
        """Schedule a round; None where it has wires that are new, so that the model must be linked again."""
        model = linked.model
        count = sum(map(len, imported))
        total = count + sum(stretch.sizes)
        calls = [np.zeros((0, 1 + c.arguments + len(c.sequences)), np.int32) for c in model.signatures]
        elements: list[Any] = [
            tuple([np.zeros((0, w), np.int32) for w in c.sequences]) for c in model.signatures
        ]
        owner = np.full(total, -1, np.int32)
        outputs: list[Output] = []
        first = 0
        for (type_, k), taken in zip(self._imports.items(), imported, strict=True):
            own = np.arange(first, first + len(taken))
            calls[k] = own.astype(np.int32)[:, None]
            owner[own] = len(outputs)
            outputs.append((earlier(type_), 0))
            first += len(taken)
        for part in parts:
            k, signature = part.reader.number, part.reader.signature
            calls[k] = np.concatenate([part.calls, part.lengths], axis=1).astype(np.int32)
            elements[k] = tuple([flat.astype(np.int32) for flat in part.elements])
            for j in range(len(signature.outputs)):
                owner[part.calls[:, 0] + j] = len(outputs)
                outputs.append((signature, j))
        grown = False
        for part in parts:
            signature = part.reader.signature
            slots = [(i, -1) for i in part.reader.operands]
            slots += [(m, s) for s, types in part.reader.lists for m in range(len(types))]
            columns = [
                (n, array[:, skip + c], type_)
                for n, (array, skip, types) in enumerate(part.arrays)
                for c, type_ in enumerate(types)
            ]
            for (i, s), (n, read, type_) in zip(slots, columns, strict=True):
                inner = read >= count
                own = part.bases(n)[inner]
                of = read[inner] - count + stretch.first
                if (of >= own).any() or (store.example.take(of) != store.example.take(own)).any():
                    _leak(part, own, of, store, numbers)
                grown |= learn_wire(self._learnt, (signature, i, s), owner.take(read), outputs, type_)
        if grown:
            self._linked = None
            return None
        height = levels(computing.policy, model.signatures, calls, elements, total)
        none: Any = tuple([() for _ in calls])
        ready = computing.ready(model, Trace(tuple(calls), tuple(elements), height, none, none, total))
        own_arenas = ready.arenas[count:]
        arenas = []
        for arena in np.unique(own_arenas[own_arenas >= 0]).tolist():
            places = np.flatnonzero(own_arenas == arena)
            arenas.append((arena, places + count, places))
        return _Table(ready, arenas)

    def _data(
        self, computing: Computing, part: _Part, stretch: Stretch, store: Store, numbers: Sequence[int]
    ) -> list[NDArray[Any]]:
        """Return the data of a cell's calls, in their order."""
        reader, bases, columns = part.reader, part.noted.rows[:, 0], []
        bounds = self._bounds[reader.number]
        for place, i in enumerate(reader.feeds):
            path, _, feed = reader.signature.feeds[i]
            if path:
                columns.append(bare_column(part.noted.feeds[i], feed, bounds[place]))
            else:
                examples = np.asarray(numbers, np.int64).take(store.example.take(bases))
                columns.append(computing.keys(examples, stretch.in_examples(bases)))
        return columns


def _part(reader: _Reader, noted: Noted, first: int) -> _Part:
    calls = noted.rows.take(reader.columns, axis=1)
    calls -= first
    lengths = noted.rows[:, reader.lengths]
    return _Part(reader, calls, lengths, [noted.elements[s] - first for s, _ in reader.lists], noted)


def _leak(part: _Part, own: Index, read: Index, store: Store, numbers: Sequence[int]) -> NoReturn:
    """Refuse calls that read values of other examples or runs; ``own``, ``read``: ``[n]``, numbers."""
    wrong = (read < 0) | (read >= own)
    wrong |= store.example.take(np.where(wrong, own, read)) != store.example.take(own)
    number = numbers[int(store.example[own[int(wrong.argmax())]])]
    where = f"{part.reader.signature.name} at example {number}"
    raise WalkError(where, "values of the same example", "one kept from another example or run", LEAK)
