"""Identical calls, computed once: the same word five thousand times in a batch is one leaf.

The data alone determine a call that reads no other call's value. Where these data are a few
integers (ids), calls that agree in all of them share one row of their kernels; the engine
copies a result to all rows that need it, and sums their cotangents. A batch of SST trees
has 2.6 times fewer distinct words than words.

The same holds for calls that read others, if their data and all that they read are identical: whole
subtrees run once (`subtrees`). One call of each kind runs, reading rows of its own arguments. Its
result is copied to the rows that running calls read; other calls of its kind have no rows.

Source: Ershov 1958 (On programming of arithmetic operations): identical expressions are found by
numbering the distinct ones, operands first; since known as value numbering, or hash-consing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import UnknownNameError
from foldbatch.planning.integers import group
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, Ints, Trace, arguments_of, lengths_of


def _none() -> Index:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Sharing:
    """Calls grouped by what they compute."""

    order: Index  # ``[n] int64``: the calls, group by group, in the order in which these run
    copies: Index  # ``[m + 1] int64``: where each group starts in `order`
    # ``[d] int64``: the calls left out of `order`: no call that runs reads their results
    dropped: Index = field(default_factory=_none, repr=False)
    # ``[d] int64``: for each dropped call, the first call of its group
    instead: Index = field(default_factory=_none, repr=False)

    @property
    def representatives(self) -> Index:
        """The first call of each group: ``[m]``."""
        return self.order[self.copies[:-1]]


def share(columns: Sequence[NDArray[np.generic]], calls: int) -> Sharing | None:
    """Group `calls` calls by the columns of their data; None where no two agree.

    Shapes: each column ``[calls]``, of integers or bools.

    >>> share([np.array([7, 3, 7])], 3)
    Sharing(order=array([1, 0, 2]), copies=array([0, 1, 3]))
    """
    if len(columns) == 1 and calls and columns[0].dtype.kind in "iu":
        order, copies = group(columns[0])
        return None if len(copies) > calls else Sharing(order, copies)
    kinds = np.zeros(calls, np.int64)
    for column in columns:
        distinct, inverse = np.unique(column, return_inverse=True)
        kinds = kinds * len(distinct) + inverse
        if len(columns) > 1:  # keep the numbers small, lest they overflow
            kinds = np.unique(kinds, return_inverse=True)[1]
    count = np.bincount(kinds)
    count = count[count > 0]
    if len(count) == calls:
        return None
    return Sharing(np.argsort(kinds, kind="stable"), np.concatenate([[0], np.cumsum(count)]))


def leaves(trace: Trace, cells: Sequence[CellSignature], groups: Sequence[Ints]) -> list[Sharing | None]:
    """Share calls that read no value and whose data are a few integers. Shapes: as for `subtrees`.

    Such are all calls of a `shareable` cell, and of a `repeatable` one that reads sequences alone those whose
    sequences are empty: leaves of trees whose nodes have any number of children.
    """
    shared: list[Sharing | None] = []
    for k, cell in enumerate(cells):
        if cell.shareable:
            shared.append(share(trace.feeds[k], len(trace.calls[k])))
        elif cell.repeatable and cell.sequences and not cell.arguments and len(trace.calls[k]) > 1:
            shared.append(_childless(trace, k, groups[k]))
        else:
            shared.append(None)
    return shared


def _childless(trace: Trace, k: int, groups: Ints) -> Sharing | None:
    """Share calls whose sequences are empty. Shapes: ``groups: [n]``, the group of each call."""
    rows, feeds = trace.calls[k], trace.feeds[k]
    empty = np.flatnonzero(~rows[:, 1:].any(1))
    if len(empty) < 2 or any(feed.ndim > 1 for feed in feeds):
        return None
    alike = share([feed[empty] for feed in feeds], len(empty))
    if alike is None:
        return None
    first_alike = np.arange(len(rows))
    first_alike[empty[alike.order]] = np.repeat(empty[alike.representatives], np.diff(alike.copies))
    return _runs(first_alike, groups)


def none_shared(trace: Trace, cells: Sequence[CellSignature], groups: Sequence[Ints]) -> list[Sharing | None]:
    return [None] * len(cells)


def subtrees(trace: Trace, cells: Sequence[CellSignature], groups: Sequence[Ints]) -> list[Sharing | None]:
    """Share calls of `repeatable` cells whose data, and all that they read, are identical.

    Shapes: ``groups``, per cell ``[n] int32``: the group of each call.
    """
    first_alike = stand_ins(trace, cells)
    shared = [
        _runs(first_alike[trace.calls[k][:, 0]], groups[k]) if cell.repeatable else None
        for k, cell in enumerate(cells)
    ]
    read = np.zeros(trace.values, bool)
    for k, (cell, sharing) in enumerate(zip(cells, shared, strict=True)):
        runs = np.full(len(trace.calls[k]), sharing is None)
        if sharing is not None:
            runs[sharing.representatives] = True
        read[arguments_of(trace, cells, k)[runs]] = True
        for s in range(len(cell.sequences)):
            read[trace.elements[k][s][np.repeat(runs, lengths_of(trace, cells, k, s))]] = True
    return [
        None if x is None else _thinned(x, read, trace.calls[k][:, 0], len(cells[k].outputs))
        for k, x in enumerate(shared)
    ]


def stand_ins(trace: Trace, cells: Sequence[CellSignature]) -> Index:
    """Return, for each value of a batch, the first one that is the same: ``[values] int64``.

    Values are the same if they are the same output of calls of one `repeatable` cell whose data are
    identical and whose arguments are the same.
    """
    first_alike = np.arange(trace.values)
    every = {k: _candidates(trace, cells, k) for k, cell in enumerate(cells) if cell.repeatable}
    for component in sorted({cells[k].component for k in every}):
        members = [candidates for k, candidates in every.items() if cells[k].component == component]
        height = max(len(candidates.levels) for candidates in members)
        for level in range(height):  # arguments lie in lower levels
            for candidates in members:
                if level < len(candidates.levels) and len(candidates.levels[level]) > 1:
                    _number(first_alike, candidates, candidates.levels[level])
    return first_alike


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The calls of a repeatable cell, by level."""

    bases: Index  # ``[n]``: the number of each call's first value
    arguments: Ints  # ``[n, a]``: the numbers of the values that it reads
    data: Index  # ``[n, d]``: its feeds, as integers
    lengths: Index  # ``[n, s]``: the lengths of its sequences
    starts: Index  # ``[n, s]``: where each of its sequences begins in `elements`
    elements: tuple[Ints, ...]  # per sequence argument, as in `Trace.elements`
    levels: list[Index]  # per level, its calls
    outputs: int  # how many values a call makes


