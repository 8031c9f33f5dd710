"""A cell: a static function of tensors that the scheduler groups calls of, compiled both ways.

From a `CellGraph` (what the blocks of one place compute, and which of its ends are recursive)
`compile_cell` makes kernels: graph -> passes -> vjp -> stages -> kept values -> kernels. Nothing
here knows of examples or schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from foldbatch.engines.numba.named_loops import KINDS
from foldbatch.params import Parameter
from foldbatch.static.backends import Backend
from foldbatch.static.backends.levels import Base
from foldbatch.static.cellgraph import CellGraph, Ends, feed_bounds, index_source
from foldbatch.static.codegen import Argument, Text, emit
from foldbatch.static.graph import SOURCES, Graph, Node, reachable
from foldbatch.static.hoisting import Derivative, Product, find_product
from foldbatch.static.kernel import Kernel, LevelsKernel, load, load_levels
from foldbatch.static.memory import Plan
from foldbatch.static.op import Axis
from foldbatch.static.residuals import choose
from foldbatch.static.sides import (
    Key,
    Side,
    What,
    backward_side,
    forward_side,
    kept_between,
    optimized,
    outside,
    owners,
)
from foldbatch.static.stages import AFTER, STAGES, STEP
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
class Hoisted:
    """A product that the runtime may make in place of kernels, and those without it; see `hoisting`.

    Attributes:
        operand: the number of what is multiplied.
        parameter: the weight.
        steps: all levels of each direction, by its number: 0 is forward, 1 backward.
        cotangent: the number of the kept buffer that has the product's cotangent; None without training.
        after: the backward kernel after the steps, without the weight's gradient; None if nothing is left.
        adds: whether the steps yield cotangents of the operand too, to which the product's are added.
    """

    operand: int
    parameter: Parameter
    steps: Mapping[int, LevelsKernel]
    cotangent: int | None = None
    after: Kernel | None = None
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A compiled cell: by stage, kernels to train (forward, backward) and to infer.

    `graph` is what is trained, `inference_graph` what inference computes from the same inputs; they
    are one object where nothing differs. `sparse` are the parameters whose gradients here are sums
    of rows: tables that are looked up. `built` is the graph before all passes, `parts` what each
    kernel was made from, by the name of its function. `hoisted` is the product that the runtime may make.
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
    hoisted: Hoisted | None = None
    hoisted_inference: Hoisted | None = None

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
    train, kept, hoisted = _compile_sides(
        graph, ends, [forward, backward], _checked(graph, bounds), backend, "", parts
    )
    forward = forward_side(inference, ends)
    checked = _checked(inference, bounds)
    infer, kept_inference, hoisted_inference = _compile_sides(
        inference, ends, [forward], checked, backend, "infer_", parts
    )
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
        hoisted,
        hoisted_inference,
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


@dataclass(frozen=True, slots=True)
class _Stage:
    """What one kernel is made from.

    Attributes:
        name: of its function.
        results: what it returns.
        kept: the nodes it computes that others read, and their buffers.
        given: how what it may read arrives.
        computed: the nodes it computes and does not keep.
        checked: integer nodes whose range is known to be right.
    """

    name: str
    results: list[tuple[What, Node]]
    kept: Mapping[Node, Argument]
    given: Mapping[Node, Argument]
    computed: Collection[Node]
    checked: Collection[Node]

    def emit(self, backend: Backend) -> tuple[Text, tuple[What, ...], Part]:
        """Return the kernel's text, what its results are, and what it was made from."""
        outputs = [node for _, node in self.results]
        stores = _stores(self.results, self.computed)
        inputs = [node for node in self.given if node not in self.kept]
        graph = Graph(tuple(_read(inputs, [*outputs, *self.kept])), (*outputs, *self.kept))
        buffers = {**self.kept, **stores}
        text = emit(self.name, graph, outputs, self.given, buffers, self.checked, backend)
        whats = tuple(("stored", what[1]) if node in stores else what for what, node in self.results)
        return text, whats, Part(graph, text.plan, buffers)

    def without(self, derivative: Derivative | None) -> _Stage:
        """Return the stage without what is made of a product's cotangent."""
        return self if derivative is None else replace(self, results=derivative.taken_from(self.results))


