"""A stage of a cell as data: statements over slots, each slot bound to memory of a batch.

An engine makes a kernel of a `Routine`. The routine runs level by level, each level for some calls, whose
rows are consecutive in rank order. Its *slots* are arrays; a `Binding` names the memory of the batch that a
slot is. A `Statement` is one op, one fused loop, one copy or one check. It reads and writes *places*: the
elements of a slot at fixed strides, so that a slice, a reshape or a part of a concatenation costs nothing.
When the statements of a level have run, the *results* are copied or added to where other cells, or the
caller, read them.

======================  ======================  ===========================================================
binding                 key                     the slot's rows in a level
======================  ======================  ===========================================================
``operand``             number of the operand   results of other calls that the calls read: a slice of the
                                                arena, or copies of the rows in an index array
``cotangent``           number of the output    the cotangents of the output, likewise; of shared calls summed
``feed``                number of the feed      data of the examples, by rank
``kept``                number of the buffer    values that one routine leaves for another, by rank
``parameter``           the `Parameter`         the parameter's array
``constant``            the array               the array
``scratch``             number                  memory that lasts for the level
``segments``            number of the ragged    ``[n + 1] int64``: where the elements of each call begin
                        axis                    in the whole batch, and the last ones end
``store``               number of the operand   the operand's cotangents: rows of the arena itself, if the
                                                operand is the first to store there, else rows to be added
======================  ======================  ===========================================================

A `Result` has one of these bindings: ``value`` (of an output, for other calls), ``cotangent`` (of an
operand, to be stored or added where it was read), ``gradient`` (of a parameter, to be summed over levels),
``feed`` (the gradient of a feed, by rank), ``loss`` and ``metric`` (by rank).

A loop visits its rows in order; in each row its sweeps run one after the other, each over the elements of its
shape. A sweep loads elements, computes, and stores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from foldbatch.static.graph import Node
from foldbatch.static.op import Axis
from foldbatch.static.places import Place, merged
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class LoopBuffer:
    """An array that a loop works on, without gaps; a written array never overlaps another."""

    dtype: str
    ndim: int
    written: bool


@dataclass(frozen=True, slots=True)
class Element:
    """The place of an element: in buffer number `buffer`, at the strides of a `places.Access`."""

    buffer: int
    row: int
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Operation:
    """One op on elements; an operand is the number of a value of this sweep, or a constant's node."""

    node: Node
    operands: tuple[int | Node, ...]


@dataclass(frozen=True, slots=True)
class Sweep:
    """A pass over the elements of one shape. Loaded values are numbered first, then computed ones."""

    shape: tuple[int, ...]
    loads: tuple[Element, ...]
    operations: tuple[Operation, ...]
    stores: tuple[tuple[int, Element], ...]

    @property
    def places(self) -> tuple[Element, ...]:
        return (*self.loads, *(place for _, place in self.stores))


@dataclass(frozen=True, slots=True)
class FusedLoop:
    """A loop: `batched` says whether it has rows at all, or runs once for the whole batch."""

    buffers: tuple[LoopBuffer, ...]
    sweeps: tuple[Sweep, ...]
    batched: bool


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops inside each other."""

    turns: tuple[int, ...]  # how many turns each loop takes, the outermost first
    strides: tuple[tuple[int, ...], ...]  # per place, its strides along each loop
    by_rows: bool  # whether the first loop takes its turns once for every row


def nest(shape: Sequence[int], places: Sequence[Element], *, by_rows: bool) -> Nest:
    """Return the fewest loops that visit all elements of a shape, in every row if `by_rows`.

    The rows and the first axis are one where all places lie along both without gaps.
    """
    axes = merged(shape, [place.strides for place in places])
    rows = tuple(place.row for place in places)
    if by_rows and not (axes and rows == tuple(axes[0][0] * stride for stride in axes[0][1])):
        axes.insert(0, (1, rows))
    turns = tuple(extent for extent, _ in axes)
    return Nest(turns, tuple(tuple(s[i] for _, s in axes) for i in range(len(places))), by_rows)


class Binding(NamedTuple):
    """The memory of a batch that a slot or a result is bound to; see the tables above."""

    kind: str
    key: Any


@dataclass(frozen=True, slots=True)
class Slot:
    """An array of a level: rows of `type` along `axis`, without gaps; one value where that is unbatched."""

    binding: Binding
    type: TensorType
    axis: Axis


@dataclass(frozen=True, slots=True)
class Statement:
    """One op, fused loop, copy or check."""

    # the op's name; ``loop``, ``copy`` (of a place to another of its shape), ``zero`` (of a place) or
    # ``check_range``. An op that only moves elements is some copies, see `Op.copies`.
    op: str
    # the axis that it runs along, over all rows of the level. An op on sequences runs along calls.
    axis: Axis
    # its operands. An op on sequences has one more: the `segments` slot of its ragged axis.
    reads: tuple[Place, ...] = ()
    write: Place | None = None  # the place of the result; None for loops and checks
    # the op's static arguments; of ``check_range`` `size`: ids must be from 0 to size - 1
    attrs: Mapping[str, Any] = field(default_factory=dict)
    loop: FusedLoop | None = None  # of a fused loop, its sweeps; its buffers are the slots of `slots`
    # of a fused loop, the numbers of the slots that it reads and writes, in order
    slots: tuple[int, ...] = ()

    @property
    def result(self) -> Place:
        assert self.write is not None, f"{self.op} has no result"
        return self.write


def axis_of(statement: Statement, places: Sequence[Place]) -> Axis:
    """Return the axis that an op runs along, be it that its result has none."""
    return max((statement.axis, *(place.axis for place in places)), key=lambda axis: axis.rank)


class Result(NamedTuple):
    """A place whose rows are delivered to the memory of `binding` when a level is done."""

    binding: Binding
    place: Place


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Routine:
    """The statements of a stage of a cell."""

    name: str  # its direction and stage, such as ``forward_step``
    slots: tuple[Slot, ...]  # the arrays that it works on
    statements: tuple[Statement, ...]  # its statements, in order
    results: tuple[Result, ...]  # the places that are delivered at the end of each level
    # for each ragged axis of its rows, the number of the `segments` slot
    segments: Mapping[Axis, int] = field(default_factory=dict)
    precision: str = "fp32"  # see `routines.Target`
