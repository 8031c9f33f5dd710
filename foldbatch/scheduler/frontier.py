"""Running calls as they become ready: which cell next, turn by turn over a whole batch.

Levels fix each call's group from its own example. Where cells call each other that wastes groups:
it is better to look at the ready calls of the whole batch, choose a cell, run all its ready calls, and
look again. Every turn runs at least one call, so this ends.

Which cell? One of which many calls are ready, so that the step is wide. One of which most calls that are
left are ready, as those that are not will need another step. And one whose ready calls begin long paths,
as everything on a path waits for its first call. `turns.drain` weighs these against each other.

Source: Hu 1961 (Parallel sequencing and assembly line problems): the longest path first. Chen et al. 2023
(ED-Batch), section 3: a cell of which a large share of calls is ready. The product of both is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from foldbatch.scheduler.arithmetic import NUMPY, Arithmetic
from foldbatch.scheduler.trace import CellSignature, Index, Ints, Trace, lengths_of


@dataclass(frozen=True, slots=True)
class CallGraph:
    """The calls of some cells and the readers of their results; results of other cells count as given."""

    cells: tuple[int, ...]  # the cells' numbers; below, *place* is a cell's place in this list
    # ``[cells + 1] int64``: the number of each cell's first call; calls are numbered cell by cell
    starts: Index
    waits: Index  # ``[calls] int64``: how many results of these calls each call reads
    ends: Index  # ``[calls + 1] int64``: where each call's readers begin in `readers` (compressed rows)
    readers: Index  # ``[reads] int64``: the calls that read a call's results, once for every read

    def places(self) -> Index:
        """Return the place of each call's cell: ``[calls] int64``."""
        return np.repeat(np.arange(len(self.cells)), np.diff(self.starts))

    def split(self, figures: Ints) -> list[Ints]:
        """Cut an array with one entry per call, ``[calls]``, into one array per cell."""
        return [figures[start:stop] for start, stop in pairwise(self.starts.tolist())]


def call_graph(
    trace: Trace,
    signatures: Sequence[CellSignature],
    cells: Sequence[int],
    arithmetic: Arithmetic = NUMPY,
) -> CallGraph:
    """Return the graph of the calls of some cells."""
    members = tuple([signatures[k] for k in cells])
    outputs, arguments, alike = _columns(members)
    rows = [trace.calls[k] for k in cells]
    counts = np.array(list(map(len, rows)), np.int64)
    starts = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    calls = np.arange(starts[-1])
    joined = np.concatenate(rows) if alike else None
    bases = np.concatenate([part[:, 0] for part in rows]) if joined is None else joined[:, 0]
    maker = np.full(trace.values, -1, np.int32)
    for output in range(int(outputs.max())):
        some = calls if (outputs > output).all() else np.flatnonzero(np.repeat(outputs > output, counts))
        maker[bases[some] + output] = some
    if joined is not None:
        values, readers = [joined[:, 1:].ravel()], [np.repeat(calls, joined.shape[1] - 1)]
    else:
        values = [part[:, 1 : 1 + cell.arguments].ravel() for cell, part in zip(members, rows, strict=True)]
        readers = [np.repeat(calls, np.repeat(arguments, counts))]
    for place, (k, cell) in enumerate(zip(cells, members, strict=True)):
        for s, width in enumerate(cell.sequences):
            own = calls[starts[place] : starts[place + 1]]
            values.append(trace.elements[k][s].ravel())
            readers.append(np.repeat(own, lengths_of(trace, signatures, k, s) * width))
    source, reader = maker.take(np.concatenate(values)), np.concatenate(readers)
    inside = np.flatnonzero(source >= 0)
    source, reader = source.take(inside), reader.take(inside)
    order, ends = arithmetic.sort(source, len(calls))
    waits = np.bincount(reader, minlength=len(calls))
    return CallGraph(tuple(cells), starts, waits, ends, reader.take(order))


@lru_cache(256)
def _columns(cells: tuple[CellSignature, ...]) -> tuple[Index, Index, bool]:
    """Return how many outputs and single arguments each cell has, and whether calls of all have like rows.

    Shapes: both ``[cells]``.
    """
    outputs = np.array([len(cell.outputs) for cell in cells], np.int64)
    arguments = np.array([cell.arguments for cell in cells], np.int64)
    alike = not any(cell.sequences for cell in cells) and len(set(arguments.tolist())) == 1
    return outputs, arguments, alike


def drain(
    graph: CallGraph, order: Index, preference: Sequence[float] = (), arithmetic: Arithmetic = NUMPY
) -> tuple[list[Ints], list[tuple[int, int]]]:
    """Run all calls, in every turn all ready ones of the cell that is chosen.

    Args:
        graph: the calls.
        order: ``[calls] int64``: the calls, each after those that it reads.
        preference: of each cell, 0 or more: the greatest one runs, of equals the earlier cell; by default
            what ready calls weigh decides, see `turns.drain`.
        arithmetic: what runs the loops.

    Returns:
        Per cell of the graph ``[n] int32``: the turn of the cell in which each call runs, from 0 on.
        And all turns in order, each a pair: the cell's number and the number of the cell's turn.
    """
    figures = np.array(preference, np.float64)
    groups, places = arithmetic.drain(
        graph.places(), order, graph.ends, graph.readers, graph.waits, len(graph.cells), figures
    )
    assert (groups >= 0).all(), "a call waits for itself"
    numbers = numbered(places, len(graph.cells), arithmetic)
    return graph.split(groups), turns_of(graph.cells, places, numbers)


def numbered(places: Index, cells: int, arithmetic: Arithmetic) -> Index:
    """Number the turns of each cell from 0 on: ``[turns]``; ``places: [turns]``, below `cells`.

    >>> numbered(np.array([1, 0, 1]), 2, NUMPY)
    array([0, 0, 1])
    """
    order, starts = arithmetic.sort(places.astype(np.int32), cells)
    numbers = np.empty(len(places), np.int64)
    numbers[order] = np.arange(len(places)) - np.repeat(starts[:-1], np.diff(starts))
    return numbers


def turns_of(cells: Sequence[int], places: Index, numbers: Index) -> list[tuple[int, int]]:
    """Return turns as pairs of cell and number; shapes: both ``[turns]``."""
    return list(zip(map(cells.__getitem__, places.tolist()), numbers.tolist(), strict=True))
