"""A trace: the calls that one example makes, as flat integer arrays.

Every result of a call is a *value* and has a number; the values of one call follow each other.
A call's arguments are numbers of earlier values. That is all a scheduler needs to know: a trace
holds no tensor, no block, no kernel, so it can be cached, pickled and joined with others by
adding offsets. What the example's data contributes rides along unread (`feeds`, `labels`).

A finished trace is *packed*: all its small integers lie in one array, first a head that counts them and
then the sections. The trace's attributes are views of that array. So a batch is joined by touching one
array of each example instead of dozens. A `Form` describes the layout of the array.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import compress
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

Ints = NDArray[np.int32]
Index = NDArray[np.int64]
Column = NDArray[np.generic]  # ``[n, ...]``: data of the examples that a feed reads, of any dtype
Columns: TypeAlias = "tuple[tuple[Column, ...], ...]"  # per cell and feed
Labels: TypeAlias = "tuple[tuple[list[object], ...], ...]"  # per cell and metric that has some


@dataclass(frozen=True, slots=True)
class Operand:
    """Values that a cell reads from one arena: some of its arguments, side by side.

    A ragged operand reads one value of every element of a sequence.
    """

    arena: int  # the arena that holds the values
    columns: tuple[int, ...] = ()  # the arguments read; of a ragged operand, none
    sequence: int | None = None  # the number of the sequence; None where the operand is not ragged
    member: int = 0  # which value of each element is read
    differentiable: bool = False  # whether the cell's backward kernels write cotangents of these values
    # ``[columns] int64``: where the arguments stand in the row of a call
    places: Index = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "places", 1 + np.array(self.columns, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class CellSignature:
    """A cell as the scheduler sees it: operands, outputs, recursion. Compared by identity: it keys caches."""

    name: str  # for reports
    component: int  # its strongly connected component's place in topological order
    recursive: bool  # whether it calls itself, directly or through others
    operands: tuple[Operand, ...]  # what it reads
    outputs: tuple[int, ...]  # the arena of each of its values
    arguments: int  # how many single values a call takes
    sequences: tuple[int, ...] = ()  # for each sequence argument, how many values an element has
    # whether calls with the same data have the same results, so that one can run for all
    shareable: bool = False
    # whether calls with the same data and the same arguments have the same results, and yield nothing but
    # results
    repeatable: bool = False
    weights: int = 0  # how many numbers of parameters a step of the cell reads


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The layout of a packed trace: the same for all traces of a program.

    The head holds the number of values, the number of calls of each cell, and the number of elements of
    each sequence argument. Sections of rows follow: the calls of each cell, the elements, the levels, and
    the feeds that are single integers. A batch has the form of its examples. Made by `form`.
    """

    arguments: tuple[int, ...]  # per cell, how many single values a call takes
    sequences: tuple[tuple[int, ...], ...]  # per cell and sequence argument, how many values an element has
    # per cell and feed, whether it is a single integer, and so a section
    integers: tuple[tuple[bool, ...], ...]
    packed: bool  # whether all feeds are single integers
    head: int  # the length of the head
    # per section, the place in the head that counts its rows, and the length of a row
    sections: tuple[tuple[int, int], ...]
    matrices: int  # the first so many sections are read as matrices: those of calls and of elements
    counters: Index  # ``[sections] int64``: the place in the head that counts each section's rows
    widths: Index  # ``[sections] int64``: the length of each section's rows
    numbers: Index  # ``[sections] int64``: how many integers of a row, from the left, are value numbers

    def __reduce__(self) -> tuple[Callable[..., Form], tuple[object, ...]]:
        return form, (self.arguments, self.sequences, self.integers)


@lru_cache(256)
def form(
    arguments: tuple[int, ...], sequences: tuple[tuple[int, ...], ...], integers: tuple[tuple[bool, ...], ...]
) -> Form:
    """Return the form of traces whose cells take these arguments, sequences and integers, each per cell.

    >>> form((2,), ((),), ((True,),)).widths.tolist()
    [3, 1, 1]
    """
    cells = len(arguments)
    calls = [(1 + k, 1 + arguments[k] + len(sequences[k]), 1 + arguments[k]) for k in range(cells)]
    flat = [width for widths in sequences for width in widths]
    elements = [(1 + cells + s, width, width) for s, width in enumerate(flat)]
    levels = [(1 + k, 1, 0) for k in range(cells)]
    feeds = [(1 + k, 1, 0) for k in range(cells) for integer in integers[k] if integer]
    sections = [*calls, *elements, *levels, *feeds]
    counters, widths, numbers = np.array(sections, np.int64).reshape(-1, 3).T.copy()
    pairs = tuple((counter, width) for counter, width, _ in sections)
    packed = all(map(all, integers))
    head, matrices = 1 + cells + len(flat), cells + len(flat)
    return Form(arguments, sequences, integers, packed, head, pairs, matrices, counters, widths, numbers)


