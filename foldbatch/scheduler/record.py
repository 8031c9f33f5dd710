"""Records: what tracing notes of several examples, and their traces.

To note all examples of a batch in the same lists, and to turn each list into an array once, takes a
fraction of the time that many small arrays take. Examples noted together are a batch already, and most run as
one: then nothing needs to be joined. Only when one runs in other company is each given an array of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.trace import Form, Index, Ints, Trace, late_trace


@dataclass(frozen=True, slots=True)
class TraceColumns:
    """What tracing notes of examples, one after the other; value numbers count from 0 in each example."""

    calls: tuple[Ints, ...]  # per cell ``[n, 1 + arguments + sequences] int32``, as in `Trace.calls`
    # per cell and sequence argument ``[m, width] int32``, as in `Trace.elements`
    elements: tuple[tuple[Ints, ...], ...]
    feeds: tuple[tuple[NDArray[Any], ...], ...]  # per cell and feed ``[n, ...]``, as in `Trace.feeds`
    labels: tuple[tuple[list[Any], ...], ...]  # per cell and metric with labels, a list of n Python objects
    counts: Index  # ``[examples, cells] int64``: how many calls of each cell an example makes
    # ``[examples, sequences] int64``: how many elements each sequence argument has in an example, for the
    # sequence arguments of all cells in order
    lengths: Index
    values: Index  # ``[examples] int64``: one more than an example's largest value number
    results: Sequence[Any]  # per example, its `Trace.result`


@dataclass(frozen=True, slots=True)
class Batched:
    """A record as a batch: value numbers count on from example to example, and calls have levels.

    Attributes:
        record: the record.
        calls, elements: as in the record, with the other numbers.
        levels: per cell ``[n] int32``: the level of each call, see `foldbatch.scheduler.levels`.
        offsets: ``[examples + 1] int64``: what is added to each example's value numbers, and their number.
    """

    record: TraceColumns
    calls: tuple[Ints, ...]
    elements: tuple[tuple[Ints, ...], ...]
    levels: tuple[Ints, ...]
    offsets: Index

    @property
    def ends(self) -> list[list[int]]:
        """Per cell ``[examples + 1]``: where the calls of each example begin, and the end."""
        return _ends(self.record.counts)

    @property
    def element_ends(self) -> list[list[int]]:
        """Per sequence argument, of all cells in order, the same of its elements."""
        return _ends(self.record.lengths)


def renumbered(record: TraceColumns, arguments: Sequence[int]) -> Batched:
    """Return a record as a batch whose calls have no levels yet."""
    offsets = np.zeros(len(record.values) + 1, np.int64)
    np.cumsum(record.values, out=offsets[1:])
    if len(record.values) == 1:
        return Batched(record, record.calls, record.elements, (), offsets)
    shifts = offsets[:-1].astype(np.int32)
    calls, elements, lengths = [], [], iter(record.lengths.T)
    for k, (rows, parts) in enumerate(zip(record.calls, record.elements, strict=True)):
        moved = rows.copy()
        moved[:, : 1 + arguments[k]] += np.repeat(shifts, record.counts[:, k])[:, None]
        calls.append(moved)
        elements.append(tuple([part + np.repeat(shifts, next(lengths))[:, None] for part in parts]))
    return Batched(record, tuple(calls), tuple(elements), (), offsets)


def _ends(sizes: Index) -> list[list[int]]:
    return [[0, *column] for column in sizes.cumsum(axis=0).T.tolist()]


class Together:
    """Examples that were noted together."""

    def __init__(self, batched: Batched, form: Form) -> None:
        self.batched: Batched | None = batched  # until the examples have arrays of their own
        self.form = form
        self._packed: tuple[Ints, list[int]] | None = None
        self._apart: Any = None  # the feeds and labels of all examples, before `batched` goes

    def traces(self) -> list[Trace]:
        """Return the traces of all examples."""
        batched = self.batched
        assert batched is not None, "traces are asked for once, at the beginning"
        results, counts = batched.record.results, batched.record.counts.tolist()
        return [late_trace(self.form, (self, e), counts[e], results[e]) for e in range(len(results))]

    def apart(self, example: int) -> tuple[list[list[NDArray[Any]]], tuple[tuple[list[Any], ...], ...]]:
        """Return an example's feeds that are not packed, and its labels; those of all are made at once."""
        apart, batched = self._apart, self.batched
        if apart is None and batched is not None:
            apart = self._apart = _loose(batched, self.form), _labels(batched)
        loose, labels = apart or self._apart  # another thread may be a step ahead
        return loose[example], labels[example]

    def packed(self, example: int) -> Ints:
        """Return the packed integers of an example; those of all examples are made at once."""
        if self._packed is None:
            batched = self.batched
            if batched is not None:  # else another thread is a step ahead
                self.apart(example)
                self._packed = _by_example(batched, self.form)
            self.batched = None
        assert self._packed is not None
        packed, bounds = self._packed
        return packed[bounds[example] : bounds[example + 1]]

    def batch(self, first: int, last: int) -> tuple[Trace, list[Index], Index] | None:
        """Return examples from `first` up to `last` as a batch, or None where they are no batch any more.

        Returns:
            Their joined trace, per cell how many of its calls each example makes, and what was added to the
            value numbers of each example.
        """
        batched = self.batched
        if batched is None:
            return None
        record, shift = batched.record, int(batched.offsets[first])
        if last - first == len(record.values):
            parts = batched.calls, batched.elements, batched.levels, record.feeds, record.labels
            return Trace(*parts, int(batched.offsets[last])), list(record.counts.T), batched.offsets[:-1]
        cuts = [slice(ends[first], ends[last]) for ends in batched.ends]
        element_cuts = iter([slice(ends[first], ends[last]) for ends in batched.element_ends])
        calls = [rows[cut] for rows, cut in zip(batched.calls, cuts, strict=True)]
        elements = [tuple([part[next(element_cuts)] for part in parts]) for parts in batched.elements]
        if shift:
            for k, arguments in enumerate(self.form.arguments):
                calls[k] = calls[k].copy()
                calls[k][:, : 1 + arguments] -= shift
            elements = [tuple([part - np.int32(shift) for part in parts]) for parts in elements]
        trace = Trace(
            tuple(calls),
            tuple(elements),
            tuple([part[cut] for part, cut in zip(batched.levels, cuts, strict=True)]),
            tuple([tuple([f[cut] for f in feeds]) for feeds, cut in zip(record.feeds, cuts, strict=True)]),
            tuple([tuple([x[cut] for x in labels]) for labels, cut in zip(record.labels, cuts, strict=True)]),
            int(batched.offsets[last]) - shift,
        )
        return trace, list(record.counts[first:last].T), batched.offsets[first:last] - shift


