"""Where values may flow: wires between cells, found while a block is built."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class Flow:
    """A place that holds values of one TensorType; compared by identity."""

    __slots__ = ("__weakref__", "flows_to")

    def __init__(self) -> None:
        self.flows_to: list[Flow] = []

    def feed(self, other: Flow) -> None:
        """Say that this wire's values may come to be `other`'s."""
        self.flows_to.append(other)


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
