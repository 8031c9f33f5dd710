"""Passes that know when each node runs: products joined and split, gates side by side, sums in order of time.

A product that the recursion waits for is never joined with one that it does not, and terms that are ready
before the recursion are added up before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import groupby

from foldbatch.static.cellgraph import BEFORE, STEP, StageOf
from foldbatch.static.graph import PARAMETER, Graph, Node, apply, reachable, slice_of
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.rewrite import rebuilt, rewrite_knowing


def split_by_stage(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with ``concat(x, h) @ W`` as ``x @ W[:n] + h @ W[n:]`` where x is ready before h.

    So the part that the recursion does not need runs once for all levels.
    """

    def split(node: Node, operands: list[Node]) -> Node:
        """Return a product as a sum of products, one for each run of columns of one stage."""
        joined = node.inputs[0] if node.op.name == "linear" else node
        if joined.op.name != "concat" or joined.attrs["axis"] != joined.ndim - 1 or joined is node:
            return rebuilt(node, operands)
        if stage_of(node) != STEP:
            return rebuilt(node, operands)
        runs = [
            [i for i, _ in run]
            for _, run in groupby(enumerate(joined.inputs), lambda p: stage_of(p[1]) == BEFORE)
        ]
        if len(runs) < 2 or operands[0].op is not joined.op:
            return rebuilt(node, operands)
        parts, weight = operands[0].inputs, operands[1]
        products, start = [], 0
        for run in runs:
            x = apply("concat", *(parts[i] for i in run), axis=joined.ndim - 1) if run[1:] else parts[run[0]]
            stop = start + x.shape[-1]
            products.append(apply("linear", x, apply("slice", weight, axis=0, start=start, stop=stop)))
            start = stop
        total = apply("add", *products)
        return total if total.axis is node.axis else rebuilt(node, operands)

    return rewrite_knowing(graph, split)


def merge_matmuls(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with products of one operand and several weights as one product.

    ``x @ A`` and ``x @ B`` are slices of ``x @ concat(A, B)``: an LSTM written with a weight for each
    gate has one product for all of them, and so has its gradient, which is derived from this.
    Weights that are trained are not joined with weights that are not.
    """
    groups: dict[tuple[Node, str, bool], list[Node]] = defaultdict(list)
    for node in graph.nodes:
        if node.op.name == "linear" and node.inputs[1].axis is UNBATCHED and node.axis is not UNBATCHED:
            weights = [x for x in reachable(node.inputs[1:2]) if x.op is PARAMETER]
            trained = any(x.attrs["parameter"].trainable for x in weights)
            groups[node.inputs[0], stage_of(node), trained].append(node)
    group_of = {node: tuple(members) for members in groups.values() if len(members) > 1 for node in members}
    if not group_of:
        return graph

    def merged(node: Node, operands: list[Node]) -> Node:
        if node not in group_of:
            return rebuilt(node, operands)
        return _part(operands[0], group_of[node], node)

    return rewrite_knowing(graph, merged)


def _part(x: Node, members: Sequence[Node], node: Node) -> Node:
    """Return a member's columns of the product of `x` with the weights of all members."""
    product = apply("linear", x, apply("concat", *(member.inputs[1] for member in members), axis=1))
    start = sum(member.shape[-1] for member in members[: members.index(node)])
    return apply("slice", product, axis=product.ndim - 1, start=start, stop=start + node.shape[-1])


_WIDENING_ROUNDS = 20  # a gate is a few ops deep


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
    for _ in range(_WIDENING_ROUNDS):
        runs = [run for members in _alike(graph, stages).values() for run in _runs(members)]
        if not runs:
            break
        graph, stages = _joined(graph, stages, runs)
    return graph


def _alike(graph: Graph, stages: dict[Node, str]) -> dict[Hashable, list[_Member]]:
    """Return the nodes that may be joined, grouped by stage, op and sliced operands."""
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
    """Return the graph with each run of nodes as one op, and the stages of its nodes."""
    run_of = {member.node: run for run in runs for member in run}
    new_stages: dict[Node, str] = {}

    def join(node: Node, operands: list[Node]) -> Node:
        """Return a node on new operands; a member of a run becomes a slice of the run's op."""
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
            wide.append(slice_of(now.inputs[0], last, start, stop))
        elif x.type.size == 1:
            wide.append(now)
        else:
            parts = [member.node.inputs[i] for member in run]
            wide.append(apply("concat", *parts, axis=x.ndim - 1))
    product = apply(node.op.name, *wide, **node.attrs)
    member = next(member for member in run if member.node is node)
    return apply("slice", product, axis=last, start=member.start - start, stop=member.stop - start)


def sum_early(graph: Graph, stage_of: StageOf) -> Graph:
    """Return the graph with the terms of a sum that are ready before it as a sum of their own.

    ``x @ W + h @ U + b``, where only h has to be waited for, is ``(x @ W + b) + h @ U``: one addition
    a level instead of two.
    """

    def regroup(node: Node, operands: list[Node]) -> Node:
        """Return a sum with the terms that are ready before it as a sum of their own."""
        now = rebuilt(node, operands)
        stage = stage_of(node)
        early = [i for i, x in enumerate(node.inputs) if stage_of(x) == BEFORE]
        if node.op.name != "add" or stage == BEFORE or len(early) in (0, 1, len(operands)):
            return now
        if all(node.inputs[i].axis is UNBATCHED for i in early):
            return now  # a sum of parameters, or a constant: it saves nothing to speak of
        first = apply("add", *(operands[i] for i in early))
        late = [x for i, x in enumerate(operands) if i not in early]
        total = apply("add", first, *late)
        return total if (total.type, total.axis) == (node.type, node.axis) else now

    return rewrite_knowing(graph, regroup)
