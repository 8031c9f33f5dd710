"""The two directions of a cell: the nodes of forward and backward, their stages, and the values kept between.

The backward graph is derived from the forward graph after all passes, so nodes that the passes merged
are merged in the gradients too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from foldbatch.params.parameters import Parameter
from foldbatch.static import passes
from foldbatch.static.autodiff import trainable, vjp
from foldbatch.static.cellgraph import CellGraph, Ends, transformed
from foldbatch.static.graph import (
    SOURCES,
    Graph,
    Node,
    apply,
    constant,
    cotangent_node,
    reachable,
    substitute,
)
from foldbatch.static.passes.phase import in_phase
from foldbatch.static.stages import AFTER, BEFORE, STAGES, STEP, is_view, postpone, split

What = tuple[str, object]  # of a result: ("value", 0), ("cotangent", 1), ("gradient", parameter), ...
Key = tuple[int, str]  # of a routine: the direction's number and the stage


class RowGradient(NamedTuple):
    """A table's gradient that is a sum of rows: `node` adds each row of `values` to row `ids`."""

    parameter: Parameter
    node: Node
    values: Node
    ids: Node


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a cell: its results, and the stage of each node that it computes.

    Attributes:
        given: the nodes that it reads and does not compute.
        results: its results, each with its kind and number.
        recursive_inputs: the given nodes that the recursion computes.
        recursive_outputs: the results that the recursion reads.
        stage: the stage of each node that it computes.
        seeds: backward, the cotangents that it reads, by the numbers of outputs.
        rows: backward, the gradients that are sums of rows. The sums are made later, of values and ids.
    """

    given: tuple[Node, ...]
    results: tuple[tuple[What, Node], ...]
    recursive_inputs: frozenset[Node]
    recursive_outputs: frozenset[Node]
    stage: Mapping[Node, str]
    seeds: Mapping[int, Node] = field(default_factory=dict)
    rows: tuple[RowGradient, ...] = ()

    def stage_of(self, node: Node) -> str:
        """Return the stage that yields a result; a given node is yielded in the first stage that has it."""
        if node in self.stage:
            return self.stage[node]
        if node in self.recursive_inputs:
            return STEP if node in self.recursive_outputs else AFTER
        return BEFORE

    @property
    def owned(self) -> set[Node]:
        """The nodes that it computes and stores."""
        return {node for node in self.stage if not is_view(node)}

    @property
    def left(self) -> set[Node]:
        """The nodes that it leaves for the sums of rows."""
        return {
            node for gradient in self.rows for node in (gradient.values, gradient.ids)
        } & self.stage.keys()


class Staged(NamedTuple):
    """A cell's graph, with its forward direction."""

    graph: CellGraph
    forward: Side


def trail(graph: CellGraph, ends: Ends, *, training: bool) -> Iterator[tuple[str, CellGraph]]:
    """Yield a cell's graph after each pass that is run on it, with the pass's name.

    Args:
        graph: as the blocks built it.
        ends: which ends are recursive: that decides what runs per level.
        training: whether the graph is for training, or for inference.
    """
    graph = transformed(graph, partial(in_phase, training=training))
    yield "in_phase", graph
    for name, transform in passes.PIPELINE:
        graph = transformed(graph, transform)
        yield name, graph
    staged = Staged(graph, forward_side(graph, ends))
    for name, staged_pass in passes.STAGED:
        if graph is not staged.graph:
            staged = Staged(graph, forward_side(graph, ends))
        before, graph = graph, transformed(graph, partial(staged_pass, stage_of=staged.forward.stage_of))
        yield name, graph
        if name != passes.STAGED[-1][0]:  # a simpler sum would have all its terms in one again
            for simplification, transform in passes.PIPELINE:
                if graph is not before:  # an unchanged graph is simplified already
                    graph = transformed(graph, transform)
                yield simplification, graph


def optimized(graph: CellGraph, ends: Ends, *, training: bool) -> Staged:
    """Return the cell's graph after all passes, with its stages."""
    *_, (_, last) = trail(graph, ends, training=training)
    return Staged(last, forward_side(last, ends))


def forward_side(graph: CellGraph, ends: Ends) -> Side:
    """Return the forward direction: values, losses, metrics."""
    results: list[tuple[What, Node]] = []
    for kind, nodes in (("value", graph.outputs), ("loss", graph.losses), ("metric", graph.metrics)):
        results += [((kind, i), node) for i, node in enumerate(nodes)]
    recursive_inputs = frozenset(graph.operands[i] for i in ends.recursive_operands)
    recursive_outputs = frozenset(graph.outputs[i] for i in ends.recursive_outputs)
    nodes = tuple(node for _, node in results)
    stage = split(nodes, recursive_inputs, recursive_outputs, graph.inputs)
    return Side(graph.inputs, tuple(results), recursive_inputs, recursive_outputs, stage)


def cotangents(graph: CellGraph, ends: Ends) -> tuple[dict[int, Node], list[tuple[What, Node]]]:
    """Return the cotangent inputs by output number, and the results of the backward graph."""
    seeds = {i: cotangent_node(graph.outputs[i], i) for i in sorted(ends.active_outputs)}
    losses = graph.losses if ends.losses else ()
    outputs = [graph.outputs[i] for i in seeds] + list(losses)
    gs = [*seeds.values(), *(constant(1, loss.dtype) for loss in losses)]
    weights = trainable(outputs) if ends.trained else []
    inputs = [("cotangent", i, graph.operands[i]) for i in sorted(ends.active_operands)]
    inputs += [("feed", i, graph.feeds[i]) for i in sorted(ends.active_feeds)]
    gradients = iter(vjp(outputs, gs, [x for _, _, x in inputs] + weights))
    results: list[tuple[What, Node]] = []
    for kind, i, x in inputs:
        g = next(gradients)
        if g is not None:
            results.append(((kind, i), g if g.axis is x.axis else apply("batch", g, axis=x.axis)))
    for weight in weights:
        g = next(gradients)
        if g is not None:
            results.append((("gradient", weight.attrs["parameter"]), g))
    return seeds, results


