"""One wide elementwise op for several on neighbouring slices: the gates of a cell, computed in one pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from foldbatch.static.graph import Graph, Node, apply
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.rewrite import rebuilt, rewrite_knowing
from foldbatch.static.stages import StageOf

_ROUNDS = 20  # a gate is a few ops deep


@dataclass(frozen=True, slots=True)
class _Member:
    """A node that reads columns `start` to `stop` of its sliced operands."""

    node: Node
    start: int
    stop: int


def widen(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with alike elementwise ops on neighbouring columns joined into one.

    ``sigmoid(z[:n] + a)`` and ``sigmoid(z[n:] + b)`` are slices of ``sigmoid(z + concat(a, b))``, where
    a and b are the same for the whole batch. Only ops of one stage are joined.
    """
    stages = {node: stage_of(node) for node in graph.nodes}
    for _ in range(_ROUNDS):
        runs = [run for members in _alike(graph, stages).values() for run in _runs(members)]
        if not runs:
            break
        graph, stages = _joined(graph, stages, runs)
    return graph


def _alike(graph: Graph, stages: dict[Node, str]) -> dict[Hashable, list[_Member]]:
    groups: dict[Hashable, list[_Member]] = defaultdict(list)
    for node in graph.nodes:
        columns = _columns(node)
        if columns is not None:
            key, start, stop = columns
            groups[stages.get(node), key].append(_Member(node, start, stop))
    return groups


def _columns(node: Node) -> tuple[Hashable, int, int] | None:
    """Return the columns that an op reads, if it can be joined with the same op on other columns."""
    if not node.op.elementwise or node.axis is UNBATCHED or node.ndim == 0:
        return None
    last, width = node.ndim - 1, node.shape[-1]
    columns: set[tuple[int, int]] = set()
    key: list[Hashable] = [node.op.name, node.shape[:-1], tuple(sorted(node.attrs.items())), node.axis]
    for x in node.inputs:
        if x.op.name == "slice" and x.attrs["axis"] == last and x.shape == node.shape and x.axis is node.axis:
            columns.add((x.attrs["start"], x.attrs["stop"]))
            key.append(x.inputs[0])
        elif x.axis is UNBATCHED and x.ndim and x.shape[-1] == width and width > 1:
            key.append((x.shape[:-1], "columns"))
        elif x.axis is UNBATCHED and x.type.size == 1:
            key.append(x)
        else:
            return None
    return (tuple(key), *columns.pop()) if len(columns) == 1 else None


def _runs(members: Sequence[_Member]) -> list[list[_Member]]:
    """Return runs of two or more members whose columns follow each other."""
    runs: list[list[_Member]] = []
    for member in sorted(members, key=lambda m: (m.start, m.stop)):
        if runs and runs[-1][-1].stop == member.start:
            runs[-1].append(member)
        else:
            runs.append([member])
    return [run for run in runs if len(run) > 1]


def _joined(
    graph: Graph, stages: dict[Node, str], runs: Sequence[Sequence[_Member]]
) -> tuple[Graph, dict[Node, str]]:
    run_of = {member.node: run for run in runs for member in run}
    new_stages: dict[Node, str] = {}

    def join(node: Node, operands: list[Node]) -> Node:
        if node not in run_of:
            result = rebuilt(node, operands)
        else:
            result = _slice_of_wide(node, operands, run_of[node])
            new_stages.update(dict.fromkeys((result, *result.inputs), stages[node]))
        if node in stages:
            new_stages[result] = stages[node]
        return result

    return rewrite_knowing(graph, join), new_stages


def _slice_of_wide(node: Node, operands: Sequence[Node], run: Sequence[_Member]) -> Node:
    """Return the node's columns of the op on all columns of its run."""
    last, start, stop = node.ndim - 1, run[0].start, run[-1].stop
    wide: list[Node] = []
    for i, (x, now) in enumerate(zip(node.inputs, operands, strict=True)):
        if x.op.name == "slice" and x.axis is not UNBATCHED:
            wide.append(_sliced(now.inputs[0], last, start, stop))
        elif x.type.size == 1:
            wide.append(now)
        else:
            parts = [member.node.inputs[i] for member in run]
            wide.append(apply("concat", *parts, axis=x.ndim - 1))
    product = apply(node.op.name, *wide, **node.attrs)
    member = next(member for member in run if member.node is node)
    return apply("slice", product, axis=last, start=member.start - start, stop=member.stop - start)


def _sliced(x: Node, axis: int, start: int, stop: int) -> Node:
    return x if (start, stop) == (0, x.shape[axis]) else apply("slice", x, axis=axis, start=start, stop=stop)
