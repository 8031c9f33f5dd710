"""An interpreter of routines: what engines must do, as plainly as it can be said, element by element.

It takes what a kernel of the NumPy engine takes, runs fused loops, and sees to it that no place lies outside of its
slot. So fusion can be tested without a compiler, and bindings without an engine.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from foldbatch.engines.arrays import ArrayEngine, BatchMemory, Kernels
from foldbatch.engines.bindings import Bound, launch_tables
from foldbatch.engines.launch import (
    BASE,
    COPIES,
    FIRST,
    INDEX,
    SPARE,
    STORES,
    WIDTH,
    Ints,
    LaunchTable,
    OutOfRangeError,
)
from foldbatch.engines.launch import binding as fields_of
from foldbatch.engines.numpy import run
from foldbatch.engines.numpy.kernel import Function
from foldbatch.engines.numpy.spelling import OVERWRITES
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis
from foldbatch.static.places import Place
from foldbatch.static.routines import ON_SEQUENCES, Target
from foldbatch.static.statements import Result, Routine, Slot, Statement

FUSED = Target(
    frozenset({"abs", "exp", "sigmoid", "sqrt", "tanh"}),
    frozenset({"float32", "float64", "int32", "int64", "bool"}),
    OVERWRITES,
)


def load(model: Model, *, debug: bool = True) -> ArrayEngine:
    return ArrayEngine("interpreter", model, FUSED, _make, debug=debug)


def _make(bound: Bound) -> Kernels:
    functions = [interpreted(routine) for routine in bound.routines]

    def walk(table: LaunchTable, memory: BatchMemory) -> None:
        run(table, functions, memory.arrays)

    return Kernels(bound, walk, list, partial(launch_tables, bound))


def interpreted(routine: Routine) -> Function:
    """Return what runs a routine for the levels of a launch, as a kernel of the NumPy engine does."""

    def function(bounds: Ints, row: Sequence[int], index: Ints, buffers: Sequence[Array]) -> None:
        for start, stop in bounds.tolist():
            _Level(routine, row, index, buffers, start, stop).run()

    return function


class _Level:
    """One level: the calls from rank `start` to `stop`."""

    def __init__(
        self,
        routine: Routine,
        row: Sequence[int],
        index: Ints,
        buffers: Sequence[Array],
        start: int,
        stop: int,
    ) -> None:
        self.routine = routine
        self.row = row
        self.index = index
        self.buffers = buffers
        self.start, self.stop = start, stop
        self.segments = {
            axis: index[fields_of(row, number)[INDEX] :][start : stop + 1]
            for axis, number in routine.segments.items()
        }
        self.flat = [self._slot(number, slot) for number, slot in enumerate(routine.slots)]

    def run(self) -> None:
        """Run all statements, then bring the results where they belong."""
        with np.errstate(all="ignore"):
            for statement in self.routine.statements:
                self._statement(statement)
            self._results()

    # -- rows

    def extent(self, axis: Axis) -> tuple[int, int]:
        """Return the first row along an axis and the one after the last, counted in the whole batch."""
        if axis is UNBATCHED:
            return 0, 1
        if axis is CALL:
            return self.start, self.stop
        return int(self.segments[axis][0]), int(self.segments[axis][-1])

    def count(self, axis: Axis) -> int:
        first, last = self.extent(axis)
        return last - first

    def owners(self, axis: Axis) -> list[int]:
        calls = np.arange(self.stop - self.start)
        return np.repeat(calls, np.diff(self.segments[axis])).tolist()

    # -- slots

    def _slot(self, number: int, slot: Slot) -> Array:
        """Return a slot's elements as one row of numbers; those that are written lie in the batch's buffers."""
        fields = fields_of(self.row, number)
        first, last = self.extent(slot.axis)
        match slot.binding.kind:
            case "segments":
                return self.segments[slot.axis]
            case "operand":
                return self.buffers[fields[BASE]][self._rows(fields, first, last)].reshape(-1)
            case "cotangent":
                return self._cotangent(fields).reshape(-1)
            case "store" if not fields[STORES]:
                array = self.buffers[fields[SPARE]][: (last - first) * fields[WIDTH]]
                assert len(array) == (last - first) * fields[WIDTH], "copies have too little room"
            case "store":
                array = self.buffers[fields[BASE]][self._consecutive(fields, first, last)]
            case "scratch" | "parameter" | "constant":
                array = self.buffers[fields[BASE]][: last - first]
            case _:
                array = self.buffers[fields[BASE]][first:last]
        flat = np.ascontiguousarray(array).reshape(-1)
        assert len(flat) == (last - first) * slot.type.size, f"slot {slot} has too few rows"
        return flat

    def _consecutive(self, fields: Sequence[int], first: int, last: int) -> slice:
        assert fields[FIRST] >= 0, "only rows that follow each other are stored to"
        return slice(fields[FIRST] + first * fields[WIDTH], fields[FIRST] + last * fields[WIDTH])

    def _rows(self, fields: Sequence[int], first: int, last: int) -> Ints:
        """Return the numbers of the rows of an arena that a binding tells."""
        if fields[FIRST] >= 0:
            rows = self._consecutive(fields, first, last)
            return np.arange(rows.start, rows.stop)
        return self.index[fields[INDEX] :][first * fields[WIDTH] : last * fields[WIDTH]]

    def _cotangent(self, fields: Sequence[int]) -> Array:
        arena = self.buffers[fields[BASE]]
        if fields[COPIES] < 0:
            return arena[self._rows(fields, self.start, self.stop)]
        sums = [arena[rows].sum(axis=0) for rows in self._copies(fields)]
        return np.array(sums, arena.dtype)

    def _copies(self, fields: Sequence[int]) -> list[Ints]:
        copies = self.index[fields[COPIES] :]
        rows = self.index[fields[INDEX] :]
        return [rows[copies[i] : copies[i + 1]] for i in range(self.start, self.stop)]

    def view(self, place: Place) -> Array:
        """Return the elements of a place: ``[rows, *shape]``, one row where it is unbatched."""
        flat = self.flat[place.slot]
        rows = self.count(place.axis)
        shape, strides = (rows, *place.shape), (place.row, *place.strides)
        if 0 in shape:
            return np.empty(shape, flat.dtype)
        ends = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
        first, last = (place.offset + sum(sign(end, 0) for end in ends) for sign in (min, max))
        assert 0 <= first <= last < len(flat), f"{place} is not inside its slot"
        steps = tuple(stride * flat.itemsize for stride in strides)
        return np.lib.stride_tricks.as_strided(flat[place.offset :], shape, steps)

    # -- statements

    def _statement(self, statement: Statement) -> None:
        match statement.op:
            case "loop":
                self._loop(statement)
            case "copy":
                self.view(statement.write)[...] = self.view(statement.reads[0]).copy()
            case "zero":
                self.view(statement.write)[...] = 0
            case "check_range":
                self._check(statement)
            case _:
                self._compute(statement)

    def _check(self, statement: Statement) -> None:
        place, *more = statement.reads
        owners = self.owners(more[0].axis) if more else range(self.count(place.axis))
        for row, ids in zip(owners, self.view(place), strict=True):
            for found in np.ravel(ids).tolist():
                if not 0 <= found < statement.attrs["size"]:
                    raise OutOfRangeError(self.start + row, found, statement.attrs["size"])

    def _compute(self, statement: Statement) -> None:
        op, write = OPS[statement.op], statement.write
        reads, along = list(statement.reads), statement.axis
        if statement.op in ON_SEQUENCES:
            along = reads.pop().axis
        xs, axes = [self.view(place) for place in reads], [place.axis for place in reads]
        out, attrs = self.view(write), dict(statement.attrs)
        if along is UNBATCHED:
            out[0] = op.evaluate(attrs, *(x[0] for x in xs))
            return
        ends = self.segments[along] - self.segments[along][0] if along.rank == 2 else None
        parts = []
        if op.whole:
            for call in range(self.count(CALL)):
                own = slice(ends[call], ends[call + 1])
                parts.append(op.evaluate(attrs, *(x[own] for x in xs)))
            result = np.concatenate(parts) if write.axis is along and parts else np.array(parts)
            out[...] = result.reshape(out.shape)
            return
        owners = self.owners(along) if along.rank == 2 else []
        for row in range(self.count(along)):
            place = {UNBATCHED: 0, CALL: owners[row] if owners else row, along: row}
            parts.append(op.evaluate(attrs, *(x[place[axis]] for x, axis in zip(xs, axes, strict=True))))
        result = np.array(parts).reshape(self.count(along), *write.shape)
        if write.axis is along:
            out[...] = result
        elif write.axis is UNBATCHED:
            out[0] = result.sum(axis=0)
        else:
            for call in range(self.count(CALL)):
                out[call] = result[ends[call] : ends[call + 1]].sum(axis=0)

    def _loop(self, statement: Statement) -> None:
        loop = statement.loop
        flats = [self.flat[slot] for slot in statement.slots]
        for row, sweep in itertools.product(range(self.count(statement.axis)), loop.sweeps):
            for at in itertools.product(*map(range, sweep.shape)):
                values: list[Any] = []
                for place in sweep.loads:
                    values.append(flats[place.buffer][_element(place, row, at)])
                for operation in sweep.operations:
                    xs = [values[x] if isinstance(x, int) else x.attrs["value"] for x in operation.operands]
                    node = operation.node
                    values.append(np.asarray(node.op.evaluate(node.attrs, *xs)).astype(node.dtype)[()])
                for value, place in sweep.stores:
                    assert loop.buffers[place.buffer].written, "a buffer is written that is not said to be"
                    flats[place.buffer][_element(place, row, at)] = values[value]

    # -- results

    def _results(self) -> None:
        ends = [
            (slot.binding.key, number, self.flat[number].reshape(-1, *slot.type.shape))
            for number, slot in enumerate(self.routine.slots)
            if slot.binding.kind == "store" and not fields_of(self.row, number)[STORES]
        ]
        for number, result in enumerate(self.routine.results, len(self.routine.slots)):
            if result.binding.kind == "cotangent":
                ends.append((result.binding.key, number, self.view(result.place)))
            else:
                self._result(fields_of(self.row, number), result)
        axes = [slot.axis for slot in self.routine.slots] + [x.place.axis for x in self.routine.results]
        for _, number, values in sorted(ends, key=lambda end: end[0]):
            self._cotangents(fields_of(self.row, number), axes[number], values)

    def _result(self, fields: Sequence[int], result: Result) -> None:
        values = self.view(result.place)
        base = self.buffers[fields[BASE]]
        match result.binding.kind:
            case "value" if fields[COPIES] >= 0:
                for rows, value in zip(self._copies(fields), values, strict=True):
                    base[rows] = value
            case "value":
                base[self._rows(fields, *self.extent(result.place.axis))] = values
            case "gradient" if fields[STORES]:
                base[0] = values[0]
            case "gradient":
                base[0] += values[0]
            case _:
                first, last = self.extent(result.place.axis)
                base[first:last] = values

    def _cotangents(self, fields: Sequence[int], axis: Axis, values: Array) -> None:
        arena = self.buffers[fields[BASE]]
        rows = self._rows(fields, *self.extent(axis))
        values = values.reshape(len(rows), *arena.shape[1:])
        if fields[STORES]:
            arena[rows] = values
        else:
            np.add.at(arena, rows, values)


def _element(place: Any, row: int, at: Sequence[int]) -> int:
    return row * place.row + place.offset + sum(i * s for i, s in zip(at, place.strides, strict=True))
