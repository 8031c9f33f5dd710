"""The explanation of a cell: graphs pass by pass, stages with reasons, routines, buffers, gradients.

It is read off the cell and the routines that an engine makes of it, as data and as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from foldbatch.errors import counted
from foldbatch.params import Parameter
from foldbatch.static.cell import Cell
from foldbatch.static.graph import SOURCES, Graph, Node, parameter_node
from foldbatch.static.printer import print_graph
from foldbatch.static.routine_printer import print_statements
from foldbatch.static.routines import Target
from foldbatch.static.sides import trail
from foldbatch.static.statements import Routine
from foldbatch.views import footprint
from foldbatch.views.footprint import NamedBuffer, Recomputed
from foldbatch.views.naming import joined, name_nodes
from foldbatch.views.parts import BACKWARD, FORWARD, StageParts, parts_of
from foldbatch.views.reasons import Placed, place
from foldbatch.views.weights import Weight, weights


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
        unplaced: nodes without memory of their own: the insides of fused loops.
        recomputed: the nodes computed again rather than kept.
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
    stages: tuple[Placed, ...]
    buffers: tuple[NamedBuffer, ...]
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
    def kept(self) -> tuple[NamedBuffer, ...]:
        """The buffers that one routine writes and others read."""
        return tuple(buffer for buffer in self.buffers if buffer.kind == "kept")

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
            *_kept(self),
            *_weights(self),
            *_inference(self),
        )
        return "\n".join(sections)

    def __repr__(self) -> str:
        return f"CellExplanation({self.name!r}, {_ops(ops_in(self.graph_after))}; print it to read it)"


def explain_cell(cell: Cell, target: Target, names: Mapping[Parameter, str] | None = None) -> CellExplanation:
    """Return the explanation of a cell.

    Args:
        cell: the cell.
        target: the target of the engine that the cell is explained for.
        names: the names of parameters, where a program gives them some.

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
        joined(cell.built),
        steps,
        joined(cell.graph),
        parts,
        parts_of(cell.inference, target),
        tuple(place(cell, parts, node_names)),
        tuple(footprint.buffers(parts, node_names)),
        footprint.unplaced(parts, node_names),
        tuple(footprint.recomputed(parts, node_names)),
        tuple(weights(cell, parts, node_names)),
        footprint.planned(parts),
        footprint.unplanned(parts),
    )


def ops_in(graph: Graph) -> int:
    """Return the number of ops in a graph: its nodes other than parameters and constants."""
    return sum(node.op not in SOURCES for node in graph.nodes)


def _trail(cell: Cell) -> Iterator[Pass]:
    """Run the passes again, one by one; those that change nothing are left out."""
    before = joined(cell.built)
    for name, of_cell in trail(cell.built, cell.ends, training=True):
        graph = joined(of_cell)
        if graph.outputs != before.outputs:
            yield Pass(name, graph, ops_in(graph))
        before = graph


# -- text, section by section


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
        lines.append(f"{buffer.name} {buffer.kind} of {buffer.routine}: {_size(buffer)}: {held}")
        lines += [f"  {node} overwrites {x} in place" for node, x in buffer.in_place]
        lines += [f"  {node} is computed into elements {i} to {j}" for node, i, j in buffer.sections]
    if explanation.unplaced:
        lines.append(f"no buffer for {', '.join(explanation.unplaced)}")
    lines.append(
        f"together {_bytes(explanation.planned)}; a buffer for every node: {_bytes(explanation.unplanned)}"
    )
    yield from _titled("buffers", lines)


def _kept(explanation: CellExplanation) -> Iterator[str]:
    lines = []
    for buffer in explanation.kept:
        for routine, nodes in buffer.readers.items():
            shown = ", ".join(nodes[:4]) + (", ..." if len(nodes) > 4 else "")
            lines.append(
                f"{buffer.name} = {buffer.nodes[0]}: {routine} reads it" + (f" for {shown}" * bool(nodes))
            )
    yield from _titled("kept between routines", lines or ["nothing"])
    computed = {placed.name: placed.expression for placed in explanation.stages}
    lines = [
        f"{node.name} = {computed[node.name]}: in {', '.join(node.routines)}"
        for node in explanation.recomputed
    ]
    yield from _titled("made anew rather than kept", lines or ["nothing"])


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
        yield from _graph("graph in inference", joined(graph), explanation.names)
    lines = [f"{part.when}, {_statements(part.routine)}" for part in explanation.inference]
    lines.append(f"together {_bytes(footprint.planned(explanation.inference))}")
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


def _size(buffer: NamedBuffer) -> str:
    return f"{buffer.axis} {buffer.type}, {buffer.nbytes} bytes"


def _bytes(sizes: Mapping[str, int]) -> str:
    per = {"N": "a call", "1": "once"}
    return (
        ", ".join(f"{size} bytes {per.get(axis, f'an element of {axis}')}" for axis, size in sizes.items())
        or "0 bytes"
    )
