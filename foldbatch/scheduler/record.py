"""Records: what tracing notes of several examples, and their traces.

To note all examples of a batch in the same lists, and to turn each list into an array once, takes a
fraction of the time that many small arrays take. Examples noted together are a batch already, and most run as
one: then nothing needs to be joined. Only when one runs in other company is each given an array of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from foldbatch.scheduler.trace import (
    Column,
    Form,
    Index,
    Ints,
    Labels,
    Trace,
    batch_trace,
    late_trace,
    loose_of,
)

LooseColumns: TypeAlias = "Sequence[Sequence[Column]]"  # by cell, of feeds that are not packed


def shift(
    form: Form,
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    counts: Index,
    lengths: Index,
    by: Index,
) -> None:
    """Add numbers ``[examples]`` to the value numbers of each example, in place.

    Other arguments are attributes of `Trace` and `BatchRecord`.
    """
    shifts, sizes = by.astype(np.int32), iter(lengths.T)
    for k, (rows, parts) in enumerate(zip(calls, elements, strict=True)):
        rows[:, : 1 + form.arguments[k]] += np.repeat(shifts, counts[:, k])[:, None]
        for part in parts:
            part += np.repeat(shifts, next(sizes))[:, None]  # noqa: PLW2901 - in place


def _ends(sizes: Index) -> list[list[int]]:
    return [[0, *column] for column in sizes.cumsum(axis=0).T.tolist()]


@dataclass(eq=False, slots=True)
class BatchRecord:
    """One trace of several examples with continuous value numbers, and each example's counts and offsets.

    Traces of single examples are cut out of it when they are asked for.
    """

    joined: Trace | None  # until the examples have arrays of their own
    counts: Index  # ``[examples, cells] int64``: how many calls of each cell an example makes
    # ``[examples, sequences] int64``: how many elements each sequence argument has in an example, for the
    # sequence arguments of all cells in order
    lengths: Index
    offsets: Index  # ``[examples + 1] int64``: the first value number of each example, and the end
    results: Sequence[object]  # per example, its `Trace.result`; there value numbers count from 0
    _packed: tuple[Ints, list[int]] | None = field(default=None, init=False)
    # the feeds and labels of all examples, before `joined` goes
    _apart: list[tuple[LooseColumns, Labels]] | None = field(default=None, init=False)

    def traces(self) -> list[Trace]:
        assert self.joined is not None, "traces are asked for once, at the beginning"
        form, results, counts = self.joined.form, self.results, self.counts.tolist()
        return [late_trace(form, (self, e), counts[e], results[e]) for e in range(len(results))]

    def apart(self, example: int) -> tuple[LooseColumns, Labels]:
        """Return an example's feeds that are not packed, and its labels; those of all are made at once."""
        apart: list[tuple[LooseColumns, Labels]] | None = self._apart
        trace = self.joined
        if apart is None and trace is not None:
            loose, labels, ends = loose_of(trace), trace.labels, _ends(self.counts)
            apart = [(loose, labels)] * len(self.results)
            if any(loose) or any(labels):
                cuts = [[slice(*bounds[e : e + 2]) for bounds in ends] for e in range(len(self.results))]
                apart = [(_cut(loose, slices), _cut(labels, slices)) for slices in cuts]
            self._apart = apart
        parts = apart or self._apart
        assert parts is not None, "another thread is a step ahead, and has set them"
        return parts[example]

    def packed(self, example: int) -> Ints:
        """Return the packed integers of an example; those of all examples are made at once."""
        if self._packed is None:
            trace = self.joined
            if trace is not None:  # else another thread is a step ahead
                self.apart(example)
                self._packed = _by_example(trace, self.counts, self.lengths, self.offsets)
            self.joined = None
        assert self._packed is not None
        packed, bounds = self._packed
        return packed[bounds[example] : bounds[example + 1]]

    def batch(self, first: int, last: int) -> tuple[Trace, Index, Index] | None:
        """Return examples from `first` up to `last` as a batch, or None where they are no batch any more.

        Returns:
            Their joined trace, per cell how many of its calls each example makes, and what was added to the
            value numbers of each example.
        """
        joined, counts, offsets = self.joined, self.counts[first:last], self.offsets[first : last + 1]
        if joined is None:
            return None
        if last - first == len(self.results):
            return joined, counts.T, offsets[:-1]
        form, cuts, start = joined.form, _between(self.counts, first, last), np.int32(offsets[0])
        calls = tuple([rows[cut].copy() for rows, cut in zip(joined.calls, cuts, strict=True)])
        for rows, arguments in zip(calls, form.arguments, strict=True):
            rows[:, : 1 + arguments] -= start
        parts = iter(_between(self.lengths, first, last))
        elements = tuple(
            [
                tuple([part[next(parts)] - start for part in cell_elements])
                for cell_elements in joined.elements
            ]
        )
        relative = offsets - offsets[0]
        levels = tuple([part[cut] for part, cut in zip(joined.levels, cuts, strict=True)])
        data = _cut(joined.feeds, cuts), _cut(joined.labels, cuts)
        trace = batch_trace(form, None, calls, elements, levels, *data, int(relative[-1]))
        return trace, counts.T, relative[:-1]


def _by_example(trace: Trace, counts: Index, lengths: Index, offsets: Index) -> tuple[Ints, list[int]]:
    """Return the packed integers of all examples, one after the other, and where each begins."""
    form, values = trace.form, np.diff(offsets)
    heads = np.concatenate([values[:, None], counts, lengths], axis=1).astype(np.int32)
    flags, feeds = chain.from_iterable(form.integers), chain.from_iterable(trace.feeds)
    integers = [feed for feed, integer in zip(feeds, flags, strict=True) if integer]
    calls = [rows.copy() for rows in trace.calls]
    elements = [[part.copy() for part in parts] for parts in trace.elements]
    shift(form, calls, elements, counts, lengths, -offsets[:-1])
    sections = [*calls, *chain.from_iterable(elements), *trace.levels, *integers]
    source = np.concatenate([heads, *sections], axis=None)
    if len(heads) == 1:
        return source, [0, len(source)]
    sizes = np.empty((len(heads), 1 + len(sections)), np.int64)
    sizes[:, 0] = form.head
    np.multiply(heads[:, form.counters], form.widths, out=sizes[:, 1:])
    by_section = sizes.T.ravel()  # the order of `source`
    begins = (np.cumsum(by_section) - by_section).reshape(-1, len(heads)).T
    flat = sizes.ravel()
    ends = np.cumsum(flat)
    index = np.repeat(begins.ravel() - ends + flat, flat)
    index += np.arange(len(index))
    return source.take(index), [0, *ends[len(sections) :: 1 + len(sections)].tolist()]


def _between(sizes: Index, first: int, last: int) -> list[slice]:
    """Return where examples from `first` up to `last` stand in each column, given their sizes there."""
    begins = sizes[:first].sum(axis=0).tolist()
    counts = sizes[first:last].sum(axis=0).tolist()
    return [slice(begin, begin + count) for begin, count in zip(begins, counts, strict=True)]


def _cut(columns: Sequence[Sequence[Any]], cuts: Sequence[slice]) -> tuple[tuple[Any, ...], ...]:
    """Return a part of the columns of each cell: the same slice of all columns of a cell."""
    return tuple(
        [tuple([x[cut] for x in cell_columns]) for cell_columns, cut in zip(columns, cuts, strict=True)]
    )
