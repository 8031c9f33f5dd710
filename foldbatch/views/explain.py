"""What was made of a cell: graphs pass by pass, stages with reasons, kernels, buffers, gradients.

Read off the compiled cell, as data and as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from foldbatch.params import Parameter
from foldbatch.static.cell import Cell
from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, SOURCES, Graph, Node, parameter_node
from foldbatch.static.kernel import Kernel
from foldbatch.static.printer import expression, print_graph
from foldbatch.static.sides import trail
from foldbatch.types import TensorType
from foldbatch.views import footprint
from foldbatch.views.drawing import Box
from foldbatch.views.footprint import Buffer, Parts, Recomputed
from foldbatch.views.naming import name_nodes, whole
from foldbatch.views.reasons import Placed, place


@dataclass(frozen=True, slots=True)
class Pass:
    """A transformation that changed the graph: its name, the graph it left, the ops in that."""

    name: str
    graph: Graph
    ops: int


@dataclass(frozen=True, slots=True)
class Weight:
    """A parameter: who reads it, and which kernels yield its gradient (none, if frozen or without loss)."""

    name: str
    type: TensorType
    trainable: bool
    readers: tuple[str, ...]
    gradient: tuple[str, ...]
    sparse: bool


@dataclass(frozen=True, slots=True)
class CellExplanation:
    """What was made of one cell, for training; prints itself.

    Attributes:
        cell: the cell itself.
        names: what each node is called, in every graph.
        graph_before: as the blocks built it.
        passes: what changed it, in order.
        graph_after: what is trained.
        stages: every node of every kernel, with its stage and the reason.
        kernels: by the name of their function, in the order in which they run.
        buffers: what kernels write.
        unplaced: nodes without memory of their own: sparse gradients, the insides of fused loops.
        recomputed: what is made anew rather than kept.
        parameters: with their gradients.
        planned: bytes of one row of all buffers, by axis: ``N`` per call, ``1`` once for the batch.
        unplanned: what they would be if every node had its own.
    """

    cell: Cell
    names: Mapping[Node, str]
    graph_before: Graph
    passes: tuple[Pass, ...]
    graph_after: Graph
    stages: tuple[Placed, ...]
    kernels: Mapping[str, Kernel]
    buffers: tuple[Buffer, ...]
    unplaced: tuple[str, ...]
    recomputed: tuple[Recomputed, ...]
    parameters: tuple[Weight, ...]
    planned: Mapping[str, int]
    unplanned: Mapping[str, int]

    @property
    def name(self) -> str:
        """The cell's name."""
        return self.cell.name

    @property
    def kept(self) -> tuple[Buffer, ...]:
        """The buffers that one kernel writes and others read."""
        return tuple(buffer for buffer in self.buffers if buffer.kind == "kept")

    def __str__(self) -> str:
        sections = (
            _heading(self),
            *_graphs(self),
            *_stages(self),
            *_kernels(self),
            *_memory(self),
            *_kept(self),
            *_weights(self),
            *_inference(self),
        )
        return "\n".join(sections)

    __repr__ = __str__


def explain_cell(cell: Cell, names: Mapping[Parameter, str] | None = None) -> CellExplanation:
    """Return what was made of a cell; `names` are those of parameters, where a program gives them some.

    >>> from foldbatch.static.backends import find_backend
    >>> from foldbatch.static.cell import compile_cell
    >>> from foldbatch.static.cellgraph import CellGraph, Ends
    >>> from foldbatch.static.graph import input_node
    >>> a, b = input_node(TensorType((3,))), input_node(TensorType((3,)))
    >>> cell = compile_cell(CellGraph("d", (a, b), (), (a * b + 1,)), Ends(), find_backend("numpy"))
    >>> found = explain_cell(cell)
    >>> [(placed.name, placed.expression, placed.stage) for placed in found.stages]
    [('%0', 'multiply(x0, x1)', 'before'), ('%1', 'add(%0, 1.0)', 'before')]
    >>> [(buffer.name, buffer.nodes, buffer.in_place) for buffer in found.buffers]
    [('s0', ('%0', '%1'), (('%1', '%0'),))]
    >>> found.planned, found.unplanned
    ({'N': 12}, {'N': 24})
    """
    passed = tuple(_trail(cell))
    known = name_nodes(cell, [step.graph for step in passed], names or {})
    parts = {name: part for name, part in cell.parts.items() if not name.startswith("infer_")}
    kernels = {name: cell_side[name.partition("_")[2]] for name, cell_side in _sides(cell, parts)}
    return CellExplanation(
        cell,
        known,
        whole(cell.built),
        passed,
        whole(cell.graph),
        tuple(place(cell, parts, known)),
        kernels,
        tuple(footprint.buffers(parts, known)),
        footprint.unplaced(parts, known),
        tuple(footprint.recomputed(parts, known)),
        tuple(_weight(cell, parts, kernels, parameter, known) for parameter in cell.parameters),
        footprint.planned(parts),
        footprint.unplanned(parts),
    )


