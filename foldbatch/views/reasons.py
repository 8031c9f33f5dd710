"""Why each node of a cell runs when it does: the recursive ends that it reads, and those that need it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from foldbatch.static.cell import Cell
from foldbatch.static.graph import Node
from foldbatch.static.printer import expression
from foldbatch.static.stages import AFTER, BEFORE, STEP, is_view
from foldbatch.views.parts import BACKWARD, FORWARD, StageParts

_RESULTS = {FORWARD: ("output", "outputs"), BACKWARD: ("cotangent of", "cotangents of")}
Reached = defaultdict[Node, set[str]]


@dataclass(frozen=True, slots=True)
class Placed:
    """A node that a routine computes: its name and expression, when it runs, and why then."""

    name: str
    expression: str
    direction: str
    stage: str
    reason: str


def place(cell: Cell, parts: StageParts, names: Mapping[Node, str]) -> Iterator[Placed]:
    """Return every node of every part, part by part in the order in which they run."""
    for direction, words in _RESULTS.items():
        of_side = [part for part in parts if part.direction == direction]
        nodes = {node for part in of_side for node in part.computed}
        reads, needed = _recursive_ends(cell, direction)
        _spread(reads, needed, sorted(nodes, key=lambda node: node.number))
        for part in of_side:
            for node in part.computed:
                reason = _reason(node, part.when, reads[node], needed[node], words)
                yield Placed(names[node], expression(node, names), direction, part.when, reason)


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
