"""From bindings to launch tables: what is fixed when a model is loaded, and the tables of a batch.

`bind` numbers the routines of a model and the buffers that they read and write. Of a launch's row, most
numbers are the same in every batch; for the others it is fixed which *fact* of a schedule stands there, and
`launch_tables` puts these in their places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from foldbatch.engines.launch import HEAD, Fields, Ints, LaunchTable
from foldbatch.model.model import Model
from foldbatch.params.parameters import Array, Parameter
from foldbatch.planning.facts import Fact, fact_names
from foldbatch.planning.launches import LaunchConstants, launch_constants, launches_of
from foldbatch.scheduler.schedule import ALL, Schedule
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.static.routines import Stage, Target, routine_of
from foldbatch.static.statements import Binding, Routine, Slot
from foldbatch.types import TensorType


class KernelKey(NamedTuple):
    """A kernel: which cell's, in which direction, and which stage.

    A kernel of a `variant` computes the same in another way; an engine may launch it instead.
    """

    cell: int
    direction: str
    stage: str
    variant: str = ""


class Use(NamedTuple):
    """A kernel's need for rows of a buffer: the extent of an axis times `width`, if fact `gate` is not 0."""

    buffer: int
    extent: Fact
    width: int = 1
    gate: Fact = ("one",)


@dataclass(frozen=True, slots=True)
class Bound:
    """The routines of one phase of a model, with their buffers."""

    model: Model
    target: Target  # what the routines were made for
    training: bool  # whether it is trained, or infers
    keys: tuple[KernelKey, ...]  # of the kernels
    routines: tuple[Routine, ...]  # of the kernels
    numbers: Mapping[KernelKey, int]  # of the kernels, by key
    # by direction ``[cells, stages] int64``: the kernel of each stage, -1 where there is none
    stages: Mapping[str, Ints]
    buffers: Mapping[Fact, int]  # what each buffer is
    types: tuple[TensorType | None, ...]  # of the rows of buffers; None for arrays that a batch brings
    facts: Mapping[Fact, int]  # the place of each fact of a batch, by name
    # ``[kernels, HEAD + Fields.size * bindings] int64``: where each number of a launch stands, in a list of a
    # batch's facts and then of `fixed`
    places: Ints
    fixed: Ints  # ``[*] int64``: the numbers of launches that no batch changes
    # ``[4, uses] int64``: a kernel's need for rows of a buffer: the buffer, then the places of two facts and
    # a number, which are multiplied: the extent of an axis, whether there is any need, and rows for each
    uses: Ints
    gradients: tuple[tuple[Parameter, ...], ...]  # per kernel, the parameters whose gradients it yields
    summed: tuple[Parameter, ...]  # all of these parameters, in the order of their facts
    # what a batch brings, and the number of the buffer that it becomes
    brought: Mapping[str, tuple[tuple[Any, int], ...]]
    constants: LaunchConstants = field(init=False, repr=False)  # the same, as launches are made of it

    def __post_init__(self) -> None:
        stages = np.stack([self.stages["forward"], self.stages["backward"]])
        number = {parameter: i for i, parameter in enumerate(self.summed)}
        gradients = [[number[parameter] for parameter in parameters] for parameters in self.gradients]
        arrays = self.uses, self.places, self.fixed, len(self.types)
        constants = launch_constants(stages, gradients, len(number), *arrays, training=self.training)
        object.__setattr__(self, "constants", constants)


BROUGHT = ("feed", "parameter", "constant", "gradient", "input", "metric")


def stages_of(model: Model, *, training: bool) -> Iterator[tuple[KernelKey, Stage]]:
    """Yield the stages of a phase of a model, each with the key of its kernel."""
    for k, cell in enumerate(model.cells):
        phase = cell.phase(training=training)
        for direction, stages in (("forward", phase.forward), ("backward", phase.backward)):
            for name, stage in stages.items():
                yield KernelKey(k, direction, name), stage


def bind(model: Model, target: Target, *, training: bool) -> Bound:
    """Make the routines of a phase of a model for an engine's target, and bind their slots to memory."""
    stages = dict(stages_of(model, training=training))
    routines = [routine_of(stage, target) for stage in stages.values()]
    return bind_routines(model, target, list(stages), routines, training=training)


