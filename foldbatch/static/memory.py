"""Where a kernel's values live: lifetimes to buffers.

A value is one of: *given* (an argument), *kept* (read by another kernel, so it has a buffer of
its own for the whole batch), a *view* of another, a *section* of the concatenation that will
read it (so concatenating copies nothing), or *scratch*. A scratch buffer is reused as soon as
its value is dead, by the very op that reads it last where that op can work in place.

Source: the order (lifetimes, in place, free list) follows NNVM's plan_memory pass (2016).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from foldbatch.static.graph import Node
from foldbatch.static.op import Axis
from foldbatch.static.stages import is_view
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class Slot:
    """A scratch buffer: rows of `type` along `axis`; `number` tells a kernel's slots of one type apart."""

    type: TensorType
    axis: Axis
    number: int


@dataclass(frozen=True, slots=True)
class Section:
    """A value's place inside the concatenation `whole`: elements start to stop of its axis."""

    whole: Node
    start: int
    stop: int


@dataclass(slots=True)
class Plan:
    """Locations of the nodes a kernel computes; views and kept nodes are in neither mapping."""

    scratch: dict[Node, Slot] = field(default_factory=dict)
    sections: dict[Node, Section] = field(default_factory=dict)
    in_place: int = 0

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The distinct scratch buffers."""
        return tuple(dict.fromkeys(self.scratch.values()))


def plan(
    nodes: Sequence[Node],
    kept: Collection[Node],
    results: Collection[Node],
    overwrites: Mapping[str, Collection[int]],
) -> Plan:
    """Return where each node of a kernel lives.

    Args:
        nodes: what the kernel computes, operands first.
        kept: nodes with buffers of their own.
        results: nodes read after the kernel ends.
        overwrites: by op name, the operands whose buffer the op may write its result to.
    """
    made = Plan(sections=_sections(nodes, set(kept) | set(results)))
    root = _roots(nodes, made.sections)
    last_read = _last_reads(nodes, results, root)
    free: dict[tuple[TensorType, Axis], list[Slot]] = {}
    count: dict[TensorType, int] = {}
    owner: dict[Slot, Node] = {}

    def take(node: Node) -> None:
        key = (node.type, node.axis)
        if free.get(key):
            slot = free[key].pop()
        else:
            slot = Slot(*key, count.get(node.type, 0))
            count[node.type] = slot.number + 1
        made.scratch[node] = slot
        owner[slot] = node

    for i, node in enumerate(nodes):
        if node in made.sections:
            whole = made.sections[node].whole
            if whole not in kept and whole not in made.scratch:
                take(whole)
        elif not is_view(node) and node not in kept and node not in made.scratch:
            for at in overwrites.get(node.op.name, ()):
                x = node.inputs[at] if at < len(node.inputs) else None
                slot = made.scratch.get(x) if x is not None else None
                if (
                    slot is not None
                    and x is not None
                    and owner[slot] is x
                    and last_read[x] == i
                    and (x.type, x.axis) == (node.type, node.axis)
                    and not _is_read_again(node, at, root)
                ):
                    made.scratch[node] = slot
                    owner[slot] = node
                    made.in_place += 1
                    break
            else:
                take(node)
        for slot, holder in list(owner.items()):
            if last_read[holder] <= i:
                del owner[slot]
                free.setdefault((slot.type, slot.axis), []).append(slot)
    return made


def _is_read_again(node: Node, at: int, root: Mapping[Node, Node]) -> bool:
    """Whether overwriting operand number `at` could spoil another operand before it is read.

    A view of it could be read in another order, the operand itself by a later pass of a sum.
    """
    x = node.inputs[at]
    if node.inputs == (x, x):
        return False
    return any(root.get(y) is x for i, y in enumerate(node.inputs) if i != at)


def _sections(nodes: Sequence[Node], fixed: set[Node]) -> dict[Node, Section]:
    """Find values that can be computed straight into the concatenation that reads them."""
    computed = set(nodes)
    sections: dict[Node, Section] = {}
    for whole in nodes:
        if whole.op.name != "concat" or whole.ndim != 1:
            continue
        start = 0
        for part in whole.inputs:
            x, stop = part, start + part.shape[0]
            while x.op.name == "reshape" and x in computed:
                x = x.inputs[0]
            direct = x in computed and x.op.name != "concat" and x not in fixed and _may_be_strided(x)
            if direct and x not in sections and x.axis is whole.axis:
                sections[x] = Section(whole, start, stop)
            start = stop
    return sections


def _may_be_strided(node: Node) -> bool:
    """Whether the node's buffer may be a part of larger rows: a GEMM sees all its leading axes as one."""
    return not is_view(node) and not (node.op.name == "linear" and node.ndim > 1)


def _roots(nodes: Sequence[Node], sections: Mapping[Node, Section]) -> dict[Node, Node]:
    """Return the node whose buffer holds each computed node: its own, a view's operand, a section's whole."""
    root: dict[Node, Node] = {}
    for node in nodes:
        if node in sections:
            root[node] = sections[node].whole
        else:
            root[node] = root.get(node.inputs[0], node) if is_view(node) else node
    return root


def _last_reads(
    nodes: Sequence[Node], results: Collection[Node], root: Mapping[Node, Node]
) -> dict[Node, int]:
    """Return, for each node that has a buffer, the position after which nothing in it is read any more."""
    last: dict[Node, int] = {}
    for i, node in enumerate(nodes):
        for x in (node, *node.inputs):
            if x in root:
                last[root[x]] = i
    return last | {root[node]: len(nodes) for node in results if node in root}
