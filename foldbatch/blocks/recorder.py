"""Recorders: the lists that a tracing program appends to, and the record that is made of them.

All examples of a batch are noted in the same lists, and each list becomes an array once. What an example has
of its own is the counter of its calls, the lists that it collects values in, and its memos.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from operator import floordiv
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed
from foldbatch.model.model import Model
from foldbatch.scheduler.record import BatchRecord, SmallBatch, shift
from foldbatch.scheduler.trace import Ints, Levels, batch_trace

# of a cell: calls, elements and feeds, as of `Trace`
OfCell: TypeAlias = "tuple[Ints, tuple[Ints, ...], tuple[NDArray[Any], ...]]"

FULL_RECORD = 1_000_000  # value numbers, after which a record is full


class TooManyCallsError(Exception):
    """An example makes more calls than it may."""


def _too_many() -> Iterator[int]:
    raise TooManyCallsError
    yield


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
    ) -> None:
        self.model, self._form = model, model.form
        self._collections, self._memos = collections, memos
        # the values, between runs, of the globals that belong to an example
        self.idle_globals = dict.fromkeys(("call", *collections, *memos))
        self._bounds = bounds
        width = max([1, *(len(cell.outputs) for cell in model.signatures)])
        # those of an example's calls, `width` values each, and one number more
        self._numbers = range(0, min(max_calls * width + 1, 2**31 - width), width)
        self._row_widths = [1 + cell.arguments + len(cell.sequences) for cell in model.signatures]
        self._rows: list[list[int]] = [[] for _ in model.cells]
        self._elements: list[list[list[Any]]] = [[[] for _ in s.sequences] for s in model.signatures]
        self._feeds: list[list[list[Any]]] = [[[] for _ in feeds] for feeds in model.feeds]
        self._labels: list[list[list[Any]]] = [[[] for _ in labels] for labels in model.labels]
        self._counted: list[list[Any]] = [*self._rows, *chain.from_iterable(self._elements)]
        self._divisors = self._row_widths + [1] * (len(self._counted) - len(self._rows))
        self._none: dict[int, OfCell] = {}  # of cells that were not called once
        self._results: list[Any] = []
        self._offsets: list[int] = [0]
        self._ends: list[list[int]] = []  # after each example, the rows and elements that are `_counted`
        read = [*chain.from_iterable(self._feeds), *chain.from_iterable(self._labels)]
        self._cleared = *self._counted, *read, self._results, self._offsets, self._ends
        self._counter: Iterator[int] = iter(())
        notes = self._counted, self._ends, self._offsets, self._feeds
        self.small_batch = SmallBatch(None, *notes, self._joint_column, self._results)
        # the functions that the tracing program finds among its globals, by name; they append to the lists
        self.bindings: dict[str, Any] = {}
        for k, feeds in enumerate(model.feeds):
            self.bindings[f"row{k}"] = self._rows[k].extend
            for i, elements in enumerate(self._elements[k]):
                self.bindings[f"elements{k}_{i}"] = elements.extend
            for i, labels in enumerate(self._labels[k]):
                self.bindings[f"label{k}_{i}"] = labels.append
            for i, items in enumerate(self._feeds[k]):
                check = _checking(feeds[i], bounds[k][i], items)
                self.bindings[f"feed{k}_{i}"] = check if careful else items.append

    def begin(self, namespace: dict[str, Any]) -> None:
        """Begin an example: put a new counter of value numbers, collections and memos into the globals.

        Args:
            namespace: the globals of the tracing program, changed in place.
        """
        self._counter = counter = chain(self._numbers, _too_many())
        namespace["call"] = counter.__next__
        for name in self._collections:
            namespace[name] = []
        for name in self._memos:
            namespace[name] = {}

    def end(self, result: Any) -> None:
        """End an example: note its result and how many calls and values it has made."""
        self._offsets.append(self._offsets[-1] + next(self._counter))
        self._results.append(result)
        self._ends.append([*map(floordiv, map(len, self._counted), self._divisors)])

    def clear(self) -> None:
        """Forget all notes, to begin with the first example again."""
        for noted in self._cleared:
            noted.clear()
        self._offsets.append(0)

    @property
    def data(self) -> list[list[list[Any]]]:
        """The data read: per cell and feed, in the order of calls."""
        return self._feeds

    @property
    def full(self) -> bool:
        """Whether so many values are noted that a record should be made of them."""
        return self._offsets[-1] > FULL_RECORD

    @property
    def ended(self) -> int:
        return len(self._ends)

    def first_bad(self) -> tuple[int, BadDataError] | None:
        """Return the first example with a datum that its block cannot read, and the error; else None."""
        for example in range(self.ended):
            for k, columns in enumerate(self._feeds):
                example_calls = slice(*self._bounds_of_calls(k)[example : example + 2])
                for i, items in enumerate(columns):
                    try:
                        self._column(k, i, items[example_calls])
                    except BadDataError as error:
                        return example, error
        return None

    def _bounds_of_calls(self, k: int) -> list[int]:
        """Return where the calls of each example begin, and where the last ones end."""
        return [0, *(ends[k] for ends in self._ends)]

    def _column(self, k: int, i: int, items: list[Any]) -> NDArray[Any]:
        feed = self.model.feeds[k][i]
        return column(items, feed.type, self._bounds[k][i], feed.declared)

    def _joint_column(self, k: int, i: int) -> NDArray[Any]:
        """Return the data of all examples: in one go, or example by example where they fit only so."""
        items = self._feeds[k][i]
        try:
            return self._column(k, i, items)
        except BadDataError:
            if self.ended < 2 or self.first_bad():
                raise
            bounds = self._bounds_of_calls(k)
            return np.concatenate([self._column(k, i, items[a:b]) for a, b in pairwise(bounds)])

    def _of_cell(self, k: int) -> OfCell:
        """Return the notes of a cell as arrays; those of cells without calls are made once and kept."""
        rows, none = self._rows[k], self._none.get(k)
        if not rows and none is not None:
            return none
        elements, columns, widths = self._elements[k], self._feeds[k], self.model.signatures[k].sequences
        notes = (
            np.fromiter(rows, np.int32, len(rows)).reshape(-1, self._row_widths[k]),
            tuple([_matrix(elements[i], widths[i]) for i in range(len(elements))]) if elements else (),
            tuple([self._joint_column(k, i) for i in range(len(columns))]) if columns else (),
        )
        if not rows:
            self._none[k] = notes
        return notes

    def record(self, find: Levels) -> BatchRecord:
        """Return the examples that have ended; `find` finds the levels of their calls.

        Raises:
            BadDataError: when a datum is not what its block reads.
        """
        noted = [self._of_cell(k) for k in range(len(self._rows))]
        calls, elements, feeds = zip(*noted, strict=True) if noted else ((), (), ())
        sizes = np.array(self._ends, np.int64).reshape(len(self._ends), -1)
        if len(sizes) > 1:
            sizes[1:] -= sizes[:-1].copy()
        labels = tuple([tuple(map(list.copy, columns)) if columns else () for columns in self._labels])
        counts, lengths = sizes[:, : len(calls)], sizes[:, len(calls) :]
        offsets = np.array(self._offsets, np.int64)
        if len(sizes) > 1:
            shift(self._form, calls, elements, counts, lengths, offsets[:-1])
        parts = calls, elements, (), feeds, labels, self._offsets[-1]
        trace = batch_trace(self._form, find, *parts)
        return BatchRecord(trace, counts, lengths, offsets, self._results.copy())


def _matrix(part: list[Any], width: int) -> Ints:
    """Return the values of elements, single ones or tuples: ``[elements, width]``."""
    flat = part if width == 1 and not (part and isinstance(part[0], tuple)) else chain.from_iterable(part)
    return np.fromiter(flat, np.int32, width * len(part)).reshape(-1, width)


def _checking(feed: Feed, bound: int | None, items: list[Any]) -> Callable[[Any], None]:
    """Return a function that notes a datum of a feed and checks it at once."""

    def check(item: Any) -> None:
        column([item], feed.type, bound, feed.declared)
        items.append(item)

    return check
