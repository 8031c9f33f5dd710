"""A cell: a static function of tensors, cut in stages, without kernels. The scheduler groups its calls.

`stage_cell` starts from a `CellGraph`, the computation of one place of a program, and its `Ends`, which say
what is recursive and where gradients flow. It goes graph -> passes -> stages -> vjp -> kept values ->
`Stage`s. The backward graph is derived from the forward graph after all passes, so nodes that the passes
merged are merged in the gradients too. Engines make kernels of stages. Nothing here knows of examples,
schedules or engines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from foldbatch.params.parameters import Parameter
from foldbatch.static import passes
from foldbatch.static.autodiff import trainable, vjp
from foldbatch.static.cellgraph import AFTER, BEFORE, STAGES, STEP, CellGraph, Ends, index_source
from foldbatch.static.graph import SOURCES, Graph, Node, apply, constant, cotangent_node, is_view, reachable
from foldbatch.static.op import UNBATCHED
from foldbatch.static.passes.simplify import in_phase
from foldbatch.static.routines import Stage
from foldbatch.static.statements import Binding

ResultKey = tuple[str, object]  # of a result: ("value", 0), ("cotangent", 1), ("gradient", parameter), ...
Key = tuple[int, str]  # of a routine: the direction's number and the stage


@dataclass(frozen=True, slots=True)
class RowSums:
    """A table's gradient that is a sum of rows: where to find values and ids after a batch has run.

    Both are bound to kept buffers or feeds. Shapes: ``values: [N, ..., *]``, ``ids: [N, ...]``.
    """

    parameter: Parameter
    values: Binding
    ids: Binding


@dataclass(frozen=True, slots=True)
class Phase:
    """The computation of a cell while training, or in inference."""

    graph: CellGraph  # the forward graph
    forward: Mapping[str, Stage]  # the forward stages, by name
    backward: Mapping[str, Stage]  # the backward stages, by name; none in inference
    kept: tuple[Node, ...]  # the nodes with a buffer for the whole batch, as other stages read them


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A cell, staged."""

    built: CellGraph  # the graph before all passes
    ends: Ends  # which ends are recursive, and where gradients flow
    training: Phase  # its computation while training
    inference: Phase  # its computation in inference, from the same inputs
    backward_graph: Graph  # the graph of the gradients, sums of rows included
    parameters: tuple[Parameter, ...]  # the parameters that it reads
    sums: tuple[RowSums, ...]  # the gradients that are sums of rows
    # the parameters with no other gradient here than sums of rows: tables that are looked up
    sparse: frozenset[Parameter]

    @property
    def name(self) -> str:
        return self.built.name

    @property
    def graph(self) -> CellGraph:
        """The forward graph while training."""
        return self.training.graph

    @property
    def differentiated(self) -> frozenset[int]:
        """The operands whose cotangents the backward routines yield."""
        results = (target for stage in self.training.backward.values() for target, _ in stage.results)
        return frozenset(key for kind, key in results if kind == "cotangent" and isinstance(key, int))

    def named(self, name: str) -> Cell:
        """Return the cell under a name: it has the same stages, for which engines have kernels."""
        return self if name == self.name else replace(self, built=self.built.named(name))

    def phase(self, *, training: bool) -> Phase:
        """Return the computation while training, or in inference."""
        return self.training if training else self.inference


class RowGradient(NamedTuple):
    """A table's gradient that is a sum of rows: `node` adds each row of `values` to row `ids`."""

    parameter: Parameter
    node: Node
    values: Node
    ids: Node


@dataclass(frozen=True, slots=True)
class Side:
    """One direction of a cell: its results, and the stage of each node that it computes."""

    inputs: tuple[Node, ...]  # the nodes that it reads and does not compute
    results: tuple[tuple[ResultKey, Node], ...]  # its results, each with its kind and number
    recursive_inputs: frozenset[Node]  # the inputs that the recursion computes
    recursive_outputs: frozenset[Node]  # the results that the recursion reads
    stage: Mapping[Node, str]  # the stage of each node that it computes
    # backward, the cotangents that it reads, by the numbers of outputs
    seeds: Mapping[int, Node] = field(default_factory=dict)
    # backward, the gradients that are sums of rows. The sums are made later, of values and ids.
    rows: tuple[RowGradient, ...] = ()

    def stage_of(self, node: Node) -> str:
        """Return the stage that yields a result; an input is yielded in the first stage that has it."""
        if node in self.stage:
            return self.stage[node]
        if node in self.recursive_inputs:
            return STEP if node in self.recursive_outputs else AFTER
        return BEFORE

    @property
    def owned(self) -> set[Node]:
        """The nodes that it computes and stores."""
        return {node for node in self.stage if not is_view(node)}


