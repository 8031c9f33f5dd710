"""From a stage of a cell to its `Routine`: fused loops, buffers and statements, for an engine's target."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from foldbatch.static.bodies import called
from foldbatch.static.fusion import Group, Unit, groups
from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, SOURCES, Graph, Node, is_view, reachable
from foldbatch.static.memory import Buffers, plan, sections_of
from foldbatch.static.op import CALL, Axis
from foldbatch.static.places import Place, access, broadcast
from foldbatch.static.statements import (
    Binding,
    Element,
    FusedLoop,
    LoopBuffer,
    Operation,
    Result,
    Routine,
    Slot,
    Statement,
    Sweep,
)
from foldbatch.system.remembering import remembered
from foldbatch.types import TensorType

ResultKey = tuple[str, object]  # of a result: ("value", 0), ("cotangent", 1), ("gradient", parameter), ...
SEGMENTS = TensorType((), "int64")


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """The abilities of an engine's kernels, as plain data."""

    # the functions that a fused loop may call; so it holds the elementwise ops whose bodies call no others.
    # None, where there are no fused loops
    fused: frozenset[str] | None = None
    dtypes: frozenset[str] = frozenset()  # the dtypes that such a loop may read and write
    # by op, the operands whose buffer the result may overwrite
    overwrites: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    # whether rows run side by side, so that what a loop passes from one sweep to the next needs memory for
    # every row
    rows_apart: bool = False
    # how matrices of float32 are multiplied: ``fp32`` or ``bf16``, of factors that are rounded
    precision: str = "fp32"

    def takes(self, node: Node) -> bool:
        """Whether a loop can compute a node."""
        if self.fused is None or not node.op.elementwise or not node.type.size:
            return False
        return called(node.op.body) <= self.fused and all(
            x.dtype in self.dtypes for x in (node, *node.inputs)
        )


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Stage:
    """The computation of one routine, whatever engine runs it."""

    name: str  # its direction and stage, such as ``forward_step``
    results: tuple[tuple[ResultKey, Node], ...]  # its results, each with its kind and number
    kept: Mapping[Node, int]  # the nodes that it leaves for other routines, with the numbers of their buffers
    inputs: Mapping[Node, Binding]  # the nodes that it may read, with their memory
    computed: frozenset[Node]  # the nodes that it computes and does not keep
    checked: frozenset[Node]  # nodes of ids that are known to be in range
    axes: tuple[Axis, ...]  # the ragged axes of the cell, in order

    @property
    def graph(self) -> Graph:
        """The graph that it computes: results first, then what it keeps."""
        outputs = (*(node for _, node in self.results), *self.kept)
        inputs = [node for node in self.inputs if node not in self.kept]
        needed = set(reachable(outputs, inputs))
        return Graph(tuple(node for node in inputs if node in needed), outputs)

    @property
    def stores(self) -> dict[Node, int]:
        """The cotangents of operands that it can write straight into their arenas, with operand numbers."""
        nodes = [node for _, node in self.results]
        return {
            node: number
            for (kind, number), node in self.results
            if kind == "cotangent" and node in self.computed and nodes.count(node) == 1
            if isinstance(number, int)
        }


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A routine with the plans that it was made from, for views."""

    routine: Routine  # the statements
    graph: Graph  # the graph that they compute
    buffers: Buffers  # the places of computed values
    units: tuple[Unit, ...]  # ops, and groups of ops that run in one loop, in order


@remembered
def routine_of(stage: Stage, target: Target) -> Routine:
    """Return the statements of a stage for a target: the same ones whenever it is asked."""
    return plan_stage(stage, target).routine


def plan_stage(stage: Stage, target: Target) -> PlannedStage:
    """Return the statements of a stage for a target, with the plans that they were made from."""
    graph = stage.graph
    computed = [node for node in graph.nodes if node.op not in (PARAMETER, CONSTANT)]
    results = {*stage.kept, *graph.outputs}
    sections = sections_of(computed, results)
    units: Sequence[Unit] = graph.nodes
    if target.fused is not None:
        concat_of = {part: section.concat for part, section in sections.items()}
        units = groups(computed, results, concat_of, target.takes)
    units = tuple(unit for unit in units if isinstance(unit, Group) or unit.op not in SOURCES)
    if target.rows_apart:
        units = tuple(_with_rows(unit) if isinstance(unit, Group) else unit for unit in units)
    buffers = plan(units, {*stage.kept, *stage.stores}, graph.outputs, target.overwrites, sections)
    routine = _RoutineBuilder(stage, buffers).routine(units, target.precision)
    return PlannedStage(routine, graph, buffers, units)


def _with_rows(group: Group) -> Group:
    """Return a group that passes nothing from sweep to sweep but what it writes for every row."""
    return replace(group, written=group.written | group.passing, passing=frozenset())


class _RoutineBuilder:
    def __init__(self, stage: Stage, buffers: Buffers) -> None:
        self.stage = stage
        self.buffers = buffers
        self.stores = stage.stores
        self.slots: dict[object, int] = {}
        self.slot_list: list[Slot] = []
        self.statements: list[Statement] = []
        self.segments: dict[Axis, int] = {}

    def routine(self, units: Sequence[Unit], precision: str) -> Routine:
        """Write the statements of all units in order; return the routine."""
        for unit in units:
            if isinstance(unit, Group):
                self._loop(unit)
            elif access(unit).root is unit:
                self._compute(unit)
        remaining = [(key, node) for key, node in self.stage.results if node not in self.stores]
        results = tuple(Result(Binding(*key), self._place(node)) for key, node in remaining)
        for _, place in results:
            self._segments(place.axis)
        parts = tuple(self.slot_list), tuple(self.statements), results, self.segments
        return Routine(self.stage.name, *parts, precision)

    def _slot(self, binding: Binding, type_: TensorType, axis: Axis) -> int:
        """Return the number of the slot of some memory; it is added at its first use."""
        value = binding.key
        key = binding.kind, id(value) if binding.kind in ("parameter", "constant") else value, type_, axis
        if key not in self.slots:
            self.slots[key] = len(self.slot_list)
            self.slot_list.append(Slot(binding, type_, axis))
            self._segments(axis)
        return self.slots[key]

    def _segments(self, axis: Axis) -> None:
        """Add the `segments` slot of a ragged axis, unless the routine has it."""
        if axis.rank == 2 and axis not in self.segments:
            self.segments[axis] = len(self.slot_list)
            self.slot_list.append(Slot(Binding("segments", self.stage.axes.index(axis)), SEGMENTS, axis))

    def _home(self, node: Node) -> int:
        """Return the slot of the memory that a node's value has."""
        if node in self.stage.kept:
            binding = Binding("kept", self.stage.kept[node])
        elif node in self.stores:
            binding = Binding("store", self.stores[node])
        elif node in self.stage.inputs:
            binding = self.stage.inputs[node]
        elif node.op is PARAMETER:
            binding = Binding("parameter", node.attrs["parameter"])
        elif node.op is CONSTANT:
            binding = Binding("constant", node.attrs["value"])
        else:
            assert node.op is not INPUT, "an input is given"
            scratch = self.buffers.scratch[node]
            return self._slot(Binding("scratch", scratch.number), scratch.type, scratch.axis)
        return self._slot(binding, node.type, node.axis)

    def _place(self, node: Node) -> Place:
        """Return the place of a node's elements: a slot, an offset and strides."""
        seen = access(node)
        section = self.buffers.sections.get(seen.root)
        if section is not None:
            seen = seen.at(section.concat, section.concat.type.size, section.start)
        row = seen.row if node.axis.rank and seen.root.axis.rank else 0  # one row may serve all
        return Place(self._home(seen.root), node.axis, row, seen.offset, node.shape, seen.strides)

    def _compute(self, node: Node) -> None:
        """Add the statements of a node: a copy, a check and an op, or what the op copies."""
        if is_view(node):  # no strides of the operand's memory give these elements: they are copied
            (x,) = node.inputs
            strides = tuple(prod(x.shape[i + 1 :]) for i in range(x.ndim))
            self._copy(node.axis, replace(self._place(node), shape=x.shape, strides=strides), self._place(x))
            return
        reads = [self._place(x) for x in node.inputs]
        self._check(node)
        if node.op.copies is not None:
            for write, read in node.op.copies(node.attrs, self._place(node), *reads):
                self._copy(node.axis, write, read)
            return
        axis = max((node.axis, *(x.axis for x in node.inputs)), key=lambda axis: axis.rank)
        if node.op.sequence:
            reads.append(self._segments_of(axis))
            axis = CALL
        self._add(Statement(node.op.name, axis, tuple(reads), self._place(node), node.attrs))

    def _copy(self, axis: Axis, write: Place, read: Place | None) -> None:
        """Add a copy, or zeros; nothing where a part of a concatenation was computed in its place."""
        if read is None:
            self._add(Statement("zero", axis, (), write))
        elif read != write and 0 not in write.shape:
            self._add(Statement("copy", axis, (read,), write))

    def _add(self, statement: Statement) -> None:
        self._segments(statement.axis)
        self.statements.append(statement)

    def _segments_of(self, axis: Axis) -> Place:
        self._segments(axis)
        return Place(self.segments[axis], axis, 1, 0, (), ())

    def _check(self, node: Node) -> None:
        """Add a check that ids are in range, unless they were checked when the example was traced."""
        if node.op.bound is None:
            return
        number, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
        ids = node.inputs[number]
        if ids not in self.stage.checked:
            reads, axis = [self._place(ids)], ids.axis
            if axis.rank == 2:
                reads.append(self._segments_of(axis))
                axis = CALL
            self._add(Statement("check_range", axis, tuple(reads), None, {"size": size}))

    # -- fused loops

    def _loop(self, group: Group) -> None:
        writer = _LoopWriter(self, group)
        axis = group.nodes[0].axis
        loop = FusedLoop(tuple(writer.buffers.values()), writer.sweeps, axis.rank > 0)
        self._add(Statement("loop", axis, loop=loop, slots=tuple(writer.buffers)))


