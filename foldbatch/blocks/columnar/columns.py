"""Columns: whether a tracing program can be applied to many examples at once, and their record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks.columnar import kinds
from foldbatch.blocks.columnar.kinds import Array, Column, ListColumn, ObjectColumn, Refused, StoredColumn
from foldbatch.blocks.columnar.statements import CallColumns, CallLog, Frame, Interpreter, Scope
from foldbatch.blocks.drafts import Procedure
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed, components
from foldbatch.model.model import Model
from foldbatch.scheduler.record import TraceColumns
from foldbatch.trees import Tree
from foldbatch.trees.records import Records

MANY, MOST_EXAMPLES = 1_000_000, 10_000  # nodes and examples of a record, about
FEW = 1300  # nodes: fewer are traced one by one, which takes no longer
FEW_VALUES = 1500  # of Arrow data, likewise
MOST_SKIPPED = 64  # batches, after many have been refused in turn
Bounds: TypeAlias = "Sequence[Sequence[int | None]]"


@dataclass(slots=True)
class Refusals:
    """Batches that had no columns in spite of the model: the more in turn, the less often they are tried."""

    pause: int = 0  # how many batches are left to the program before the next try
    skipped: int = 0  # how many of these are left
    last: str = ""  # why the last one was refused; empty if none was


@dataclass(frozen=True, slots=True)
class Columns:
    """A tracing program whose functions are applied to all their visits at once."""

    functions: Interpreter  # the functions of the program, the root's first
    model: Model  # the model that traces fit
    bounds: Bounds  # per cell and feed, the number that ids must be below, or None
    width: int  # how many value numbers each call reserves
    refusals: Refusals = field(default_factory=Refusals)  # the batches that had no columns

    @property
    def recurs(self) -> bool:
        """Whether the program recurs. Where it only has loops, it takes no longer than columns."""
        return bool(self.functions.recursive)

    def pay(self, examples: Sequence[Any]) -> bool:
        """Return whether columns take less time than the program run on each example."""
        if type(examples) is Records:
            return examples.values >= FEW_VALUES
        return self.recurs and sum(map(_size, examples)) >= FEW

    def records(self, examples: Sequence[Any], max_calls: int) -> list[TraceColumns] | None:
        """Return the calls that examples make, in a few records; None where the program is run on each."""
        refusals = self.refusals
        if not self.pay(examples):
            return None
        if refusals.skipped:
            refusals.skipped -= 1
            return None
        size = examples.values if isinstance(examples, Records) else sum(map(_size, examples))
        count = 1 + max(size // MANY, len(examples) // MOST_EXAMPLES)  # so that numbers stay within 32 bits
        bounds = pairwise([len(examples) * i // count for i in range(count + 1)])
        try:
            found = [self.record(examples[first:last], max_calls) for first, last in bounds]
        except Refused as refused:
            refusals.pause = min(2 * refusals.pause + 1, MOST_SKIPPED)
            refusals.skipped, refusals.last = refusals.pause - 1, str(refused)
            return None
        refusals.pause = 0
        return found

    def record(self, examples: Sequence[Any], max_calls: int) -> TraceColumns:
        """Return the calls that examples make; refused where the program must be run on one of them."""
        root = next(iter(self.functions.procedures))
        argument: Column
        if isinstance(examples, Records):
            argument = StoredColumn(examples.store(), examples.rows)
        else:
            argument = kinds.planted(ObjectColumn(np.arange(len(examples)), examples))
        run, frame = CallLog(len(self.model.cells), self.width), Frame(len(examples))
        results = self.functions.visit(Scope(run, frame, None, len(examples)), root, [argument])
        numbers = number(run, frame)
        if len(numbers.ends) and differences(numbers.ends).max() > max_calls:
            raise Refused("an example makes more calls than it may")
        return join(self.model, self.bounds, run, numbers, results)


def find(functions: Sequence[Procedure], model: Model) -> Columns | str:
    """Return the columns of a tracing program, or what keeps it from having any: a block and a reason."""
    calls = {function.name: function.calls for function in functions}
    component = components(list(calls), calls)
    recursive = {
        name for name, called in calls.items() for each in called if component[each] == component[name]
    }
    interpreter = Interpreter({function.name: function for function in functions}, frozenset(recursive))
    width = max([1, *(len(signature.outputs) for signature in model.signatures)])
    columns = Columns(interpreter, model, model.bounds, width)
    try:
        columns.record([], 0)
    except Refused as refused:
        return str(refused)
    return columns


def _size(example: Any) -> int:
    """Return about how many nodes an example has: a tree, or a tuple or list with trees."""
    if type(example) is Tree:
        return len(example.labels)
    parts = example if type(example) in (tuple, list) else ()
    return 1 + sum(part.size for part in parts if type(part) is Tree)


# -- joining: from what the statements left behind to the record of all examples


@dataclass(frozen=True, slots=True)
class ValueNumbers:
    """When calls are made, and what numbers their values have."""

    times: Array  # ``[calls]``: the place of each call among those of all examples
    ends: Array  # ``[examples]``: one more than the place of each example's last call
    values: Array  # ``[calls * width]``: by reference, the number of the value in its example
    links: Array  # ``[links]``: the references that links stand for
    width: int

    def of(self, references: Array) -> Array:
        """Return the numbers that references stand for."""
        linked = np.flatnonzero(references < 0) if len(self.links) else ()
        if len(linked) == len(references):
            return self.values.take(self.links.take(~references))
        if len(linked):
            references = references.copy()
            references[linked] = self.links.take(~references.take(linked))
        return self.values.take(references)


def number(run: CallLog, frame: Frame) -> ValueNumbers:
    """Return the numbers of all values; the lanes of the frame are the examples."""
    calls = frame.count()
    ends = np.cumsum(calls, dtype=np.int32)
    starts = ends - calls
    times = np.zeros(run.calls, np.int32)
    frame.run(starts.copy(), times)
    for recursion in run.recursions:
        recursion.end(times)
    numbers = np.arange(0, run.calls * run.width, run.width, dtype=np.int32)
    numbers -= np.repeat(starts * run.width, calls)
    values: Array = numbers.take(times)
    if run.width > 1:
        values = (values[:, None] + np.arange(run.width, dtype=np.int32)).ravel()
    return ValueNumbers(times, ends, values, run.follow(), run.width)


def join(
    model: Model, bounds: Bounds, run: CallLog, numbers: ValueNumbers, results: list[Column]
) -> TraceColumns:
    """Return the record of all examples, of what statements left and what the root function returned."""
    calls, elements, feeds, labels, counts, lengths = [], [], [], [], [], []
    for k, signature in enumerate(model.signatures):
        joined = _Joined(run.parts[k], numbers)
        calls.append(joined.rows(signature.arguments, len(signature.sequences)))
        elements.append(tuple(joined.elements(i, n) for i, n in enumerate(signature.sequences)))
        pairs = zip(model.feeds[k], bounds[k], strict=True)
        feeds.append(tuple(joined.feed(i, feed, bound) for i, (feed, bound) in enumerate(pairs)))
        labels.append(tuple(joined.labels(i) for i in range(len(model.labels[k]))))
        ends = np.searchsorted(joined.times, numbers.ends)  # of each example's calls
        counts.append(differences(ends))
        for i in range(len(signature.sequences)):
            sums = np.zeros(joined.size + 1, np.int64)
            np.cumsum(calls[k][:, 1 + signature.arguments + i], out=sums[1:])
            lengths.append(differences(sums[ends]))
    examples = len(numbers.ends)
    empty = np.zeros((examples, 0), np.int64)
    offsets = np.zeros(examples + 1, np.int64)
    np.multiply(numbers.ends, run.width, out=offsets[1:])
    record = TraceColumns(
        tuple(calls),
        tuple(elements),
        tuple(feeds),
        tuple(labels),
        np.stack(counts, 1) if counts else empty,
        np.stack(lengths, 1) if lengths else empty,
        offsets,
        list(zip(*(_result(x, numbers) for x in results), strict=True)) if results else [()] * examples,
    )
    return record.shift([signature.arguments for signature in model.signatures], offsets[:-1])


class _Joined:
    """The calls of one cell, in the order of time."""

    def __init__(self, parts: list[CallColumns], numbers: ValueNumbers) -> None:
        self.parts, self.numbers = parts, numbers
        self.size = sum(part.size for part in parts)
        self.order: Array | None = None
        self.times = self.sorted([numbers.times[part.first : part.first + part.size] for part in parts])
        if not (self.times[1:] > self.times[:-1]).all():
            lane_at = np.full(len(numbers.times), -1)  # a sort in linear time
            lane_at[self.times] = np.arange(self.size)
            self.order = lane_at[lane_at >= 0]
            self.times = self.times[self.order]

    def sorted(self, parts: list[Array]) -> Array:
        """Return one array of one a part, in the order of time."""
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts or [np.zeros(0, np.int32)])
        return whole if self.order is None else whole[self.order]

    def rows(self, arguments: int, sequences: int) -> Array:
        numbers, width = self.numbers, self.numbers.width
        rows = np.empty((self.size, 1 + arguments + sequences), np.int32)
        first = [np.arange(p.first * width, (p.first + p.size) * width, width) for p in self.parts]
        rows[:, 0] = numbers.values[self.sorted(first)]
        for i in range(arguments + sequences):
            given = self.sorted([part.arguments[i] for part in self.parts])
            rows[:, 1 + i] = numbers.of(given) if i < arguments else given
        return rows

    def elements(self, place: int, width: int) -> Array:
        lists = [part.elements[place] for part in self.parts]
        lengths = np.concatenate([np.zeros(0, np.int64), *(part.lengths for part in lists)])
        result = np.empty((int(lengths.sum()), width), np.int32)
        filled = [part for part in lists if part.items]
        for i in range(width if filled else 0):
            references = np.concatenate([_references(part.items[i]) for part in filled])
            if self.order is not None:
                starts = np.cumsum(lengths) - lengths
                references = references[kinds.ranges(starts[self.order], lengths[self.order])]
            result[:, i] = self.numbers.of(references)
        return result

    def feed(self, place: int, feed: Feed, bound: int | None) -> Array:
        if not self.parts:
            return np.zeros((0, *feed.type.shape), feed.type.dtype)
        return self.sorted([self._feed(part.feeds[place], feed, bound) for part in self.parts])

    def _feed(self, given: Column, feed: Feed, bound: int | None) -> Array:
        if isinstance(given, np.ndarray):  # the numbers of calls
            return self.numbers.of(given).astype(feed.type.dtype, copy=False)
        if isinstance(given, StoredColumn):
            numbers = _numbers(given, feed)
            if numbers is not None:
                return _checked(numbers, feed, bound)
            given = given.data()
        assert isinstance(given, ObjectColumn)
        given = given.compact()
        objects = list(given.objects)
        if len(objects) < len(given.codes) and not kinds.are_immutable(objects):
            raise Refused("it reads an object that may change in several places", feed.where)
        if feed.type.dtype.startswith("float") and len(set(map(type, objects))) > 1:
            # they are rounded example by example
            raise Refused("numbers of several kinds are read as floats")
        return _checked(objects, feed, bound).take(given.codes, axis=0)

    def labels(self, place: int) -> list[Any]:
        labels: list[Any] = []
        for part in self.parts:
            objects = np.empty(len(part.labels[place].objects), object)
            objects[:] = part.labels[place].objects
            labels += objects[part.labels[place].codes].tolist()
        return labels if self.order is None else list(map(labels.__getitem__, self.order.tolist()))


def _checked(data: list[Any] | Array, feed: Feed, bound: int | None) -> Array:
    try:
        return column(data, feed.type, bound, feed.declared)
    except BadDataError:
        raise Refused("there is a datum that the block does not read", feed.where) from None


def _numbers(given: StoredColumn, feed: Feed) -> Array | None:
    """Return the numbers that each lane's object holds; None where they do not lie in the data as such."""
    store, rows, shape = given.store, given.rows, feed.type.shape
    if len(shape) == 1 and shape[0] and store.bounds is not None and store.items is not None:
        if (given.sizes() != shape[0]).any():
            return None
        rows, store = store.bounds[0][rows][:, None] + np.arange(shape[0]), store.items
    elif shape:
        return None
    return None if store.numbers is None or store.lacks(rows) else store.numbers[rows]


def differences(ends: Array) -> Array:
    """Return how far each number lies above the one before it, the first above 0."""
    return np.diff(ends, prepend=ends.dtype.type(0))


def _references(column: Column) -> Array:
    if not isinstance(column, np.ndarray):
        raise Refused("it passes a list of objects to a cell")
    return column


def _result(result: Column, numbers: ValueNumbers) -> list[Any]:
    """Return what the root function returns of each example."""
    match kinds.unstored(result):
        case np.ndarray() as references:
            return list(numbers.of(references).tolist())
        case ObjectColumn(codes, objects):
            return [objects[code] for code in codes.tolist()]
        case ListColumn(lengths, items):
            if not items:
                return [[] for _ in lengths]
            columns = [_result(item, numbers) for item in items]
            parts = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
            return [parts[start:end] for start, end in pairwise([0, *np.cumsum(lengths).tolist()])]
    raise Refused("it returns a node of a tree, or a tuple of objects", "model")