class Staged(NamedTuple):
    """A cell's graph, with its forward direction."""

    graph: CellGraph
    forward: Side


def stage_cell(built: CellGraph, ends: Ends) -> Cell:
    """Return the cell of a graph, staged: passes, stages and gradients, for training and for inference."""
    train = infer = optimized(built, ends, training=True)
    if any(node.op.name == "when_training" for node in built.nodes):
        infer = optimized(built, ends, training=False)
        if train.graph.results == infer.graph.results:
            infer = train
    backward = backward_side(train, ends)
    bounds = train.graph.bounds
    training, buffers = _phase(train.graph, [train.forward, backward], bounds)
    inference, _ = _phase(infer.graph, [infer.forward], bounds)
    bindings = {node: Binding("feed", i) for i, node in enumerate(train.graph.feeds)}
    bindings |= {node: Binding("kept", i) for node, i in buffers.items()}
    sums = tuple(
        RowSums(gradient.parameter, bindings[gradient.values], bindings[gradient.ids])
        for gradient in backward.rows
    )
    dense = {key for (kind, key), _ in backward.results if kind == "gradient"}
    outputs = [node for _, node in backward.results] + [gradient.node for gradient in backward.rows]
    return Cell(
        built,
        ends,
        training,
        inference,
        Graph(tuple(dict.fromkeys(backward.inputs)), tuple(outputs)),
        Graph(built.inputs, (*train.graph.results, *infer.graph.results)).parameters,
        sums,
        frozenset(gradient.parameter for gradient in backward.rows) - dense,
    )


def optimized(graph: CellGraph, ends: Ends, *, training: bool) -> Staged:
    """Return the cell's graph after all passes, with its stages."""
    *_, (_, last) = trail(graph, ends, training=training)
    return Staged(last, forward_side(last, ends))


def trail(graph: CellGraph, ends: Ends, *, training: bool) -> Iterator[tuple[str, CellGraph]]:
    """Yield a cell's graph after each pass that is run on it, with the pass's name.

    Ends that are recursive decide what runs per level.
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


def transformed(graph: CellGraph, transform: Callable[[Graph], Graph]) -> CellGraph:
    """Return the cell's graph after `transform`; the very same graph where nothing changed."""
    results = iter(transform(graph.joined).outputs)
    parts = [tuple(next(results) for _ in part) for part in (graph.outputs, graph.losses, graph.metrics)]
    new = CellGraph(graph.name, graph.operands, graph.feeds, *parts)
    return graph if new.results == graph.joined.outputs else new


def forward_side(graph: CellGraph, ends: Ends) -> Side:
    """Return the forward direction of a cell's graph: its results, and the stage of each node."""
    results: list[tuple[ResultKey, Node]] = []
    for kind, nodes in (("value", graph.outputs), ("loss", graph.losses), ("metric", graph.metrics)):
        results += [((kind, i), node) for i, node in enumerate(nodes)]
    recursive_inputs = frozenset(graph.operands[i] for i in ends.recursive_operands)
    recursive_outputs = frozenset(graph.outputs[i] for i in ends.recursive_outputs)
    nodes = tuple(node for _, node in results)
    stage = split(nodes, recursive_inputs, recursive_outputs, graph.inputs)
    return Side(graph.inputs, tuple(results), recursive_inputs, recursive_outputs, stage)


def split(
    outputs: Iterable[Node],
    recursive_inputs: Collection[Node],
    recursive_outputs: Collection[Node],
    inputs: Collection[Node],
) -> dict[Node, str]:
    """Return the stage of every node behind `outputs` that must be computed.

    `inputs` are the nodes whose values come from outside; sources have no stage either.
    """
    given_nodes = set(inputs)
    nodes = [n for n in reachable(outputs, inputs) if n.op not in SOURCES and n not in given_nodes]
    late = set(recursive_inputs)
    for node in nodes:
        if any(x in late for x in node.inputs):
            late.add(node)
    wanted = set(recursive_outputs)
    for node in reversed(nodes):
        if node in wanted:
            wanted.update(node.inputs)
    return {n: BEFORE if n not in late else STEP if n in wanted else AFTER for n in nodes}


