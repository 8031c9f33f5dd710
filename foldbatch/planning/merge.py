"""Joining traces: concatenate, and add to every value number the values that came before.

Source: Looks et al. 2017, section 2.3, merges schedules by the same offset arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import ExampleError
from foldbatch.planning.integers import join
from foldbatch.scheduler.trace import CellSignature, Column, Form, Index, Labels, Trace, form, pack, unpack

MAX_VALUES = 2**31 - 1  # values of a batch, and integers that tell of them


class Merged(NamedTuple):
    """Traces joined into one."""

    trace: Trace  # the joined trace, with an empty `result`; a single trace is returned as it is
    # per cell ``[examples] int64``: how many of its calls each example makes
    counts: Sequence[Index] | Index
    offsets: NDArray[np.int64]  # ``[examples] int64``: what was added to each example's value numbers

    def examples(self, cell: int) -> NDArray[np.int64]:
        """Return the example of each of a cell's calls: ``[n]``."""
        return np.repeat(np.arange(len(self.offsets)), self.counts[cell])


def merge(traces: Sequence[Trace], cells: Sequence[CellSignature]) -> Merged:
    """Join the traces of a batch, which have one form; a batch of none has no calls."""
    noted = _noted_together(traces)
    if noted is not None:
        return noted
    only = traces[0].packed if len(traces) == 1 else None
    if only is not None and only.flags.writeable:  # compiled loops take no read-only arrays
        return _alone(traces[0])
    form = _form(traces, cells)
    blocks = [*map(pack, traces)]
    packed, heads = join(blocks, form)
    values = heads[:, 0]
    ends: Index = values.cumsum(dtype=np.int64)
    if traces:
        _check_size(int(ends[-1]), len(packed))
    trace = unpack(form, packed, _loose_feeds(traces, form), _labels(traces, cells))
    counts = heads[:, 1 : 1 + len(cells)].T.astype(np.int64)
    return Merged(trace, tuple(counts), ends - values)


def _noted_together(traces: Sequence[Trace]) -> Merged | None:
    """Return the batch of examples that were noted together, one after the other; None of others."""
    if not traces or traces[0].origin is None:
        return None
    (together, first), count = traces[0].origin, len(traces)
    follow = count == 1 or [t.origin for t in traces] == [(together, first + i) for i in range(count)]
    batch = together.batch(first, first + count) if follow and first >= 0 else None
    if batch is None:
        return None
    trace, counts, offsets = batch
    _check_size(trace.values)
    return Merged(trace, counts, offsets)


def _check_size(*integers: int) -> None:
    """Raise an ExampleError where numbers of values, or places of integers, do not fit into 32 bits."""
    if max(integers) > MAX_VALUES:
        actual, fix = f"one of {max(integers):,}", "make smaller batches"
        raise ExampleError(
            "batch", f"one of at most {MAX_VALUES:,} values, and as many integers", actual, fix
        )


def _alone(trace: Trace) -> Merged:
    """Return the batch of one example: all numbers stay as they are."""
    counts = [np.array([len(rows)], np.int64) for rows in trace.calls]
    return Merged(trace, tuple(counts), np.zeros(1, np.int64))


def _form(traces: Sequence[Trace], cells: Sequence[CellSignature]) -> Form:
    if traces:
        return traces[0].form
    none = tuple(() for _ in cells)
    return form(tuple([cell.arguments for cell in cells]), tuple([c.sequences for c in cells]), none)


def _loose_feeds(traces: Sequence[Trace], form: Form) -> list[list[Column]]:
    """Return, per cell, the feeds that are not packed: each ``[n, ...]``, all examples joined."""
    if form.packed:
        return [[] for _ in form.integers]
    return [
        [
            np.concatenate([trace.feeds[k][i] for trace in traces])
            for i, integer in enumerate(integers)
            if not integer
        ]
        for k, integers in enumerate(form.integers)
    ]


def _labels(traces: Sequence[Trace], cells: Sequence[CellSignature]) -> Labels:
    """Return, per cell and metric, the labels of all examples in one list."""
    if not traces:
        return tuple([() for _ in cells])
    if not any(traces[0].labels):
        return traces[0].labels
    return tuple(
        [
            tuple([list(chain.from_iterable([t.labels[k][i] for t in traces])) for i in range(len(columns))])
            for k, columns in enumerate(traces[0].labels)
        ]
    )
