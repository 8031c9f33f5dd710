"""A cell: a static function of tensors, cut in stages, without kernels. The scheduler groups its calls.

`stage_cell` starts from a `CellGraph`, the computation of one place of a program, and its `Ends`, which say
what is recursive and where gradients flow. It goes graph -> passes -> stages -> vjp -> kept values ->
`Stage`s. Engines make kernels of stages. Nothing here knows of examples, schedules or engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foldbatch.params.parameters import Parameter
from foldbatch.static.cellgraph import CellGraph, Ends, feed_bounds, index_source
from foldbatch.static.graph import Graph, Node, reachable
from foldbatch.static.op import Axis
from foldbatch.static.residuals import choose
from foldbatch.static.routines import Stage
from foldbatch.static.sides import Side, backward_side, kept_between, optimized, outside, owners
from foldbatch.static.stages import STAGES
from foldbatch.static.statements import Binding
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class Kept:
    """A buffer for the whole batch, written by one routine and read by others."""

    type: TensorType
    axis: Axis


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
    """The computation of a cell while training, or in inference.

    Attributes:
        graph: the forward graph.
        forward: the forward stages, by name.
        backward: the backward stages, by name; none in inference.
        kept: the buffers that pass values between stages.
    """

    graph: CellGraph
    forward: Mapping[str, Stage]
    backward: Mapping[str, Stage]
    kept: tuple[Kept, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """A cell, staged.

    Attributes:
        built: the graph before all passes.
        ends: which ends are recursive, and where gradients flow.
        training: its computation while training.
        inference: its computation in inference, from the same inputs.
        backward_graph: the graph of the gradients, sums of rows included.
        parameters: the parameters that it reads.
        sums: the gradients that are sums of rows.
        sparse: the parameters with no other gradient here than sums of rows: tables that are looked up.
    """

    built: CellGraph
    ends: Ends
    training: Phase
    inference: Phase
    backward_graph: Graph
    parameters: tuple[Parameter, ...]
    sums: tuple[RowSums, ...]
    sparse: frozenset[Parameter]

    @property
    def name(self) -> str:
        """What the cell is called in reports."""
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

    def phase(self, *, training: bool) -> Phase:
        """Return the computation while training, or in inference."""
        return self.training if training else self.inference


def stage_cell(built: CellGraph, ends: Ends, kept_bytes: int | None = None) -> Cell:
    """Return a cell staged in both directions.

    Args:
        built: what the blocks compute.
        ends: which ends are recursive, and where gradients flow.
        kept_bytes: bounds what a call keeps for other routines, as far as computing again can; None is no
            bound.
    """
    train = infer = optimized(built, ends, training=True)
    if any(node.op.name == "when_training" for node in reachable(built.results, built.inputs)):
        infer = optimized(built, ends, training=False)
        if train.graph.results == infer.graph.results:
            infer = train
    backward = backward_side(train, ends, choose(train, ends, kept_bytes))
    bounds = feed_bounds(train.graph)
    training, buffers = _phase(train.graph, [train.forward, backward], bounds)
    inference, _ = _phase(infer.graph, [infer.forward], bounds)
    given = {node: Binding("feed", i) for i, node in enumerate(train.graph.feeds)}
    given |= {node: Binding("kept", i) for node, i in buffers.items()}
    sums = tuple(
        RowSums(gradient.parameter, given[gradient.values], given[gradient.ids]) for gradient in backward.rows
    )
    dense = {key for (kind, key), _ in backward.results if kind == "gradient"}
    outputs = [node for _, node in backward.results] + [gradient.node for gradient in backward.rows]
    return Cell(
        built,
        ends,
        training,
        inference,
        Graph(tuple(dict.fromkeys(backward.given)), tuple(outputs)),
        Graph(built.inputs, (*train.graph.results, *infer.graph.results)).parameters,
        sums,
        frozenset(gradient.parameter for gradient in backward.rows) - dense,
    )


def _phase(
    graph: CellGraph, sides: Sequence[Side], bounds: Mapping[Node, int]
) -> tuple[Phase, dict[Node, int]]:
    """Return a phase, and the numbers of its kept buffers.

    Args:
        graph: the forward graph.
        sides: its direction, and while training the other one.
        bounds: by feed, the number that its ids are known to be below.
    """
    kept = {node: i for i, node in enumerate(kept_between(sides))}
    stages = _stages(graph, sides, kept, _checked(graph, bounds))
    backward = stages[1] if len(stages) > 1 else {}
    return Phase(graph, stages[0], backward, tuple(Kept(node.type, node.axis) for node in kept)), kept


def _checked(graph: CellGraph, bounds: Mapping[Node, int]) -> set[Node]:
    """Index operands that need no check in kernels: their feed is checked when it is traced.

    The bounds are those of the training graph; inference may look up other, smaller tables.
    """
    feeds = {feed for feed, size in feed_bounds(graph).items() if bounds.get(feed, size + 1) <= size}
    nodes = reachable(graph.results, graph.inputs)
    return {x for node in nodes for x in (node, *node.inputs) if index_source(x) in feeds}


def _stages(
    graph: CellGraph, sides: Sequence[Side], kept: Mapping[Node, int], checked: set[Node]
) -> list[dict[str, Stage]]:
    """Return the stages by direction and name."""
    given = {node: Binding("operand", i) for i, node in enumerate(graph.operands)}
    given |= {node: Binding("feed", i) for i, node in enumerate(graph.feeds)}
    given |= {node: Binding("cotangent", i) for side in sides for i, node in side.seeds.items()}
    owner = owners(sides)
    keys = [(i, name) for i in range(len(sides)) for name in STAGES]
    stages: list[dict[str, Stage]] = [{} for _ in sides]
    for turn, key in enumerate(keys):
        i, name = key
        results = [(target, node) for target, node in sides[i].results if sides[i].stage_of(node) == name]
        own = {node: kept[node] for node in kept if owner[node] == key}
        if not results and not own:
            continue
        others = outside([*(node for _, node in results), *own], key, owner, given)
        assert all(owner[node] in keys[:turn] for node in others), "a value is read before it is computed"
        read = {**given, **{node: Binding("kept", kept[node]) for node in others if node in kept}}
        computed = frozenset(node for node in owner if owner[node] == key and node not in kept)
        right = checked | {x for x in owner if i == 1 and x.dtype.startswith("int")}
        direction = ("forward" if len(sides) > 1 else "infer_forward") if i == 0 else "backward"
        stages[i][name] = Stage(
            f"{direction}_{name}", tuple(results), own, read, computed, frozenset(right), graph.axes
        )
    return stages