def _compile_sides(
    graph: CellGraph,
    ends: Ends,
    sides: Sequence[Side],
    checked: set[Node],
    backend: Backend,
    prefix: str,
    parts: dict[str, Part],
) -> tuple[list[dict[str, Kernel]], tuple[Kept, ...], Hoisted | None]:
    """Compile the stages of both directions, or of one, with the buffers between them."""
    kept = {node: Argument("kept", i) for i, node in enumerate(kept_between(sides))}
    buffers = tuple(Kept(node.type, node.axis) for node in kept)
    stages = _stages(graph, sides, kept, checked, prefix)
    compiled: list[dict[str, Kernel]] = [{} for _ in sides]
    for (side, name), stage in stages.items():
        text, whats, parts[stage.name] = stage.emit(backend)
        levels = load_levels(text, whats, backend) if name == STEP else None
        compiled[side][name] = load(f"{graph.name} {stage.name}", text, whats, backend, levels)
    product = find_product(graph, ends)
    hoisted = None if product is None else _hoisted(graph.name, product, sides, stages, kept, backend)
    return compiled, buffers, hoisted


def _stages(
    graph: CellGraph, sides: Sequence[Side], kept: Mapping[Node, Argument], checked: set[Node], prefix: str
) -> dict[Key, _Stage]:
    """Return what kernels are made from, by direction and stage."""
    given = {node: Argument("operand", i) for i, node in enumerate(graph.operands)}
    given |= {node: Argument("feed", i) for i, node in enumerate(graph.feeds)}
    if len(sides) == 2:
        seeds = [node for node in sides[1].given if node not in given and node.op in SOURCES]
        given |= {node: Argument("cotangent", int(node.attrs["name"][1:])) for node in seeds}
    owner = owners(sides)
    stages = {}
    for i, stage in ((i, stage) for i in range(len(sides)) for stage in STAGES):
        key = i, stage
        results = [(what, node) for what, node in sides[i].results if sides[i].stage_of(node) == stage]
        mine = {node: kept[node] for node in kept if owner[node] == key}
        if not results and not mine:
            continue
        others = outside([*(node for _, node in results), *mine], key, owner, given)
        arguments = {**given, **{node: kept[node] for node in others if node in kept}}
        computed = {node for node in owner if owner[node] == key and node not in kept}
        known = checked | {x for x in owner if i == 1 and x.dtype.startswith("int")}
        name = f"{prefix}{'forward' if i == 0 else 'backward'}_{stage}"
        stages[key] = _Stage(name, results, mine, arguments, computed, known)
    return stages


def _hoisted(
    name: str,
    product: Product,
    sides: Sequence[Side],
    stages: Mapping[Key, _Stage],
    kept: Mapping[Node, Argument],
    backend: Backend,
) -> Hoisted | None:
    """Compile the steps without a product; None where that cannot be."""
    trains = len(sides) > 1 and bool(sides[1].results)
    derivative = product.derivative(sides[1].results) if trains else None
    unknown = trains and (derivative is None or derivative.cotangent not in kept)
    if unknown or product.node in kept or not _multiplies_rows(product, backend):
        return None
    given = {product.node: Argument("product", product.operand)}
    base = Base("products", product.operand, product.node.shape, product.node.dtype)
    steps = {}
    for side in [side for side, stage in stages if stage == STEP]:
        stage = stages[side, STEP]
        text, whats, _ = replace(stage, given={**stage.given, **given}).without(derivative).emit(backend)
        levels = load_levels(text, whats, backend, (base,) if side else ())
        if levels is None:
            return None
        steps[side] = levels
    if derivative is None:
        return Hoisted(product.operand, product.parameter, steps)
    rest, after = stages[1, AFTER].without(derivative), None
    if rest.results:
        text, whats, _ = rest.emit(backend)
        after = load(f"{name} {rest.name}", text, whats, backend)
    number, adds = kept[derivative.cotangent].key, derivative.rest is not None
    return Hoisted(product.operand, product.parameter, steps, number, after, adds)


def _multiplies_rows(product: Product, backend: Backend) -> bool:
    return bool(backend.called_by(f"product_rows_{KINDS[product.node.dtype]}("))


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
