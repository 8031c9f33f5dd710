"""Joining traces: concatenate, and add to every value number the values that came before.

Source: Looks et al. 2017, section 2.3, merges schedules by the same offset arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.trace import CellSignature, Ints, Trace


@dataclass(frozen=True, slots=True)
class Merged:
    """Traces joined into one.

    Attributes:
        trace: the joined trace; its `result` is empty.
        counts: per cell ``[examples] int64``: how many of its calls each example makes.
        offsets: ``[examples] int64``: what was added to each example's value numbers.
    """

    trace: Trace
    counts: tuple[NDArray[np.int64], ...]
    offsets: NDArray[np.int64]

    def examples(self, cell: int) -> NDArray[np.int64]:
        """Return the example of each of a cell's calls: ``[n]``."""
        return np.repeat(np.arange(len(self.offsets)), self.counts[cell])


def merge(traces: Sequence[Trace], cells: Sequence[CellSignature]) -> Merged:
    """Join the traces of a batch; a batch of none has no calls."""
    values = np.array([trace.values for trace in traces], dtype=np.int64)
    ends = np.cumsum(values)
    total = int(ends[-1]) if len(traces) else 0
    assert total < 2**31, "a batch has at most 2**31 values; make smaller batches"
    offsets = ends - values
    shifts = offsets.astype(np.int32)
    calls, counts, elements, levels, feeds, labels = [], [], [], [], [], []
    for k, cell in enumerate(cells):
        count = np.fromiter((len(trace.calls[k]) for trace in traces), np.int64, len(traces))
        rows = _concatenate([trace.calls[k] for trace in traces], 1 + cell.arguments + len(cell.sequences))
        rows[:, : 1 + cell.arguments] += np.repeat(shifts, count)[:, None]
        calls.append(rows)
        counts.append(count)
        widths = enumerate(cell.sequences)
        elements.append(tuple(_shifted(traces, k, i, width, shifts) for i, width in widths))
        levels.append(_joined([trace.levels[k] for trace in traces]))
        feeds.append(tuple(map(_joined, zip(*(trace.feeds[k] for trace in traces), strict=True))))
        columns = zip(*(trace.labels[k] for trace in traces), strict=True)
        labels.append(tuple([label for part in column for label in part] for column in columns))
    joined = Trace(tuple(calls), tuple(elements), tuple(levels), tuple(feeds), tuple(labels), total)
    return Merged(joined, tuple(counts), offsets)


def _concatenate(parts: Sequence[Ints], width: int) -> Ints:
    return np.concatenate(parts) if parts else np.zeros((0, width), np.int32)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _shifted(traces: Sequence[Trace], cell: int, sequence: int, width: int, shifts: Ints) -> Ints:
    parts = [trace.elements[cell][sequence] for trace in traces]
    rows = _concatenate(parts, width)
    return rows + np.repeat(shifts, [len(part) for part in parts])[:, None]