@dataclass(frozen=True, slots=True)
class Trace:
    """The calls of one example, or of a batch; one entry of each tuple per cell.

    The arrays of a packed trace are made when somebody asks for them: most are only joined with others.
    """

    # ``[n, 1 + arguments + sequences] int32``: the first value's number, the arguments' numbers, the lengths
    # of the sequences
    calls: tuple[Ints, ...]
    # per sequence argument, ``[elements, width] int32``: the values, call by call
    elements: tuple[tuple[Ints, ...], ...]
    levels: tuple[Ints, ...]  # ``[n] int32``: the policy's verdict, see `policies`
    feeds: Columns  # per feed, ``[n, ...]``: data of the example
    labels: Labels  # per metric with labels, a list of n Python objects
    values: int  # one more than the largest value number
    result: Any = None  # what the example's result is made of: value numbers in nested tuples and lists
    form: Form = field(init=False, repr=False, compare=False)  # the layout of `packed`
    # ``[*] int32``: the array of which the arrays above are views, or None; see `pack`
    packed: Ints | None = field(default=None, init=False, repr=False, compare=False)
    # per cell, the feeds that are not packed
    loose: Sequence[Sequence[Column]] = field(default=(), init=False, repr=False, compare=False)
    # the `foldbatch.scheduler.record.BatchRecord` that it was noted in, and its number there; or, of a batch,
    # what finds its levels, and -1
    origin: tuple[Any, int] | None = field(default=None, init=False, repr=False, compare=False)
    # per cell, how many calls there are of it
    counts: Sequence[int] = field(init=False, repr=False, compare=False)
    size: int = field(init=False, repr=False, compare=False)  # number of calls

    def __post_init__(self) -> None:
        _set(self, "counts", tuple(map(len, self.calls)))
        _set(self, "size", sum(self.counts))

    def __getattr__(self, name: str) -> Any:
        if name not in LATE:
            raise AttributeError(f"Trace has no attribute {name}")
        origin = self.origin if name in OF_ORIGIN else None
        if name == "form":
            _set(self, "form", _form_of(self))
        elif name == "levels" and self.origin is not None and self.origin[1] < 0:
            _set(self, "levels", self.origin[0](self.calls, self.elements, self.values))
        elif origin is not None and name == "packed":
            _set(self, "packed", origin[0].packed(origin[1]))
        elif origin is not None:
            loose, labels = origin[0].apart(origin[1])
            _set(self, "loose", loose)
            _set(self, "labels", labels)
        else:
            assert self.packed is not None, "a trace has its arrays or is packed"
            _unpack(self, self.form, self.packed)
        return getattr(self, name)

    def __reduce__(self) -> tuple[Callable[..., Trace], tuple[object, ...]]:
        loose = loose_of(self) if self.packed is None else self.loose
        return unpack, (self.form, pack(self), loose, self.labels, self.result)


def pack(trace: Trace) -> Ints:
    """Return a trace's integers, packed.

    >>> pack(Trace((np.array([[0, 7]], np.int32),), ((),), (np.zeros(1, np.int32),), ((),), ((),), 1))
    array([1, 1, 0, 7, 0], dtype=int32)
    """
    if trace.packed is not None:
        return trace.packed
    assert len(trace.levels) == len(trace.calls), "a trace is packed when its levels are known"
    elements = [part for parts in trace.elements for part in parts]
    head = np.array([trace.values, *map(len, trace.calls), *map(len, elements)], np.int32)
    flags = trace.form.integers
    feeds = [
        x
        for columns, cell_elements in zip(trace.feeds, flags, strict=True)
        for x in compress(columns, cell_elements)
    ]
    return np.concatenate([head, *trace.calls, *elements, *trace.levels, *feeds], axis=None)


def _form_of(trace: Trace) -> Form:
    sequences = tuple([tuple([part.shape[1] for part in parts]) for parts in trace.elements])
    columns = zip(trace.calls, sequences, strict=True)
    arguments = tuple([rows.shape[1] - 1 - len(widths) for rows, widths in columns])
    integers = tuple([tuple([is_integer(x.dtype, x.shape[1:]) for x in feeds]) for feeds in trace.feeds])
    return form(arguments, sequences, integers)


def is_integer(dtype: DTypeLike, shape: tuple[int, ...]) -> bool:
    """Return whether feeds of a type are packed, as single integers of 32 bits.

    >>> is_integer("int32", ()), is_integer("int32", (2,)), is_integer("float32", ())
    (True, False, False)
    """
    return not shape and np.dtype(dtype) == np.int32


def loose_of(trace: Trace) -> list[list[Column]]:
    """Return, per cell, the feeds that are not packed: each ``[n, ...]``."""
    return [
        [x for x, integer in zip(columns, integers, strict=True) if not integer]
        for columns, integers in zip(trace.feeds, trace.form.integers, strict=True)
    ]


