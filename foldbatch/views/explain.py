"""The explanation of a cell: graphs pass by pass, stages with reasons, routines, buffers, gradients."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from foldbatch.errors import counted
from foldbatch.params.parameters import Parameter
from foldbatch.static.cell import Cell, Phase, trail
from foldbatch.static.cellgraph import AFTER, BEFORE, STEP
from foldbatch.static.graph import CONSTANT, PARAMETER, SOURCES, Graph, Node, is_view, parameter_node
from foldbatch.static.memory import Buffers, Scratch
from foldbatch.static.printer import (
    constant_name,
    expression,
    parameter_name,
    print_graph,
    print_statements,
    slot_names,
    unlike,
)
from foldbatch.static.routines import Stage, Target, plan_stage
from foldbatch.static.statements import Binding, Routine, Slot
from foldbatch.types import TensorType

FORWARD, BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class StagePart:
    """A stage of a cell."""

    direction: str  # ``forward`` or ``backward``
    when: str  # ``before``, ``step`` or ``after``
    stage: Stage  # its computation, for any engine
    # what one engine makes of it: statements; their graph, results first, then kept nodes; places of values
    routine: Routine
    graph: Graph
    buffers: Buffers

    @property
    def name(self) -> str:
        """The name of its routine."""
        return self.stage.name

    @property
    def computed(self) -> tuple[Node, ...]:
        """The nodes that it computes, operands first."""
        return tuple(node for node in self.graph.nodes if node.op not in SOURCES)


StageParts = tuple[StagePart, ...]


def parts_of(phase: Phase, target: Target) -> StageParts:
    """Return the stages of training or of inference, in the order in which they run.

    >>> from foldbatch.static.cell import stage_cell
    >>> from foldbatch.static.cellgraph import CellGraph, Ends
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> x = input_node(TensorType((3,)))
    >>> cell = stage_cell(CellGraph("c", (x,), (), (x * x,)), Ends())
    >>> [(part.direction, part.when, part.name) for part in parts_of(cell.training, Target())]
    [('forward', 'before', 'forward_before')]
    """
    return tuple(
        StagePart(direction, when, stage, planned.routine, planned.graph, planned.buffers)
        for direction, stages in ((FORWARD, phase.forward), (BACKWARD, phase.backward))
        for when, stage in stages.items()
        for planned in [plan_stage(stage, target)]
    )


@dataclass(frozen=True, slots=True)
class NamedBuffer:
    """Memory for rows that a routine writes."""

    name: str  # its name in the routine
    # scratch (reused within the routine), kept (read by other routines) or store (a cotangent, written where
    # it belongs)
    kind: str
    routine: str  # the name of the routine that writes it
    type: TensorType  # of one row
    axis: str  # ``N`` a row per call, ``1`` one for the batch, else a row per element of a sequence
    nodes: tuple[str, ...]  # the names of the nodes that live in it, in order
    sections: tuple[tuple[str, int, int], ...] = ()  # the nodes computed into a part of it: name, start, stop
    in_place: tuple[tuple[str, str], ...] = ()  # pairs of a node and the operand whose memory it overwrites

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return self.type.nbytes


def buffers(parts: StageParts, names: Mapping[Node, str]) -> Iterator[NamedBuffer]:
    """Return the buffers that routines write: scratch, then stores, then kept buffers."""
    for kind in ("scratch", "store"):
        for part in parts:
            for name, slot in zip(slot_names(part.routine), part.routine.slots, strict=True):
                if slot.binding.kind == kind:
                    yield _buffer(name, kind, part, slot, _nodes_in(slot, part), names)
    kept = [(number, part, node) for part in parts for node, number in part.stage.kept.items()]
    for number, part, node in sorted(kept, key=itemgetter(0)):
        yield _buffer(f"k{number}", "kept", part, node, [node], names)


def _nodes_in(slot: Slot, part: StagePart) -> list[Node]:
    """Return the nodes that live in scratch or in stored cotangents, in the order of computation."""
    kind, number = slot.binding
    if kind == "scratch":
        scratch = Scratch(slot.type, slot.axis, number)
        return [node for node, place in part.buffers.scratch.items() if place == scratch]
    return [node for node, operand in part.stage.stores.items() if operand == number]


def _buffer(
    name: str,
    kind: str,
    part: StagePart,
    rows: Slot | Node,
    held: Sequence[Node],
    names: Mapping[Node, str],
) -> NamedBuffer:
    inside = [(node, section) for node, section in part.buffers.sections.items() if section.whole in held]
    return NamedBuffer(
        name,
        kind,
        part.name,
        rows.type,
        rows.axis.name,
        tuple(names[node] for node in held),
        tuple((names[node], section.start, section.stop) for node, section in inside),
        tuple((names[node], names[x]) for node in held for x in dict.fromkeys(node.inputs) if x in held),
    )


def planned(parts: StageParts) -> dict[str, int]:
    """Return the bytes of one row of every buffer, by axis."""
    scratch = dict.fromkeys(slot for part in parts for slot in part.buffers.slots)
    # nodes with buffers of their own, for the whole batch or in an arena
    own = [node for part in parts for node in {*part.stage.kept, *part.stage.stores}]
    return _sizes([*scratch, *own])


def unplanned(parts: StageParts) -> dict[str, int]:
    """Return the bytes of one row of a buffer for every node but views, by axis."""
    return _sizes(dict.fromkeys(node for part in parts for node in part.computed if not is_view(node)))


def _sizes(rows: Iterable[Scratch | Node]) -> dict[str, int]:
    """Return the bytes of a row of each, summed by axis; ``N`` comes first, ``1`` last."""
    total: Counter[str] = Counter()
    for row in rows:
        total[row.axis.name] += row.type.nbytes
    return dict(sorted(total.items(), key=lambda entry: (entry[0] != "N", entry[0] == "1")))


def name_nodes(cell: Cell, graphs: Iterable[Graph], parameters: Mapping[Parameter, str]) -> dict[Node, str]:
    """Return a name for every node of a cell, and of `graphs`, which may be earlier states of it.

    Operands are ``x0``, data of the example ``f0``, cotangents ``g0``, as in routines; what is computed is
    ``%0``, numbered from the first graph on. Parameters have the name that `parameters` gives them, else
    their own, and constants are written out, or shown by their shape where they are large.
    """
    names = {node: f"x{i}" for i, node in enumerate(cell.graph.operands)}
    names |= {node: f"f{i}" for i, node in enumerate(cell.graph.feeds)}
    stages = [
        stage
        for phase in (cell.training, cell.inference)
        for direction in (phase.forward, phase.backward)
        for stage in direction.values()
    ]
    names |= {
        node: f"g{key}"
        for stage in stages
        for node, (kind, key) in stage.given.items()
        if kind == "cotangent"
    }
    computed = 0
    staged = (stage.graph for stage in stages)
    for graph in (cell.built.joined, *graphs, cell.graph.joined, cell.backward_graph, *staged):
        for node in graph.nodes:
            if node in names:
                continue
            if node.op is PARAMETER:
                parameter = node.attrs["parameter"]
                names[node] = unlike(
                    parameters.get(parameter, parameter_name(parameter)), set(names.values())
                )
            elif node.op is CONSTANT:
                names[node] = constant_name(node.attrs["value"])
            else:
                names[node] = f"%{computed}"
                computed += 1
    return names


_RESULTS = {FORWARD: ("output", "outputs"), BACKWARD: ("cotangent of", "cotangents of")}
Reached = defaultdict[Node, set[str]]


@dataclass(frozen=True, slots=True)
class StagedNode:
    """A node that a routine computes: its name and expression, when it runs, and why then."""

    name: str
    expression: str
    direction: str
    stage: str
    reason: str


def place(cell: Cell, parts: StageParts, names: Mapping[Node, str]) -> Iterator[StagedNode]:
    """Return every node of every part, part by part in the order in which they run."""
    for direction, words in _RESULTS.items():
        of_side = [part for part in parts if part.direction == direction]
        nodes = {node for part in of_side for node in part.computed}
        reads, needed = _recursive_ends(cell, direction)
        _spread(reads, needed, sorted(nodes, key=lambda node: node.number))
        for part in of_side:
            for node in part.computed:
                reason = _reason(node, part.when, reads[node], needed[node], words)
                yield StagedNode(names[node], expression(node, names), direction, part.when, reason)


def _recursive_ends(cell: Cell, direction: str) -> tuple[Reached, Reached]:
    """Return the recursive inputs and outputs of a direction, with their names."""
    graph, ends = cell.graph, cell.ends
    inputs, outputs = Reached(set), Reached(set)
    if direction == FORWARD:
        for i in ends.recursive_operands:
            inputs[graph.operands[i]].add(f"x{i}")
        for i in ends.recursive_outputs:
            outputs[graph.outputs[i]].add(str(i))
        return inputs, outputs
    for stage in cell.training.backward.values():
        for node, (kind, i) in stage.given.items():
            if kind == "cotangent" and i in ends.recursive_outputs:
                inputs[node].add(f"g{i}")
        for (kind, key), node in stage.results:
            if kind == "cotangent" and key in ends.recursive_operands:
                outputs[node].add(f"x{key}")
    return inputs, outputs


def _spread(reads: Reached, needed: Reached, nodes: Sequence[Node]) -> None:
    """Carry along `nodes`, operands first, which recursive ends each reads, and which need it."""
    for node in nodes:
        reads[node] = reads[node].union(*(reads[x] for x in node.inputs))
    for node in reversed(nodes):
        for x in node.inputs:
            needed[x] |= needed[node]


def _reason(node: Node, stage: str, reads: set[str], needed: set[str], words: tuple[str, str]) -> str:
    due = BEFORE if not reads else STEP if needed else AFTER
    if due != stage:
        return (
            "view, made anew where it is read" if is_view(node) else "made where it is read, to store nothing"
        )
    if stage == BEFORE:
        return "reads nothing recursive"
    source = f"reads recursive {_listed(reads)}"
    if not needed:
        return f"{source}; needed by nothing recursive"
    return f"{source}; needed by recursive {words[len(needed) > 1]} {_listed(needed)}"


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names, key=lambda name: (len(name), name)))


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter, its readers, and the source of its gradient: none, if it is frozen or without a loss."""

    name: str  # as in graphs
    type: TensorType  # of its array
    trainable: bool  # whether it may have a gradient at all
    readers: tuple[str, ...]  # the routines that read it
    gradient: tuple[str, ...]  # the routines that yield its gradient, dense
    # names of nodes, values and ids, where its gradient is a sum of rows of values by ids
    rows: tuple[tuple[str, str], ...]
    sparse: bool  # whether its whole gradient is such sums


