"""From bindings to a launch table: what is fixed when a model is loaded, and what each batch fills in.

`bind` numbers the routines of a model and the buffers that they read and write. Of a launch's row, most numbers are the
same in every batch; the others are *facts* of a schedule (where an operand's rows begin, where an index array lies),
which are collected in one list and put in their places by one look-up.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from foldbatch.engines.launch import (
    BASE,
    COPIES,
    FIELDS,
    FIRST,
    HEAD,
    INDEX,
    SPARE,
    STORES,
    WIDTH,
    Ints,
    LaunchTable,
)
from foldbatch.model.model import Model
from foldbatch.params import Array, Parameter
from foldbatch.scheduler.schedule import Schedule, Step
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.routines import Stage, Target, routine_of
from foldbatch.static.statements import Binding, Routine
from foldbatch.types import TensorType

Fact = tuple[Hashable, ...]  # what a number of a batch is called

# The backward stage that corresponds to a forward one: what ran last must be undone first.
MIRROR = {"before": "after", "step": "step", "after": "before"}


class Key(NamedTuple):
    """A kernel: which cell's, in which direction, and which stage."""

    cell: int
    direction: str
    stage: str


class Use(NamedTuple):
    """A kernel's need for rows of a buffer: the extent of an axis times `width`, if fact `gate` is not 0."""

    buffer: int
    extent: Fact
    width: int = 1
    gate: Fact = ("one",)


@dataclass(frozen=True, slots=True)
class Bound:
    """The routines of one phase of a model, with their buffers.

    Attributes:
        model: the model.
        training: whether it is trained, or infers.
        keys: of the kernels.
        routines: of the kernels.
        numbers: of the kernels, by key.
        buffers: what each buffer is.
        types: of the rows of buffers; None for arrays that a batch brings.
        facts: the place of each fact in the list of a batch's facts.
        fixed: ``[kernels, HEAD + FIELDS * bindings] int64``: the numbers of launches that no batch changes.
        varied: likewise: which fact stands there, or -1.
        uses: which kernels need which buffers.
        gradients: per kernel, the parameters whose gradients it yields.
    """

    model: Model
    training: bool
    keys: tuple[Key, ...]
    routines: tuple[Routine, ...]
    numbers: Mapping[Key, int]
    buffers: Mapping[Fact, int]
    types: tuple[TensorType | None, ...]
    facts: Mapping[Fact, int]
    fixed: Ints
    varied: Ints
    uses: tuple[Use, ...]
    extents: tuple[Ints, Ints, Ints, Ints]
    gradients: tuple[tuple[Parameter, ...], ...]


BROUGHT = ("feed", "parameter", "constant", "gradient", "input", "metric")


def stages_of(model: Model, *, training: bool) -> Iterator[tuple[Key, Stage]]:
    """Yield what each kernel of a phase of a model computes."""
    for k, cell in enumerate(model.cells):
        phase = cell.phase(training=training)
        for direction, stages in (("forward", phase.forward), ("backward", phase.backward)):
            for name, stage in stages.items():
                yield Key(k, direction, name), stage


def bind(model: Model, target: Target, *, training: bool) -> Bound:
    """Return the routines of a model for a target, with what is fixed of their launches."""
    stages = dict(stages_of(model, training=training))
    routines = [routine_of(stage, target) for stage in stages.values()]
    return bind_routines(model, list(stages), routines, training=training)


