"""The boxes of a drawing of a cell: its values and results, with the stage that computes each."""

from __future__ import annotations

from collections.abc import Iterator

from foldbatch.static.graph import CONSTANT, INPUT, PARAMETER, SOURCES, Node
from foldbatch.static.printer import expression
from foldbatch.static.routine_printer import result_name
from foldbatch.static.stages import AFTER
from foldbatch.views.drawing import Box
from foldbatch.views.explain import CellExplanation
from foldbatch.views.parts import BACKWARD, FORWARD


def boxes(explanation: CellExplanation, *, backward: bool = False) -> list[Box]:
    """Return the boxes of a cell's forward graph as it is trained, or of its backward graph.

    Every node has one, each use of a constant has one, and so has each result. A node that several
    routines compute has the stage of the first.
    """
    side = BACKWARD if backward else FORWARD
    graph = explanation.cell.backward_graph if backward else explanation.graph_after
    stages: dict[str, str] = {}
    for placed in explanation.stages:
        if placed.direction == side:
            stages.setdefault(placed.name, placed.stage)
    read = {*graph.outputs, *(x for node in graph.nodes for x in node.inputs)}
    drawn: list[Box] = []
    for node in (*graph.inputs, *graph.nodes):
        if (node in graph.inputs and backward and node not in read) or node.op is CONSTANT:
            continue
        reads = () if node in graph.inputs else node.inputs
        name = explanation.names[node]
        # sums of rows have no stage: they are computed after all routines
        kind = _kind(explanation, node, given=node in graph.inputs) or stages.get(name, AFTER)
        drawn += [_constant(explanation, x, f"{name}.{i}") for i, x in enumerate(reads) if x.op is CONSTANT]
        keys = tuple(f"{name}.{i}" if x.op is CONSTANT else explanation.names[x] for i, x in enumerate(reads))
        title = f"{name} {node.op.name}" if node.op not in SOURCES and reads else name
        hint = expression(node, explanation.names) if reads else name
        drawn.append(Box(name, title, f"{node.axis} {node.type}", kind, keys, hint))
    for i, (words, node) in enumerate(_results(explanation, side)):
        constant = [_constant(explanation, node, f"result {i}.0")] if node.op is CONSTANT else []
        key = constant[0].key if constant else explanation.names[node]
        drawn += [*constant, Box(f"result {i}", words, f"{node.axis} {node.type}", "result", (key,))]
    return drawn


def _kind(explanation: CellExplanation, node: Node, *, given: bool) -> str:
    """Return the kind of box that stands for a node that is not computed."""
    graph = explanation.cell.graph
    if node in graph.operands:
        return "operand"
    if node in graph.feeds:
        return "feed"
    if given:
        return "cotangent" if node.op is INPUT else "kept"
    return "parameter" if node.op is PARAMETER else ""


def _constant(explanation: CellExplanation, node: Node, key: str) -> Box:
    return Box(key, explanation.names[node], f"{node.axis} {node.type}", "constant")


def _results(explanation: CellExplanation, side: str) -> Iterator[tuple[str, Node]]:
    """Yield the results of a direction, with names: those that routines deliver, then sums of rows."""
    for part in explanation.parts:
        if part.direction == side:
            for key, node in part.stage.results:
                yield result_name(key, explanation.parameter_names), node
    if side == BACKWARD and explanation.cell.sums:
        sums = explanation.cell.backward_graph.outputs[-len(explanation.cell.sums) :]
        for rows, node in zip(explanation.cell.sums, sums, strict=True):
            yield result_name(("gradient", rows.parameter), explanation.parameter_names), node
