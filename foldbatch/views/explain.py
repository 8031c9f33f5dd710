"""The explanation of a cell: graphs pass by pass, stages with reasons, routines, buffers, gradients."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

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
    """Return the stages of training or of inference, in the order in which they run."""
    return tuple(
        StagePart(direction, when, stage, planned.routine, planned.graph, planned.buffers)
        for direction, stages in ((FORWARD, phase.forward), (BACKWARD, phase.backward))
        for when, stage in stages.items()
        for planned in [plan_stage(stage, target)]
    )


def planned(parts: StageParts) -> dict[str, int]:
    """Return the bytes of one row of every buffer, by axis."""
    scratch = dict.fromkeys(slot for part in parts for slot in part.buffers.slots)
    # nodes with buffers of their own, for the whole batch or in an arena
    unshared = [node for part in parts for node in {*part.stage.kept, *part.stage.stores}]
    return _sizes([*scratch, *unshared])


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
        for node, (kind, key) in stage.inputs.items()
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
        passes: the passes that changed the graph, in order.
        parts: the stages with their routines, in the order in which they run.
        inference: the same for inference.
    """

    cell: Cell
    names: Mapping[Node, str]
    passes: tuple[Pass, ...]
    parts: StageParts
    inference: StageParts

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name

    @property
    def graph_before(self) -> Graph:
        """The graph as the blocks built it."""
        return self.cell.built.joined

    @property
    def graph_after(self) -> Graph:
        """The graph after all passes, for training."""
        return self.cell.graph.joined

    @property
    def routines(self) -> dict[str, Routine]:
        """The routines that train the cell, by name, in the order in which they run."""
        return {part.name: part.routine for part in self.parts}

    @property
    def planned(self) -> dict[str, int]:
        """Bytes of one row of all buffers, by axis: ``N`` per call, ``1`` once for the batch."""
        return planned(self.parts)

    @property
    def unplanned(self) -> dict[str, int]:
        """Those bytes if every node had a buffer of its own."""
        return unplanned(self.parts)

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
    """Return the explanation of a cell."""
    steps = tuple(_trail(cell))
    node_names = name_nodes(cell, [step.graph for step in steps], names or {})
    return CellExplanation(
        cell, node_names, steps, parts_of(cell.training, target), parts_of(cell.inference, target)
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


_RESULTS = {FORWARD: ("output", "outputs"), BACKWARD: ("cotangent of", "cotangents of")}
Reached = defaultdict[Node, set[str]]


def _stages(explanation: CellExplanation) -> Iterator[str]:
    """Yield every node of every part, in the order in which they run, with the reason why it runs then."""
    names = explanation.names
    for direction, words in _RESULTS.items():
        of_side = [part for part in explanation.parts if part.direction == direction and part.computed]
        nodes = {node for part in of_side for node in part.computed}
        reads, needed = _recursive_ends(explanation.cell, direction)
        _spread(reads, needed, sorted(nodes, key=lambda node: node.number))
        lines: list[str] = []
        for part in of_side:
            reasons = [_reason(x, part.when, reads[x], needed[x], words) for x in part.computed]
            lines.append(f"{part.when}, {'per level' if part.when == STEP else 'once per batch'}")
            for reason, group in groupby(zip(reasons, part.computed, strict=True), key=lambda pair: pair[0]):
                computed = [f"    {names[node]} = {expression(node, names)}" for _, node in group]
                lines += [f"  {reason}:", *computed]
        yield from _titled(f"stages {direction}", lines or ["nothing is computed"])


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
        for node, (kind, i) in stage.inputs.items():
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
    """Return the reason why a node runs in a stage, in words."""
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


def _routines(explanation: CellExplanation) -> Iterator[str]:
    parameters = {x: explanation.names[parameter_node(x)] for x in explanation.cell.parameters}
    for name, routine in explanation.routines.items():
        lines = print_statements(routine, parameters)
        yield from _titled(f"routine {name}, {_statements(routine)}", lines)


def _memory(explanation: CellExplanation) -> Iterator[str]:
    """Yield the buffers that routines write, with the nodes that live in each.

    Scratch is reused within a routine; a store is a cotangent, written where it belongs; what is kept is read
    by other routines.
    """
    names, parts, lines = explanation.names, explanation.parts, list[str]()

    def add(name: str, part: StagePart, rows: Slot | Node, nodes: Sequence[Node]) -> None:
        """Add the lines of a buffer: its size, the nodes that live in it, and which overwrite which."""
        size = f"{rows.axis.name} {rows.type}, {rows.type.nbytes} bytes"
        lines.append(f"{name} of {part.name}: {size}: {', '.join(names[node] for node in nodes)}")
        for node in nodes:
            over = [names[x] for x in dict.fromkeys(node.inputs) if x in nodes]
            lines.extend(f"  {names[node]} overwrites {x} in place" for x in over)
        for node, section in part.buffers.sections.items():
            if section.concat in nodes:
                elements = f"elements {section.start} to {section.stop}"
                lines.append(f"  {names[node]} is computed into {elements}")

    for kind in ("scratch", "store"):
        for part in parts:
            for name, slot in zip(slot_names(part.routine), part.routine.slots, strict=True):
                if slot.binding.kind == kind:
                    add(f"{name} {kind}", part, slot, _nodes_in(slot, part))
    kept = {number: (part, node) for part in parts for node, number in part.stage.kept.items()}
    for number, (part, node) in sorted(kept.items()):
        add(f"k{number} kept", part, node, [node])
    lines.append(
        f"together {_bytes(explanation.planned)}; a buffer for every node: {_bytes(explanation.unplanned)}"
    )
    yield from _titled("buffers", lines)


def _nodes_in(slot: Slot, part: StagePart) -> list[Node]:
    """Return the nodes that live in scratch or in stored cotangents, in the order of computation."""
    kind, number = slot.binding
    if kind == "scratch":
        scratch = Scratch(slot.type, slot.axis, number)
        return [node for node, place in part.buffers.scratch.items() if place == scratch]
    return [node for node, operand in part.stage.stores.items() if operand == number]


def _weights(explanation: CellExplanation) -> Iterator[str]:
    """Yield the parameters that a cell reads: by which routines, and where each gradient comes from."""
    cell, parts, names = explanation.cell, explanation.parts, explanation.names
    nodes = {Binding("feed", i): node for i, node in enumerate(cell.graph.feeds)}
    nodes |= {Binding("kept", i): node for part in parts for node, i in part.stage.kept.items()}
    lines = []
    for parameter in cell.parameters:
        key = "gradient", parameter
        makers = [part.name for part in parts if any(target == key for target, _ in part.stage.results)]
        sources = [f"from {', '.join(makers)}"] if makers else []
        pairs = [(nodes[x.values], nodes[x.ids]) for x in cell.sums if x.parameter is parameter]
        sources += [f"rows of {names[values]} summed by {names[ids]}" for values, ids in pairs]
        kind = "sparse" if parameter in cell.sparse else "dense"
        gradient = f"gradient {kind}, {'; '.join(sources)}" if sources else "no gradient"
        gradient += "" if parameter.trainable else ": frozen"
        readers = ", ".join(part.name for part in parts if parameter in part.graph.parameters)
        name = names[parameter_node(parameter)]
        lines.append(f"{name}: {parameter.type}, read by {readers}; {gradient}")
    yield from _titled("parameters", lines or ["none"])


def _inference(explanation: CellExplanation) -> Iterator[str]:
    """Yield the lines on the graph and the routines of inference."""
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