def _candidates(trace: Trace, cells: Sequence[CellSignature], k: int) -> _Candidates:
    """Return the calls of a repeatable cell with all that decides whether two of them are identical."""
    rows, levels, count = trace.calls[k].astype(np.int64), trace.levels[k], len(trace.calls[k])
    lengths = rows[:, 1 + cells[k].arguments :]
    columns = [column.reshape(count, -1) for column in trace.feeds[k]] if count else []
    return _Candidates(
        rows[:, 0],
        arguments_of(trace, cells, k),
        np.hstack([np.zeros((count, 0), np.int64), *(x.astype(np.int64) for x in columns)]),
        lengths,
        np.cumsum(lengths, axis=0) - lengths,
        trace.elements[k],
        np.split(np.argsort(levels, kind="stable"), np.cumsum(np.bincount(levels))[:-1]),
        len(cells[k].outputs),
    )


def _number(first_alike: Index, candidates: _Candidates, calls: Index) -> None:
    """Let the first of identical calls stand for all; the values that they read are numbered already.

    Shapes: ``first_alike: [values]``, changed in place; ``calls: [n]``.
    """
    fixed = np.hstack([first_alike[candidates.arguments[calls]], candidates.data[calls]])
    kinds = _firsts(candidates.lengths[calls])
    for kind in np.flatnonzero(np.bincount(kinds) > 1):  # sequences of equal lengths are a matrix
        members = np.flatnonzero(kinds == kind)
        parts = [fixed[members]]
        for s, elements in enumerate(candidates.elements):
            starts, length = candidates.starts[calls[members], s], candidates.lengths[calls[kind], s]
            places = starts[:, None] + np.arange(length)
            parts.append(first_alike[elements[places]].reshape(len(members), -1))
        first = members[_firsts(np.hstack(parts))]
        for output in range(candidates.outputs):
            first_alike[candidates.bases[calls[members]] + output] = candidates.bases[calls[first]] + output


def _firsts(rows: Index) -> Index:
    """Return, for each row, the index of the first row that is equal to it. Shapes: ``[n, k]`` to ``[n]``."""
    if not rows.shape[1]:
        return np.zeros(len(rows), np.int64)
    order = np.lexsort(rows.T)
    ranked = rows[order]
    starts = np.append(True, (ranked[1:] != ranked[:-1]).any(1))
    first = np.empty_like(order)
    first[order] = order[np.flatnonzero(starts)[np.cumsum(starts) - 1]]
    return first


def _runs(first_alike: Index, groups: Ints) -> Sharing | None:
    """Put calls with the same results into one group, within the groups in which they run.

    Shapes: ``first_alike: [n]``, the value that stands for each call's first result; ``groups: [n]``.
    """
    order = np.lexsort((first_alike, groups))
    first_alike, groups = first_alike[order], groups[order]
    differs = (first_alike[1:] != first_alike[:-1]) | (groups[1:] != groups[:-1])
    if differs.all():
        return None
    return Sharing(order, np.concatenate([[0], np.flatnonzero(differs) + 1, [len(order)]]))


def _thinned(sharing: Sharing, read: NDArray[np.bool_], bases: Ints, outputs: int) -> Sharing:
    """Return the sharing of a cell without the copies whose values no call reads.

    Args:
        sharing: the groups of identical calls.
        read: whether each value is read: ``[values]``.
        bases: the first value of each call: ``[n]``.
        outputs: how many values a call makes.
    """
    owner = np.repeat(np.arange(len(sharing.copies) - 1), np.diff(sharing.copies))
    kept = read[bases[sharing.order, None] + np.arange(outputs)].any(1)
    kept[sharing.copies[:-1]] = True
    return Sharing(
        sharing.order[kept],
        np.concatenate([[0], np.cumsum(np.bincount(owner[kept]))]),
        sharing.order[~kept],
        sharing.representatives[owner[~kept]],
    )


Share = Callable[[Trace, Sequence[CellSignature], Sequence[Ints]], list[Sharing | None]]
SHARES: dict[str | None, Share] = {"leaves": leaves, "subtrees": subtrees, None: none_shared}


def find_share(name: str | None) -> Share:
    """Return a way of sharing by name."""
    if name not in SHARES:
        raise UnknownNameError("share", "one of leaves, subtrees, None", repr(name))
    return SHARES[name]
