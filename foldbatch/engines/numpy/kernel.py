"""A kernel: from a `Routine` to the text of a Python function that runs it level by level, and to it.

Tracebacks show the text, as `linecache` knows it.
"""

from __future__ import annotations

import itertools
import linecache
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.engines import sums
from foldbatch.engines.launch import HEAD, Fields, Ints, OutOfRangeError
from foldbatch.engines.numpy.spelling import NUMBERS, SPELLINGS, rounded
from foldbatch.engines.sums import reduce_by_length, reduce_segments, sum_outer, sum_rows
from foldbatch.params.parameters import Array
from foldbatch.static.op import CALL, OPS, Axis
from foldbatch.static.ops.elementwise import cast_into
from foldbatch.static.ops.random import random_bits
from foldbatch.static.ops.reduce import ordered, top_and_rest
from foldbatch.static.places import Place, contiguous
from foldbatch.static.statements import Binding, Result, Routine, Slot, Statement
from foldbatch.system.remembering import code_of, remembered


def view(array: Array, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Array:
    """Return elements of an array at fixed strides, counted in elements, as `Place` has them.

    Shapes: ``array: [N, *]`` or ``[*]``; the result has the shape that is asked for.

    >>> view(np.arange(8.0).reshape(2, 4), (2, 2), (4, 2), 1)
    array([[1., 3.],
           [5., 7.]])
    """
    if not array.flags.c_contiguous:  # data of examples may be one row broadcast; nobody writes to it
        array = np.ascontiguousarray(array)
    if array.size == 0 or 0 in shape:  # what has no elements may begin beyond the end
        return np.empty(shape, array.dtype)
    size = array.itemsize
    return np.ndarray(shape, array.dtype, array, offset * size, tuple(stride * size for stride in strides))


def expression(place: Place, slot: Slot, name: str, rows: str) -> str:
    """Return as expression a place in the array `name` of its slot, ``[rows, *shape]`` or ``[*shape]``."""
    shape = slot.type.shape
    if place.axis is slot.axis and (place.row == math.prod(shape) or not place.axis.rank):
        batch = [rows] if place.axis.rank else []
        complete = place.offset == 0 and math.prod(place.shape) == math.prod(shape)
        if complete and _has_strides_of(place, place.shape):
            reshaped = f"{name}.reshape({_tuple([*batch, *map(str, place.shape)])})"
            return name if place.shape == shape else reshaped
        starts = _starts(place, shape)
        if starts is not None:
            bounds = zip(starts, place.shape, shape, strict=True)
            parts = [
                ":" if size == extent_of_slot else f"{i}:{i + size}" for i, size, extent_of_slot in bounds
            ]
            return f"{name}[{', '.join([':'] * len(batch) + parts)}]"
    extents = [rows, *map(str, place.shape)] if place.axis.rank else [str(extent) for extent in place.shape]
    strides = (place.row, *place.strides) if place.axis.rank else place.strides
    return f"view({name}, {_tuple(extents)}, {_tuple([str(stride) for stride in strides])}, {place.offset})"


def _has_strides_of(place: Place, shape: Sequence[int]) -> bool:
    """Whether its elements lie to each other as those of an array of this shape without gaps do."""
    strides = zip(place.shape, place.strides, contiguous(shape), strict=True)
    return all(stride == contiguous_stride for extent, stride, contiguous_stride in strides if extent > 1)


def _starts(place: Place, shape: Sequence[int]) -> list[int] | None:
    """Return where a slice of an array of this shape begins along each axis; None if it is no slice."""
    if len(place.shape) != len(shape) or not shape or 0 in shape or not _has_strides_of(place, shape):
        return None
    starts, remainder = [], place.offset
    for extent, stride, axis_size in zip(place.shape, contiguous(shape), shape, strict=True):
        start, remainder = divmod(remainder, stride)
        if start + extent > axis_size:
            return None
        starts.append(start)
    return starts


def _tuple(parts: Sequence[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


@dataclass(frozen=True, slots=True)
class _RowRange:
    """How the text names the rows of a level along an axis: from `start` to `stop`, `count` of them."""

    start: str
    stop: str
    count: str

    @property
    def slice(self) -> str:
        return f"[{self.start}:{self.stop}]"


_CALLS = _RowRange("start", "stop", "n")
_BY_KEY = {"operand": "x", "cotangent": "g", "feed": "f", "kept": "k", "store": "d", "segments": "offsets"}
_BY_ORDER = {"parameter": "p", "constant": "c", "scratch": "s"}

# The operands in place of the offsets, by what an op needs to know of a sequence (`Op.sequence`).
_DERIVED = {"": (), "owner": ("owner",), "bounds": ("starts", "counts")}


def _prefix(binding: Binding) -> str:
    return _BY_KEY.get(binding.kind) or _BY_ORDER[binding.kind]


class _TextWriter:
    """Writes the text of the function of a routine."""

    def __init__(self, routine: Routine) -> None:
        self.routine = routine
        self.launch: list[str] = []
        self.counted: dict[Axis, list[str]] = {axis: [] for axis in (CALL, *routine.segments)}
        self.level: list[str] = []
        self.used: set[str] = set()
        self.views: dict[Place, str] = {}
        self.derived: set[str] = set()
        # of each slot, the number in its name: names of rows, and of all that depends on them, have it, too
        self.numbers = [self._number(slot.binding) for slot in routine.slots]
        self.names = [
            f"{_prefix(slot.binding)}{number}"
            for slot, number in zip(routine.slots, self.numbers, strict=True)
        ]

    def text(self) -> str:
        """Return the text of the kernel: code of a launch, then a loop over levels."""
        for number, slot in enumerate(self.routine.slots):
            self._slot(number, slot)
        for statement in self.routine.statements:
            self._statement(statement)
        self._results()
        befores = [f"{self._rows(axis).count}_before = -1" for axis, lines in self.counted.items() if lines]
        lines = [*self.launch, *befores, "for start, stop in bounds.tolist():"]
        lines += [f"    {line}" for line in self._counts() + self.level]
        head = f"def {self.routine.name}(bounds, row, index, buffers):\n"
        return head + "".join(f"    {line}\n" for line in lines)

    def _counts(self) -> list[str]:
        """Return the lines that say how many rows there are, and what depends on no more than that."""
        lines = []
        for axis, counted in self.counted.items():
            rows = self._rows(axis)
            if axis is not CALL:
                offsets = self.names[self.routine.segments[axis]]
                lines.append(f"{offsets} = {offsets}_all[start:stop + 1]")
                lines.append(f"{rows.start}, {rows.stop} = int({offsets}[0]), int({offsets}[-1])")
            lines.append(f"{rows.count} = {rows.stop} - {rows.start}")
            if counted:
                before = f"{rows.count}_before"
                lines.append(f"if {rows.count} != {before}:")
                lines += [f"    {line}" for line in (f"{before} = {rows.count}", *counted)]
        return lines

    # -- names

    def _number(self, binding: Binding) -> int:
        """Return the number in the name of a slot, which is taken from now on."""
        return self._free(_prefix(binding), int(binding.key) if binding.kind in _BY_KEY else 0)

    def _free(self, prefix: str, number: int) -> int:
        """Return the first number, from one on, with which a prefix is a new name; take that name."""
        while f"{prefix}{number}" in self.used:
            number += 1
        self.used.add(f"{prefix}{number}")
        return number

    def _new(self, prefix: str, number: int) -> str:
        return f"{prefix}{self._free(prefix, number)}"

    def _rows(self, axis: Axis) -> _RowRange:
        if axis.rank < 2:
            return _CALLS
        number = self.numbers[self.routine.segments[axis]]
        return _RowRange(f"first{number}", f"end{number}", f"m{number}")

    # -- slots

    def _slot(self, number: int, slot: Slot) -> None:
        """Write where the rows of a slot are."""
        name, rows = self.names[number], self._rows(slot.axis)
        match slot.binding.kind:
            case "segments":
                self.launch.append(f"{name}_all = index[{_field(number, Fields.index)}:]")
            case "operand" | "cotangent":
                self._located(name, number, slot.type.shape)
                self.counted[slot.axis].append(f"{name}_copy = {name}_spare[:{rows.count}]")
                gathered = f"{name}_all.take({name}_at{rows.slice}, 0, {name}_copy, 'clip')"
                if slot.binding.kind == "operand":
                    self.level.append(f"{name} = {name}_all{rows.slice} if {name}_at is None else {gathered}")
                    return
                self._copies(name, number)
                copies = f"{name}_copies[start:stop + 1]"
                self.level += [
                    f"if {name}_at is None:",
                    f"    {name} = {name}_all{rows.slice}",
                    f"elif {name}_copies is None:",
                    f"    {name} = {gathered}",
                    "else:",
                    f"    {name} = sum_copies({name}_all, {name}_at, {copies}, {name}_copy)",
                ]
            case "store":
                self._located(name, number, slot.type.shape)
                self.launch.append(f"{name}_stores = {_field(number, Fields.stores)} == 1")
                self.counted[slot.axis].append(f"{name}_copy = {name}_spare[:{rows.count}]")
                self.level.append(f"{name} = {name}_all{rows.slice} if {name}_stores else {name}_copy")
            case _ if slot.axis.rank == 0:
                self.launch.append(f"{name} = buffers[{_field(number, Fields.base)}][0, ...]")
            case "scratch":
                self.launch.append(f"{name}_all = buffers[{_field(number, Fields.base)}]")
                self.counted[slot.axis].append(f"{name} = {name}_all[:{rows.count}]")
            case _:
                self.launch.append(f"{name}_all = buffers[{_field(number, Fields.base)}]")
                self.level.append(f"{name} = {name}_all{rows.slice}")

    def _located(self, name: str, number: int, shape: tuple[int, ...], *, spare: bool = True) -> None:
        start = HEAD + Fields.size * number
        copies, fields = f"{name}_spare" if spare else "_", f"row[{start}:{start + Fields.size}]"
        self.launch.append(f"{name}_all, {name}_at, {copies} = located({fields}, index, buffers, {shape})")

    def _copies(self, name: str, number: int) -> None:
        field = _field(number, Fields.copies)
        self.launch.append(f"{name}_copies = index[{field}:] if {field} >= 0 else None")

    # -- statements

    def _statement(self, statement: Statement) -> None:
        """Add the lines of a statement, spelled for NumPy."""
        reads = list(statement.reads)
        op = OPS.get(statement.op)
        derived = _DERIVED[op.sequence if op is not None else ""]
        if statement.op == "check_range" and len(reads) == 2:
            derived = _DERIVED["owner"]
        names = [self._derived(kind, reads[-1]) for kind in derived]
        operands = [self._place(place) for place in (reads[:-1] if derived else reads)]
        if statement.op == "check_range":
            if reads[0].axis.rank == 0:  # the same for every row, so the first row is to blame
                operands[0] += "[None]"
            arguments = [operands[0], str(statement.attrs["size"]), "start", *names]
            self.level.append(f"check_range({', '.join(arguments)})")
            return
        if self.routine.precision == "bf16" and op is not None and op.product and op.bound is None:
            # of products with a matrix for all rows alone, as LLVM's kernels compute them
            operands = [f"rounded({operand})" for operand in operands]
        out, dtype = self._place(statement.result), self.routine.slots[statement.result.slot].type.dtype
        self.level += SPELLINGS[statement.op](statement, operands + names, out, dtype)

    def _place(self, place: Place) -> str:
        """Return a name or expression for a place, and add the line that makes a view of it."""
        slot, name, rows = self.routine.slots[place.slot], self.names[place.slot], self._rows(place.axis)
        text = expression(place, slot, name, rows.count)
        if text == name:
            return name
        if place not in self.views:
            self.views[place] = f"v{len(self.views)}"
            line = f"{self.views[place]} = {text}"
            if slot.axis.rank and slot.binding.kind != "scratch":
                self.level.append(line)
            elif place.axis.rank:
                self.counted[place.axis].append(line)
            else:
                self.launch.append(line)
        return self.views[place]

    def _derived(self, kind: str, place: Place) -> str:
        """Return the name of what an op on sequences must know of them."""
        offsets = self.names[place.slot]
        name = f"{kind}{self.numbers[place.slot]}"
        if name not in self.derived:
            self.derived.add(name)
            match kind:
                case "starts":
                    self.level.append(f"{name} = {offsets}[:-1] - {offsets}[0]")
                case "counts":
                    self.level.append(f"{name} = {offsets}[1:] - {offsets}[:-1]")
                case _:
                    self.level.append(f"{name} = np.repeat(np.arange(n), {self._derived('counts', place)})")
        return name

    # -- results

    def _results(self) -> None:
        """Write where results go."""
        ends: list[Slot | Result] = [*self.routine.slots, *self.routine.results]
        # those of several operands may be added to the same rows, so the order is fixed: by operand
        adds = {
            int(end.binding.key): (number, end)
            for number, end in enumerate(ends)
            if end.binding.kind == ("store" if isinstance(end, Slot) else "cotangent")
        }
        for _, (number, end) in sorted(adds.items()):
            self._add_to_arena(number, end)
        for number, end in enumerate(ends):
            if isinstance(end, Result) and end.binding.kind != "cotangent":
                self._result(number, end)

    def _add_to_arena(self, number: int, end: Slot | Result) -> None:
        """Write what brings cotangents to their rows; those of a slot may have been stored there already."""
        if isinstance(end, Slot):
            name, values, rows, stored = self.names[number], self.names[number], self._rows(end.axis), []
        else:
            name, rows = self._name_result("d", end), self._rows(end.place.axis)
            self._located(name, number, end.place.shape, spare=False)
            self.launch.append(f"{name}_stores = {_field(number, Fields.stores)} == 1")
            values = self._place(end.place)
            stored = [f"elif {name}_stores:", f"    {name}_all{rows.slice} = {values}"]
        self.level += [
            f"if {name}_at is not None:",
            f"    add_rows({values}, {name}_all, {name}_at{rows.slice})",
            *stored,
            f"elif not {name}_stores:",
            f"    {name}_all{rows.slice} += {values}",
        ]

    def _result(self, number: int, result: Result) -> None:
        """Add the lines that bring a result to where it belongs."""
        values, rows = self._place(result.place), self._rows(result.place.axis)
        base = _field(number, Fields.base)
        match result.binding.kind:
            case "value":
                name = self._name_result("y", result)
                self._located(name, number, result.place.shape, spare=False)
                self._copies(name, number)
                self.level += [
                    f"if {name}_at is None:",
                    f"    {name}_all{rows.slice} = {values}",
                    f"elif {name}_copies is None:",
                    f"    put_rows({values}, {name}_all, {name}_at{rows.slice})",
                    "else:",
                    f"    spread({values}, {name}_all, {name}_at, {name}_copies[start:stop + 1])",
                ]
            case "gradient":
                name = self._new("dp", self._number_of(result.binding.key))
                self.launch.append(f"{name} = buffers[{base}][0, ...]")
                self.launch.append(f"{name}_stores = {_field(number, Fields.stores)} == 1")
                self.level += [
                    f"if {name}_stores:",
                    f"    {name}[...] = {values}",
                    "else:",
                    f"    {name} += {values}",
                ]
            case _:
                name = self._name_result({"feed": "df"}.get(result.binding.kind, result.binding.kind), result)
                self.launch.append(f"{name}_all = buffers[{base}]")
                self.level.append(f"{name}_all{rows.slice} = {values}")

    def _name_result(self, prefix: str, result: Result) -> str:
        return self._new(prefix, int(result.binding.key))

    def _number_of(self, parameter: object) -> int:
        """Return the number of a parameter that the kernel reads; 0 of others."""
        for slot, number in zip(self.routine.slots, self.numbers, strict=True):
            if slot.binding.kind == "parameter" and slot.binding.key is parameter:
                return number
        return 0


def _field(binding: int, field: int) -> str:
    return f"row[{HEAD + Fields.size * binding + field}]"


def segment_max(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Find the greatest of runs of rows; an empty run gives zero. Shapes: as for `segment_sum`."""
    reduce_segments(np.maximum, x, starts, counts, out)


def segment_is_max(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Mark the first greatest row of each run (or the first NaN). Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    np.equal(x, np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0), out=out)
    np.logical_or(out, np.isnan(x), out=out)  # NaN equals nothing
    rows = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
    first = np.minimum.reduceat(np.where(out, rows, len(x)), starts, axis=0)
    np.equal(rows, np.repeat(first, counts, axis=0), out=out)


def segment_position(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Number the rows of each run from 0. Shapes: ``x, out: [sum(counts), *]``."""
    out[...] = (np.arange(len(x)) - np.repeat(starts, counts)).reshape(-1, *(1,) * (out.ndim - 1))


def segment_softmax(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Normalise exp(x) over each run, without overflow. Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    np.subtract(x, np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0), out=out)
    np.exp(out, out=out)
    np.divide(out, np.repeat(np.add.reduceat(out, starts, axis=0), counts, axis=0), out=out)


def _greatest_and_remainder(
    x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Return the greatest of each run, and logsumexp of the run less that in float64; no run is empty.

    As in `ops.reduce.top_and_rest` one element that is the greatest is left out of the sum, so that a small
    remainder keeps its digits. Shapes: as for `segment_sum`.
    """
    top = np.maximum.reduceat(x, starts, axis=0)
    repeated, first = np.repeat(top, counts, axis=0), np.empty(x.shape, bool)
    segment_is_max(x, starts, counts, first)
    below = x - repeated
    if np.isinf(top).any():  # infinities of one sign are as large as each other
        np.copyto(below, 0, where=x == repeated)
    exp = np.exp(below, dtype=x.dtype).astype(np.float64)
    np.copyto(exp, 0, where=first)
    return top, np.log1p(np.add.reduceat(exp, starts, axis=0))


def segment_log_softmax(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Subtract logsumexp of each run from its rows. Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    top, remainder = _greatest_and_remainder(x, starts, counts)
    np.subtract(x, np.repeat(top, counts, axis=0), out=out)
    np.subtract(out, np.repeat(remainder, counts, axis=0), out=out, casting="same_kind")


def segment_logsumexp(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Find logsumexp of runs of rows; an empty run gives zero. Shapes: as for `segment_sum`."""
    out[...] = 0
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    top, remainder = _greatest_and_remainder(x, starts[full], counts[full])
    out[full] = top + remainder


def segment_mix(a: Array, x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Sum runs of rows, each times its number. Shapes: as for `segment_sum`; ``a`` lacks the last axis."""
    reduce_segments(np.add, a[..., None] * x, starts, counts, out)


SMALL = 8192  # numbers of matrices copied to rows that cost as much as one product more


def linear_by(x: Array, table: Array, ids: Array, out: Array) -> None:
    """Multiply each row by the matrix of its id.

    Shapes: ``x: [n, *, k]``, ``table: [size, k, m]``, ``ids: [n]``, ``out: [n, *, m]``.
    """
    if 0 in x.shape:
        out[...] = 0
        return
    groups = list(_groups(ids))
    if len(ids) * table[0].size < SMALL * len(groups):
        rows = x.reshape(len(x), -1, x.shape[-1])
        out[...] = np.matmul(rows, table.take(ids, axis=0)).reshape(out.shape)
        return
    for i, rows in groups:
        out[rows] = x[rows] @ table[i]


def sum_outer_by(x: Array, g: Array, ids: Array, out: Array) -> None:
    """Sum the outer products of rows of equal id.

    Shapes: ``x: [n, *, k]``, ``g: [n, *, m]``, ``ids: [n]``, ``out: [size, k, m]``.
    """
    out[...] = 0
    if 0 in x.shape or 0 in g.shape:
        return
    for i, rows in _groups(ids):
        sum_outer(x[rows].reshape(-1, x.shape[-1]), g[rows].reshape(-1, g.shape[-1]), out[i])


def _groups(ids: Array) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield each id that occurs, with its rows in their order."""
    order = np.argsort(ids, kind="stable")
    ranked = ids[order]
    bounds = np.flatnonzero(np.diff(ranked, prepend=-1, append=-1)).tolist()
    for start, stop in itertools.pairwise(bounds):
        yield int(ranked[start]), order[start:stop]


def located(
    fields: Sequence[int], index: Ints, buffers: Sequence[Array], shape: tuple[int, ...]
) -> tuple[Array, Ints | None, Array]:
    """Return where the rows of a binding are, for a whole launch.

    Returns:
        ``(rows, at, spare)``. Where the rows follow each other `at` is None, and row i is ``rows[i]``, of the
        given shape. Else it is ``rows[at[i]]``: `rows` is the whole arena then, and `at` is ``[*]``, or
        ``[*, width]``. ``spare: [*, *shape]`` is memory for copies of rows, without rows if there is none.
    """
    base, first, place, width, _, _, spare = fields
    arena = buffers[base]
    copies = _side_by_side(buffers[spare], width, shape) if spare >= 0 else np.empty((0, *shape), arena.dtype)
    if first >= 0:
        return _side_by_side(arena[first:], width, shape), None, copies
    at = index[place:]
    return arena, at if width == 1 else at[: len(at) // width * width].reshape(-1, width), copies


def _side_by_side(array: Array, width: int, shape: tuple[int, ...]) -> Array:
    """Return rows ``[*, *shape]`` of `width` rows of the array each."""
    if array.shape[1:] == shape:
        return array
    rows = len(array) // width
    return array[: rows * width].reshape(rows, *shape)


def put_rows(values: Array, arena: Array, at: Ints) -> None:
    """Write rows to other rows of an arena: ``values: [N, *shape]``, ``at: [N]``."""
    if len(at) == 1:  # as of a chain; an index array takes three times as long
        row = at.item()
        arena[row : row + 1] = values
    else:
        arena[at] = values


def spread(values: Array, arena: Array, at: Ints, copies: Ints) -> None:
    """Write the results of shared calls to a row of each call that they stand for.

    Shapes: ``values: [N, *shape]``, ``copies: [N + 1]``; those of call i are ``at[copies[i]:copies[i + 1]]``.
    """
    arena[at[copies[0] : copies[-1]]] = np.repeat(values, copies[1:] - copies[:-1], axis=0)


def sum_copies(arena: Array, at: Ints, copies: Ints, out: Array) -> Array:
    """Sum rows of shared calls, in order, and return `out`.

    Shapes: ``out: [N, *shape]``, ``copies: [N + 1]``; the rows of call i are ``at[copies[i]:copies[i + 1]]``.
    """
    reduce_by_length(np.add, arena, copies[:-1], copies[1:] - copies[:-1], out, at)
    return out


def add_rows(values: Array, arena: Array, at: Ints) -> None:
    """Add values to rows of an arena; those for one row are summed first, in order, so that bits repeat.

    Shapes: ``values: [N, *shape]``, ``at: [N]``, or ``[N, width]`` and ``values: [N, width, *shape]``.
    """
    rows = at.reshape(-1)
    parts = values.reshape(len(rows), *arena.shape[1:])
    if len(rows) == 1:
        row = rows.item()
        arena[row : row + 1] += parts
    elif _repeats(rows):
        sums = sum_rows(parts, rows, len(arena))
        arena[sums.rows] += sums.values
    else:
        arena[rows] += parts


def _repeats(rows: Ints) -> bool:
    ranked = np.sort(rows)
    return bool((ranked[1:] == ranked[:-1]).any())


def check_range(
    ids: NDArray[np.integer[Any]], size: int, start: int, owner: NDArray[np.integer[Any]] | None = None
) -> None:
    """Refuse ids below 0 or not below `size`.

    Shapes: ``ids: [N, ...]``, of calls from rank `start` on; ``owner: [N]``, where the rows are elements of
    sequences: which of the calls each is of.
    """
    if ids.size == 0 or (ids.min() >= 0 and ids.max() < size):
        return
    at = tuple(int(i) for i in np.argwhere((ids < 0) | (ids >= size))[0])
    raise OutOfRangeError(start + int(at[0] if owner is None else owner[at[0]]), int(ids[at]), size)


Function = Callable[[Ints, Sequence[int], Ints, Sequence[Array]], None]

_FUNCTIONS: tuple[Callable[..., object], ...] = (
    *(add_rows, cast_into, check_range, linear_by, located, put_rows, random_bits, rounded, spread),
    *(segment_log_softmax, segment_logsumexp),
    *(segment_is_max, segment_max, segment_mix, segment_position, segment_softmax, sums.segment_sum, view),
    *(ordered, sum_copies, sums.sum_axes, sums.sum_first, sum_outer, sum_outer_by, sum_rows, top_and_rest),
)
GLOBALS: dict[str, Any] = {"inf": np.inf, "nan": np.nan, "np": np, **NUMBERS}
GLOBALS |= {function.__name__: function for function in _FUNCTIONS}


@dataclass(frozen=True, slots=True)
class NumPyKernel:
    """A routine that runs.

    ``function(bounds, row, index, buffers)`` runs the levels ``bounds: [levels, 2] int64`` of a launch. `row`
    is its row of the launch table, ``index: [*] int64`` are all index arrays of the table, and `buffers` are
    those of the batch, ``[height, *shape]`` each. It raises OutOfRangeError where an id is out of range.
    """

    source: str
    function: Function


@remembered
def load(routine: Routine) -> NumPyKernel:
    """Make the kernel of a routine; it has no cell's name, as those change when a model grows."""
    source = _TextWriter(routine).text()
    filename = f"<foldbatch numpy kernel {routine.name} {zlib.crc32(source.encode()):08x}>"
    scope = dict(GLOBALS)
    exec(code_of(source, filename), scope)  # noqa: S102 - the text is our own
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return NumPyKernel(source, scope[routine.name])