def backward_side(staged: Staged, ends: Ends) -> Side:
    """Return the backward direction of an optimized cell: cotangents of operands and feeds, gradients."""
    graph, forward = staged
    seeds, results = cotangents(graph, ends)
    stored = sorted(forward.owned, key=lambda node: node.number)
    inputs = tuple(dict.fromkeys((*graph.inputs, *stored, *seeds.values())))
    nodes = [node for _, node in results]
    nodes = list(passes.run(Graph(inputs, tuple(nodes))).outputs)
    results = [(key, node) for (key, _), node in zip(results, nodes, strict=True)]
    recursive_inputs = frozenset(seeds[i] for i in ends.recursive_outputs if i in seeds)
    recursive_outputs = frozenset(
        node for (kind, i), node in results if kind == "cotangent" and i in ends.recursive_operands
    )
    results, rows = _rows_apart(results, frozenset(graph.feeds))
    outputs = [node for _, node in results] + [
        x for gradient in rows for x in (gradient.values, gradient.ids)
    ]
    stage = split(outputs, recursive_inputs, recursive_outputs, inputs)
    stage = postpone(stage, set(outputs), set(inputs))
    return Side(inputs, tuple(results), recursive_inputs, recursive_outputs, stage, seeds, tuple(rows))


def cotangents(graph: CellGraph, ends: Ends) -> tuple[dict[int, Node], list[tuple[ResultKey, Node]]]:
    """Return the cotangent inputs by output number, and the results of the backward graph."""
    seeds = {i: cotangent_node(graph.outputs[i], i) for i in sorted(ends.active_outputs)}
    losses = graph.losses if ends.losses else ()
    outputs = [graph.outputs[i] for i in seeds] + list(losses)
    gs = [*seeds.values(), *(constant(1, loss.dtype) for loss in losses)]
    weights = trainable(outputs) if ends.trained else []
    inputs = [("cotangent", i, graph.operands[i]) for i in sorted(ends.active_operands)]
    inputs += [("feed", i, graph.feeds[i]) for i in sorted(ends.active_feeds)]
    gradients = iter(vjp(outputs, gs, [x for _, _, x in inputs] + weights))
    results: list[tuple[ResultKey, Node]] = []
    for kind, i, x in inputs:
        g = next(gradients)
        if g is not None:
            results.append(((kind, i), g if g.axis is x.axis else apply("batch", g, axis=x.axis)))
    for weight in weights:
        g = next(gradients)
        if g is not None:
            results.append((("gradient", weight.attrs["parameter"]), g))
    return seeds, results


def _rows_apart(
    results: Iterable[tuple[ResultKey, Node]], feeds: Collection[Node]
) -> tuple[list[tuple[ResultKey, Node]], list[RowGradient]]:
    """Divide results: dense ones, and gradients that are sums of rows, which stay sparse."""
    dense: list[tuple[ResultKey, Node]] = []
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
                dense.append((key, term))
    return dense, rows


def _lasting(node: Node, feeds: Collection[Node]) -> Node:
    """Return a node whose value still exists when the batch has run: the node, or a copy of it."""
    if node in feeds or not (is_view(node) or node.op in SOURCES):
        return node
    return apply("add", node)


def postpone(
    stages: Mapping[Node, str], outputs: Collection[Node], inputs: Collection[Node]
) -> dict[Node, str]:
    """Return the stages of a backward graph with the derivatives of gates moved to where they are read.

    A node that only the step reads, and that elementwise ops make from given nodes (1 - h h from h), could
    run before, for all calls at once. But that would write as much memory as the gates take, and read
    it back level by level. A node with one value for the whole batch stays: it is computed once.
    """
    stages = dict(stages)
    cheap: set[Node] = set()
    readers: dict[Node, list[Node]] = {node: [] for node in stages}
    for node, stage in stages.items():
        for x in node.inputs:
            if x in readers:
                readers[x].append(node)
        simple = node.axis is not UNBATCHED and (node.op.elementwise or is_view(node))
        if (
            stage == BEFORE
            and simple
            and all(x in inputs or x in cheap or x.op in SOURCES for x in node.inputs)
        ):
            cheap.add(node)
    for node in reversed(list(stages)):
        only_step = bool(readers[node]) and all(stages[reader] == STEP for reader in readers[node])
        if node in cheap and node not in outputs and only_step:
            stages[node] = STEP
    return stages