def weights(cell: Cell, parts: StageParts, names: Mapping[Node, str]) -> Iterator[Weight]:
    """Return the parameters that a cell reads; `parts` are the stages that train it."""
    nodes = {Binding("feed", i): node for i, node in enumerate(cell.graph.feeds)}
    nodes |= {Binding("kept", i): node for part in parts for node, i in part.stage.kept.items()}
    for parameter in cell.parameters:
        sums = [rows for rows in cell.sums if rows.parameter is parameter]
        yield Weight(
            names[parameter_node(parameter)],
            parameter.type,
            parameter.trainable,
            tuple(part.name for part in parts if parameter in part.graph.parameters),
            tuple(
                part.name
                for part in parts
                if any(key == ("gradient", parameter) for key, _ in part.stage.results)
            ),
            tuple((names[nodes[rows.values]], names[nodes[rows.ids]]) for rows in sums),
            parameter in cell.sparse,
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """A transformation that changed the graph: its name, the graph it left, the ops in that."""

    name: str
    graph: Graph
    ops: int


@dataclass(frozen=True, slots=True)
class CellExplanation:
    """The explanation of one cell, for training; prints itself.

    Attributes:
        cell: the cell itself.
        names: the name of each node, in every graph.
        graph_before: the graph as the blocks built it.
        passes: the passes that changed it, in order.
        graph_after: the graph after all passes, for training.
        parts: the stages with their routines, in the order in which they run.
        inference: the same for inference.
        stages: every node of every routine, with its stage and the reason.
        buffers: the buffers that routines write.
        parameters: the parameters, with their gradients.
        planned: bytes of one row of all buffers, by axis: ``N`` per call, ``1`` once for the batch.
        unplanned: those bytes if every node had a buffer of its own.
    """

    cell: Cell
    names: Mapping[Node, str]
    graph_before: Graph
    passes: tuple[Pass, ...]
    graph_after: Graph
    parts: StageParts
    inference: StageParts
    stages: tuple[StagedNode, ...]
    buffers: tuple[NamedBuffer, ...]
    parameters: tuple[Weight, ...]
    planned: Mapping[str, int]
    unplanned: Mapping[str, int]

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name

    @property
    def routines(self) -> dict[str, Routine]:
        """What trains the cell, by name, in the order in which it runs."""
        return {part.name: part.routine for part in self.parts}

    @property
    def parameter_names(self) -> dict[Parameter, str]:
        """The names of the parameters that the cell reads."""
        return {parameter: self.names[parameter_node(parameter)] for parameter in self.cell.parameters}

    def __str__(self) -> str:
        sections = (
            _heading(self),
            *_graphs(self),
            *_stages(self),
            *_routines(self),
            *_memory(self),
            *_weights(self),
            *_inference(self),
        )
        return "\n".join(sections)

    def __repr__(self) -> str:
        return f"CellExplanation({self.name!r}, {_ops(ops_in(self.graph_after))}; print it to read it)"


def explain_cell(cell: Cell, target: Target, names: Mapping[Parameter, str] | None = None) -> CellExplanation:
    """Return the explanation of a cell.

    >>> from foldbatch.engines.numpy import TARGET
    >>> from foldbatch.static.cell import stage_cell
    >>> from foldbatch.static.cellgraph import CellGraph, Ends
    >>> from foldbatch.static.graph import input_node
    >>> from foldbatch.types import TensorType
    >>> a, b = input_node(TensorType((3,))), input_node(TensorType((3,)))
    >>> cell = stage_cell(CellGraph("d", (a, b), (), (a * b + 1,)), Ends())
    >>> explanation = explain_cell(cell, TARGET)
    >>> [(placed.name, placed.expression, placed.stage) for placed in explanation.stages]
    [('%0', 'multiply(x0, x1)', 'before'), ('%1', 'add(%0, 1.0)', 'before')]
    >>> [(buffer.name, buffer.nodes, buffer.in_place) for buffer in explanation.buffers]
    [('s0', ('%0', '%1'), (('%1', '%0'),))]
    >>> explanation.planned, explanation.unplanned
    ({'N': 12}, {'N': 24})
    """
    steps = tuple(_trail(cell))
    node_names = name_nodes(cell, [step.graph for step in steps], names or {})
    parts = parts_of(cell.training, target)
    return CellExplanation(
        cell,
        node_names,
        cell.built.joined,
        steps,
        cell.graph.joined,
        parts,
        parts_of(cell.inference, target),
        tuple(place(cell, parts, node_names)),
        tuple(buffers(parts, node_names)),
        tuple(weights(cell, parts, node_names)),
        planned(parts),
        unplanned(parts),
    )


def ops_in(graph: Graph) -> int:
    """Return the number of ops in a graph: its nodes other than parameters and constants."""
    return sum(node.op not in SOURCES for node in graph.nodes)


def _trail(cell: Cell) -> Iterator[Pass]:
    """Run the passes again, one by one; those that change nothing are left out."""
    before = cell.built.joined
    for name, of_cell in trail(cell.built, cell.ends, training=True):
        graph = of_cell.joined
        if graph.outputs != before.outputs:
            yield Pass(name, graph, ops_in(graph))
        before = graph


def _heading(explanation: CellExplanation) -> str:
    graph, ends = explanation.cell.graph, explanation.cell.ends
    recursive = [explanation.names[graph.operands[i]] for i in sorted(ends.recursive_operands)]
    recursive += [f"output {i}" for i in sorted(ends.recursive_outputs)]
    return f"cell {explanation.name}" + (f" (recursive: {', '.join(recursive)})" if recursive else "")


def _graphs(explanation: CellExplanation) -> Iterator[str]:
    yield from _graph("graph as built", explanation.graph_before, explanation.names)
    for step in explanation.passes:
        yield from _graph(f"after {step.name}", step.graph, explanation.names)
    if not explanation.passes:
        yield from _titled("no pass changed it", [])


def _stages(explanation: CellExplanation) -> Iterator[str]:
    for direction in (FORWARD, BACKWARD):
        lines: list[str] = []
        for stage, when in (("before", "once per batch"), ("step", "per level"), ("after", "once per batch")):
            placed = [p for p in explanation.stages if (p.direction, p.stage) == (direction, stage)]
            if placed:
                lines.append(f"{stage}, {when}")
                for reason, same in groupby(placed, key=lambda p: p.reason):
                    lines += [f"  {reason}:", *(f"    {p.name} = {p.expression}" for p in same)]
        yield from _titled(f"stages {direction}", lines or ["nothing is computed"])


def _routines(explanation: CellExplanation) -> Iterator[str]:
    for name, routine in explanation.routines.items():
        lines = print_statements(routine, explanation.parameter_names)
        yield from _titled(f"routine {name}, {_statements(routine)}", lines)


def _memory(explanation: CellExplanation) -> Iterator[str]:
    lines: list[str] = []
    for buffer in explanation.buffers:
        held = ", ".join(buffer.nodes)
        size = f"{buffer.axis} {buffer.type}, {buffer.nbytes} bytes"
        lines.append(f"{buffer.name} {buffer.kind} of {buffer.routine}: {size}: {held}")
        lines += [f"  {node} overwrites {x} in place" for node, x in buffer.in_place]
        lines += [f"  {node} is computed into elements {i} to {j}" for node, i, j in buffer.sections]
    lines.append(
        f"together {_bytes(explanation.planned)}; a buffer for every node: {_bytes(explanation.unplanned)}"
    )
    yield from _titled("buffers", lines)


def _weights(explanation: CellExplanation) -> Iterator[str]:
    lines = []
    for weight in explanation.parameters:
        sources = [f"from {', '.join(weight.gradient)}"] if weight.gradient else []
        sources += [f"rows of {values} summed by {ids}" for values, ids in weight.rows]
        kind = "sparse" if weight.sparse else "dense"
        gradient = f"gradient {kind}, {'; '.join(sources)}" if sources else "no gradient"
        gradient += "" if weight.trainable else ": frozen"
        lines.append(f"{weight.name}: {weight.type}, read by {', '.join(weight.readers)}; {gradient}")
    yield from _titled("parameters", lines or ["none"])


def _inference(explanation: CellExplanation) -> Iterator[str]:
    graph = explanation.cell.inference.graph
    if graph is not explanation.cell.graph:
        yield from _graph("graph in inference", graph.joined, explanation.names)
    lines = [f"{part.when}, {_statements(part.routine)}" for part in explanation.inference]
    lines.append(f"together {_bytes(planned(explanation.inference))}")
    yield from _titled("routines in inference", lines)


def _graph(title: str, graph: Graph, names: Mapping[Node, str]) -> Iterator[str]:
    yield from _titled(f"{title}, {_ops(ops_in(graph))}", print_graph(graph, names).splitlines())


def _titled(title: str, lines: list[str]) -> Iterator[str]:
    yield f"  {title}"
    for line in lines:
        yield f"    {line}"


def _ops(count: int) -> str:
    return counted(count, "op")


def _statements(routine: Routine) -> str:
    return counted(len(routine.statements), "statement")


def _bytes(sizes: Mapping[str, int]) -> str:
    per = {"N": "a call", "1": "once"}
    return (
        ", ".join(f"{size} bytes {per.get(axis, f'an element of {axis}')}" for axis, size in sizes.items())
        or "0 bytes"
    )
