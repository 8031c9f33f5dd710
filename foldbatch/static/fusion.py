"""Fusion: which elementwise ops run in one loop over the rows.

A *group* is a connected set of elementwise ops along one batch axis that no other op needs halfway.
A loop over its rows computes it in *sweeps*, each over the elements of one shape. A value that only its
own sweep reads stays in registers. A value that a later sweep reads (a slice of all gates, say) lasts for
one row. Only values read outside the group are written for every row. Views cost nothing inside a group,
nor does a concatenation if the group computes all its parts.

This is a decision about graphs; how a loop is written is the backend's business.

Source: the cut into loops follows loop fusion of array languages (Warren 1984; Kennedy and McKinley
1993): ops may share a loop unless that would close a circle of loops that wait for each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from foldbatch.static.graph import Node, is_view
from foldbatch.static.places import access

MAX_LOOP_OPS = 100  # ops in one loop: compilers of loops take more than linear time


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Ops that run in one loop."""

    nodes: tuple[Node, ...]  # all nodes of the group, operands first
    sweeps: tuple[tuple[Node, ...], ...]  # per sweep, the nodes that it computes; they have one shape
    written: frozenset[Node]  # the nodes that are read outside the group
    passing: frozenset[Node]  # the nodes that only a later sweep reads: of each, one row suffices

    @property
    def reads(self) -> Iterator[tuple[int, Node, Node]]:
        """The reads from memory: the number of the sweep, the reader and its operand."""
        number = {node: i for i, sweep in enumerate(self.sweeps) for node in sweep}
        for node, i in number.items():
            for x in node.inputs:
                if not _is_direct(node, x) or number.get(x) != i:
                    yield i, node, x


Unit = Node | Group


def groups(
    nodes: Sequence[Node],
    results: Collection[Node],
    concat_of: Mapping[Node, Node],
    takes: Callable[[Node], bool],
) -> list[Unit]:
    """Return the units of a kernel, in an order in which they can run, given nodes with operands first.

    Views that are only read inside groups are left out. Results are read after the kernel ends, or by other
    kernels; `concat_of` has the concatenation of each node that is computed as a part of one; `takes` says
    whether a loop may compute a node.
    """
    grouping = _Grouping(nodes, concat_of, takes)
    grouping.grow()
    # a sum of several terms is worth a loop of its own: else each of them is read and written again
    members = {
        g: part
        for g, part in grouping.members.items()
        if len(part) > 1 or (part[0].op.name == "add" and len(part[0].inputs) > 2)
    }
    group_of = {node: g for g, part in members.items() for node in part}
    read = _read_outside(nodes, results, concat_of, group_of)
    built = {g: _group(part, read, concat_of) for g, part in members.items()}
    return _ordered([n for n in nodes if not is_view(n) or n in read], built, group_of)


class _Grouping:
    """Groups while they grow, one node after the other."""

    def __init__(
        self, nodes: Sequence[Node], concat_of: Mapping[Node, Node], takes: Callable[[Node], bool]
    ) -> None:
        self.nodes = nodes
        self.takes = takes
        self.concat_of = concat_of
        self.group_of: dict[Node, int] = {}
        self.members: dict[int, list[Node]] = {}

    def grow(self) -> None:
        """Put every node that a loop may compute into the groups of its operands, unless a circle arises."""
        for i, node in enumerate(self.nodes):
            roots = dict.fromkeys(_roots(node))
            before = {self.group_of[x]: x.axis for x in roots if x in self.group_of}
            near = [g for g, axis in before.items() if axis is node.axis]
            if self._is_joined(node):
                if near and self._fit(node, near):
                    self._join(i, node, near)
            elif not is_view(node) and self.takes(node):
                chosen: list[int] = []
                for g in near:
                    if self._fit(node, [*chosen, g]):
                        chosen.append(g)
                self._join(i, node, chosen)

    def _is_joined(self, node: Node) -> bool:
        """Whether a node is a concatenation all of whose parts groups compute, straight into its buffer."""
        if node.op.name != "concat":
            return False
        parts = _roots(node)
        return len(set(parts)) == len(parts) and all(
            self.concat_of.get(x) is node and x in self.group_of for x in parts
        )

    def _join(self, number: int, node: Node, near: Sequence[int]) -> None:
        together = [x for g in near for x in self.members.pop(g)]
        self.members[number] = [*sorted(together, key=lambda x: x.number), node]
        self.group_of.update(dict.fromkeys(self.members[number], number))

    def _fit(self, node: Node, near: Sequence[int]) -> bool:
        """Whether node and groups can be one: nothing they read depends on any of them."""
        inside = {node, *(x for g in near for x in self.members[g])}
        if len(inside) > MAX_LOOP_OPS:
            return False
        seen: set[Node] = set()
        stack = [x for member in inside for x in _roots(member) if x not in inside]
        while stack:
            x = stack.pop()
            if x in inside:
                return False
            if x not in seen:
                together = self.members[self.group_of[x]] if x in self.group_of else [x]
                seen.update(together)
                for y in together:
                    stack += _roots(y) if y in self.group_of else y.inputs
        return True