def bind_routines(
    model: Model, keys: Sequence[Key], routines: Sequence[Routine], *, training: bool
) -> Bound:
    """Return routines with what is fixed of their launches."""
    binder = _Binder(model, training=training)
    rows = [binder.row(key, routine) for key, routine in zip(keys, routines, strict=True)]
    width = max([HEAD, *(HEAD + FIELDS * len(row) for row in rows)])
    fixed, varied = np.full((len(rows), width), -1, np.int64), np.full((len(rows), width), -1, np.int64)
    for number, row in enumerate(rows):
        fixed[number, 0] = number
        for at, field in enumerate(field for fields in row for field in fields):
            if isinstance(field, int):
                fixed[number, HEAD + at] = field
            else:
                varied[number, HEAD + at] = binder.fact(field)
    gradients = tuple(
        tuple(result.binding.key for result in routine.results if result.binding.kind == "gradient")
        for routine in routines
    )
    uses = sorted(binder.uses, key=itemgetter(0))
    extents = (
        np.array([use.buffer for use in uses], np.int64),
        np.array([binder.fact(use.extent) for use in uses], np.int64),
        np.array([use.width for use in uses], np.int64),
        np.array([binder.fact(use.gate) for use in uses], np.int64),
    )
    return Bound(
        model,
        training,
        tuple(keys),
        tuple(routines),
        {key: number for number, key in enumerate(keys)},
        binder.buffers,
        tuple(binder.types),
        binder.facts,
        fixed,
        varied,
        tuple(uses),
        extents,
        gradients,
    )


class _Binder:
    """Numbers buffers and facts as they are asked for."""

    def __init__(self, model: Model, *, training: bool) -> None:
        self.model = model
        self.training = training
        self.buffers: dict[Fact, int] = {}
        self.types: list[TensorType | None] = []
        self.facts: dict[Fact, int] = {("one",): 0}
        self.uses: set[Use] = set()
        for arena, type_ in enumerate(model.arenas):
            self.buffer(("values", arena), type_, ("arena", arena))
            if training:
                self.buffer(("cotangents", arena), type_, ("arena", arena))

    def fact(self, name: Fact) -> int:
        return self.facts.setdefault(name, len(self.facts))

    def buffer(
        self, name: Fact, type_: TensorType, extent: Fact, width: int = 1, gate: Fact = ("one",)
    ) -> int:
        """Return the number of a buffer, which needs so many rows."""
        if name not in self.buffers:
            self.buffers[name] = len(self.types)
            self.types.append(None if name[0] in BROUGHT else type_)
        if name[0] not in BROUGHT:
            self.uses.add(Use(self.buffers[name], extent, width, gate))
        return self.buffers[name]

    def row(self, key: Key, routine: Routine) -> list[list[int | Fact]]:
        """Return the fields of each binding of a routine: numbers, or names of facts."""
        slots = [self._slot(key, slot.binding, slot.type, slot.axis) for slot in routine.slots]
        results = [
            self._result(key, result.binding, routine.slots[result.place.slot].type) for result in routine.results
        ]
        return slots + results

    def _extent(self, key: Key, axis: Axis) -> Fact:
        """Return the name of the rows that a level may have along an axis."""
        if axis is UNBATCHED:
            return ("one",)
        which = "widest" if key.stage == "step" else "all"
        if axis is CALL:
            return (which, key.cell)
        return (which, key.cell, self.model.cells[key.cell].training.graph.axes.index(axis))

    def _slot(self, key: Key, binding: Binding, type_: TensorType, axis: Axis) -> list[int | Fact]:
        kind, number = binding
        k = key.cell
        match kind:
            case "operand" | "store":
                return self._operand(key, kind, number, axis, type_)
            case "cotangent":
                arena = self.model.signatures[k].outputs[number]
                spare = self.buffer(("spare", kind, k, number), self.model.arenas[arena], self._extent(key, axis))
                rows: Fact = ("output", k, number)
                return _fields(self.buffers["cotangents", arena], first=-1, index=rows, copies=("copies", k), spare=spare)
            case "segments":
                return _fields(-1, first=-1, index=("segments", k, number))
            case "scratch":
                return _fields(self.buffer((kind, type_, number), type_, self._extent(key, axis)))
            case "kept":
                extent: Fact = ("one",) if axis is UNBATCHED else ("all", *self._extent(key, axis)[1:])
                return _fields(self.buffer((kind, k, number), type_, extent))
            case "feed":
                return _fields(self.buffer((kind, k, number), type_, ("all", k)))
            case "parameter":
                return _fields(self.buffer((kind, number), type_, ("one",)))
            case _:
                assert kind == "constant", kind
                return _fields(self.buffer((kind, Constant(number)), type_, ("one",)))

    def _operand(
        self, key: Key, kind: str, number: int, axis: Axis, type_: TensorType
    ) -> list[int | Fact]:
        """Return the fields of what is read or written where an operand's rows lie."""
        k = key.cell
        operand = self.model.signatures[k].operands[number]
        width = len(operand.columns) or 1
        where = "values" if kind == "operand" else "cotangents"
        spare = -1
        if kind != "cotangent":
            gate: Fact = ("gathered" if kind == "operand" else "added", k, number)
            spare = self.buffer(
                ("spare", kind, k, number), self.model.arenas[operand.arena], self._extent(key, axis), width, gate
            )
        stores: int | Fact = ("stores", k, number) if kind != "operand" else 0
        place: tuple[Fact, Fact] = ("first", k, number), ("rows", k, number)
        return _fields(self.buffers[where, operand.arena], *place, width=width, stores=stores, spare=spare)

    def _result(self, key: Key, binding: Binding, type_: TensorType) -> list[int | Fact]:
        kind, number = binding
        k = key.cell
        match kind:
            case "value":
                arena = self.model.signatures[k].outputs[number]
                rows: Fact = ("output", k, number)
                return _fields(self.buffers["values", arena], first=-1, index=rows, copies=("copies", k))
            case "cotangent":
                return self._operand(key, kind, number, CALL, type_)
            case "gradient":
                base = self.buffer((kind, number), type_, ("one",))
                return _fields(base, stores=("stores", number))
            case "feed":
                return _fields(self.buffer(("input", k, number), type_, ("all", k)))
            case "loss":
                loss = self.model.cells[k].graph.losses[number]
                return _fields(self.buffer((kind, k, number), loss.type, ("all", k)))
            case _:
                assert kind == "metric", kind
                return _fields(self.buffer((kind, k, number), type_, ("all", k)))


