"""The two directions of a cell: what forward and backward compute, in which stage, and what is kept between.

The backward graph is derived from the forward one after all passes, so whatever these merged is
merged in the gradients too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from foldbatch.params import Parameter
from foldbatch.static import passes
from foldbatch.static.autodiff import trainable, vjp
from foldbatch.static.cellgraph import CellGraph, Ends, transformed
from foldbatch.static.graph import SOURCES, Graph, Node, apply, constant, input_node, reachable, substitute
from foldbatch.static.passes.phase import in_phase
from foldbatch.static.stages import AFTER, BEFORE, STAGES, STEP, is_view, postpone, split

What = tuple[str, object]  # of a result: ("value", 0), ("cotangent", 1), ("gradient", parameter), ...
Key = tuple[int, str]  # of a routine: the direction's number and the stage


class RowGradient(NamedTuple):
    """A table's gradient that is a sum of rows: `node` is that of `values` to the rows that `ids` say."""

    parameter: Parameter
    node: Node
    values: Node
    ids: Node


@dataclass(frozen=True, slots=True)
class Side:
    """One direction: its results with what they are, and the stage of each node that it computes.

    Attributes:
        given: the nodes that it reads and does not compute.
        results: what it yields.
        recursive_inputs: those given that the recursion itself makes.
        recursive_outputs: those results that the recursion reads.
        stage: of each node that it computes.
        seeds: backward, the cotangents that it is given, by the numbers of outputs.
        rows: backward, the gradients that are sums of rows. They are not made here: values and ids are left.
    """

    given: tuple[Node, ...]
    results: tuple[tuple[What, Node], ...]
    recursive_inputs: frozenset[Node]
    recursive_outputs: frozenset[Node]
    stage: Mapping[Node, str]
    seeds: Mapping[int, Node] = field(default_factory=dict)
    rows: tuple[RowGradient, ...] = ()

    def stage_of(self, node: Node) -> str:
        """Return when a result is ready; one that is merely passed on, when it may be."""
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
        training: whether what is to be trained is wanted, or what infers.
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
                if graph is not before:  # else it is as simple as it gets
                    graph = transformed(graph, transform)
                yield simplification, graph


def optimized(graph: CellGraph, ends: Ends, *, training: bool) -> Staged:
    """Return the cell's graph after all passes, with its stages."""
    *_, (_, last) = trail(graph, ends, training=training)
    return Staged(last, forward_side(last, ends))


def forward_side(graph: CellGraph, ends: Ends) -> Side:
    """Return what runs forward: values, losses, metrics."""
    results: list[tuple[What, Node]] = []
    for kind, nodes in (("value", graph.outputs), ("loss", graph.losses), ("metric", graph.metrics)):
        results += [((kind, i), node) for i, node in enumerate(nodes)]
    recursive_inputs = frozenset(graph.operands[i] for i in ends.recursive_operands)
    recursive_outputs = frozenset(graph.outputs[i] for i in ends.recursive_outputs)
    nodes = tuple(node for _, node in results)
    stage = split(nodes, recursive_inputs, recursive_outputs, graph.inputs)
    return Side(graph.inputs, tuple(results), recursive_inputs, recursive_outputs, stage)


def cotangents(graph: CellGraph, ends: Ends) -> tuple[dict[int, Node], list[tuple[What, Node]]]:
    """Return the cotangent inputs by output number, and what the backward graph computes."""
    seeds = {i: input_node(graph.outputs[i].type, name=f"g{i}") for i in sorted(ends.active_outputs)}
    losses = graph.losses if ends.losses else ()
    outputs = [graph.outputs[i] for i in seeds] + list(losses)
    gs = [*seeds.values(), *(constant(1, loss.dtype) for loss in losses)]
    weights = trainable(outputs) if ends.trained else []
    inputs = [("cotangent", i, graph.operands[i]) for i in sorted(ends.active_operands)]
    inputs += [("feed", i, graph.feeds[i]) for i in sorted(ends.active_feeds)]
    found = iter(vjp(outputs, gs, [x for _, _, x in inputs] + weights))
    results: list[tuple[What, Node]] = []
    for kind, i, x in inputs:
        g = next(found)
        if g is not None:
            results.append(((kind, i), g if g.axis is x.axis else apply("batch", g, axis=x.axis)))
    for weight in weights:
        g = next(found)
        if g is not None:
            results.append((("gradient", weight.attrs["parameter"]), g))
    return seeds, results


def backward_side(staged: Staged, ends: Ends, recomputed: Collection[Node] = frozenset()) -> Side:
    """Return what runs backward: cotangents of what is read, gradients of parameters.

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
    results = [(what, node) for (what, _), node in zip(results, nodes, strict=True)]
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
    """Return nodes that compute the same once more, as nodes of their own (NNVM's mirror)."""
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
    for what, node in results:
        terms: tuple[Node, ...] = (node,)
        if node.op.name == "add" and any(x.op.name == "sum_rows" for x in node.inputs):
            terms = node.inputs
        for term in terms:
            parameter = what[1]
            if isinstance(parameter, Parameter) and term.op.name == "sum_rows" and term.inputs[0].axis.rank:
                values, ids = (_lasting(x, feeds) for x in term.inputs)
                rows.append(RowGradient(parameter, term, values, ids))
            else:
                others.append((what, term))
    return others, rows


def _lasting(node: Node, feeds: Collection[Node]) -> Node:
    """Return a node whose value is there when the batch has run: itself, or a copy of it."""
    if node in feeds or not (is_view(node) or node.op in SOURCES):
        return node
    return apply("add", node)


def kept_between(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the nodes that one routine computes and another reads, each with the routine that computes it.

    Those that are left for sums of rows are among them.
    """
    owner = owners(sides)
    given = [x for side in sides for x in side.given if x.op in SOURCES]
    kept: dict[Node, Key] = {}
    for gradient in (gradient for side in sides for gradient in side.rows):
        kept |= {node: owner[node] for node in (gradient.values, gradient.ids) if node in owner}
    keys = [(i, stage) for i in range(len(sides)) for stage in STAGES]
    for key in reversed(keys):  # looking for what is kept may uncover more
        results = results_of(sides, key)
        mine = [node for node, owned_by in kept.items() if owned_by == key]
        for node in outside([*results, *mine], key, owner, given):
            kept.setdefault(node, owner[node])
    return kept


def owners(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the routine that computes each node."""
    return {node: (i, side.stage[node]) for i, side in enumerate(sides) for node in side.owned}


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