def _roots(node: Node) -> list[Node]:
    return [access(x).root if is_view(x) else x for x in node.inputs]


def _is_direct(node: Node, x: Node) -> bool:
    """Whether an op reads just those elements of its operand that it writes itself."""
    return not is_view(x) and x.shape == node.shape


def _read_outside(
    nodes: Iterable[Node],
    results: Iterable[Node],
    concat_of: Mapping[Node, Node],
    group_of: Mapping[Node, int],
) -> set[Node]:
    """Return the nodes that are read outside the group that computes them, and the views needed for that."""
    read: set[Node] = set()
    stack = list(results)
    for node in nodes:
        if node in group_of:
            roots = _roots(node) if node.op.name != "concat" else []
            stack += [x for x in roots if group_of.get(x) != group_of[node]]
        elif not is_view(node):
            stack += node.inputs
    while stack:
        node = stack.pop()
        if node not in read:
            read.add(node)
            if is_view(node):
                stack += node.inputs
            elif node in concat_of and concat_of[node] in group_of:
                stack.append(concat_of[node])  # a part lasts only if the concatenation does
    return read


def _group(nodes: Sequence[Node], read: Collection[Node], concat_of: Mapping[Node, Node]) -> Group:
    """Arrange a group in sweeps: an op that reads elements in another order comes in a later sweep."""
    inside = set(nodes)
    sweeps: list[list[Node]] = []
    ready: dict[Node, int] = {}
    passing = {x for x in nodes if concat_of.get(x) in inside or x.op.name == "concat"}
    for node in nodes:
        if node.op.name == "concat":
            ready[node] = max(ready[x] for x in _roots(node))
            continue
        first = 0
        for x, root in zip(node.inputs, _roots(node), strict=True):
            if root in inside:
                direct = _is_direct(node, x) and root.op.name != "concat"
                first = max(first, ready[root] + (not direct))
        sweep = next((i for i in range(first, len(sweeps)) if sweeps[i][0].shape == node.shape), len(sweeps))
        if sweep == len(sweeps):
            sweeps.append([])
        sweeps[sweep].append(node)
        ready[node] = sweep
    for node in nodes:
        if node.op.name != "concat":
            for x, root in zip(node.inputs, _roots(node), strict=True):
                if root in inside and (not _is_direct(node, x) or ready[root] != ready[node]):
                    passing.add(root)
    written = frozenset(x for x in nodes if x in read)
    return Group(tuple(nodes), tuple(map(tuple, sweeps)), written, frozenset(passing) - written)


def _ordered(nodes: Sequence[Node], built: Mapping[int, Group], group_of: Mapping[Node, int]) -> list[Unit]:
    """Return the units, each after the units that it reads, else in the order of last nodes."""
    place = {node: i for i, node in enumerate(nodes)}
    unit_of = {node: built[group_of[node]] if node in group_of else node for node in nodes}
    last = {unit: place[node] for node, unit in unit_of.items()}
    readers: dict[Unit, list[Unit]] = {unit: [] for unit in last}
    waits = dict.fromkeys(last, 0)
    for unit in last:
        parts = unit.nodes if isinstance(unit, Group) else [unit]
        reads = [x for node in parts for x in (_roots(node) if isinstance(unit, Group) else node.inputs)]
        for x in {unit_of[x] for x in reads if x in unit_of} - {unit}:
            readers[x].append(unit)
            waits[unit] += 1
    queue = [(last[unit], unit) for unit, count in waits.items() if not count]
    heapq.heapify(queue)
    order: list[Unit] = []
    while queue:
        _, unit = heapq.heappop(queue)
        order.append(unit)
        for reader in readers[unit]:
            waits[reader] -= 1
            if not waits[reader]:
                heapq.heappush(queue, (last[reader], reader))
    assert len(order) == len(last), "groups wait for each other"
    return order
