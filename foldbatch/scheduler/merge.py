"""Joining traces: concatenate, and add to every value number the values that came before.

Source: Looks et al. 2017, section 2.3, merges schedules by the same offset arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from foldbatch.scheduler.trace import CellSignature, Ints, Trace

P = TypeVar("P")


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
    calls, counts, elements = [], [], []
    for cell, parts in zip(cells, _by_cell([trace.calls for trace in traces], cells), strict=True):
        count = np.array(list(map(len, parts)), np.int64)
        rows = _concatenate(parts, 1 + cell.arguments + len(cell.sequences))
        rows[:, : 1 + cell.arguments] += np.repeat(shifts, count)[:, None]
        calls.append(rows)
        counts.append(count)
    for cell, lists in zip(cells, _by_cell([trace.elements for trace in traces], cells), strict=True):
        columns = zip(*lists, strict=True) if cell.sequences and lists else [()] * len(cell.sequences)
        elements.append(
            tuple(_shifted(part, width, shifts) for part, width in zip(columns, cell.sequences, strict=True))
        )
    levels = [_joined(parts) for parts in _by_cell([trace.levels for trace in traces], cells)]
    feeds = [
        tuple(map(_joined, _columns(parts))) for parts in _by_cell([trace.feeds for trace in traces], cells)
    ]
    labels = [
        tuple(list(chain.from_iterable(column)) for column in _columns(parts))
        for parts in _by_cell([trace.labels for trace in traces], cells)
    ]
    joined = Trace(tuple(calls), tuple(elements), tuple(levels), tuple(feeds), tuple(labels), total)
    return Merged(joined, tuple(counts), offsets)


def _by_cell(parts: Sequence[Sequence[P]], cells: Sequence[CellSignature]) -> Iterable[Sequence[P]]:
    """Turn what each trace holds for each cell into what each cell has of each trace."""
    return zip(*parts, strict=True) if parts else [()] * len(cells)


def _columns(parts: Sequence[Sequence[P]]) -> Iterable[Sequence[P]]:
    """Turn what each trace has of each column into columns; mostly there are none."""
    return zip(*parts, strict=True) if parts and parts[0] else ()


def _concatenate(parts: Sequence[Ints], width: int) -> Ints:
    return np.concatenate(parts) if parts else np.zeros((0, width), np.int32)


def _joined(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _shifted(parts: Sequence[Ints], width: int, shifts: Ints) -> Ints:
    rows = _concatenate(parts, width)
    return rows + np.repeat(shifts, list(map(len, parts)))[:, None]