def _phase(
    graph: CellGraph, sides: Sequence[Side], bounds: Mapping[Node, int]
) -> tuple[Phase, dict[Node, int]]:
    """Return a phase, and the numbers of its kept buffers.

    Its sides are the forward direction, and while training the other one. `bounds` has, by feed, the number
    that its ids are known to be below.
    """
    kept = {node: i for i, node in enumerate(kept_between(sides))}
    stages = _stages(graph, sides, kept, _checked(graph, bounds))
    backward = stages[1] if len(stages) > 1 else {}
    return Phase(graph, stages[0], backward, tuple(kept)), kept


def _checked(graph: CellGraph, bounds: Mapping[Node, int]) -> set[Node]:
    """Index operands that need no check in kernels: their feed is checked when it is traced.

    The bounds are those of the training graph; inference may look up other, smaller tables.
    """
    feeds = {feed for feed, size in graph.bounds.items() if bounds.get(feed, size + 1) <= size}
    return {x for node in graph.nodes for x in (node, *node.inputs) if index_source(x) in feeds}


def kept_between(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the nodes that one routine computes and another reads, each with the routine that computes it.

    They include the values and ids of sums of rows.
    """
    owner = owners(sides)
    sources = [x for side in sides for x in side.inputs if x.op in SOURCES]
    kept: dict[Node, Key] = {}
    for gradient in (gradient for side in sides for gradient in side.rows):
        kept |= {node: owner[node] for node in (gradient.values, gradient.ids) if node in owner}
    keys = [(i, stage) for i in range(len(sides)) for stage in STAGES]
    for key in reversed(keys):  # a kept node may read nodes of earlier routines, which are kept then
        side = sides[key[0]]
        results = [node for _, node in side.results if side.stage_of(node) == key[1]]
        kept_here = [node for node, owned_by in kept.items() if owned_by == key]
        for node in outside([*results, *kept_here], key, owner, sources):
            kept.setdefault(node, owner[node])
    return kept


def owners(sides: Sequence[Side]) -> dict[Node, Key]:
    """Return the routine that computes each node; one that both directions hold belongs to forward."""
    owner: dict[Node, Key] = {}
    for i, side in enumerate(sides):
        for node in side.owned:
            owner.setdefault(node, (i, side.stage[node]))
    return owner


def outside(
    outputs: Sequence[Node], key: Key, owner: Mapping[Node, Key], sources: Collection[Node]
) -> list[Node]:
    """Return the nodes that a routine reads but another one computes."""
    if not outputs:
        return []
    stop = [node for node, by in owner.items() if by != key]
    return [node for node in reachable(outputs, [*stop, *sources]) if node in owner and owner[node] != key]


def _stages(
    graph: CellGraph, sides: Sequence[Side], kept: Mapping[Node, int], checked: set[Node]
) -> list[dict[str, Stage]]:
    """Return, for each direction, its stages by name: what each reads, computes, keeps and yields."""
    bindings = {node: Binding("operand", i) for i, node in enumerate(graph.operands)}
    bindings |= {node: Binding("feed", i) for i, node in enumerate(graph.feeds)}
    bindings |= {node: Binding("cotangent", i) for side in sides for i, node in side.seeds.items()}
    owner = owners(sides)
    keys = [(i, name) for i in range(len(sides)) for name in STAGES]
    stages: list[dict[str, Stage]] = [{} for _ in sides]
    for turn, key in enumerate(keys):
        i, name = key
        results = [(target, node) for target, node in sides[i].results if sides[i].stage_of(node) == name]
        kept_here = {node: kept[node] for node in kept if owner[node] == key}
        if not results and not kept_here:
            continue
        from_outside = outside([*(node for _, node in results), *kept_here], key, owner, bindings)
        assert all(owner[node] in keys[:turn] for node in from_outside), (
            "a value is read before it is computed"
        )
        read = {**bindings, **{node: Binding("kept", kept[node]) for node in from_outside if node in kept}}
        computed = frozenset(node for node in owner if owner[node] == key and node not in kept)
        right = checked | {x for x in owner if i == 1 and x.dtype.startswith("int")}
        direction = ("forward" if len(sides) > 1 else "infer_forward") if i == 0 else "backward"
        stages[i][name] = Stage(
            f"{direction}_{name}", tuple(results), kept_here, read, computed, frozenset(right), graph.axes
        )
    return stages
