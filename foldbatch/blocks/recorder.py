"""Recorders: the lists that a tracing program appends to, and the record that is made of them.

All examples of a batch are noted in the same lists, and each list becomes an array once. What an example has
of its own is the counter of its calls, the lists that it collects values in, and its memos.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from foldbatch.blocks.printing import CALL, DRAW
from foldbatch.blocks.tracing import Call
from foldbatch.model.columns import column
from foldbatch.model.model import Model
from foldbatch.model.small_batches import SmallBatch
from foldbatch.params.parameters import Array
from foldbatch.recorder.checks import BadDatum, NotedData, first_bad
from foldbatch.recorder.lists import call_lists, checking, flattening
from foldbatch.scheduler.record import BatchRecord, shift
from foldbatch.scheduler.trace import Ints, Levels, batch_trace

# of a cell: calls, elements and feeds, as of `Trace`
OfCell: TypeAlias = "tuple[Ints, tuple[Ints, ...], tuple[Array, ...]]"

FULL_RECORD = 1_000_000  # value numbers, after which a record is full


class TooManyCallsError(Exception):
    """An example makes more calls than it may."""


def _refuse() -> int:
    raise TooManyCallsError


def _too_many() -> Iterator[int]:
    yield _refuse()


class Recorder:
    """Notes the calls and data of a tracing program's runs, one example after the other."""

    def __init__(
        self,
        model: Model,  # the model that the tracing program calls cells of
        collections: Sequence[str],  # the variables that hold lists of collected values
        memos: Sequence[str],  # the variables that hold memos
        max_calls: int,  # how many calls an example may make
        # per cell and feed, the number that ids must be below, or None
        bounds: Sequence[Sequence[int | None]],
        *,
        careful: bool = False,  # whether each datum is checked as soon as it is read
        compiled: bool = False,  # whether compiled functions note calls, see `loops.closures.can_close`
    ) -> None:
        self.model, self._form = model, model.form
        self._collections, self._memos = collections, memos
        # the values, between runs, of the globals that belong to an example
        self.idle_globals = dict.fromkeys((*collections, *memos))
        self._bounds = bounds
        width = max([1, *(len(cell.outputs) for cell in model.signatures)])
        # those of an example's calls, `width` values each, and one number more
        self._numbers = range(0, min(max_calls * width + 1, 2**31 - width), width)
        self._row_widths = [1 + cell.arguments + len(cell.sequences) for cell in model.signatures]
        self._compiled = compiled
        # the next number and the last one that the present example may take, for compiled functions
        self._counters = array("q", (0, self._numbers[-1] - width))
        sizes = zip(model.signatures, model.feeds, model.labels, strict=True)
        self.lists = [
            call_lists(len(cell.sequences), len(feeds), len(labels), compiled=compiled)
            for cell, feeds, labels in sizes
        ]
        self._feeds = [lists.feeds for lists in self.lists]
        self._counted = [lists.rows for lists in self.lists]
        self._counted += chain.from_iterable([lists.elements for lists in self.lists])
        members = [width for cell in model.signatures for width in cell.sequences]
        self._divisors = self._row_widths + members
        self._none: dict[int, OfCell] = {}  # of cells that were not called once
        self._results: list[object] = []
        self._offsets: list[int] = [0]
        self._ends: list[list[int]] = []  # after each example, the lengths of the lists that are `_counted`
        self._counter: Iterator[int] = iter(())
        self._width = width
        notes = self._counted, self._ends, self._offsets, self._feeds
        self.small_batch = SmallBatch(*notes, self._column, self._results)
        # the functions that the tracing program finds among its globals, by name; they append to the lists
        self.bindings: dict[str, Any] = {}
        for k, lists in enumerate(self.lists):
            self.bindings[f"row{k}"] = lists.appender("R")
            for i, inner in enumerate(model.signatures[k].sequences):
                self.bindings[f"elements{k}_{i}"] = flattening(lists.appender("E", i), inner)
            for i in range(len(lists.labels)):
                self.bindings[f"label{k}_{i}"] = lists.appender("L", i)
            for i, feed in enumerate(model.feeds[k]):
                check = checking(feed, bounds[k][i], lists.feeds[i])
                self.bindings[f"feed{k}_{i}"] = check if careful else lists.appender("F", i)
        if compiled:
            from foldbatch.blocks.note_loops import drawer  # noqa: PLC0415 - it needs llvmlite

            self.bindings[DRAW] = drawer(self._counters, width, _refuse)

    def use_compiled(self, namespace: dict[str, Any], calls: Sequence[Call]) -> None:
        """Put compiled functions that note calls in the places of printed ones, where there can be any.

        Args:
            namespace: the globals of the tracing program, changed in place.
            calls: for each cell, a statement of the tracing program that calls it.
        """
        if not self._compiled:
            return
        from foldbatch.blocks.note_loops import noter  # noqa: PLC0415 - it needs llvmlite

        for call in calls:
            assert call.draft is not None, "it calls a cell"
            k, name = call.draft.number, f"{CALL}{call.draft.number}"
            pairs = zip((*self._feeds[k], *self.lists[k].labels), (*call.feeds, *call.labels), strict=True)
            data = [(items, datum.value == call.target) for items, datum in pairs]
            arguments = self.lists[k].rows, len(call.arguments), self.lists[k].elements, data
            namespace[name] = noter(self._counters, self._width, namespace[name], *arguments)

    def begin(self, namespace: dict[str, object]) -> None:
        """Begin an example: put a new counter of value numbers, collections and memos into the globals.

        Args:
            namespace: the globals of the tracing program, changed in place.
        """
        if not self._compiled:
            self._counter = counter = chain(self._numbers, _too_many())
            namespace[DRAW] = counter.__next__
        self._counters[0] = 0
        for name in self._collections:
            namespace[name] = []
        for name in self._memos:
            namespace[name] = {}

    def end(self, result: object) -> None:
        """End an example: note its result and how many calls and values it has made."""
        taken = next(self._counter) if not self._compiled else self._counters[0]
        self._offsets.append(self._offsets[-1] + taken)
        self._results.append(result)
        self._ends.append([*map(len, self._counted)])

    def clear(self) -> None:
        """Forget all notes, to begin with the first example again."""
        for lists in self.lists:
            lists.clear()
        for noted in (self._results, self._offsets, self._ends):
            del noted[:]
        self._offsets.append(0)

    @property
    def data(self) -> list[list[list[object]]]:
        """The data read: per cell and feed, in the order of calls."""
        return self._feeds

    @property
    def full(self) -> bool:
        """Whether so many values are noted that a record should be made of them."""
        return self._offsets[-1] > FULL_RECORD

    @property
    def ended(self) -> int:
        return len(self._ends)

    def first_bad(self) -> BadDatum | None:
        """Return the first datum that its block cannot read, with its example as its call; else None."""
        examples, noted = np.arange(self.ended), list[NotedData]()
        for k, columns in enumerate(self._feeds):
            of_call = np.repeat(examples, np.diff(self._bounds_of_calls(k))).tolist()
            for feed, bound, items in zip(self.model.feeds[k], self._bounds[k], columns, strict=True):
                noted.append(NotedData(feed, bound, items[: len(of_call)], of_call))
        return first_bad(noted)

    def _bounds_of_calls(self, k: int) -> list[int]:
        """Return where the calls of each example begin, and where the last ones end."""
        return [0, *(ends[k] // self._divisors[k] for ends in self._ends)]

    def _column(self, k: int, i: int) -> Array:
        """Return the data of a feed of all examples."""
        feed = self.model.feeds[k][i]
        return column(self._feeds[k][i], feed.type, self._bounds[k][i], feed.declared)

    def _of_cell(self, k: int) -> OfCell:
        """Return the notes of a cell as arrays; those of cells without calls are made once and kept."""
        rows, none = self.lists[k].rows, self._none.get(k)
        if not rows and none is not None:
            return none
        elements, columns, widths = self.lists[k].elements, self._feeds[k], self.model.signatures[k].sequences
        notes = (
            np.array(rows, np.int32).reshape(-1, self._row_widths[k]),
            tuple([np.array(x, np.int32).reshape(-1, w) for x, w in zip(elements, widths, strict=True)]),
            tuple([self._column(k, i) for i in range(len(columns))]) if columns else (),
        )
        if not rows:
            self._none[k] = notes
        return notes

    def record(self, find: Levels) -> BatchRecord:
        """Return the examples that have ended; `find` finds the levels of their calls.

        Raises:
            BadDataError: when a datum is not what its block reads.
        """
        noted = [self._of_cell(k) for k in range(len(self.lists))]
        calls, elements, feeds = zip(*noted, strict=True) if noted else ((), (), ())
        sizes = np.array(self._ends, np.int64).reshape(len(self._ends), -1) // self._divisors
        if len(sizes) > 1:
            sizes[1:] -= sizes[:-1].copy()
        columns = [lists.labels for lists in self.lists]
        labels = tuple([tuple(map(list.copy, items)) if items else () for items in columns])
        counts, lengths = sizes[:, : len(calls)], sizes[:, len(calls) :]
        offsets = np.array(self._offsets, np.int64)
        if len(sizes) > 1:
            shift(self._form, calls, elements, counts, lengths, offsets[:-1])
        parts = calls, elements, (), feeds, labels, self._offsets[-1]
        trace = batch_trace(self._form, find, *parts)
        return BatchRecord(trace, counts, lengths, offsets, self._results.copy())
