"""The two directions of a cell: what forward and backward compute, in which stage, and what is kept between.

The backward graph is derived from the forward one after all passes, so whatever these merged is
merged in the gradients too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from foldbatch.static import passes
from foldbatch.static.autodiff import trainable, vjp
from foldbatch.static.cellgraph import CellGraph, Ends, transformed
from foldbatch.static.graph import SOURCES, Graph, Node, apply, constant, input_node, reachable, substitute
from foldbatch.static.passes.phase import in_phase
from foldbatch.static.stages import AFTER, BEFORE, STAGES, STEP, is_view, postpone, split

What = tuple[str, object]  # of a result: ("value", 0), ("cotangent", 1), ("gradient", parameter), ...
Key = tuple[int, str]  # of a kernel: the direction's number and the stage


@dataclass(slots=True)
class Side:
    """One direction: its results with what they are, and the stage of each node it computes."""

    given: tuple[Node, ...]
    results: list[tuple[What, Node]]
    recursive_inputs: set[Node]
    recursive_outputs: set[Node]
    stage: dict[Node, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        outputs = [node for _, node in self.results]
        self.stage = split(outputs, self.recursive_inputs, self.recursive_outputs, self.given)

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
    for name, staged in passes.STAGED:
        graph = transformed(graph, partial(staged, stage_of=forward_side(graph, ends).stage_of))
        yield name, graph
        if name != passes.STAGED[-1][0]:  # a simpler sum would have all its terms in one again
            for simplification, transform in passes.PIPELINE:
                graph = transformed(graph, transform)
                yield simplification, graph


def optimized(graph: CellGraph, ends: Ends, *, training: bool) -> CellGraph:
    """Return the cell's graph after all passes."""
    *_, (_, last) = trail(graph, ends, training=training)
    return last


def forward_side(graph: CellGraph, ends: Ends) -> Side:
    """Return what runs forward: values, losses, metrics."""
    results: list[tuple[What, Node]] = []
    for kind, nodes in (("value", graph.outputs), ("loss", graph.losses), ("metric", graph.metrics)):
        results += [((kind, i), node) for i, node in enumerate(nodes)]
    return Side(
        graph.inputs,
        results,
        {graph.operands[i] for i in ends.recursive_operands},
        {graph.outputs[i] for i in ends.recursive_outputs},
    )


def cotangents(graph: CellGraph, ends: Ends) -> tuple[dict[int, Node], list[tuple[What, Node]]]:
    """Return the cotangent inputs by output number, and what the backward graph computes."""
    seeds = {i: input_node(graph.outputs[i].type, name=f"g{i}") for i in sorted(ends.active_outputs)}
    outputs = [graph.outputs[i] for i in seeds] + list(graph.losses)
    gs = [*seeds.values(), *(constant(1, loss.dtype) for loss in graph.losses)]
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


def backward_side(
    graph: CellGraph, ends: Ends, forward: Side, recomputed: Collection[Node] = frozenset()
) -> Side:
    """Return what runs backward: cotangents of what is read, gradients of parameters.

    Args:
        graph: the cell's graph, optimized.
        ends: which ends are recursive, and where gradients are wanted.
        forward: the other direction.
        recomputed: nodes that it computes again, instead of reading what forward has stored.
    """
    seeds, results = cotangents(graph, ends)
    stored = sorted(forward.owned - set(recomputed), key=lambda node: node.number)
    given = tuple(dict.fromkeys((*graph.inputs, *stored, *seeds.values())))
    nodes = [node for _, node in results]
    if recomputed:
        nodes = substitute(nodes, {**{x: x for x in given}, **_again(recomputed, given)})
    nodes = list(passes.run(Graph(given, tuple(nodes))).outputs)
    results = [(what, node) for (what, _), node in zip(results, nodes, strict=True)]
    recursive = {node for (kind, i), node in results if kind == "cotangent" and i in ends.recursive_operands}
    side = Side(
        given,
        list(_sparse_apart(results)),
        {seeds[i] for i in ends.recursive_outputs if i in seeds},
        recursive,
    )
    side.stage = postpone(side.stage, {node for _, node in side.results}, set(given))
    return side


def _again(recomputed: Collection[Node], given: Collection[Node]) -> dict[Node, Node]:
    """Return nodes that compute the same once more, as nodes of their own (NNVM's mirror)."""
    new: dict[Node, Node] = {x: x for x in given}
    for node in sorted(recomputed, key=lambda node: node.number):
        new[node] = apply(node.op.name, *substitute(node.inputs, new), **node.attrs, again=True)
    return {node: new[node] for node in recomputed}


def _sparse_apart(
    results: Iterable[tuple[What, Node]],
) -> Iterable[tuple[What, Node]]:
    """Split a table's gradient that is a sum, so that each look-up's rows stay sparse."""
    for what, node in results:
        if node.op.name == "add" and any(x.op.name == "sum_rows" for x in node.inputs):
            yield from ((what, x) for x in node.inputs)
        else:
            yield what, node


def kept_between(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the nodes that one kernel computes and another reads, each with the kernel that computes it."""
    owner = owners(sides)
    given = [x for side in sides for x in side.given if x.op in SOURCES]
    kept: dict[Node, Key] = {}
    keys = [(i, stage) for i in range(len(sides)) for stage in STAGES]
    for key in reversed(keys):  # looking for what is kept may uncover more
        results = results_of(sides, key)
        mine = [node for node, owned_by in kept.items() if owned_by == key]
        for node in outside([*results, *mine], key, owner, given):
            kept.setdefault(node, owner[node])
    return kept


def owners(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the kernel that computes each node."""
    return {node: (i, side.stage[node]) for i, side in enumerate(sides) for node in side.owned}


def results_of(sides: Sequence[Side], key: Key) -> list[Node]:
    """Return the results of a kernel."""
    side = sides[key[0]]
    return [node for _, node in side.results if side.stage_of(node) == key[1]]


def outside(
    outputs: Sequence[Node], key: Key, owner: Mapping[Node, Key], given: Collection[Node]
) -> list[Node]:
    """Return the nodes that a kernel reads but another one computes."""
    stop = [node for node in owner if owner[node] != key]
    return [node for node in reachable(outputs, [*stop, *given]) if node in owner and owner[node] != key]
