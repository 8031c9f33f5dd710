"""Records: what tracing notes of several examples, and their traces.

To note all examples of a batch in the same lists, and to turn each list into an array once, takes a
fraction of the time that many small arrays take. Examples noted together are a batch already, and most run as
one: then nothing needs to be joined. Only when one runs in other company is each given an array of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.trace import Form, Index, Ints, Trace, batch_trace, late_trace


@dataclass(slots=True)
class TraceColumns:
    """What tracing notes of examples, one after the other; value numbers count on from example to example."""

    calls: tuple[Ints, ...]  # per cell ``[n, 1 + arguments + sequences] int32``, as in `Trace.calls`
    # per cell and sequence argument ``[m, width] int32``, as in `Trace.elements`
    elements: tuple[tuple[Ints, ...], ...]
    feeds: tuple[tuple[NDArray[Any], ...], ...]  # per cell and feed ``[n, ...]``, as in `Trace.feeds`
    labels: tuple[tuple[list[Any], ...], ...]  # per cell and metric with labels, a list of n Python objects
    counts: Index  # ``[examples, cells] int64``: how many calls of each cell an example makes
    # ``[examples, sequences] int64``: how many elements each sequence argument has in an example, for the
    # sequence arguments of all cells in order
    lengths: Index
    offsets: Index  # ``[examples + 1] int64``: the first value number of each example, and the end
    results: Sequence[Any]  # per example, its `Trace.result`; there value numbers count from 0
    # per cell ``[n] int32``, see `foldbatch.scheduler.policies`; empty where they are found when asked for
    levels: tuple[Ints, ...] = ()
    whole: Trace | None = None  # the same as one trace, where that is at hand

    def __getattr__(self, name: str) -> Any:
        if name not in PARTS:  # of a whole, which makes them when they are asked for
            raise AttributeError(f"TraceColumns has no attribute {name}")
        setattr(self, name, getattr(self.whole, name))
        return getattr(self, name)

    @property
    def ends(self) -> list[list[int]]:
        """Per cell ``[examples + 1]``: where the calls of each example begin, and the end."""
        return _ends(self.counts)

    def shift(self, arguments: Sequence[int], by: Index) -> TraceColumns:
        """Add numbers ``[examples]`` to the value numbers of each example, in place."""
        if len(by) > 1:
            shifts, lengths = by.astype(np.int32), iter(self.lengths.T)
            for k, (rows, parts) in enumerate(zip(self.calls, self.elements, strict=True)):
                rows[:, : 1 + arguments[k]] += np.repeat(shifts, self.counts[:, k])[:, None]
                for part in parts:
                    part += np.repeat(shifts, next(lengths))[:, None]  # noqa: PLW2901 - in place
        return self


PARTS = frozenset(("calls", "elements", "feeds", "labels", "levels"))


def columns_of(
    whole: Trace, counts: Index, lengths: Index, offsets: Index, results: Sequence[Any]
) -> TraceColumns:
    """Return what a packed trace of several examples tells; arguments are attributes of `TraceColumns`."""
    record = TraceColumns.__new__(TraceColumns)
    record.whole, record.counts, record.lengths = whole, counts, lengths
    record.offsets, record.results = offsets, results
    return record


# returns what `foldbatch.scheduler.levels.levels` does, given these arguments of it
Levels = Callable[[Sequence[Ints], Sequence[Sequence[Ints]], int], tuple[Ints, ...]]


def _ends(sizes: Index) -> list[list[int]]:
    return [[0, *column] for column in sizes.cumsum(axis=0).T.tolist()]


class Together:
    """Examples that were noted together; `levels` finds those of calls, given elements and values, too."""

    def __init__(self, record: TraceColumns, form: Form, levels: Levels | None = None) -> None:
        self.record: TraceColumns | None = record  # until the examples have arrays of their own
        self.form, self.levels = form, levels
        self._packed: tuple[Ints, list[int]] | None = None
        self._apart: Any = None  # the feeds and labels of all examples, before `record` goes

    def traces(self) -> list[Trace]:
        record = self.record
        assert record is not None, "traces are asked for once, at the beginning"
        results, counts = record.results, record.counts.tolist()
        return [late_trace(self.form, (self, e), counts[e], results[e]) for e in range(len(results))]

    def apart(self, example: int) -> tuple[list[list[NDArray[Any]]], tuple[tuple[list[Any], ...], ...]]:
        """Return an example's feeds that are not packed, and its labels; those of all are made at once."""
        apart, record = self._apart, self.record
        if apart is None and record is not None:
            apart = self._apart = _loose(record, self.form), _labels(record)
        loose, labels = apart or self._apart  # another thread may be a step ahead
        return loose[example], labels[example]

    def packed(self, example: int) -> Ints:
        """Return the packed integers of an example; those of all examples are made at once."""
        if self._packed is None:
            record = self.record
            if record is not None:  # else another thread is a step ahead
                self.apart(example)
                if self.levels is not None:
                    values = int(record.offsets[-1])
                    record.levels = self.levels(record.calls, record.elements, values)
                self._packed = _by_example(record, self.form)
            self.record = None
        assert self._packed is not None
        packed, bounds = self._packed
        return packed[bounds[example] : bounds[example + 1]]

    def batch(self, first: int, last: int) -> tuple[Trace, Index, Index] | None:
        """Return examples from `first` up to `last` as a batch, or None where they are no batch any more.

        Returns:
            Their joined trace, per cell how many of its calls each example makes, and what was added to the
            value numbers of each example.
        """
        record = self.record
        if record is None:
            return None
        if record.whole is not None and last - first == len(record.results):
            return record.whole, record.counts.T, record.offsets[:-1]
        shift, values = int(record.offsets[first]), int(record.offsets[last])
        calls, elements, levels, feeds = record.calls, record.elements, record.levels, record.feeds
        labels, counts, offsets = record.labels, record.counts, record.offsets[:-1]
        if last - first < len(record.results):
            cuts = [slice(ends[first], ends[last]) for ends in record.ends]
            element_cuts = iter([slice(ends[first], ends[last]) for ends in _ends(record.lengths)])
            calls = tuple([rows[cut] for rows, cut in zip(calls, cuts, strict=True)])
            elements = tuple([tuple([part[next(element_cuts)] for part in parts]) for parts in elements])
            if shift:
                calls = tuple([rows.copy() for rows in calls])
                for rows, arguments in zip(calls, self.form.arguments, strict=True):
                    rows[:, : 1 + arguments] -= shift
                elements = tuple([tuple([part - np.int32(shift) for part in parts]) for parts in elements])
            levels = tuple([part[cut] for part, cut in zip(levels, cuts, strict=False)])
            feeds = tuple([tuple([x[cut] for x in own]) for own, cut in zip(feeds, cuts, strict=True)])
            labels = tuple([tuple([x[cut] for x in own]) for own, cut in zip(labels, cuts, strict=True)])
            counts, offsets = counts[first:last], offsets[first:last] - shift
        trace = batch_trace(self.form, self, calls, elements, levels, feeds, labels, values - shift)
        return trace, counts.T, offsets