def unpack(
    form: Form,
    packed: Ints,
    loose: Sequence[Sequence[Column]],
    labels: Labels,
    result: object = None,
    counts: Sequence[int] | None = None,
    values: int = 0,
) -> Trace:
    """Return a packed trace; its arrays are views, made when they are asked for.

    `packed` has a head; `loose` are, per cell, the feeds that are not packed. Whoever knows what the head
    tells of calls and values gives that, too.
    """
    trace = Trace.__new__(Trace)
    _set(trace, "form", form)
    _set(trace, "packed", packed)
    _set(trace, "loose", loose)
    _set(trace, "labels", labels)
    _set(trace, "result", result)
    _set(trace, "origin", None)
    if counts is not None:
        _set(trace, "counts", counts)
        _set(trace, "size", sum(counts))
        _set(trace, "values", values)
    return trace


# returns what `foldbatch.planning.policies.levels` does, given calls, elements and values
Levels = Callable[[Sequence[Ints], Sequence[Sequence[Ints]], int], tuple[Ints, ...]]


def late_trace(form: Form, origin: tuple[object, int], counts: Sequence[int], result: object) -> Trace:
    """Return a trace whose data are asked of its origin; arguments are attributes of `Trace`."""
    trace = Trace.__new__(Trace)
    _set(trace, "form", form)
    _set(trace, "origin", origin)
    _set(trace, "counts", counts)
    _set(trace, "size", sum(counts))
    _set(trace, "result", result)
    return trace


def batch_trace(
    form: Form,
    find: Levels | None,
    calls: tuple[Ints, ...],
    elements: tuple[tuple[Ints, ...], ...],
    levels: tuple[Ints, ...],
    feeds: Columns,
    labels: Labels,
    values: int,
) -> Trace:
    """Return the trace of a batch; arguments are attributes of `Trace`. Without levels, `find` finds them."""
    trace = late_trace(form, (find, -1), [*map(len, calls)], None)
    _set(trace, "packed", None)
    _set(trace, "calls", calls)
    _set(trace, "elements", elements)
    _set(trace, "feeds", feeds)
    _set(trace, "labels", labels)
    _set(trace, "values", values)
    if levels or not calls:
        _set(trace, "levels", levels)
    return trace


_set = object.__setattr__  # how this module writes to a trace
OF_ORIGIN = frozenset(("packed", "loose", "labels"))
LATE = OF_ORIGIN | {"form", "calls", "elements", "levels", "feeds", "values", "counts", "size"}


def _unpack(trace: Trace, form: Form, packed: Ints) -> None:
    """Give a packed trace its arrays, and the numbers in its head."""
    head = packed[: form.head].tolist()
    views = []
    stop = form.head
    for number, (counter, width) in enumerate(form.sections):
        start, stop = stop, stop + head[counter] * width
        view = packed[start:stop]
        views.append(view.reshape(-1, width) if number < form.matrices else view)
    cut = iter(views)
    _set(trace, "calls", tuple([next(cut) for _ in form.arguments]))
    _set(trace, "elements", tuple([tuple([next(cut) for _ in widths]) for widths in form.sequences]))
    _set(trace, "levels", tuple([next(cut) for _ in form.arguments]))
    feeds = [
        tuple([next(cut if integer else body) for integer in integers])
        for integers, body in zip(form.integers, map(iter, trace.loose), strict=True)
    ]
    _set(trace, "feeds", tuple(feeds))
    _set(trace, "values", head[0])
    _set(trace, "counts", head[1 : 1 + len(form.arguments)])
    _set(trace, "size", sum(trace.counts))


def arguments_of(trace: Trace, cells: Sequence[CellSignature], cell: int) -> Ints:
    """Return the single arguments of a cell's calls: ``[n, arguments]`` value numbers."""
    return trace.calls[cell][:, 1 : 1 + cells[cell].arguments]


def lengths_of(trace: Trace, cells: Sequence[CellSignature], cell: int, sequence: int) -> Ints:
    """Return the lengths of a sequence argument: ``[n]``."""
    return trace.calls[cell][:, 1 + cells[cell].arguments + sequence]


def element_order(lengths: Ints, order: Index) -> Index:
    """Return the elements of a sequence argument in an order of its calls.

    Args:
        lengths: ``[n]``: how many elements each call has; they stand call by call.
        order: ``[m]``: calls.

    Returns:
        ``[elements]``: the places of their elements.

    >>> element_order(np.array([2, 0, 1]), np.array([2, 0]))
    array([2, 0, 1])
    """
    lengths = lengths.astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    ranked = lengths[order]
    shifts = starts[order] - (np.cumsum(ranked) - ranked)
    return np.repeat(shifts, ranked) + np.arange(int(ranked.sum()))
