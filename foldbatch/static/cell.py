"""A cell: a static function of tensors that the scheduler groups calls of, compiled both ways.

From a `CellGraph` (what the blocks of one place compute, and which of its ends are recursive)
`compile_cell` makes kernels: graph -> passes -> vjp -> stages -> kept values -> kernels. Nothing
here knows of examples or schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from foldbatch.params import Parameter
from foldbatch.static.backends import Backend
from foldbatch.static.cellgraph import CellGraph, Ends, feed_bounds, index_source
from foldbatch.static.codegen import Argument, emit
from foldbatch.static.graph import SOURCES, Graph, Node, reachable
from foldbatch.static.kernel import Kernel, load
from foldbatch.static.memory import Plan
from foldbatch.static.op import Axis
from foldbatch.static.residuals import choose
from foldbatch.static.sides import (
    Side,
    backward_side,
    forward_side,
    kept_between,
    optimized,
    outside,
    owners,
    results_of,
)
from foldbatch.static.stages import STAGES
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class Kept:
    """A buffer for the whole batch, written by one kernel and read by others."""

    type: TensorType
    axis: Axis


@dataclass(frozen=True, slots=True)
class Part:
    """What one kernel was made from: its graph, the plan, the nodes in buffers of other owners."""

    graph: Graph
    plan: Plan
    buffers: Mapping[Node, Argument]


@dataclass(frozen=True, slots=True)
class Cell:
    """A compiled cell: by stage, kernels to train (forward, backward) and to infer.

    `graph` is what is trained, `inference_graph` what inference computes from the same inputs; they
    are one object where nothing differs. `sparse` are the parameters whose gradients here are sums
    of rows: tables that are looked up. `built` is the graph before all passes, `parts` what each
    kernel was made from, by the name of its function.
    """

    graph: CellGraph
    inference_graph: CellGraph
    ends: Ends
    backward_graph: Graph
    forward: Mapping[str, Kernel]
    backward: Mapping[str, Kernel]
    inference: Mapping[str, Kernel]
    kept: tuple[Kept, ...]
    kept_inference: tuple[Kept, ...]
    parameters: tuple[Parameter, ...]
    sparse: frozenset[Parameter]
    built: CellGraph
    parts: Mapping[str, Part]

    @property
    def name(self) -> str:
        """What the cell is called in reports."""
        return self.graph.name

    @property
    def differentiated(self) -> frozenset[int]:
        """The operands whose cotangents the backward kernels yield."""
        results = (result for kernel in self.backward.values() for result in kernel.results)
        return frozenset(key for kind, key in results if kind in ("cotangent", "stored"))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels."""
        return (*self.forward.values(), *self.backward.values(), *self.inference.values())


def compile_cell(graph: CellGraph, ends: Ends, backend: Backend, kept_bytes: int | None = None) -> Cell:
    """Compile a cell for a backend: forward and backward, staged.

    `kept_bytes` bounds what a call keeps for other kernels, as far as computing again can.
    """
    built, parts = graph, dict[str, Part]()
    graph, inference = (optimized(built, ends, training=phase) for phase in (True, False))
    if graph.results == inference.results:
        inference = graph
    forward = forward_side(graph, ends)
    recomputed = choose(graph, ends, kept_bytes)
    backward = backward_side(graph, ends, forward, recomputed)
    bounds = feed_bounds(graph)
    train, kept = _compile_sides(graph, [forward, backward], _checked(graph, bounds), backend, "", parts)
    forward = forward_side(inference, ends)
    checked = _checked(inference, bounds)
    infer, kept_inference = _compile_sides(inference, [forward], checked, backend, "infer_", parts)
    given = tuple(dict.fromkeys(backward.given))
    return Cell(
        graph,
        inference,
        ends,
        Graph(given, tuple(node for _, node in backward.results)),
        train[0],
        train[1],
        infer[0],
        kept,
        kept_inference,
        Graph(graph.inputs, (*graph.results, *inference.results)).parameters,
        _sparse(backward.results),
        built,
        parts,
    )


