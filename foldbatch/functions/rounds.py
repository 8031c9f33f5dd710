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
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from foldbatch.functions.cells import CellFunction, Signature
from foldbatch.functions.learnt import Learnt, Slot
from foldbatch.functions.noted import Noted, Owners, joined_reads, reads_of, refuse_leaks
from foldbatch.functions.store import Store
from foldbatch.functions.tracer import Linked, bare_column, link_learnt
from foldbatch.functions.values import Value, value_class
from foldbatch.model.link import StagedBefore
from foldbatch.model.model import Model
from foldbatch.model.needed import PrunedDraft
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.levels import levels
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.trace import Index, Trace
from foldbatch.types import TensorType

KEPT = 1024  # schedules of rounds
NONE: Final = np.zeros(0, np.int64)


class RoundSchedule(Protocol):
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

    def ready(self, model: Model, trace: Trace) -> RoundSchedule:
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
        operands: the numbers of its operands.
        columns: of a call's row: its number and its operands; None where that is all of it.
        lengths: of a call's row: the lengths of its lists.
        kinds: the classes of values: of the operands, then for each list of an element's members.
        lists: the numbers of its lists.
        feeds: the numbers of its data.
    """

    number: int
    signature: Signature
    operands: list[int]
    columns: list[int] | None
    lengths: list[int]
    kinds: list[list[type[Value]]]
    lists: list[int]
    feeds: list[int]


def _reader(number: int, signature: Signature, kept: PrunedDraft) -> _Reader:
    count = len(signature.operands)
    own = [i for i in kept.arguments if i < count]
    lists = [i - count for i in kept.arguments if i >= count]
    nodes = [[signature.operands[i][1] for i in own]]
    nodes += [[node for _, node in signature.sequences[s][2]] for s in lists]
    columns = [0, *(1 + i for i in own)]
    return _Reader(
        number,
        signature,
        own,
        None if len(columns) == signature.arguments else columns,
        [1 + count + s for s in lists],
        [[value_class(node.type) for node in some] for some in nodes],
        lists,
        [*kept.feeds],
    )


@dataclass(eq=False, slots=True)
class _Part:
    """The calls of a cell in a round.

    Attributes:
        reader: the cell.
        noted: what was noted.
        arrays: the numbers of calls with those of their operands, and for each list those of its elements.
        lengths: ``[n, lists]``.
    """

    reader: _Reader
    noted: Noted
    arrays: list[Index]
    lengths: Index | None

    def bases(self, number: int) -> Index:
        """Return the numbers of the calls that the rows of an array belong to."""
        bases = self.noted.rows[:, 0]
        if number == 0 or self.lengths is None:
            return bases
        return np.repeat(bases, self.lengths[:, number - 1])

    def reads(self) -> Iterator[tuple[Sequence[tuple[Slot, TensorType]], Index, Index]]:
        """Yield slots, the numbers ``[n, slots]`` read there, and the calls that read them."""
        reader, operands = self.reader, self.reader.operands
        for number, (array, kinds) in enumerate(zip(self.arrays, reader.kinds, strict=True)):
            at = -1 if not number else reader.lists[number - 1]
            slots = [
                ((reader.signature, c if number else operands[c], at), kind.type)
                for c, kind in enumerate(kinds)
            ]
            yield slots, array[:, not number :], self.bases(number)


@dataclass(eq=False, slots=True)
class _Table:
    """A round made ready; per arena the class of its values, their numbers, and places in what was noted."""

    ready: RoundSchedule
    arenas: list[tuple[int, type[Value], Index, Index]]


class Rounds:
    """What was learnt of the rounds of a walk: the model that computes them, and schedules."""

    def __init__(self) -> None:
        self._learnt = Learnt()
        self._linked: Linked | None = None
        self._known = StagedBefore()
        self._readers: dict[Signature, _Reader] = {}
        self._imports: dict[type[Value], int] = {}  # the number of each import cell, in the order of these
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
        for signature in noted:
            if signature not in self._learnt.cells:
                self._admit(signature)
        table: _Table | None = None
        while table is None:
            linked, readers = self._linked or self._link(), self._readers
            parts = [_part(readers[s], own, stretches.first) for s, own in noted.items() if s in readers]
            found = self._imported(parts, stretches, store, numbers)
            if found is None:
                continue  # a type is imported for the first time
            imported = found
            key = [computing.training, *map(len, imported), stretches.sizes.tobytes()]
            for part in parts:
                key += [part.reader.number, *[array.tobytes() for array in part.arrays]]
                if part.lengths is not None:
                    key.append(part.lengths.tobytes())
            table = self._tables.get(tuple(key))
            if table is None:
                table = self._table(computing, linked, parts, imported, stretches, store, numbers)
                if table is not None:
                    self._tables[tuple(key)] = table
                    if len(self._tables) > KEPT:
                        del self._tables[next(iter(self._tables))]
        orders, feeds = table.ready.orders, [*self._none]
        for (kind, k), taken in zip(self._imports.items(), imported, strict=True):
            if len(taken):
                feeds[k] = (store.take(kind, taken.take(orders[k])),)
        for part in parts:
            if part.reader.feeds:
                k = part.reader.number
                data = self._data(computing, part, stretches, store, numbers)
                feeds[k] = tuple([column.take(orders[k], axis=0) for column in data])
        cell_of = {part.reader.number: part for part in parts}

        def example(k: int, rank: int) -> int:
            return numbers[int(store.example[cell_of[k].noted.rows[orders[k][rank], 0]])]

        take = computing.run(table.ready, feeds, example)
        for arena, kind, values, places in table.arenas:
            store.add(kind, take(arena, values), places + stretches.first)

    def _admit(self, signature: Signature) -> None:
        """Learn of a cell."""
        learnt = self._learnt
        learnt.admit([signature])
        learnt.results |= {(signature, j) for j in range(len(signature.outputs))}
        self._linked = None

    def _link(self) -> Linked:
        linked = self._linked = link_learnt(self._learnt, frozenset(), None, self._known)
        cells = {signature: (k, kept) for k, (signature, kept) in enumerate(linked.cells)}
        self._imports = {kind: cells.pop(earlier(kind))[0] for kind in self._imports}
        self._readers = {signature: _reader(k, signature, kept) for signature, (k, kept) in cells.items()}
        feeds, self._bounds = linked.model.feeds, linked.model.bounds
        self._none = [tuple([np.zeros((0, *f.type.shape), f.type.dtype) for f in own]) for own in feeds]
        self._tables.clear()
        return linked

    def _imported(
        self, parts: Sequence[_Part], stretches: Stretches, store: Store, numbers: Sequence[int]
    ) -> list[Index] | None:
        """Number the values that come from earlier rounds before those of this one; return which they are.

        They are returned by type, in the order of `_imports`; None where a type is new among these.
        """
        found: list[tuple[type[Value], Index, Any, int]] = []
        reads, owners = [], []
        for part in parts:
            for number, (array, kinds) in enumerate(zip(part.arrays, part.reader.kinds, strict=True)):
                least = array.min(axis=0, initial=0).tolist()
                for c, kind in enumerate(kinds, not number):
                    if least[c] >= 0:
                        continue
                    if kind not in self._imports:
                        self._imports[kind] = -1
                        self._admit(earlier(kind))
                        return None
                    column = array[:, c]
                    rows = slice(None) if column.max() < 0 else (column < 0).nonzero()[0]
                    found.append((kind, array, rows, c))
                    reads.append(column[rows] + stretches.first)
                    owners.append(part.bases(number)[rows])
        if not found:
            return [NONE] * len(self._imports)
        read = np.concatenate(reads)
        if read.min() < 0 or (store.example.take(read) != store.example.take(np.concatenate(owners))).any():
            refuse_leaks(reads_of([part.noted for part in parts]), store.example, numbers)
            raise AssertionError("a call reads what it must not")
        for part in parts:
            for array in part.arrays:
                array += len(read)  # noqa: PLW2901 - in place
        imported, count = [], 0
        for kind in self._imports:
            own = [i for i, (other, *_) in enumerate(found) if other is kind]
            for i in own:
                _, array, rows, c = found[i]
                array[rows, c] = np.arange(count, count + len(reads[i]))
                count += len(reads[i])
            imported.append(np.concatenate([reads[i] for i in own]) if own else NONE)
        return imported

    def _table(
        self,
        computing: Computing,
        linked: Linked,
        parts: Sequence[_Part],
        imported: Sequence[Index],
        stretches: Stretches,
        store: Store,
        numbers: Sequence[int],
    ) -> _Table | None:
        """Schedule a round; None where it has wires that are new, so that the model must be linked again."""
        model = linked.model
        count = sum(map(len, imported))
        total = count + int(stretches.sizes.sum())
        calls = [np.zeros((0, 1 + c.arguments + len(c.sequences)), np.int32) for c in model.signatures]
        elements: list[Any] = [
            tuple([np.zeros((0, w), np.int32) for w in c.sequences]) for c in model.signatures
        ]
        owners = Owners(total)
        first = 0
        for (kind, k), taken in zip(self._imports.items(), imported, strict=True):
            own = np.arange(first, first + len(taken))
            calls[k] = own.astype(np.int32)[:, None]
            owners.add(earlier(kind), own)
            first += len(taken)
        for part in parts:
            k, signature = part.reader.number, part.reader.signature
            row = part.arrays[0] if part.lengths is None else np.append(part.arrays[0], part.lengths, axis=1)
            calls[k] = row.astype(np.int32)
            elements[k] = tuple([flat.astype(np.int32) for flat in part.arrays[1:]])
            owners.add(signature, part.arrays[0][:, 0])
        reads = joined_reads(each for part in parts for each in part.reads())
        inner = reads.numbers >= count
        of, by = reads.numbers[inner] - count + stretches.first, reads.by[inner]
        if (of >= by).any() or (store.example.take(of) != store.example.take(by)).any():
            refuse_leaks(reads_of([part.noted for part in parts]), store.example, numbers)
            raise AssertionError("a call reads what it must not")
        if owners.learn(self._learnt, reads):
            self._linked = None
            return None
        height = levels(computing.policy, model.signatures, calls, elements, total)
        none: Any = tuple([() for _ in calls])
        ready = computing.ready(model, Trace(tuple(calls), tuple(elements), height, none, none, total))
        own_arenas = ready.arenas[count:]
        arenas = []
        for arena in np.unique(own_arenas[own_arenas >= 0]).tolist():
            places = np.flatnonzero(own_arenas == arena)
            arenas.append((arena, value_class(model.arenas[arena]), places + count, places))
        return _Table(ready, arenas)

    def _data(
        self, computing: Computing, part: _Part, stretches: Stretches, store: Store, numbers: Sequence[int]
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
                columns.append(computing.keys(examples, stretches.in_examples(bases)))
        return columns


def _part(reader: _Reader, noted: Noted, first: int) -> _Part:
    rows = noted.rows if reader.columns is None else noted.rows.take(reader.columns, axis=1)
    arrays = [rows - first, *[noted.elements[s] - first for s in reader.lists]]
    return _Part(reader, noted, arrays, noted.rows[:, reader.lengths] if reader.lengths else None)
