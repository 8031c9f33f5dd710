"""Buffers of a kernel's values, planned from their lifetimes.

A value is one of: *given* (an argument), *kept* (read by another kernel, so it has a buffer of
its own for the whole batch), a *view* of another, a *section* of the concatenation that will
read it (so concatenating copies nothing), or *scratch*. A scratch buffer is reused as soon as
its value is dead, by the very op that reads it last where that op can work in place.
Of a group of ops that runs in one loop, only values read outside need a buffer; a value that one
sweep passes to a later one needs one row.

Source: the order (lifetimes, in place, free list) follows NNVM's plan_memory pass (2016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from foldbatch.static.fusion import Group, Unit
from foldbatch.static.graph import Node, is_view
from foldbatch.static.op import UNBATCHED, Axis
from foldbatch.static.places import access
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class Scratch:
    """A scratch buffer: rows of `type` along `axis`; `number` tells a routine's buffers of one type apart."""

    type: TensorType
    axis: Axis
    number: int


@dataclass(frozen=True, slots=True)
class BufferSection:
    """A value's place inside the concatenation `concat`: elements start to stop of its axis."""

    concat: Node
    start: int
    stop: int


@dataclass(slots=True)
class Buffers:
    """Locations of the nodes a kernel computes; views and kept nodes are in neither mapping."""

    scratch: dict[Node, Scratch] = field(default_factory=dict)
    sections: dict[Node, BufferSection] = field(default_factory=dict)
    in_place: int = 0

    @property
    def slots(self) -> tuple[Scratch, ...]:
        return tuple(dict.fromkeys(self.scratch.values()))


def plan(
    units: Sequence[Unit],  # the nodes of the kernel, and groups that run in one loop, operands first
    kept: Collection[Node],  # nodes with buffers of their own
    results: Collection[Node],  # nodes read after the kernel ends
    # by op name, the operands whose buffer the op may write its result to
    overwrites: Mapping[str, Collection[int]],
    # the result of `sections_of` for the nodes, if the caller has it
    sections: Mapping[Node, BufferSection] | None = None,
) -> Buffers:
    """Return where each node of a kernel lives."""
    nodes = [node for unit in units for node in (_with_views(unit) if isinstance(unit, Group) else (unit,))]
    if sections is None:
        sections = sections_of(nodes, {*kept, *results})
    return _Planner(units, nodes, kept, results, overwrites, sections).plan()


def _with_views(group: Group) -> Iterator[Node]:
    """Yield a group's nodes, each after the views that it reads; such views need not be units."""
    for node in group.nodes:
        for x in node.inputs:
            views = [x]
            while is_view(views[-1]):
                views.append(views[-1].inputs[0])
            yield from reversed(views[:-1])
        yield node


