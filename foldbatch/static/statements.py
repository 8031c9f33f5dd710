"""What a stage of a cell does, as data: statements over slots, each slot bound to memory of a batch.

A `Routine` is what an engine makes a kernel of. It runs for some levels, and each level for some calls,
whose rows follow each other in rank order. Its *slots* are arrays; a `Binding` says what memory of the
batch a slot is. A `Statement` is one op, one fused loop, one copy or one check; it reads and writes
*places*, which are elements of slots at fixed strides, so that a slice, a reshape or a part of a
concatenation costs nothing. When the statements of a level have run, the *results* are brought where other
cells, or the caller, find them.

======================  ======================  ===========================================================
binding                 key                     the slot's rows in a level
======================  ======================  ===========================================================
``operand``             number of the operand   what the calls read of other calls' results: a slice of the
                                                arena, or copies of rows told by an index array
``cotangent``           number of the output    the cotangents of the output, likewise; of shared calls summed
``feed``                number of the feed      data of the examples, by rank
``kept``                number of the buffer    what one routine of the cell leaves for another, by rank
``parameter``           the `Parameter`         the parameter's array
``constant``            the array               the array
``scratch``             number                  memory that lasts for the level
``segments``            number of the ragged    ``[n + 1] int64``: where the elements of each call begin
                        axis                    in the whole batch, and the last ones end
``store``               number of the operand   where the operand's cotangents go: in the arena itself, if the
                                                operand is the first to store there, or else to be added
======================  ======================  ===========================================================

A `Result` has one of these bindings: ``value`` (of an output, for other calls), ``cotangent`` (of an
operand, to be stored or added where it was read), ``gradient`` (of a parameter, to be summed over levels),
``feed`` (the gradient of a feed, by rank), ``loss`` and ``metric`` (by rank).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from foldbatch.static.loops import Loop
from foldbatch.static.op import Axis
from foldbatch.types import TensorType


class Binding(NamedTuple):
    """What memory of a batch something is; see the tables above."""

    kind: str
    key: Any


@dataclass(frozen=True, slots=True)
class Slot:
    """An array of a level: rows of `type` along `axis`, without gaps; one value where that is unbatched."""

    binding: Binding
    type: TensorType
    axis: Axis


@dataclass(frozen=True, slots=True)
class Place:
    """Elements of a slot.

    Element ``(i, j, ...)`` of row r is number ``r * row + offset + i * strides[0] + j * strides[1] ...`` of
    the slot's elements.

    Attributes:
        slot: the slot's number in the routine.
        axis: what its rows run along: the slot's axis, unless one row serves all (then `row` is 0).
        row: elements from one row to the next.
        offset: the first element of a row.
        shape: of a row.
        strides: elements from one to the next along each axis of the shape.
    """

    slot: int
    axis: Axis
    row: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """One op, fused loop, copy or check.

    Attributes:
        op: the op's name; ``loop``, ``copy`` (of a place to another) or ``check_range``.
        axis: what it runs along: as many rows as the level has of it. An op on sequences runs along calls.
        reads: its operands; None for a part of a concatenation that already stands where it belongs. An op on
            sequences has one more: the `segments` slot of its ragged axis.
        write: where the result goes; None for loops and checks.
        attrs: the op's static arguments; of ``check_range`` `size`: ids must be from 0 to size - 1; of
            ``concat`` also `starts`: where each part begins.
        loop: of a fused loop, what it computes; its buffers are the slots of `slots`.
        slots: of a fused loop, the numbers of the slots that it reads and writes, in order.
    """

    op: str
    axis: Axis
    reads: tuple[Place | None, ...] = ()
    write: Place | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    loop: Loop | None = None
    slots: tuple[int, ...] = ()


class Result(NamedTuple):
    """A place whose rows are brought somewhere when a level is done."""

    binding: Binding
    place: Place


@dataclass(frozen=True, slots=True)
class Routine:
    """What a stage of a cell does.

    Attributes:
        name: its direction and stage, such as ``forward_step``.
        slots: the arrays that it works on.
        statements: in order.
        results: what is brought elsewhere at the end of each level.
        segments: for each ragged axis that rows of it run along, the number of the `segments` slot.
    """

    name: str
    slots: tuple[Slot, ...]
    statements: tuple[Statement, ...]
    results: tuple[Result, ...]
    segments: Mapping[Axis, int] = field(default_factory=dict)
