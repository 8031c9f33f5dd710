"""Drafts of cells, with the wires that connect them: a front end makes them, and `link` reads them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from foldbatch.static.graph import Node, reachable
from foldbatch.static.op import Axis
from foldbatch.types import TensorType

ASIDES = frozenset({"losses", "metrics"})  # what leaves a model beside its results


@dataclass(frozen=True, slots=True)
class Feed:
    """Data read from the example."""

    type: TensorType  # the type that the data are read as
    where: str  # the place in the model of the block that reads them
    declared: str  # the dtype that the data must fit, where it is narrower than that of `type`; else ""


@dataclass(slots=True)
class Draft:
    """A cell in the making: one place of the program that will make calls."""

    name: str  # what reports and errors call it; no two cells of a model are called alike
    number: int  # the number of the cell
    # the tensors read, with their wires; ragged ones belong to `sequences`
    operands: list[tuple[Node, Flow]] = field(default_factory=list)
    # per sequence read, its ragged axis and the tensors of an element, with their wires
    sequences: list[tuple[Axis, list[tuple[Node, Flow]]]] = field(default_factory=list)
    feeds: list[tuple[Node, Feed]] = field(default_factory=list)  # the data read
    # the values that others read, with the wires they go to
    outputs: dict[Node, Flow] = field(default_factory=dict)
    losses: list[tuple[str, Node]] = field(default_factory=list)  # `losses`, `metrics`: names and nodes
    metrics: list[tuple[str, Node]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)  # the numbers of metrics with labels
    # for metrics that are visited before other calls (`foldbatch.blocks.drafts.MetricVisit`), two numbers:
    # the metric's, and that of the feed that holds the visit's place among the calls
    marks: list[tuple[int, int]] = field(default_factory=list)
    # the numbers of feeds that hold the call's own number, as it was first counted, instead of data
    keys: list[int] = field(default_factory=list)
    nodes: set[Node] = field(default_factory=set)  # all nodes that it computes
    behind: dict[Node, set[Node]] = field(default_factory=dict)  # see `_inputs`, which fills it

    @property
    def reads(self) -> list[Flow]:
        members = [wire for _, pairs in self.sequences for _, wire in pairs]
        return [*(wire for _, wire in self.operands), *members]

    @property
    def results(self) -> list[Node]:
        """All that it yields: outputs, losses, metrics."""
        return [*self.outputs, *(node for _, node in self.losses), *(node for _, node in self.metrics)]

    def output(self, node: Node) -> tuple[int, Flow]:
        """Make a node an output; return its number and its wire."""
        wire = self.outputs.setdefault(node, Flow())
        return list(self.outputs).index(node), wire


K = TypeVar("K", bound=Hashable)


class Flow:
    """A place that holds values of one TensorType; compared by identity."""

    __slots__ = ("__weakref__", "flows_to")

    def __init__(self) -> None:
        self.flows_to: list[Flow] = []

    def feed(self, target: Flow) -> None:
        """Connect this wire to a target, which its values may reach."""
        self.flows_to.append(target)


def connected(pairs: Iterable[tuple[K, K]], items: Iterable[K]) -> dict[K, int]:
    """Number the connected parts of an undirected graph, in order of first appearance.

    >>> connected([("a", "c")], "abc")
    {'a': 0, 'b': 1, 'c': 0}
    """
    parent: dict[K, K] = {}

    def root(item: K) -> K:
        parent.setdefault(item, item)
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    for a, b in pairs:
        parent[root(b)] = root(a)
    numbers: dict[K, int] = {}
    return {item: numbers.setdefault(root(item), len(numbers)) for item in items}


def components(nodes: Sequence[K], edges: dict[K, list[K]]) -> dict[K, int]:
    """Number the strongly connected components in topological order: edges go to larger numbers.

    Source: Tarjan 1972, with an explicit stack.

    >>> sorted(components("abc", {"a": ["b"], "b": ["a", "c"], "c": []}).items())
    [('a', 0), ('b', 0), ('c', 1)]
    """
    index: dict[K, int] = {}
    low: dict[K, int] = {}
    open_: list[K] = []
    is_open: set[K] = set()
    components: list[list[K]] = []
    for start in nodes:
        if start in index:
            continue
        work = [(start, iter(edges.get(start, ())))]
        index[start] = low[start] = len(index)
        open_.append(start)
        is_open.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    open_.append(target)
                    is_open.add(target)
                    work.append((target, iter(edges.get(target, ()))))
                    break
                if target in is_open:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    members: list[K] = []
                    while not members or members[-1] != node:
                        members.append(open_.pop())
                        is_open.discard(members[-1])
                    components.append(members)
    return {node: number for number, members in enumerate(reversed(components)) for node in members}


# -- what is left of cells where only some of their losses, metrics and outputs are asked for


@dataclass(frozen=True, slots=True)
class PrunedDraft:
    """A cell after pruning, and the old numbers of what it kept."""

    draft: Draft  # the cell that is left, with its new number
    # which arguments of a call are left: operands first, then one for each sequence
    arguments: tuple[int, ...]
    outputs: dict[int, int]  # by old number, the new number of each output that is left
    feeds: dict[int, int]  # `feeds`, `sequences`: the same for data and sequences
    sequences: dict[int, int]


def needed(drafts: Sequence[Draft], results: Iterable[Flow]) -> dict[int, PrunedDraft]:
    """Return the pruned draft of each cell that results or side outputs need, by its old number."""
    read: dict[int, set[Node]] = {draft.number: set() for draft in drafts}
    wanted: list[tuple[Draft, Node]] = []
    for draft in drafts:
        wanted += [(draft, node) for _, node in [*draft.losses, *draft.metrics]]
    writers = {wire: (draft, node) for draft in drafts for node, wire in draft.outputs.items()}
    sources = _sources(drafts)
    wires: set[Flow] = set()
    waiting = list(results)
    while waiting or wanted:
        if waiting:
            wire = waiting.pop()
            if wire not in wires:
                wires.add(wire)
                waiting += sources.get(wire, [])
                wanted += [writers[wire]] if wire in writers else []
        else:
            draft, node = wanted.pop()
            new = _inputs(draft, node) - read[draft.number]
            read[draft.number] |= new
            members = [m for _, pairs in draft.sequences if any(n in new for n, _ in pairs) for m in pairs]
            waiting += [wire for n, wire in draft.operands if n in new] + [wire for _, wire in members]
    kept: dict[int, PrunedDraft] = {}
    for draft in drafts:
        outputs = {node: wire for node, wire in draft.outputs.items() if wire in wires}
        if outputs or draft.losses or draft.metrics:
            kept[draft.number] = _kept(draft, len(kept), outputs, read[draft.number])
    return kept


def _sources(drafts: Sequence[Draft]) -> dict[Flow, list[Flow]]:
    """Return, for each wire, the wires whose values reach it directly."""
    sources: dict[Flow, list[Flow]] = {}
    seen: set[Flow] = set()
    stack = [wire for draft in drafts for wire in draft.outputs.values()]
    while stack:
        wire = stack.pop()
        if wire not in seen:
            seen.add(wire)
            for target in wire.flows_to:
                sources.setdefault(target, []).append(wire)
                stack.append(target)
    return sources


def _inputs(draft: Draft, node: Node) -> set[Node]:
    """Return the operands, data and elements of sequences that a node of a cell depends on."""
    if node not in draft.behind:
        ends = {n for n, _ in draft.operands} | {n for n, _ in draft.feeds}
        ends |= {n for _, members in draft.sequences for n, _ in members}
        draft.behind[node] = ends.intersection(reachable([node], ends))
    return draft.behind[node]


def _kept(draft: Draft, number: int, outputs: dict[Node, Flow], read: set[Node]) -> PrunedDraft:
    """Return a draft without the operands, feeds and outputs that no reader needs."""
    marks = {feed for _, feed in draft.marks}
    operands = [i for i, (node, _) in enumerate(draft.operands) if node in read]
    feeds = [i for i, (node, _) in enumerate(draft.feeds) if node in read or i in marks]
    lists = [i for i, (_, members) in enumerate(draft.sequences) if any(n in read for n, _ in members)]
    new_feed = {old: new for new, old in enumerate(feeds)}
    pruned = replace(
        draft,
        number=number,
        operands=[draft.operands[i] for i in operands],
        sequences=[draft.sequences[i] for i in lists],
        feeds=[draft.feeds[i] for i in feeds],
        outputs=outputs,
        marks=[(metric, new_feed[feed]) for metric, feed in draft.marks],
        keys=[new_feed[i] for i in draft.keys if i in new_feed],
    )
    old = list(draft.outputs)
    return PrunedDraft(
        pruned,
        (*operands, *(len(draft.operands) + i for i in lists)),
        {old.index(node): new for new, node in enumerate(outputs)},
        new_feed,
        {old: new for new, old in enumerate(lists)},
    )
