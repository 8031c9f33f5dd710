"""Running a schedule: forward over its steps, backward over the same steps reversed.

The executor hands each kernel the rows that the schedule names (a slice of an arena where rows
are consecutive, else a gathered copy) and puts results where the schedule says. It knows
nothing of blocks or examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from foldbatch.params import Array, Gradient, Parameter
from foldbatch.runtime.hoisting import MANY, multiply_cotangents, multiply_known
from foldbatch.runtime.moves import flat, spread, sum_copies, zero
from foldbatch.runtime.sums import add_gradient, add_repeated, total
from foldbatch.runtime.workspace import Workspace
from foldbatch.scheduler.schedule import CellTable, Index, Schedule, Span, Step
from foldbatch.scheduler.trace import CellSignature
from foldbatch.static.backends.levels import Base
from foldbatch.static.cell import Cell, Hoisted
from foldbatch.static.codegen import Argument
from foldbatch.static.kernel import Kernel, LevelsKernel
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.types import TensorType

NO_ROWS = np.zeros(0, np.int64)

FORWARD, BACKWARD = 0, 1  # as `Hoisted.steps` has them

# The backward stage that corresponds to a forward one: what ran last must be undone first.
MIRROR = {"before": "after", "step": "step", "after": "before"}


@dataclass(slots=True)
class Execution:
    """One batch under way.

    Attributes:
        cells: the compiled cells.
        signatures: their schedulers' view.
        arenas: the type of each arena.
        workspace: the buffers.
        schedule: what to run.
        feeds: per cell and feed, the examples' data in rank order.
        training: whether backward will follow.
        moves: compiled loops that move and multiply rows, by name, if there are any; see `moves_for`.
        losses: by (cell, number), ``[n]`` in rank order.
        metrics: by (cell, number), ``[n, *]`` in rank order.
        gradients: by parameter, what the kernels returned, not yet summed.
        inputs: by (cell, feed), ``[n, *]`` in rank order: the gradients of data, where cells yield them.
        transposed: by cell, the transposed weight of a hoisted product.
        kernel_calls: kernels called so far.
        step: the step under way, for errors.
    """

    cells: Sequence[Cell]
    signatures: Sequence[CellSignature]
    arenas: Sequence[TensorType]
    workspace: Workspace
    schedule: Schedule
    feeds: Sequence[Sequence[Array]]
    training: bool
    moves: Mapping[str, Callable[..., None]] = field(default_factory=dict)
    losses: dict[tuple[int, int], Array] = field(default_factory=dict)
    metrics: dict[tuple[int, int], Array] = field(default_factory=dict)
    gradients: dict[Parameter, list[Gradient]] = field(default_factory=dict)
    inputs: dict[tuple[int, int], Array] = field(default_factory=dict)
    transposed: dict[int, Array] = field(default_factory=dict)
    kernel_calls: int = 0
    step: Step | None = None

    def forward(self) -> None:
        """Compute every value, loss and metric."""
        for step, steps in _levels(self.schedule.steps):
            kernels = self.cells[step.cell].forward if self.training else self.cells[step.cell].inference
            hoisted = self._hoisted(step.cell, FORWARD)
            for stage in step.stages:
                if hoisted is not None and stage == "step":
                    self._run_levels(hoisted.steps[FORWARD], steps)
                elif stage in kernels:
                    self._run_all(kernels[stage], steps)

    def backward(self) -> dict[Parameter, Gradient]:
        """Return the gradient of the summed losses for every trainable parameter reached."""
        assert self.training, "forward must have run for training"
        for arena, rows in enumerate(self.schedule.zero_rows):
            if self.arenas[arena].is_float:
                zero(self.cotangents(arena), rows)
        for step, steps in _levels(reversed(self.schedule.steps)):
            kernels = self.cells[step.cell].backward
            stages = (
                step.stages if len(step.stages) == len(MIRROR) else [MIRROR[stage] for stage in step.stages]
            )
            hoisted = self._hoisted(step.cell, BACKWARD)
            for stage in stages:
                if hoisted is not None and stage == "step":
                    self._run_levels(hoisted.steps[BACKWARD], steps)
                elif hoisted is not None and stage == "after":
                    if hoisted.after is not None:
                        self._run(hoisted.after, step)
                    self._finish(hoisted, step.cell)
                elif stage in kernels:
                    self._run_all(kernels[stage], steps)
        return {parameter: total(parts) for parameter, parts in self.gradients.items()}

    def fetch(self, numbers: Sequence[int], arena_of: Index) -> list[Array]:
        """Return copies of the values of given numbers; `arena_of` says in which arena each value lies."""
        at = np.array(numbers, np.int64)
        found: list[Array] = [np.zeros(0)] * len(numbers)
        for arena in np.unique(arena_of[at]):
            places = np.flatnonzero(arena_of[at] == arena)
            rows = self.values(int(arena))[self.schedule.row_of[at[places]]]
            for i, place in enumerate(places):
                found[place] = rows[i, ...]
        return found

    def values(self, arena: int) -> Array:
        """Return the values of an arena: ``[rows, *shape]``."""
        return self.workspace.rows(("values", arena), self.arenas[arena], self.schedule.arena_rows[arena])

    def cotangents(self, arena: int) -> Array:
        """Return the cotangents of an arena: ``[rows, *shape]``."""
        return self.workspace.rows(("cotangents", arena), self.arenas[arena], self.schedule.arena_rows[arena])

    def _run_all(self, kernel: Kernel, steps: Sequence[Step]) -> None:
        """Run a kernel for steps of one cell, one after the other."""
        table = self.schedule.cells[steps[0].cell]
        if kernel.levels is not None and len(steps) > 1 and table.copies is None:
            self._run_levels(kernel.levels, steps)
            return
        for step in steps:
            self._run(kernel, step)

    def _run_levels(self, levels: LevelsKernel, steps: Sequence[Step]) -> None:
        """Run a kernel of many levels."""
        self.kernel_calls += len(steps)
        bounds = np.array([(step.start, step.stop) for step in steps], np.int64)
        widest = int((bounds[:, 1] - bounds[:, 0]).max())
        given: list[Any] = [bounds]
        for base in levels.bases:
            given += self._base(base, steps[0].cell, widest)
        levels.function(*given)

    def _base(self, base: Base, cell: int, widest: int) -> list[Any]:
        """Return what a loop over levels is given for a parameter or a result, as `Base` lists it."""
        table, key, signature = self.schedule.cells[cell], base.key, self.signatures[cell]
        match base.kind:
            case "product" | "products":
                return self._product(base, cell, table, widest)
            case "operand" | "store" | "sum":
                span = table.operands[key]
                arena = (self.values if base.kind == "operand" else self.cotangents)(span.arena)
                place = [flat(arena), -1 if span.start is None else span.start, span.width]
                place.append(NO_ROWS if span.rows is None else span.rows)
                if base.kind != "operand":
                    place.append(span.first)
                needed = span.rows is not None if base.kind == "operand" else not span.first
                name = (base.kind, cell, key)
                rows = widest * span.width if needed else 0
                return place if base.kind == "sum" else [*place, self._buffer(name, span.arena, rows)]
            case "cotangent":
                arena = signature.outputs[key]
                buffer = self._buffer(("cotangent", cell, key), arena, widest)
                return [flat(self.cotangents(arena)), table.outputs[key], buffer]
            case "value":
                return [flat(self.values(signature.outputs[key])), table.outputs[key]]
            case "kept":
                return [self._all_kept(key, cell, table)]
            case "scratch":
                scratch = "scratch", key.type, key.number
                if base.batched:
                    return [self.workspace.rows(scratch, key.type, widest)]
                return [self.workspace.single(scratch, key.type)]
            case "feed":
                return [np.ascontiguousarray(self.feeds[cell][key])]
            case "constant":
                return [key]
            case _:
                assert base.kind == "parameter", base.kind
                return [key.value if key.value.flags.c_contiguous else np.ascontiguousarray(key.value)]

    def _hoisted(self, cell: int, side: int) -> Hoisted | None:
        """Return the product of a cell that is not its kernels' part in this batch, in one direction."""
        found = self.cells[cell].hoisted if self.training else self.cells[cell].hoisted_inference
        if found is None or side not in found.steps or self.schedule.cells[cell].hoisted is None:
            return None
        return found if found.operand == self.signatures[cell].hoisted else None

    def _product(self, base: Base, cell: int, table: CellTable, widest: int) -> list[Any]:
        """Return what a loop over levels is given for a product that it makes, or for its cotangents."""
        side = FORWARD if base.kind == "product" else BACKWARD
        hoisted, split, span = self._hoisted(cell, side), table.hoisted, table.operands[base.key]
        assert hoisted is not None
        assert split is not None
        type_, weight = TensorType(base.shape, base.dtype), np.ascontiguousarray(hoisted.parameter.value)
        told = [split.ranks, split.rows, split.counts, span.width]
        if base.kind == "product":
            values = flat(self.values(span.arena))
            products = self.workspace.rows(("products", cell), type_, len(split.starts) - 1)
            multiply_known(split, values, weight, products, self.moves)
            buffer = self.workspace.rows(("product", cell), type_, widest)
            return [values, weight, products, split.place, *told, buffer]
        cotangents = flat(self.cotangents(span.arena))
        stores = span.first and not hoisted.adds
        if stores:  # levels do; to what is known beforehand will be added
            assert span.start is not None
            cotangents[span.start + np.flatnonzero(split.place >= 0)] = 0
        back = weight.T
        if len(split.rows) > MANY:
            back = self.workspace.single(("transposed", cell), TensorType(back.shape, base.dtype))
            back[...] = weight.T
        self.transposed[cell] = back
        g = self._product_cotangents(hoisted, cell)
        return [cotangents, back, g, *told, stores, span.repeats]

    def _finish(self, hoisted: Hoisted, cell: int) -> None:
        """Add the weight's gradient, and the cotangents of what was multiplied before the first level."""
        split = self.schedule.cells[cell].hoisted
        assert split is not None
        arena = self.schedule.cells[cell].operands[hoisted.operand].arena
        values, cotangents = flat(self.values(arena)), flat(self.cotangents(arena))
        g = self._product_cotangents(hoisted, cell)
        gradient = self.workspace.single(("gradient", cell), hoisted.parameter.type)
        multiply_cotangents(split, values, self.transposed[cell], g, cotangents, gradient, self.moves)
        add_gradient(self.gradients.setdefault(hoisted.parameter, []), gradient)

    def _product_cotangents(self, hoisted: Hoisted, cell: int) -> Array:
        assert hoisted.cotangent is not None
        return self._all_kept(hoisted.cotangent, cell, self.schedule.cells[cell])

    def _buffer(self, name: tuple[str, int, int], arena: int, rows: int) -> Array:
        """Return memory for rows of an arena: ``[rows, numbers]``."""
        return flat(self.workspace.rows(name, self.arenas[arena], rows))

    def _run(self, kernel: Kernel, step: Step) -> None:
        table = self.schedule.cells[step.cell]
        self.kernel_calls += 1
        self.step = step
        results = kernel.function(*[self._argument(argument, step, table) for argument in kernel.arguments])
        for (kind, key), value in zip(kernel.results, results, strict=True):
            match kind:
                case "value":
                    arena = self.values(self.signatures[step.cell].outputs[key])
                    spread(value, arena, table, key, (step.start, step.stop), self.moves)
                case "cotangent":
                    self._add_cotangents(table.operands[key], table, step, value)
                case "stored":
                    if not table.operands[key].first:
                        self._add_cotangents(table.operands[key], table, step, value)
                case "gradient":
                    add_gradient(self.gradients.setdefault(key, []), value)
                case "feed":
                    _collect(self.inputs, (step.cell, key), value, step, len(table.order))
                case "loss":
                    _collect(self.losses, (step.cell, key), value, step, len(table.order))
                case "metric":
                    _collect(self.metrics, (step.cell, key), value, step, len(table.order))

    def _argument(self, argument: Argument, step: Step, table: CellTable) -> Any:
        key = argument.key
        match argument.kind:
            case "scratch":
                name = "scratch", key.type, key.number
                if key.axis is UNBATCHED:
                    return self.workspace.single(name, key.type)
                return self.workspace.rows(name, key.type, _count(self._extent(key.axis, step, table)))
            case "kept":
                return self._kept(key, step, table)
            case "operand":
                return self._operand(key, step, table)
            case "cotangent":
                number = self.signatures[step.cell].outputs[key]
                arena, written = self.cotangents(number), table.written(key, step.start, step.stop)
                if table.copies is not None:
                    return sum_copies(arena, written, table.copies[step.start : step.stop + 1], self.moves)
                return self._gather(("cotangent", step.cell, key), arena, self.arenas[number], written)
            case "store":
                return self._store(key, step, table)
            case "parameter":
                return key.value
            case "feed":
                return self.feeds[step.cell][key][step.start : step.stop]
            case "rows":
                return _count(self._extent(key, step, table))
            case _:
                return self._segments(argument.kind, key, step, table)

    def _extent(self, axis: Axis, step: Step, table: CellTable) -> tuple[int, int]:
        """Return where a step's rows lie among all rows of an axis of its cell."""
        if axis is CALL:
            return step.start, step.stop
        segments = table.segments[self.cells[step.cell].graph.axes.index(axis)]
        return int(segments[step.start]), int(segments[step.stop])

    def _kept(self, number: int, step: Step, table: CellTable) -> Array:
        cell = self.cells[step.cell]
        axis = (cell.kept if self.training else cell.kept_inference)[number].axis
        whole = self._all_kept(number, step.cell, table)
        if axis is UNBATCHED:
            return whole
        start, stop = self._extent(axis, step, table)
        return whole[start:stop]

    def _all_kept(self, number: int, cell: int, table: CellTable) -> Array:
        """Return a kept buffer; there is more behind that of a hoisted product's cotangents."""
        compiled = self.cells[cell]
        kept = (compiled.kept if self.training else compiled.kept_inference)[number]
        key = ("kept", cell, number, self.training)
        if kept.axis is UNBATCHED:
            return self.workspace.single(key, kept.type)
        if kept.axis is CALL:
            hoisted, rows = self._hoisted(cell, BACKWARD), len(table.order)
            if table.hoisted is not None and hoisted is not None and number == hoisted.cotangent:
                rows += len(table.hoisted.starts) - 1
            return self.workspace.rows(key, kept.type, rows)
        rows = int(table.segments[compiled.graph.axes.index(kept.axis)][-1])
        return self.workspace.rows(key, kept.type, rows)

    def _operand(self, number: int, step: Step, table: CellTable) -> Array:
        span = table.operands[number]
        node = self.cells[step.cell].graph.operands[number]
        arena = self.values(span.arena)
        start, stop = span.extent(table, step.start, step.stop)
        if span.rows is None:
            rows = arena[start:stop]
        else:
            type_ = self.arenas[span.arena]
            rows = self._gather(("operand", step.cell, number), arena, type_, span.rows[start:stop])
        return rows.reshape((stop - start) // span.width, *node.shape) if span.width > 1 else rows

    def _store(self, number: int, step: Step, table: CellTable) -> Array:
        """Return where a kernel is to write an operand's cotangents: in the arena, if it is the first to."""
        span = table.operands[number]
        node = self.cells[step.cell].graph.operands[number]
        start, stop = span.extent(table, step.start, step.stop)
        rows = (stop - start) // span.width
        if span.first:
            return self.cotangents(span.arena)[start:stop].reshape(rows, *node.shape)
        return self.workspace.rows(("store", node.type, number), node.type, rows)

    def _gather(self, key: tuple[str, int, int], arena: Array, type_: TensorType, rows: Index) -> Array:
        out = self.workspace.rows(key, type_, len(rows))
        np.take(arena, rows, axis=0, out=out, mode="clip")
        return out

    def _segments(self, kind: str, axis: Axis, step: Step, table: CellTable) -> Array:
        segments = table.segments[self.cells[step.cell].graph.axes.index(axis)][step.start : step.stop + 1]
        counts = np.diff(segments)
        if kind == "counts":
            return counts
        if kind == "starts":
            starts: Index = segments[:-1] - segments[0]
            return starts
        assert kind == "owner", kind
        return np.repeat(np.arange(len(counts)), counts)

    def _add_cotangents(self, span: Span, table: CellTable, step: Step, value: Array) -> None:
        arena = self.cotangents(span.arena)
        start, stop = span.extent(table, step.start, step.stop)
        rows = value.reshape(-1, *arena.shape[1:]) if span.width > 1 else value
        if span.rows is None:
            if span.first:
                arena[start:stop] = rows
            else:
                arena[start:stop] += rows
        elif span.repeats:
            add_repeated(arena, span.rows[start:stop], rows)
        else:
            arena[span.rows[start:stop]] += rows


def _levels(steps: Iterable[Step]) -> Iterator[tuple[Step, Sequence[Step]]]:
    """Group steps of the same stage of one cell that follow each other; give the first of each group too.

    What runs several stages goes through all of them before the next step does.
    """
    for (_, stages), group in groupby(steps, key=itemgetter(0, 1)):
        found = list(group)
        for part in [found] if len(stages) == 1 else ([step] for step in found):
            yield part[0], part


def _count(extent: tuple[int, int]) -> int:
    return extent[1] - extent[0]


def _collect(
    kept: dict[tuple[int, int], Array], key: tuple[int, int], value: Array, step: Step, rows: int
) -> None:
    if key not in kept:
        kept[key] = np.empty((rows, *value.shape[1:]), value.dtype)
    kept[key][step.start : step.stop] = value
