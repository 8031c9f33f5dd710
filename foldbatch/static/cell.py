"""A cell: a static function of tensors that the scheduler groups calls of, compiled both ways.

From a `CellGraph` (what the blocks of one place compute, and which of its ends are recursive)
`compile_cell` makes kernels: graph -> passes -> vjp -> stages -> kept values -> kernels. Nothing
here knows of examples or schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from foldbatch.params import Parameter
from foldbatch.static import passes
from foldbatch.static.autodiff import trainable, vjp
from foldbatch.static.backends import Backend
from foldbatch.static.codegen import Argument, emit
from foldbatch.static.graph import SOURCES, Graph, Node, apply, constant, input_node, reachable
from foldbatch.static.kernel import Kernel, load
from foldbatch.static.op import Axis
from foldbatch.static.passes.phase import in_phase
from foldbatch.static.stages import AFTER, BEFORE, STAGES, STEP, is_view, postpone, split
from foldbatch.types import TensorType


@dataclass(frozen=True, slots=True)
class CellGraph:
    """What one place of a program computes per call.

    `operands` are inputs that are results of other calls (CALL or ragged axis), `feeds` inputs
    read from the example, `outputs` the results others read; `losses` are scalars to be summed
    over the batch, `metrics` are collected.
    """

    name: str
    operands: tuple[Node, ...]
    feeds: tuple[Node, ...]
    outputs: tuple[Node, ...]
    losses: tuple[Node, ...] = ()
    metrics: tuple[Node, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """All inputs, operands first."""
        return self.operands + self.feeds

    @property
    def results(self) -> tuple[Node, ...]:
        """All that is computed."""
        return self.outputs + self.losses + self.metrics

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The ragged axes of its inputs, in order."""
        return tuple(dict.fromkeys(x.axis for x in self.inputs if x.axis.rank == 2))


@dataclass(frozen=True, slots=True)
class Ends:
    """Which operands and outputs (by number) are recursive, and which carry gradients."""

    recursive_operands: frozenset[int] = frozenset()
    recursive_outputs: frozenset[int] = frozenset()
    active_operands: frozenset[int] = frozenset()
    active_outputs: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Kept:
    """A buffer for the whole batch, written by one kernel and read by others."""

    type: TensorType
    axis: Axis


@dataclass(frozen=True, slots=True)
class Cell:
    """A compiled cell: by stage, kernels to train (forward, backward) and to infer.

    `graph` is what is trained, `inference_graph` what inference computes from the same inputs; they
    are one object where nothing differs. `sparse` are the parameters whose gradients here are sums
    of rows: tables that are looked up.
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


def feed_bounds(graph: CellGraph) -> dict[Node, int]:
    """Return, for the feeds used as indices, the number their values must stay below."""
    feeds = set(graph.feeds)
    bounds: dict[Node, int] = {}
    for node in reachable(graph.results, graph.inputs):
        if node.op.bound:
            at, size = node.op.bound(tuple(x.type for x in node.inputs), node.attrs)
            source = _index_source(node.inputs[at])
            if source in feeds:
                bounds[source] = min(size, bounds.get(source, size))
    return bounds


def _index_source(node: Node) -> Node:
    while node.op.name in ("cast", "reshape") and node.inputs[0].dtype.startswith("int"):
        node = node.inputs[0]
    return node


def simplified(graph: CellGraph) -> CellGraph:
    """Return the cell's graph after the passes."""
    return _transformed(graph, passes.run)


def _transformed(graph: CellGraph, transform: Callable[[Graph], Graph]) -> CellGraph:
    """Return the cell's graph with what `transform` makes of it; itself where that is nothing."""
    whole = Graph(graph.inputs, graph.results)
    results = iter(transform(whole).outputs)
    parts = [tuple(next(results) for _ in part) for part in (graph.outputs, graph.losses, graph.metrics)]
    new = CellGraph(graph.name, graph.operands, graph.feeds, *parts)
    return graph if new.results == whole.outputs else new


@dataclass(slots=True)
class _Side:
    """One direction: its results with what they are, and the stage of each node it computes."""

    given: tuple[Node, ...]
    results: list[tuple[tuple[str, object], Node]]
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
        return {node for node in self.stage if not is_view(node)}


def compile_cell(graph: CellGraph, ends: Ends, backend: Backend) -> Cell:
    """Compile a cell for a backend: forward and backward, staged."""
    trained, inferred = (_transformed(graph, partial(in_phase, training=phase)) for phase in (True, False))
    graph = simplified(trained)
    inference = graph if trained.results == inferred.results else simplified(inferred)
    forward = _forward_side(graph, ends)
    backward = _backward_side(graph, ends, forward)
    bounds = feed_bounds(graph)
    train, kept = _compile_sides(graph, [forward, backward], _checked(graph, bounds), backend, "")
    forward = _forward_side(inference, ends)
    checked = _checked(inference, bounds)
    infer, kept_inference = _compile_sides(inference, [forward], checked, backend, "infer_")
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
    )


def _forward_side(graph: CellGraph, ends: Ends) -> _Side:
    results: list[tuple[tuple[str, object], Node]] = []
    for kind, nodes in (("value", graph.outputs), ("loss", graph.losses), ("metric", graph.metrics)):
        results += [((kind, i), node) for i, node in enumerate(nodes)]
    return _Side(
        graph.inputs,
        results,
        {graph.operands[i] for i in ends.recursive_operands},
        {graph.outputs[i] for i in ends.recursive_outputs},
    )


