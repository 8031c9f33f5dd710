"""Operands that a cell reads side by side: several inputs become one input of several rows.

A node that stacks or concatenates its children's states would copy them together on every
level. Where the operands lie side by side in the arena (and the layout sees to it that they
do) that copy is a view. So `pack` replaces inputs that a graph stacks, or joins end to end, by
one input with a leading axis over them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from foldbatch.static.graph import Node, apply, input_node, reachable, substitute
from foldbatch.static.op import CALL
from foldbatch.types import TensorType

Held = tuple[Node, tuple[int, ...]]


def pack(
    operands: Sequence[Node], results: Sequence[Node], recursive: Collection[int] | None = None
) -> tuple[list[Held], list[Node]]:
    """Return new operands, each with the numbers of the old operands in it, and the results in terms of them.

    Only operands with a row per call are packed, each into the first group that wants it. Operands whose
    numbers are in `recursive` are not packed with others, as nodes that read only the others need not wait.
    """
    late = {operands[i] for i in recursive or ()}
    numbers = {node: i for i, node in enumerate(operands) if node.axis is CALL}
    replaced: dict[Node, Node] = {}
    packed: dict[int, Held] = {}
    for node in reachable(results, operands):
        members = node.inputs
        alike = len({(x.type, x.axis, x in late) for x in members}) == 1
        free = all(x in numbers and x not in replaced for x in members)
        if not _joins(node) or len(set(members)) != len(members) or len(members) < 2 or not alike or not free:
            continue
        first = members[0]
        pack_input = input_node(TensorType((len(members), *first.shape), first.dtype), name="pack")
        for i, x in enumerate(members):
            replaced[x] = pack_input[i]
        replaced[node] = (
            pack_input if node.shape == pack_input.shape else apply("reshape", pack_input, shape=node.shape)
        )
        held = tuple(numbers[x] for x in members)
        packed[held[0]] = (pack_input, held)
    taken = {i for _, held in packed.values() for i in held}
    left = [(i, node) for i, node in enumerate(operands) if i in packed or i not in taken]
    new = [packed.get(i, (node, (i,))) for i, node in left]
    return new, substitute(results, replaced)


def _joins(node: Node) -> bool:
    """Whether the node's memory is that of its operands one after the other."""
    if node.op.name not in ("stack", "concat"):
        return False
    return bool(node.attrs["axis"] == 0)