class Constant:
    """An array as a key: the same for the same object."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and other.array is self.array

    def __hash__(self) -> int:
        return id(self.array)


def _fields(
    base: int,
    first: int | Fact = 0,
    index: int | Fact = -1,
    width: int = 1,
    copies: int | Fact = -1,
    stores: int | Fact = 0,
    spare: int = -1,
) -> list[int | Fact]:
    fields: list[int | Fact] = [0] * FIELDS
    for at, field in (
        (BASE, base),
        (FIRST, first),
        (INDEX, index),
        (WIDTH, width),
        (COPIES, copies),
        (STORES, stores),
        (SPARE, spare),
    ):
        fields[at] = field
    return fields


class Directions(NamedTuple):
    """The launch tables of a batch: forward, and while training backward."""

    forward: LaunchTable
    backward: LaunchTable | None


def launch_tables(bound: Bound, schedule: Schedule) -> Directions:
    """Return what a batch launches."""
    facts, index = _facts(schedule)
    steps = schedule.steps
    bounds = np.array([(step.start, step.stop) for step in steps], np.int64).reshape(-1, 2)
    facts |= _widest(schedule, bounds)
    forward = list(_launches(bound, steps, "forward"))
    backward = list(_launches(bound, steps[::-1], "backward")) if bound.training else []
    facts |= _stores(bound, backward)
    values = np.array([facts[name] for name in bound.facts], np.int64)
    heights = _heights(bound, values)
    tables = [
        LaunchTable(_rows(bound, values, launches), levels, index, heights)
        for launches, levels in ((forward, bounds), (backward, np.ascontiguousarray(bounds[::-1])))
    ]
    return Directions(tables[0], tables[1] if bound.training else None)


def _facts(schedule: Schedule) -> tuple[dict[Fact, int], Ints]:
    """Return the facts of a schedule by name, and all its index arrays as one: ``[*] int64``."""
    facts: dict[Fact, int] = {("one",): 1}
    arrays: list[Ints] = []
    end = 0

    def pack(array: Ints) -> int:
        nonlocal end
        arrays.append(array)
        end += len(array)
        return end - len(array)

    facts |= {("arena", arena): rows for arena, rows in enumerate(schedule.arena_rows)}
    for k, table in enumerate(schedule.cells):
        facts["all", k] = len(table.order)
        for i, span in enumerate(table.operands):
            facts["first", k, i] = -1 if span.start is None else span.start
            facts["rows", k, i] = -1 if span.rows is None else pack(span.rows)
            facts["gathered", k, i] = int(span.start is None)
            facts["stores", k, i] = int(span.first)
            facts["added", k, i] = 1 - int(span.first)
        for j, rows in enumerate(table.outputs):
            facts["output", k, j] = pack(rows)
        for s, segments in enumerate(table.segments):
            facts["segments", k, s] = pack(segments)
            facts["all", k, s] = int(segments[-1])
        facts["copies", k] = -1 if table.copies is None else pack(table.copies)
    index = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    return facts, np.ascontiguousarray(index, np.int64)


def _widest(schedule: Schedule, bounds: Ints) -> dict[Fact, int]:
    """Return how many calls, and how many elements of each of their sequences, the widest step of each cell has."""
    cells = np.array([step.cell for step in schedule.steps if "step" in step.stages], np.int64)
    levels = bounds[[i for i, step in enumerate(schedule.steps) if "step" in step.stages]]
    facts: dict[Fact, int] = {}
    for k, table in enumerate(schedule.cells):
        own = levels[cells == k]
        facts["widest", k] = int((own[:, 1] - own[:, 0]).max(initial=0))
        for s, segments in enumerate(table.segments):
            facts["widest", k, s] = int((segments[own[:, 1]] - segments[own[:, 0]]).max(initial=0))
    return facts


def _launches(
    bound: Bound, steps: Sequence[Step], direction: str
) -> Iterator[tuple[int, int, int]]:
    """Yield each launch's kernel, first level and the level after the last; levels are steps, in this order.

    Steps of the same stage of one cell that follow each other are one launch. What runs several stages goes through all
    of them before the next step does.
    """
    level = 0
    for (cell, stages), group in groupby(steps, key=itemgetter(0, 1)):
        count = sum(1 for _ in group)
        if direction == "backward" and len(stages) < len(MIRROR):
            stages = tuple(MIRROR[stage] for stage in stages)
        spans = [(level, level + count)]
        if len(stages) > 1:
            spans = [(first, first + 1) for first in range(level, level + count)]
        for first, last in spans:
            for stage in stages:
                number = bound.numbers.get(Key(cell, direction, stage))
                if number is not None:
                    yield number, first, last
        level += count


def _stores(bound: Bound, launches: Sequence[tuple[int, int, int]]) -> dict[Fact, int]:
    """Return which parameters' gradients are yielded once, so that they are stored and not summed."""
    levels: dict[Parameter, int] = {}
    for kernel, first, last in launches:
        for parameter in bound.gradients[kernel]:
            levels[parameter] = levels.get(parameter, 0) + last - first
    reached = {parameter for parameters in bound.gradients for parameter in parameters}
    return {("stores", parameter): int(levels.get(parameter, 0) == 1) for parameter in reached}


def _heights(bound: Bound, facts: Ints) -> Ints:
    """Return how many rows each buffer must have: ``[buffers]``."""
    heights = np.zeros(len(bound.types), np.int64)
    buffers, extents, widths, gates = bound.extents
    np.maximum.at(heights, buffers, facts[extents] * widths * facts[gates])
    return heights


def _rows(bound: Bound, facts: Ints, launches: Sequence[tuple[int, int, int]]) -> Ints:
    """Return the rows of a launch table."""
    heads = np.array(launches, np.int64).reshape(-1, HEAD)
    fixed, varied = bound.fixed[heads[:, 0]], bound.varied[heads[:, 0]]
    rows: Ints = np.where(varied >= 0, facts[varied], fixed)
    rows[:, :HEAD] = heads
    return rows
