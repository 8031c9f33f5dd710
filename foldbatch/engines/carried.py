"""Planned batches on their way to another process: arrays, and a header of a few numbers.

The receiver makes views of the arrays, and no object for an example, a call or a level: traces, results and
labels are made when somebody asks for them, which no step of training does.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from foldbatch.engines.batch import Owner, Planned, ScheduledBatch, SubBatch
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.planning.merge import Merged
from foldbatch.planning.table_loops import Tables
from foldbatch.planning.tables import schedule_in
from foldbatch.scheduler.record import BatchRecord
from foldbatch.scheduler.schedule import Index, Schedule
from foldbatch.scheduler.trace import Column, Form, Ints, Labels, Trace, late_trace, loose_of, pack
from foldbatch.system.late import LateSequence

PROTOCOL = pickle.HIGHEST_PROTOCOL


class Header(NamedTuple):
    """All of a carried part but its arrays."""

    first: int  # the number of its first example in the batch
    examples: int  # how many it has
    calls: list[int]  # per cell, how many there are
    feeds: list[int]  # per cell, how many columns of data its calls read
    # per cell, which of the columns that are not packed come in the order of calls, too, as ranks do not tell
    apart: list[list[int]]
    reason: str  # see `Schedule`


def carried(parts: Sequence[SubBatch]) -> tuple[list[Header], list[Array]]:
    """Return scheduled parts of a batch as headers, and the arrays of all parts, one after the other.

    Of each part these are the memory of its schedule, its packed trace, how many calls of each cell an
    example makes, what was added to the numbers of its values, results and labels as pickled bytes, the data
    in rank order, and the data in the order of calls as far as ranks do not tell them.
    """
    headers, arrays = [], list[Array]()
    for part in parts:
        batch = part.batch
        assert batch is not None, "a planner schedules all parts"
        trace, schedule = batch.merged.trace, batch.schedule
        flat = schedule.flat
        assert flat is not None, "a planner's schedules are flat"
        objects = pickle.dumps((batch.results, trace.labels), PROTOCOL)
        loose, apart = loose_of(trace), list[list[int]]()
        for columns, order, count in zip(loose, flat.orders, trace.counts, strict=True):
            apart.append([] if len(order) == count else [*range(len(columns))])
        used = flat.header[Tables.index] + flat.header[Tables.index_end]
        arrays += (flat.memory[:used], pack(trace), np.asarray(batch.merged.counts, np.int64))
        arrays += (batch.merged.offsets, np.frombuffer(objects, np.uint8))
        arrays += [data for columns in batch.feeds for data in columns]
        arrays += [columns[i] for columns, kept in zip(loose, apart, strict=True) for i in kept]
        widths = [len(columns) for columns in batch.feeds]
        headers.append(Header(part.first, len(part.traces), [*trace.counts], widths, apart, schedule.reason))
    return headers, arrays


def arrived(
    headers: Sequence[Header], arrays: Sequence[Array], model: Model, form: Form
) -> tuple[SubBatch, ...]:
    """Return the parts of a batch that `carried` took apart; they are views of the arrays.

    Args:
        headers: of the parts.
        arrays: of all of them.
        model: of the program that runs the batch, equal to that of the process that planned it.
        form: of the model's traces.
    """
    remaining, arenas = iter(arrays), len(model.arenas)
    parts = []
    for header in headers:
        memory, packed, counts, offsets, objects = (next(remaining) for _ in range(5))
        feeds = tuple([tuple([next(remaining) for _ in range(width)]) for width in header.feeds])
        apart = [{i: next(remaining) for i in kept} for kept in header.apart]
        schedule = schedule_in(memory, model.signatures, arenas, header.calls, counts, feeds, header.reason)
        late = _Late(packed, objects, schedule, feeds, apart, form)
        trace = late_trace(form, (late, 0), header.calls, None)
        merged = Merged(trace, counts, offsets)
        results = LateSequence(len(offsets), late.results)
        batch = ScheduledBatch(merged, schedule, feeds, results, {})
        parts.append(
            SubBatch(
                header.first, LateSequence(len(offsets), partial(_cut, merged, late, len(offsets))), batch
            )
        )
    return tuple(parts)


class CarriedPlan(Planned):
    """A batch that was planned in another process, as it was carried; the first run opens it.

    Args:
        headers: of its parts.
        arrays: of all of them.
        owner: the fingerprint of the program that it is for.
    """

    def __init__(self, headers: Sequence[Header], arrays: Sequence[Array], owner: str) -> None:
        super().__init__((), owner)
        object.__setattr__(self, "_carried", (headers, arrays))
        object.__setattr__(self, "_opened", None)

    _carried: tuple[Sequence[Header], Sequence[Array]]
    _opened: Planned | None

    def owned(self, owner: Owner) -> Planned:
        """Return the batch as views of the arrays."""
        if self._opened is None:
            parts = arrived(*self._carried, owner.model, owner.model.form)
            object.__setattr__(self, "_opened", Planned(parts, owner))
        assert self._opened is not None, "it was made just now"
        return self._opened

    def __len__(self) -> int:
        return sum(header.examples for header in self._carried[0])

    def __reduce__(self) -> tuple[type[CarriedPlan], tuple[object, ...]]:
        return CarriedPlan, (*self._carried, self.owner)


@dataclass(frozen=True, slots=False, eq=False)
class _Late:
    """The parts of a joined trace that are made when they are asked for; see `Trace.origin`."""

    integers: Ints
    objects: Array  # results and labels as pickled bytes
    schedule: Schedule
    feeds: tuple[tuple[Column, ...], ...]  # in rank order
    kept: list[dict[int, Column]]  # per cell and column, those in the order of calls
    form: Form

    def packed(self, _: int) -> Ints:
        """Return the packed trace."""
        return self.integers

    def apart(self, _: int) -> tuple[list[list[Column]], Labels]:
        """Return the data that are not packed, in the order of calls, and the labels."""
        loose = []
        orders = self.schedule.orders
        for k, flags in enumerate(self.form.integers):
            ranked = [data for data, integer in zip(self.feeds[k], flags, strict=True) if not integer]
            loose.append([self.kept[k].get(i, _unranked(data, orders[k])) for i, data in enumerate(ranked)])
        return loose, self.results_and_labels[1]

    def results(self) -> Sequence[object]:
        """Return the result of each example, as its trace holds it."""
        return self.results_and_labels[0]

    @cached_property
    def results_and_labels(self) -> tuple[Sequence[object], Labels]:
        """The result of each example, as its trace holds it, and the labels of all."""
        unpickled: tuple[Sequence[object], Labels] = pickle.loads(self.objects.data)  # noqa: S301 - a child wrote it
        return unpickled


def _unranked(data: Column, order: Index) -> Column:
    """Return data in the order of calls, given them in rank order."""
    column = np.empty_like(data)
    if len(order) == len(data):
        column[order] = data
    return column


def _cut(merged: Merged, late: _Late, size: int) -> list[Trace]:
    """Return the traces; those of one example have its result, and value numbers from 0 on."""
    form = late.form
    counts = np.asarray(merged.counts, np.int64).T
    lengths = []
    for k, rows in enumerate(merged.trace.calls):
        example = merged.examples(k)
        for s in range(len(form.sequences[k])):
            of_calls = rows[:, 1 + form.arguments[k] + s]
            lengths.append(np.bincount(example, of_calls, size).astype(np.int64))
    table = np.stack(lengths, axis=1) if lengths else np.zeros((size, 0), np.int64)
    offsets = np.append(merged.offsets, merged.trace.values)
    results = late.results()
    return BatchRecord(merged.trace, counts, table, offsets, results).traces()