def _by_example(batched: Batched, form: Form) -> tuple[Ints, list[int]]:
    """Return the packed integers of all examples, one after the other, and where each begins."""
    record = batched.record
    heads = np.concatenate([record.values[:, None], record.counts, record.lengths], axis=1).astype(np.int32)
    flags, feeds = chain.from_iterable(form.integers), chain.from_iterable(record.feeds)
    integers = [feed for feed, integer in zip(feeds, flags, strict=True) if integer]
    sections = [*record.calls, *chain.from_iterable(record.elements), *batched.levels, *integers]
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


def _loose(batched: Batched, form: Form) -> list[list[list[NDArray[Any]]]]:
    """Return, per example and cell, the feeds that are not packed."""
    record = batched.record
    examples = range(len(record.values))
    if form.packed:
        none: list[list[NDArray[Any]]] = [[] for _ in record.feeds]
        return [none for _ in examples]
    ends = batched.ends
    loose = [
        [feed for feed, integer in zip(feeds, flags, strict=True) if not integer]
        for feeds, flags in zip(record.feeds, form.integers, strict=True)
    ]
    return [
        [[feed[ends[k][e] : ends[k][e + 1]] for feed in feeds] for k, feeds in enumerate(loose)]
        for e in examples
    ]


def _labels(batched: Batched) -> list[tuple[tuple[list[Any], ...], ...]]:
    """Return, per example, its `Trace.labels`."""
    record = batched.record
    examples = range(len(record.values))
    if not any(record.labels):
        return [record.labels for _ in examples]
    ends = batched.ends
    return [
        tuple(
            [
                tuple([column[ends[k][e] : ends[k][e + 1]] for column in columns])
                for k, columns in enumerate(record.labels)
            ]
        )
        for e in examples
    ]