def bind_routines(
    model: Model, target: Target, keys: Sequence[KernelKey], routines: Sequence[Routine], *, training: bool
) -> Bound:
    """Return routines with the constant part of their launches."""
    gradients = tuple(
        tuple(result.binding.key for result in routine.results if result.binding.kind == "gradient")
        for routine in routines
    )
    summed = tuple(dict.fromkeys(parameter for parameters in gradients for parameter in parameters))
    binder = _Binder(model, summed, training=training)
    rows = [binder.row(key, routine) for key, routine in zip(keys, routines, strict=True)]
    width = max([HEAD, *(HEAD + Fields.size * len(row) for row in rows)])
    facts = binder.facts
    numbers = defaultdict[int, int](count(len(facts)).__next__)
    places = np.full((len(rows), width), numbers[-1], np.int64)
    for number, row in enumerate(rows):
        places[number, HEAD : HEAD + Fields.size * len(row)] = [
            numbers[field] if isinstance(field, int) else facts[field] for fields in row for field in fields
        ]
    uses = [
        (use.buffer, facts[use.extent], facts[use.gate], use.width)
        for use in sorted(binder.uses, key=itemgetter(0))
    ]
    brought: dict[str, list[tuple[Any, int]]] = {kind: [] for kind in (*BROUGHT, "loss")}
    for name, n in binder.buffers.items():
        if name[0] in brought:
            brought[name[0]].append((name[1:] if len(name) > 2 else name[1], n))
    number_of = {key: number for number, key in enumerate(keys)}
    return Bound(
        model,
        target,
        training,
        tuple(keys),
        tuple(routines),
        number_of,
        {direction: _stages(model, number_of, direction) for direction in ("forward", "backward")},
        binder.buffers,
        tuple(binder.types),
        facts,
        places,
        np.array(list(numbers), np.int64),
        np.array(uses, np.int64).reshape(-1, 4).T.copy(),
        gradients,
        summed,
        {kind: tuple(arrays) for kind, arrays in brought.items()},
    )


def _stages(model: Model, numbers: Mapping[KernelKey, int], direction: str) -> Ints:
    """Return the kernel of each cell's stages, -1 where there is none: ``[cells, stages]``."""
    cells = range(len(model.cells))
    kernels = [[numbers.get(KernelKey(k, direction, stage), -1) for stage in ALL] for k in cells]
    return np.array(kernels, np.int64).reshape(-1, len(ALL))