def _sparse(results: Iterable[tuple[tuple[str, object], Node]]) -> frozenset[Parameter]:
    """Return the parameters all of whose gradients are sums of rows."""
    found = {True: set[Parameter](), False: set[Parameter]()}
    for (_, key), node in results:
        if isinstance(key, Parameter):
            found[node.op.name == "sum_rows"].add(key)
    return frozenset(found[True] - found[False])


def _checked(graph: CellGraph, bounds: Mapping[Node, int]) -> set[Node]:
    """Index operands that need no check in kernels: their feed is checked when it is traced.

    The bounds are those of the training graph; inference may look up other, smaller tables.
    """
    feeds = {feed for feed, size in feed_bounds(graph).items() if bounds.get(feed, size + 1) <= size}
    nodes = reachable(graph.results, graph.inputs)
    return {x for node in nodes for x in (node, *node.inputs) if index_source(x) in feeds}


def _compile_sides(
    graph: CellGraph,
    sides: Sequence[Side],
    checked: set[Node],
    backend: Backend,
    prefix: str,
    parts: dict[str, Part],
) -> tuple[list[dict[str, Kernel]], tuple[Kept, ...]]:
    """Compile the stages of both directions, or of one, with the buffers between them."""
    given = {node: Argument("operand", i) for i, node in enumerate(graph.operands)}
    given |= {node: Argument("feed", i) for i, node in enumerate(graph.feeds)}
    if len(sides) == 2:
        seeds = [node for node in sides[1].given if node not in given and node.op in SOURCES]
        given |= {node: Argument("cotangent", int(node.attrs["name"][1:])) for node in seeds}
    owner = owners(sides)
    kept: dict[Node, Argument] = {}
    buffers: list[Kept] = []
    for node in kept_between(sides):
        kept[node] = Argument("kept", len(buffers))
        buffers.append(Kept(node.type, node.axis))
    compiled: list[dict[str, Kernel]] = [{} for _ in sides]
    for i, stage in ((i, stage) for i in range(len(sides)) for stage in STAGES):
        results = results_of(sides, (i, stage))
        mine = [node for node in kept if owner[node] == (i, stage)]
        if not results and not mine:
            continue
        others = outside([*results, *mine], (i, stage), owner, given)
        arguments = {**given, **{node: kept[node] for node in others if node in kept}}
        inputs = [node for node in (*given, *others) if node not in mine]
        name = f"{prefix}{'forward' if i == 0 else 'backward'}_{stage}"
        part = Graph(tuple(dict.fromkeys(_read(inputs, [*results, *mine]))), (*results, *mine))
        known = checked | {x for x in owner if i == 1 and x.dtype.startswith("int")}
        mine_of = [(what, node) for what, node in sides[i].results if sides[i].stage_of(node) == stage]
        stores = _stores(mine_of, {node for node in owner if owner[node] == (i, stage) and node not in kept})
        text = emit(name, part, results, arguments, {n: kept[n] for n in mine} | stores, known, backend)
        whats = tuple(("stored", what[1]) if node in stores else what for what, node in mine_of)
        parts[name] = Part(part, text.plan, {n: kept[n] for n in mine} | stores)
        compiled[i][stage] = load(f"{graph.name} {name}", text, whats, backend, levels=stage == "step")
    return compiled, tuple(buffers)


def _stores(
    results: Sequence[tuple[tuple[str, object], Node]], computed: Collection[Node]
) -> dict[Node, Argument]:
    """Find the cotangents that a kernel can write where they belong, instead of returning them."""
    count = Counter(node for _, node in results)
    return {
        node: Argument("store", key)
        for (kind, key), node in results
        if kind == "cotangent" and node in computed and count[node] == 1
    }


def _read(inputs: Sequence[Node], outputs: Sequence[Node]) -> list[Node]:
    """Return those inputs that the outputs really depend on."""
    needed = set(reachable(outputs, inputs))
    return [node for node in inputs if node in needed]
