"""Why each node of a cell runs when it does: what recursive ends it reads, and which need it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from foldbatch.static.cell import Cell, Part
from foldbatch.static.graph import INPUT, SOURCES, Node
from foldbatch.static.printer import expression
from foldbatch.static.stages import AFTER, BEFORE, STEP, is_view

FORWARD, BACKWARD = "forward", "backward"
_RESULTS = {FORWARD: ("output", "outputs"), BACKWARD: ("cotangent of", "cotangents of")}
Reached = defaultdict[Node, set[str]]


@dataclass(frozen=True, slots=True)
class Placed:
    """A node a kernel computes: its name and expression, when it runs, and why then."""

    name: str
    expression: str
    direction: str
    stage: str
    reason: str


def place(cell: Cell, parts: Mapping[str, Part], names: Mapping[Node, str]) -> Iterator[Placed]:
    """Return every node of every kernel of `parts`, kernel by kernel in the order in which they run."""
    for direction, words in _RESULTS.items():
        of_side = {name: part for name, part in parts.items() if name.startswith(direction)}
        nodes = {node for part in of_side.values() for node in part.graph.nodes if node.op not in SOURCES}
        reads, needed = _recursive_ends(cell, direction)
        _spread(reads, needed, sorted(nodes, key=lambda node: node.number))
        for name, part in of_side.items():
            stage = name.removeprefix(f"{direction}_")
            for node in part.graph.nodes:
                if node in nodes:
                    reason = _reason(node, stage, reads[node], needed[node], words)
                    yield Placed(names[node], expression(node, names), direction, stage, reason)


def _recursive_ends(cell: Cell, direction: str) -> tuple[Reached, Reached]:
    """Return the recursive inputs and outputs of a direction, with what they are called."""
    graph, ends = cell.graph, cell.ends
    inputs, outputs = Reached(set), Reached(set)
    if direction == FORWARD:
        for i in ends.recursive_operands:
            inputs[graph.operands[i]].add(f"x{i}")
        for i in ends.recursive_outputs:
            outputs[graph.outputs[i]].add(str(i))
        return inputs, outputs
    seeds = {f"g{i}" for i in ends.recursive_outputs}
    for node in cell.backward_graph.inputs:
        if node.op is INPUT and node.attrs["name"] in seeds and node not in graph.inputs:
            inputs[node].add(node.attrs["name"])
    for stage, kernel in cell.backward.items():
        results = cell.parts[f"backward_{stage}"].graph.outputs  # nodes kept for others follow them
        for (kind, i), node in zip(kernel.results, results, strict=False):
            if kind in ("cotangent", "stored") and i in ends.recursive_operands:
                outputs[node].add(f"x{i}")
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