class _Binder:
    """Numbers buffers as they are asked for, and finds the places of facts."""

    def __init__(self, model: Model, summed: Sequence[Parameter], *, training: bool) -> None:
        self.model = model
        self.buffers: dict[Fact, int] = {}
        self.types: list[TensorType | None] = []
        schedule = fact_names(model.signatures, len(model.arenas))
        names = [*schedule, *(("stores", parameter) for parameter in summed)]
        self.facts = {name: place for place, name in enumerate(names)}
        self.uses: set[Use] = set()
        for arena, type_ in enumerate(model.arenas):
            self.buffer(("values", arena), type_, ("arena", arena))
            if training:
                self.buffer(("cotangents", arena), type_, ("arena", arena))

    def buffer(
        self, name: Fact, type_: TensorType, extent: Fact, width: int = 1, gate: Fact = ("one",)
    ) -> int:
        """Return the number of a buffer, and note a use of it: `width` rows for each of `extent`."""
        if name not in self.buffers:
            self.buffers[name] = len(self.types)
            self.types.append(None if name[0] in BROUGHT else type_)
        if name[0] not in BROUGHT:
            self.uses.add(Use(self.buffers[name], extent, width, gate))
        return self.buffers[name]

    def row(self, key: KernelKey, routine: Routine) -> list[list[int | Fact]]:
        """Return the fields of each binding of a routine: numbers, or names of facts."""
        slots = [self._slot(key, slot.binding, slot.type, slot.axis) for slot in routine.slots]
        results = [
            self._result(key, result.binding, routine.slots[result.place.slot]) for result in routine.results
        ]
        return slots + results

    def _extent(self, key: KernelKey, axis: Axis) -> Fact:
        """Return the name of the rows that a level may have along an axis."""
        if axis is UNBATCHED:
            return ("one",)
        kind = "widest" if key.stage == "step" else "all"
        if axis is CALL:
            return (kind, key.cell)
        return (kind, key.cell, self.model.cells[key.cell].training.graph.axes.index(axis))

    def _slot(self, key: KernelKey, binding: Binding, type_: TensorType, axis: Axis) -> list[int | Fact]:
        """Return the fields of a slot: its buffer, and the facts that say which rows of it a level has."""
        kind, number = binding
        k = key.cell
        match kind:
            case "operand" | "store":
                return self._operand(key, kind, number, axis, type_)
            case "cotangent":
                arena = self.model.signatures[k].outputs[number]
                spare = self.buffer(
                    ("spare", kind, k, number), self.model.arenas[arena], self._extent(key, axis)
                )
                rows: Fact = ("output", k, number)
                return _fields(
                    self.buffers["cotangents", arena], first=-1, index=rows, copies=("copies", k), spare=spare
                )
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
                return _fields(self.buffer((kind, ConstantKey(number)), type_, ("one",)))

    def _operand(
        self, key: KernelKey, kind: str, number: int, axis: Axis, type_: TensorType
    ) -> list[int | Fact]:
        """Return the fields of an operand's values, or of its cotangents, where its rows lie."""
        k = key.cell
        operand = self.model.signatures[k].operands[number]
        width = len(operand.columns) or 1
        where = "values" if kind == "operand" else "cotangents"
        spare = -1
        if kind != "cotangent":
            gate: Fact = ("gathered" if kind == "operand" else "added", k, number)
            spare = self.buffer(
                ("spare", kind, k, number),
                self.model.arenas[operand.arena],
                self._extent(key, axis),
                width,
                gate,
            )
        stores: int | Fact = ("stores", k, number) if kind != "operand" else 0
        place: tuple[Fact, Fact] = ("first", k, number), ("rows", k, number)
        return _fields(self.buffers[where, operand.arena], *place, width=width, stores=stores, spare=spare)

    def _result(self, key: KernelKey, binding: Binding, slot: Slot) -> list[int | Fact]:
        """Return the fields of a result that lies in a slot."""
        kind, number = binding
        k, type_ = key.cell, slot.type
        match kind:
            case "value":
                arena = self.model.signatures[k].outputs[number]
                rows: Fact = ("output", k, number)
                return _fields(self.buffers["values", arena], first=-1, index=rows, copies=("copies", k))
            case "cotangent":
                return self._operand(key, kind, number, CALL, type_)
            case "gradient":
                base = self.buffer((kind, number), type_, ("one",))
                scratch = slot.binding.kind == "scratch"
                spare = self.buffers["scratch", type_, slot.binding.key] if scratch else -1
                return _fields(base, stores=("stores", number), spare=spare)
            case "feed":
                return _fields(self.buffer(("input", k, number), type_, ("all", k)))
            case "loss":
                loss = self.model.cells[k].graph.losses[number]
                return _fields(self.buffer((kind, k, number), loss.type, ("all", k)))
            case _:
                assert kind == "metric", kind
                return _fields(self.buffer((kind, k, number), type_, ("all", k)))


class ConstantKey:
    """An array as a key: the same for the same object."""

    __slots__ = ("array",)

    def __init__(self, array: Array) -> None:
        self.array = array

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantKey) and other.array is self.array

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
    """Return the fields of a binding, in the order of `foldbatch.engines.launch`."""
    return [base, first, index, width, copies, stores, spare]


class Launch(NamedTuple):
    """A kernel on some levels: the first, and the one after the last."""

    kernel: int
    first: int
    last: int


class Directions(NamedTuple):
    """The launch tables of a batch: forward, and while training backward.

    `yields` says how many levels yield a gradient of each parameter; `numbers`, ``[*] int64``, are the
    batch's facts and then what is fixed, of which `rows_of` makes launches.
    """

    forward: LaunchTable
    backward: LaunchTable | None
    yields: Mapping[Parameter, int]
    numbers: Ints


def launch_tables(bound: Bound, schedule: Schedule) -> Directions:
    """Return the launch tables of a scheduled batch."""
    launches = launches_of(bound.constants, schedule)
    forward = LaunchTable(launches.forward, launches.bounds, launches.index, launches.heights)
    backward = None
    if bound.training:
        backward = LaunchTable(launches.backward, launches.mirrored, launches.index, launches.heights)
    yields = dict(zip(bound.summed, launches.yields.tolist(), strict=True))
    return Directions(forward, backward, yields, launches.numbers)


def rows_of(bound: Bound, numbers: Ints, launches: Ints | Sequence[Launch]) -> Ints:
    """Return the rows of a launch table; ``numbers: [*]`` are a batch's facts, then what is fixed."""
    heads = np.asarray(launches, np.int64).reshape(-1, HEAD)
    rows: Ints = numbers.take(bound.places.take(heads[:, 0], axis=0))
    rows[:, :HEAD] = heads
    return rows