def _by_example(record: TraceColumns, form: Form) -> tuple[Ints, list[int]]:
    """Return the packed integers of all examples, one after the other, and where each begins."""
    values = np.diff(record.offsets)
    heads = np.concatenate([values[:, None], record.counts, record.lengths], axis=1).astype(np.int32)
    flags, feeds = chain.from_iterable(form.integers), chain.from_iterable(record.feeds)
    integers = [feed for feed, integer in zip(feeds, flags, strict=True) if integer]
    calls = tuple([rows.copy() for rows in record.calls])
    elements = tuple([tuple([part.copy() for part in parts]) for parts in record.elements])
    replace(record, calls=calls, elements=elements).shift(form.arguments, -record.offsets[:-1])
    sections = [*calls, *chain.from_iterable(elements), *record.levels, *integers]
    source = np.concatenate([heads, *sections], axis=None)
    if len(heads) == 1:
        return source, [0, len(source)]
    lengths = np.empty((len(heads), 1 + len(sections)), np.int64)
    lengths[:, 0] = form.head
    np.multiply(heads[:, form.counters], form.widths, out=lengths[:, 1:])
    by_section = lengths.T.ravel()  # the order of `source`
    begins = (np.cumsum(by_section) - by_section).reshape(-1, len(heads)).T
    flat = lengths.ravel()
    ends = np.cumsum(flat)
    index = np.repeat(begins.ravel() - ends + flat, flat)
    index += np.arange(len(index))
    return source.take(index), [0, *ends[len(sections) :: 1 + len(sections)].tolist()]


def _loose(record: TraceColumns, form: Form) -> list[list[list[NDArray[Any]]]]:
    """Return, per example and cell, the feeds that are not packed."""
    examples = range(len(record.results))
    if form.packed:
        none: list[list[NDArray[Any]]] = [[] for _ in record.feeds]
        return [none for _ in examples]
    ends = record.ends
    loose = [
        [feed for feed, integer in zip(feeds, flags, strict=True) if not integer]
        for feeds, flags in zip(record.feeds, form.integers, strict=True)
    ]
    return [
        [[feed[ends[k][e] : ends[k][e + 1]] for feed in feeds] for k, feeds in enumerate(loose)]
        for e in examples
    ]


def _labels(record: TraceColumns) -> list[tuple[tuple[list[Any], ...], ...]]:
    """Return, per example, its `Trace.labels`."""
    examples = range(len(record.results))
    if not any(record.labels):
        return [record.labels for _ in examples]
    ends = record.ends
    return [
        tuple(
            [
                tuple([column[ends[k][e] : ends[k][e + 1]] for column in columns])
                for k, columns in enumerate(record.labels)
            ]
        )
        for e in examples
    ]