def backward_side(staged: Staged, ends: Ends, recomputed: Collection[Node] = frozenset()) -> Side:
    """Return the backward direction: cotangents of operands and feeds, gradients of parameters.

    Args:
        staged: the cell's graph, optimized, with the other direction.
        ends: which ends are recursive, and where gradients are wanted.
        recomputed: nodes that backward computes again, instead of reading what forward has stored.
    """
    graph, forward = staged
    seeds, results = cotangents(graph, ends)
    stored = sorted(forward.owned - set(recomputed), key=lambda node: node.number)
    given = tuple(dict.fromkeys((*graph.inputs, *stored, *seeds.values())))
    nodes = [node for _, node in results]
    if recomputed:
        nodes = substitute(nodes, {**{x: x for x in given}, **_again(recomputed, given)})
    nodes = list(passes.run(Graph(given, tuple(nodes))).outputs)
    results = [(key, node) for (key, _), node in zip(results, nodes, strict=True)]
    recursive_inputs = frozenset(seeds[i] for i in ends.recursive_outputs if i in seeds)
    recursive_outputs = frozenset(
        node for (kind, i), node in results if kind == "cotangent" and i in ends.recursive_operands
    )
    results, rows = _rows_apart(results, frozenset(graph.feeds))
    outputs = [node for _, node in results] + [
        x for gradient in rows for x in (gradient.values, gradient.ids)
    ]
    stage = split(outputs, recursive_inputs, recursive_outputs, given)
    stage = postpone(stage, set(outputs), set(given))
    return Side(given, tuple(results), recursive_inputs, recursive_outputs, stage, seeds, tuple(rows))


def _again(recomputed: Collection[Node], given: Collection[Node]) -> dict[Node, Node]:
    """Return copies of nodes, which compute the same values a second time (NNVM's mirror)."""
    new: dict[Node, Node] = {x: x for x in given}
    for node in sorted(recomputed, key=lambda node: node.number):
        new[node] = apply(node.op.name, *substitute(node.inputs, new), **node.attrs, again=True)
    return {node: new[node] for node in recomputed}


def _rows_apart(
    results: Iterable[tuple[What, Node]], feeds: Collection[Node]
) -> tuple[list[tuple[What, Node]], list[RowGradient]]:
    """Part the gradients that are sums of rows from the other results: they stay sparse."""
    others: list[tuple[What, Node]] = []
    rows: list[RowGradient] = []
    for key, node in results:
        terms: tuple[Node, ...] = (node,)
        if node.op.name == "add" and any(x.op.name == "sum_rows" for x in node.inputs):
            terms = node.inputs
        for term in terms:
            parameter = key[1]
            if isinstance(parameter, Parameter) and term.op.name == "sum_rows" and term.inputs[0].axis.rank:
                values, ids = (_lasting(x, feeds) for x in term.inputs)
                rows.append(RowGradient(parameter, term, values, ids))
            else:
                others.append((key, term))
    return others, rows


def _lasting(node: Node, feeds: Collection[Node]) -> Node:
    """Return a node whose value still exists when the batch has run: the node, or a copy of it."""
    if node in feeds or not (is_view(node) or node.op in SOURCES):
        return node
    return apply("add", node)


def kept_between(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the nodes that one routine computes and another reads, each with the routine that computes it.

    They include the values and ids of sums of rows.
    """
    owner = owners(sides)
    given = [x for side in sides for x in side.given if x.op in SOURCES]
    kept: dict[Node, Key] = {}
    for gradient in (gradient for side in sides for gradient in side.rows):
        kept |= {node: owner[node] for node in (gradient.values, gradient.ids) if node in owner}
    keys = [(i, stage) for i in range(len(sides)) for stage in STAGES]
    for key in reversed(keys):  # a kept node may read nodes of earlier routines, which are kept then
        results = results_of(sides, key)
        kept_here = [node for node, owned_by in kept.items() if owned_by == key]
        for node in outside([*results, *kept_here], key, owner, given):
            kept.setdefault(node, owner[node])
    return kept


def owners(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the routine that computes each node.

    A node that both directions hold belongs to forward. Backward may make such a node when it computes
    something again: a pass simplifies the copy, and what comes of it is a node of forward.
    """
    owner: dict[Node, Key] = {}
    for i, side in enumerate(sides):
        for node in side.owned:
            owner.setdefault(node, (i, side.stage[node]))
    return owner


def results_of(sides: Sequence[Side], key: Key) -> list[Node]:
    """Return the results of a routine."""
    side = sides[key[0]]
    return [node for _, node in side.results if side.stage_of(node) == key[1]]


def outside(
    outputs: Sequence[Node], key: Key, owner: Mapping[Node, Key], given: Collection[Node]
) -> list[Node]:
    """Return the nodes that a routine reads but another one computes."""
    stop = [node for node in owner if owner[node] != key]
    return [node for node in reachable(outputs, [*stop, *given]) if node in owner and owner[node] != key]