def ops_in(graph: Graph) -> int:
    """Return the number of ops in a graph: its nodes other than parameters and constants."""
    return sum(node.op not in SOURCES for node in graph.nodes)


def _sides(cell: Cell, parts: Parts) -> Iterator[tuple[str, Mapping[str, Kernel]]]:
    for name in parts:
        yield name, cell.forward if name.startswith("forward") else cell.backward


def _trail(cell: Cell) -> Iterator[Pass]:
    """Run the passes again, one by one; those that change nothing are left out."""
    before = whole(cell.built)
    for name, of_cell in trail(cell.built, cell.ends, training=True):
        graph = whole(of_cell)
        if graph.outputs != before.outputs:
            yield Pass(name, graph, ops_in(graph))
        before = graph


def _weight(
    cell: Cell, parts: Parts, kernels: Mapping[str, Kernel], parameter: Parameter, names: Mapping[Node, str]
) -> Weight:
    return Weight(
        names.get(parameter_node(parameter), parameter.name),
        parameter.type,
        parameter.trainable,
        tuple(name for name, part in parts.items() if parameter in part.graph.parameters),
        tuple(name for name, kernel in kernels.items() if ("gradient", parameter) in kernel.results),
        parameter in cell.sparse,
    )


# -- boxes of a drawing


def boxes(found: CellExplanation, *, backward: bool = False) -> list[Box]:
    """Return the boxes of a cell's forward graph as it is trained, or of its backward graph.

    Every node has one, each use of a constant has one, and so has each result. A node that several
    kernels make has the stage of the first.
    """
    side = "backward" if backward else "forward"
    graph = found.cell.backward_graph if backward else found.graph_after
    stages: dict[str, str] = {}
    for placed in found.stages:
        if placed.direction == side:
            stages.setdefault(placed.name, placed.stage)
    read = {*graph.outputs, *(x for node in graph.nodes for x in node.inputs)}
    made: list[Box] = []
    for node in (*graph.inputs, *graph.nodes):
        if (node in graph.inputs and backward and node not in read) or node.op is CONSTANT:
            continue
        reads = () if node in graph.inputs else node.inputs
        name = found.names[node]
        kind = _kind(found, node, given=node in graph.inputs) or stages.get(name, "before")
        made += [_constant(found, x, f"{name}.{i}") for i, x in enumerate(reads) if x.op is CONSTANT]
        keys = tuple(f"{name}.{i}" if x.op is CONSTANT else found.names[x] for i, x in enumerate(reads))
        title = f"{name} {node.op.name}" if node.op not in SOURCES and reads else name
        hint = expression(node, found.names) if reads else name
        made.append(Box(name, title, f"{node.axis} {node.type}", kind, keys, hint))
    for i, (what, node) in enumerate(_results(found, side)):
        constant = [_constant(found, node, f"result {i}.0")] if node.op is CONSTANT else []
        key = constant[0].key if constant else found.names[node]
        made += [*constant, Box(f"result {i}", what, f"{node.axis} {node.type}", "result", (key,))]
    return made


def _kind(found: CellExplanation, node: Node, *, given: bool) -> str:
    """Return what a node that is not computed is drawn as."""
    graph = found.cell.graph
    if node in graph.operands:
        return "operand"
    if node in graph.feeds:
        return "feed"
    if given:
        return "cotangent" if node.op is INPUT else "kept"
    return "parameter" if node.op is PARAMETER else ""


def _constant(found: CellExplanation, node: Node, key: str) -> Box:
    return Box(key, found.names[node], f"{node.axis} {node.type}", "constant")


def _results(found: CellExplanation, side: str) -> Iterator[tuple[str, Node]]:
    words = {
        "value": "output {}",
        "feed": "gradient of f{}",
        "cotangent": "cotangent of x{}",
        "stored": "cotangent of x{}",
    }
    for name, kernel in found.kernels.items():
        if name.startswith(side):
            outputs = found.cell.parts[name].graph.outputs  # nodes kept for others follow the results
            for (kind, key), node in zip(kernel.results, outputs, strict=False):
                if isinstance(key, Parameter):
                    yield f"gradient of {found.names.get(parameter_node(key), key.name)}", node
                else:
                    yield words.get(kind, f"{kind} {{}}").format(key), node


# -- text, section by section


