"""Joining: from what the statements left behind to the record of all examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks.columnar.clock import Frame
from foldbatch.blocks.columnar.kinds import (
    Array,
    Column,
    ListColumn,
    ObjectColumn,
    Refused,
    StoredColumn,
    ranges,
    unstored,
)
from foldbatch.blocks.columnar.reading import are_immutable
from foldbatch.blocks.columnar.scope import CallColumns, CallLog
from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.scheduler.record import TraceColumns

Bounds: TypeAlias = "Sequence[Sequence[int | None]]"


@dataclass(frozen=True, slots=True)
class ValueNumbers:
    """When calls are made, and what numbers their values have."""

    times: Array  # ``[calls]``: the place of each call among those of all examples
    ends: Array  # ``[examples]``: one more than the place of each example's last call
    values: Array  # ``[calls * width]``: by reference, the number of the value in its example
    links: Array  # ``[links]``: the references that links stand for

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
    return ValueNumbers(times, ends, values, run.follow())


def join(
    model: Model, bounds: Bounds, run: CallLog, numbers: ValueNumbers, results: list[Column]
) -> TraceColumns:
    """Return the record of all examples.

    Args:
        model: the model that they are traced for.
        bounds: per cell and feed, the number that ids must be below, or None.
        run: what the statements left behind.
        numbers: of its calls and values.
        results: what the root function returned.

    Raises:
        Refused: where data are not what the model reads.
    """
    calls, elements, feeds, labels, counts, lengths = [], [], [], [], [], []
    for k, signature in enumerate(model.signatures):
        joined = _Joined(run.parts[k], numbers)
        calls.append(joined.rows(signature.arguments, len(signature.sequences)))
        elements.append(tuple(joined.elements(i, n) for i, n in enumerate(signature.sequences)))
        pairs = zip(model.feeds[k], bounds[k], strict=True)
        feeds.append(tuple(joined.feed(i, feed, bound) for i, (feed, bound) in enumerate(pairs)))
        labels.append(tuple(joined.labels(i) for i in range(len(model.labels[k]))))
        counts.append(joined.counts())
        for i in range(len(signature.sequences)):
            lengths.append(joined.lengths(calls[k][:, 1 + signature.arguments + i]))
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
        _results(results, numbers, examples),
    )
    return record.shift([signature.arguments for signature in model.signatures], offsets[:-1])


class _Joined:
    """The calls of one cell, in the order of time."""

    def __init__(self, parts: list[CallColumns], numbers: ValueNumbers) -> None:
        self.parts, self.numbers = parts, numbers
        self.size = sum(part.size for part in parts)
        times = [numbers.times[part.first : part.first + part.size] for part in parts]
        self.times = times[0] if len(times) == 1 else np.concatenate([np.zeros(0, np.int32), *times])
        self.order: Array | None = None
        if not (self.times[1:] > self.times[:-1]).all():
            self.order = _order(self.times, len(numbers.times))
            self.times = self.times[self.order]

    def sorted(self, parts: list[Array], dtype: Any = np.int32) -> Array:
        """Return one array of one a part, in the order of time."""
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else np.zeros(0, dtype)
        return whole if self.order is None else whole[self.order]

    def rows(self, arguments: int, sequences: int) -> Array:
        numbers, width = self.numbers, self.numbers.values.size // max(len(self.numbers.times), 1)
        rows = np.empty((self.size, 1 + arguments + sequences), np.int32)
        first = [np.arange(p.first * width, (p.first + p.size) * width, max(width, 1)) for p in self.parts]
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
                references = references[ranges(starts[self.order], lengths[self.order])]
            result[:, i] = self.numbers.of(references)
        return result

    def feed(self, place: int, feed: Feed, bound: int | None) -> Array:
        parts = [self._feed(part.feeds[place], feed, bound) for part in self.parts]
        if not parts:
            return np.zeros((0, *feed.type.shape), feed.type.dtype)
        return self.sorted(parts)

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
        if len(objects) < len(given.codes) and not are_immutable(objects):
            raise Refused("it reads an object that may change in several places", feed.where)
        if feed.type.dtype.startswith("float") and len(set(map(type, objects))) > 1:
            raise Refused(
                "numbers of several kinds are read as floats"
            )  # they are rounded example by example
        return _checked(objects, feed, bound).take(given.codes, axis=0)

    def labels(self, place: int) -> list[Any]:
        labels: list[Any] = []
        for part in self.parts:
            data = part.labels[place]
            objects = np.empty(len(data.objects), object)
            objects[:] = data.objects
            labels += objects[data.codes].tolist()
        return labels if self.order is None else list(map(labels.__getitem__, self.order.tolist()))

    def counts(self) -> Array:
        """Return how many of the calls each example makes."""
        return differences(np.searchsorted(self.times, self.numbers.ends))

    def lengths(self, column: Array) -> Array:
        """Return the sum of a column of the rows, for each example."""
        sums = np.zeros(len(column) + 1, np.int64)
        np.cumsum(column, out=sums[1:])
        return differences(sums[np.searchsorted(self.times, self.numbers.ends)])


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
        rows = store.bounds[0][rows][:, None] + np.arange(shape[0])
        store = store.items
    elif shape:
        return None
    if store.numbers is None or store.lacks(rows):
        return None
    return store.numbers[rows]


def differences(ends: Array) -> Array:
    """Return how far each number lies above the one before it, the first above 0.

    >>> differences(np.array([2, 2, 5])).tolist()
    [2, 0, 3]
    """
    result = ends.copy()
    result[1:] -= ends[:-1]
    return result


def _order(times: Array, most: int) -> Array:
    """Return the order of different times below `most`: a sort in linear time."""
    lane_at = np.full(most, -1)
    lane_at[times] = np.arange(len(times))
    return lane_at[lane_at >= 0]


def _references(column: Column) -> Array:
    if not isinstance(column, np.ndarray):
        raise Refused("it passes a list of objects to a cell")
    return column


def _results(results: list[Column], numbers: ValueNumbers, examples: int) -> list[tuple[Any, ...]]:
    """Return, per example, the tuple that the root function returns."""
    if not results:
        return [()] * examples
    return list(zip(*(_result(result, numbers) for result in results), strict=True))


def _result(result: Column, numbers: ValueNumbers) -> list[Any]:
    match unstored(result):
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