class _LoopWriter:
    """Describes a group as a loop: its `buffers`, by the numbers of their slots, and its `sweeps`."""

    def __init__(self, builder: _RoutineBuilder, group: Group) -> None:
        self.builder = builder
        self.group = group
        self.buffers: dict[int, LoopBuffer] = {}
        self.sweeps = tuple(self._sweep(sweep) for sweep in group.sweeps)

    def _sweep(self, nodes: Sequence[Node]) -> Sweep:
        """Return a sweep of a fused loop: loads, operations and stores, by numbers of values."""
        loads: dict[Element, int] = {}
        reads = [
            (x, self._element(x, node.shape, written=False))
            for i, node in enumerate(nodes)
            for x in node.inputs
            if not _is_at_hand(x, node, nodes[:i]) and not _is_number(x)
        ]
        for _, element in reads:
            loads.setdefault(element, len(loads))
        elements = iter(reads)
        number = {node: len(loads) + i for i, node in enumerate(nodes)}
        operations = []
        for i, node in enumerate(nodes):
            operands: list[int | Node] = []
            for x in node.inputs:
                if _is_number(x):
                    operands.append(x)
                elif _is_at_hand(x, node, nodes[:i]):
                    operands.append(number[x])
                else:
                    operands.append(loads[next(elements)[1]])
            operations.append(Operation(node, tuple(operands)))
        stores = [
            (number[node], self._element(node, node.shape, written=True))
            for node in nodes
            if node in self.group.written or node in self.group.passing
        ]
        return Sweep(nodes[0].shape, tuple(loads), tuple(operations), tuple(stores))

    def _element(self, x: Node, shape: Sequence[int], *, written: bool) -> Element:
        """Return how a sweep of a shape goes through the elements of a node's buffer."""
        sections = self.builder.buffers.sections
        seen = broadcast(access(x), x.shape, shape)
        root = seen.root
        if root in sections:
            section = sections[root]
            root = section.concat
            seen = seen.at(root, root.type.size, section.start)
        if root in self.group.passing or root.axis.rank == 0:  # one row, the same for all
            seen = seen.at(root, 0, 0)
        slot = self.builder._home(root)
        buffer = self.buffers.get(slot, LoopBuffer(root.dtype, root.ndim + (seen.row > 0), written=False))
        self.buffers[slot] = LoopBuffer(buffer.dtype, buffer.ndim, written=buffer.written or written)
        return Element(list(self.buffers).index(slot), seen.row, seen.offset, seen.strides)


def _is_at_hand(x: Node, node: Node, before: Collection[Node]) -> bool:
    """Whether an operand is the element that the same sweep has just computed."""
    return x in before and x.shape == node.shape


def _is_number(x: Node) -> bool:
    return x.op is CONSTANT and x.ndim == 0