def _heading(found: CellExplanation) -> str:
    graph, ends = found.cell.graph, found.cell.ends
    recursive = [found.names[graph.operands[i]] for i in sorted(ends.recursive_operands)]
    recursive += [f"output {i}" for i in sorted(ends.recursive_outputs)]
    return f"cell {found.name}" + (f" (recursive: {', '.join(recursive)})" if recursive else "")


def _graphs(found: CellExplanation) -> Iterator[str]:
    yield from _graph("graph as built", found.graph_before, found.names)
    for step in found.passes:
        yield from _graph(f"after {step.name}", step.graph, found.names)
    if not found.passes:
        yield from _titled("no pass changed it", [])


def _stages(found: CellExplanation) -> Iterator[str]:
    for direction in ("forward", "backward"):
        lines: list[str] = []
        for stage, when in (("before", "once per batch"), ("step", "per level"), ("after", "once per batch")):
            placed = [p for p in found.stages if (p.direction, p.stage) == (direction, stage)]
            if placed:
                lines.append(f"{stage}, {when}")
                for reason, same in groupby(placed, key=lambda p: p.reason):
                    lines += [f"  {reason}:", *(f"    {p.name} = {p.expression}" for p in same)]
        yield from _titled(f"stages {direction}", lines or ["nothing is computed"])


def _kernels(found: CellExplanation) -> Iterator[str]:
    for name, kernel in found.kernels.items():
        yield from _titled(f"kernel {name}, {_ops(kernel.calls)}", kernel.source.splitlines())


def _memory(found: CellExplanation) -> Iterator[str]:
    lines: list[str] = []
    for buffer in found.buffers:
        held = ", ".join(buffer.nodes)
        lines.append(f"{buffer.name} {buffer.kind} of {buffer.kernel}: {_size(buffer)}: {held}")
        lines += [f"  {node} overwrites {x} in place" for node, x in buffer.in_place]
        lines += [f"  {node} is computed into elements {i} to {j}" for node, i, j in buffer.sections]
    if found.unplaced:
        lines.append(f"no buffer for {', '.join(found.unplaced)}")
    lines.append(f"together {_bytes(found.planned)}; a buffer for every node: {_bytes(found.unplanned)}")
    yield from _titled("buffers", lines)


def _kept(found: CellExplanation) -> Iterator[str]:
    lines = []
    for buffer in found.kept:
        for kernel, nodes in buffer.readers.items():
            shown = ", ".join(nodes[:4]) + (", ..." if len(nodes) > 4 else "")
            lines.append(
                f"{buffer.name} = {buffer.nodes[0]}: {kernel} reads it" + (f" for {shown}" * bool(nodes))
            )
    yield from _titled("kept between kernels", lines or ["nothing"])
    made = {placed.name: placed.expression for placed in found.stages}
    lines = [f"{node.name} = {made[node.name]}: in {', '.join(node.kernels)}" for node in found.recomputed]
    yield from _titled("made anew rather than kept", lines or ["nothing"])


def _weights(found: CellExplanation) -> Iterator[str]:
    lines = []
    for weight in found.parameters:
        kind = "sparse rows" if weight.sparse else "dense"
        gradient = f"gradient {kind}, from {', '.join(weight.gradient)}" if weight.gradient else "no gradient"
        gradient += "" if weight.trainable else ": frozen"
        lines.append(f"{weight.name}: {weight.type}, read by {', '.join(weight.readers)}; {gradient}")
    yield from _titled("parameters", lines or ["none"])


def _inference(found: CellExplanation) -> Iterator[str]:
    cell = found.cell
    if cell.inference_graph is not cell.graph:
        yield from _graph("graph in inference", whole(cell.inference_graph), found.names)
    parts = {name: part for name, part in cell.parts.items() if name.startswith("infer_")}
    lines = [f"{stage}, {_ops(kernel.calls)}" for stage, kernel in cell.inference.items()]
    lines.append(f"together {_bytes(footprint.planned(parts))}")
    yield from _titled("kernels in inference", lines)


def _graph(title: str, graph: Graph, names: Mapping[Node, str]) -> Iterator[str]:
    yield from _titled(f"{title}, {_ops(ops_in(graph))}", print_graph(graph, names).splitlines())


def _titled(title: str, lines: list[str]) -> Iterator[str]:
    yield f"  {title}"
    for line in lines:
        yield f"    {line}"


def _ops(count: int) -> str:
    return "1 op" if count == 1 else f"{count} ops"


def _size(buffer: Buffer) -> str:
    return f"{buffer.axis} {buffer.type}, {buffer.nbytes} bytes"


def _bytes(sizes: Mapping[str, int]) -> str:
    per = {"N": "a call", "1": "once"}
    return (
        ", ".join(f"{size} bytes {per.get(axis, f'an element of {axis}')}" for axis, size in sizes.items())
        or "0 bytes"
    )