class _Planner:
    def __init__(
        self,
        units: Sequence[Unit],
        nodes: Sequence[Node],
        kept: Collection[Node],
        results: Collection[Node],
        overwrites: Mapping[str, Collection[int]],
        sections: Mapping[Node, BufferSection],
    ) -> None:
        self.units = units
        self.kept = kept
        self.overwrites = overwrites
        self.buffers = Buffers(sections=dict(sections))
        self.root = _roots(nodes, sections)
        self.last_read = _last_reads(units, results, self.root)
        self.free: dict[tuple[TensorType, Axis], list[Scratch]] = {}
        self.count: dict[TensorType, int] = {}
        self.owner: dict[Scratch, Node] = {}

    def plan(self) -> Buffers:
        """Return the buffers: go through the units, and free each buffer after its last reader."""
        for i, unit in enumerate(self.units):
            if isinstance(unit, Group):
                self._place_group(unit, i)
            else:
                self._place(unit, i)
            for slot, holder in list(self.owner.items()):
                if self.last_read[holder] <= i:
                    del self.owner[slot]
                    self.free.setdefault((slot.type, slot.axis), []).append(slot)
        return self.buffers

    def _take(self, node: Node, axis: Axis) -> None:
        """Give a node a free buffer of its type, or a new one."""
        key = (node.type, axis)
        if self.free.get(key):
            slot = self.free[key].pop()
        else:
            slot = Scratch(*key, self.count.get(node.type, 0))
            self.count[node.type] = slot.number + 1
        self._give(node, slot)

    def _give(self, node: Node, slot: Scratch) -> None:
        self.buffers.scratch[node] = slot
        self.owner[slot] = node

    def _place(self, node: Node, i: int) -> None:
        """Place a node: in the buffer of an operand that dies here, if the op allows it, else in another."""
        if node in self.buffers.sections:
            node = self.buffers.sections[node].concat
        if access(node).root is not node or node in self.kept or node in self.buffers.scratch:
            return
        for operand in self.overwrites.get(node.op.name, ()):
            x = node.inputs[operand] if operand < len(node.inputs) else None
            if x is not None and self._dies(x, node, i) and not _is_read_again(node, operand, self.root):
                self._give(node, self.buffers.scratch[x])
                self.buffers.in_place += 1
                return
        self._take(node, node.axis)

    def _dies(self, x: Node, node: Node, i: int) -> bool:
        """Whether unit `i` is the last reader of the scratch buffer of `x`, and `node` fits into it."""
        slot = self.buffers.scratch.get(x)
        return (
            slot is not None
            and self.owner.get(slot) is x
            and self.last_read[x] == i
            and slot == Scratch(node.type, node.axis, slot.number)
        )

    def _place_group(self, group: Group, i: int) -> None:
        """Place the values that a loop writes: in buffers of operands that die here, else in new ones."""
        number = {node: step for step, sweep in enumerate(group.sweeps) for node in sweep}
        last: dict[Node, int] = {}  # after which sweep an operand may be overwritten, element by element
        for step, node, x in group.reads:
            if x in self.root and self.root[x] not in number:
                direct = self.root[x] is x and x.shape == node.shape
                last[self.root[x]] = max(last.get(self.root[x], 0), step if direct else len(group.sweeps))
        for node in group.nodes:
            home = self.buffers.sections[node].concat if node in self.buffers.sections else node
            if home in self.kept or home in self.buffers.scratch:
                continue
            if home in group.passing:
                self._take(home, UNBATCHED)
            elif home in group.written or home is not node:
                dead = (
                    x for x, step in last.items() if step <= number.get(home, -1) and self._dies(x, home, i)
                )
                place = next(dead, None)
                if place is None:
                    self._take(home, home.axis)
                else:
                    self._give(home, self.buffers.scratch[place])
                    self.buffers.in_place += 1


def _is_read_again(node: Node, operand: int, root: Mapping[Node, Node]) -> bool:
    """Whether overwriting operand number `operand` could spoil another operand before it is read.

    The other operand may be a view of it, read in another order, or the same node in a later pass of a sum.
    """
    x = node.inputs[operand]
    if node.inputs == (x, x):
        return False
    return any(root.get(y) is x for i, y in enumerate(node.inputs) if i != operand)


def sections_of(nodes: Sequence[Node], fixed: Collection[Node]) -> dict[Node, BufferSection]:
    """Find values that can be computed straight into the concatenation that reads them."""
    computed = set(nodes)
    sections: dict[Node, BufferSection] = {}
    for concat in nodes:
        if concat.op.name != "concat" or concat.ndim != 1:
            continue
        start = 0
        for part in concat.inputs:
            x, stop = part, start + part.shape[0]
            while x.op.name == "reshape" and x in computed:
                x = x.inputs[0]
            direct = x in computed and x.op.name != "concat" and x not in fixed and _may_be_strided(x)
            if direct and x not in sections and x.axis is concat.axis:
                sections[x] = BufferSection(concat, start, stop)
            start = stop
    return sections


def _may_be_strided(node: Node) -> bool:
    """Whether the node's buffer may be a part of larger rows: a GEMM sees all its leading axes as one."""
    return not is_view(node) and not (node.op.name == "linear" and node.ndim > 1)


def _roots(nodes: Sequence[Node], sections: Mapping[Node, BufferSection]) -> dict[Node, Node]:
    """Return the node whose buffer has each node: itself, a view's operand, or a section's concatenation."""
    root: dict[Node, Node] = {}
    for node in nodes:
        if node in sections:
            root[node] = sections[node].concat
        else:
            root[node] = root.get(node.inputs[0], node) if access(node).root is not node else node
    return root


def _last_reads(
    units: Sequence[Unit], results: Collection[Node], root: Mapping[Node, Node]
) -> dict[Node, int]:
    """Return, for each node that has a buffer, the last unit that reads anything in the buffer."""
    last: dict[Node, int] = {}
    for i, unit in enumerate(units):
        for node in unit.nodes if isinstance(unit, Group) else (unit,):
            for x in (node, *node.inputs):
                if x in root:
                    last[root[x]] = i
    return last | {root[node]: len(units) for node in results if node in root}