def cotangents(graph: CellGraph, ends: Ends) -> tuple[dict[int, Node], list[tuple[tuple[str, object], Node]]]:
    """Return the cotangent inputs by output number, and what the backward graph computes."""
    seeds = {i: input_node(graph.outputs[i].type, name=f"g{i}") for i in sorted(ends.active_outputs)}
    outputs = [graph.outputs[i] for i in seeds] + list(graph.losses)
    gs = [*seeds.values(), *(constant(1, loss.dtype) for loss in graph.losses)]
    weights = trainable(outputs)
    operands = [graph.operands[i] for i in sorted(ends.active_operands)]
    found = iter(vjp(outputs, gs, operands + weights))
    results: list[tuple[tuple[str, object], Node]] = []
    for i in sorted(ends.active_operands):
        g = next(found)
        if g is not None:
            axis = graph.operands[i].axis
            results.append((("cotangent", i), g if g.axis is axis else apply("batch", g, axis=axis)))
    for weight in weights:
        g = next(found)
        if g is not None:
            results.append((("gradient", weight.attrs["parameter"]), g))
    return seeds, results


def _backward_side(graph: CellGraph, ends: Ends, forward: _Side) -> _Side:
    seeds, results = cotangents(graph, ends)
    given = (*graph.inputs, *sorted(forward.owned, key=lambda node: node.number), *seeds.values())
    nodes = passes.run(Graph(tuple(dict.fromkeys(given)), tuple(node for _, node in results))).outputs
    results = [(what, node) for (what, _), node in zip(results, nodes, strict=True)]
    recursive = {node for (kind, i), node in results if kind == "cotangent" and i in ends.recursive_operands}
    side = _Side(
        given,
        list(_sparse_apart(results)),
        {seeds[i] for i in ends.recursive_outputs if i in seeds},
        recursive,
    )
    side.stage = postpone(side.stage, {node for _, node in side.results}, set(given))
    return side


def _sparse_apart(
    results: Iterable[tuple[tuple[str, object], Node]],
) -> Iterable[tuple[tuple[str, object], Node]]:
    """Split a table's gradient that is a sum, so that each look-up's rows stay sparse."""
    for what, node in results:
        if node.op.name == "add" and any(x.op.name == "sum_rows" for x in node.inputs):
            yield from ((what, x) for x in node.inputs)
        else:
            yield what, node


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
    return {x for node in nodes for x in (node, *node.inputs) if _index_source(x) in feeds}


def _compile_sides(
    graph: CellGraph, sides: Sequence[_Side], checked: set[Node], backend: Backend, prefix: str
) -> tuple[list[dict[str, Kernel]], tuple[Kept, ...]]:
    """Compile the stages of both directions, or of one, with the buffers between them."""
    given = {node: Argument("operand", i) for i, node in enumerate(graph.operands)}
    given |= {node: Argument("feed", i) for i, node in enumerate(graph.feeds)}
    if len(sides) == 2:
        seeds = [node for node in sides[1].given if node not in given and node.op in SOURCES]
        given |= {node: Argument("cotangent", int(node.attrs["name"][1:])) for node in seeds}
    owner = {node: (i, side.stage[node]) for i, side in enumerate(sides) for node in side.owned}
    boundary: dict[tuple[int, str], tuple[list[Node], list[Node]]] = {}
    for i, side in enumerate(sides):
        for stage in STAGES:
            results = [node for _, node in side.results if side.stage_of(node) == stage]
            boundary[i, stage] = (results, [])
    # what a stage reads and another one computes is kept; looking for it may uncover more
    kept: dict[Node, Argument] = {}
    buffers: list[Kept] = []
    for key in reversed(list(boundary)):
        results, _ = boundary[key]
        mine = [node for node in kept if owner[node] == key]
        for node in _outside([*results, *mine], key, owner, given):
            if node not in kept:
                kept[node] = Argument("kept", len(buffers))
                buffers.append(Kept(node.type, node.axis))
    compiled: list[dict[str, Kernel]] = [{} for _ in sides]
    for (i, stage), (results, _) in boundary.items():
        mine = [node for node in kept if owner[node] == (i, stage)]
        if not results and not mine:
            continue
        outside = _outside([*results, *mine], (i, stage), owner, given)
        arguments = {**given, **{node: kept[node] for node in outside if node in kept}}
        inputs = [node for node in (*given, *outside) if node not in mine]
        name = f"{prefix}{'forward' if i == 0 else 'backward'}_{stage}"
        part = Graph(tuple(dict.fromkeys(_read(inputs, [*results, *mine]))), (*results, *mine))
        known = checked | {x for x in owner if i == 1 and x.dtype.startswith("int")}
        mine_of = [(what, node) for what, node in sides[i].results if sides[i].stage_of(node) == stage]
        stores = _stores(mine_of, {node for node in owner if owner[node] == (i, stage) and node not in kept})
        text = emit(name, part, results, arguments, {n: kept[n] for n in mine} | stores, known, backend)
        whats = tuple(("stored", what[1]) if node in stores else what for what, node in mine_of)
        compiled[i][stage] = load(f"{graph.name} {name}", text, whats, backend)
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


def _outside(
    outputs: Sequence[Node],
    key: tuple[int, str],
    owner: Mapping[Node, tuple[int, str]],
    given: Collection[Node],
) -> list[Node]:
    """Return the nodes that a stage reads but another one computes."""
    stop = [node for node in owner if owner[node] != key]
    return [node for node in reachable(outputs, [*stop, *given]) if node in owner and owner[node] != key]
