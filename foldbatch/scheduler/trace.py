"""A trace: the calls that one example makes, as flat integer arrays.

Every result of a call is a *value* and has a number; the values of one call follow each other.
A call's arguments are numbers of earlier values. That is all a scheduler needs to know: a trace
holds no tensor, no block, no kernel, so it can be cached, pickled and joined with others by
adding offsets. What the example's data contributes rides along unread (`feeds`, `labels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Operand:
    """Where a cell reads values: `columns` of its arguments, side by side, from one arena.

    A ragged operand reads, of every element of sequence number `sequence`, value number `member`.
    `differentiable` says that the cell's backward kernels write this operand's cotangents.
    """

    arena: int
    columns: tuple[int, ...] = ()
    sequence: int | None = None
    member: int = 0
    differentiable: bool = False


@dataclass(frozen=True, slots=True)
class CellSignature:
    """What the scheduler knows of a cell.

    Attributes:
        name: for reports.
        component: its strongly connected component's place in topological order.
        recursive: whether it calls itself, directly or through others.
        operands: what it reads.
        outputs: the arena of each of its values.
        arguments: how many single values a call takes.
        sequences: for each sequence argument, how many values an element has.
        shareable: whether calls with the same data yield the same, so that one will do.
        repeatable: whether calls with the same data and arguments do, and only results come of them.
    """

    name: str
    component: int
    recursive: bool
    operands: tuple[Operand, ...]
    outputs: tuple[int, ...]
    arguments: int
    sequences: tuple[int, ...] = ()
    shareable: bool = False
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls of one example, or of a batch; one entry of each tuple per cell.

    Attributes:
        calls: ``[n, 1 + arguments + sequences] int32``: the first value's number, the arguments'
            numbers, the lengths of the sequences.
        elements: per sequence argument, ``[elements, width] int32``: the values, call by call.
        levels: ``[n] int32``: the policy's verdict, see `policies`.
        feeds: per feed, ``[n, ...]``: data of the example.
        labels: per metric with labels, a list of n Python objects.
        values: one more than the largest value number.
        result: what the example's result is made of: value numbers in nested tuples and lists.
    """

    calls: tuple[Ints, ...]
    elements: tuple[tuple[Ints, ...], ...]
    levels: tuple[Ints, ...]
    feeds: tuple[tuple[NDArray[Any], ...], ...]
    labels: tuple[tuple[list[Any], ...], ...]
    values: int
    result: Any = None

    @property
    def size(self) -> int:
        """Number of calls."""
        return sum(map(len, self.calls))


def arguments_of(trace: Trace, cells: Sequence[CellSignature], cell: int) -> Ints:
    """Return the single arguments of a cell's calls: ``[n, arguments]`` value numbers."""
    return trace.calls[cell][:, 1 : 1 + cells[cell].arguments]


def lengths_of(trace: Trace, cells: Sequence[CellSignature], cell: int, sequence: int) -> Ints:
    """Return the lengths of a sequence argument: ``[n]``."""
    return trace.calls[cell][:, 1 + cells[cell].arguments + sequence]
