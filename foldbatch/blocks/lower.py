"""Lowering: from a block to compiled cells, the scheduler's view of them, and a tracer.

``block --build--> drafts, tracing program --wires--> components, arenas --compile--> cells``
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from foldbatch.blocks.active import Arenas, active_ends
from foldbatch.blocks.block import AnyBlock, build
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import Draft, Function
from foldbatch.blocks.flow import make_return
from foldbatch.blocks.tracer import FILENAME, Tracer, write_source
from foldbatch.blocks.values import Slot, new_wires, run_time_terminals, type_of
from foldbatch.blocks.wires import Wire, components, connected
from foldbatch.errors import BlockTypeError, BlockValueError
from foldbatch.params import Parameter
from foldbatch.scheduler.policies import Policy, longest_chains
from foldbatch.scheduler.trace import CellSignature, Operand, Trace, form, is_integer
from foldbatch.static.autodiff import trainable
from foldbatch.static.backends import Backend
from foldbatch.static.cell import Cell, compile_cell
from foldbatch.static.cellgraph import CellGraph, Ends, feed_bounds
from foldbatch.static.graph import INPUT, SOURCES, Graph, Node, apply, input_node, reachable, substitute
from foldbatch.static.packing import pack
from foldbatch.static.stages import is_view
from foldbatch.types import OBJECT, VOID, TensorType, Type, has_objects

ATOMS = (str, bytes, int, float, np.generic, type(None))


@dataclass(frozen=True, slots=True)
class Lowered:
    """A compiled block.

    Attributes:
        block: the block itself.
        result: the type of its result.
        cells: compiled, by number.
        signatures: what the scheduler knows of them.
        arenas: the type of each arena.
        tracer: turns an example into a trace.
        metrics: per cell, the names of its metrics; `labels`: which of them have labels.
        marks: per cell, for metrics whose visit comes before other calls, the metric's number and that of the
            feed that holds the visit's place among calls (see `foldbatch.blocks.drafts.MetricVisit`).
        keys: per cell, which feeds hold the number of the call itself, to key random numbers by.
        parameters: all parameters that cells read, in the order in which blocks do.
    """

    block: AnyBlock
    result: Type
    cells: tuple[Cell, ...]
    signatures: tuple[CellSignature, ...]
    arenas: tuple[TensorType, ...]
    tracer: Tracer
    metrics: tuple[tuple[str, ...], ...]
    labels: tuple[tuple[int, ...], ...]
    marks: tuple[tuple[tuple[int, int], ...], ...]
    keys: tuple[tuple[int, ...], ...]
    parameters: tuple[Parameter, ...]


@dataclass(frozen=True, slots=True)
class _Packed:
    """A draft with its operands packed: the graph, and per operand its wires and columns."""

    graph: CellGraph
    wires: tuple[tuple[Wire, ...], ...]
    operands: tuple[Operand, ...]
    outputs: tuple[Wire, ...]


def lower(block: AnyBlock, policy: Policy, backend: Backend, kept_bytes: int | None = None) -> Lowered:
    """Build and compile a block whose input is one example, a Python object.

    Raises:
        BlockTypeError: when the block is ill typed; the message tells where.
    """
    builder = Builder()
    root = builder.declare(block, "root", OBJECT, VOID)
    with builder.define(root, "model") as argument:
        try:
            result = build(block, builder, argument)
        except RecursionError:
            fix = "put parts into ForwardDeclarations; a block must not contain itself in any other way"
            raise BlockValueError("model", "blocks that end", "too many inside each other", fix) from None
        type_ = type_of(result)
        root.results += [Slot(f"r{i}", t, new_wires(t)) for i, t in enumerate(run_time_terminals(type_))]
        make_return(builder, root, result)
    _refuse_endless(builder.functions)
    drafts = builder.drafts
    wires = _all_wires(drafts)
    component = _components(drafts, wires)
    packed = [_packed(draft, component) for draft in drafts]
    arena_of, arenas = _arenas(packed, wires)
    reads = [[arena_of[group[0]] for group in p.wires] for p in packed]
    writes = [[arena_of[wire] for wire in p.outputs] for p in packed]
    ends = _ends(packed, component, reads, writes)
    cells = tuple(compile_cell(p.graph, e, backend, kept_bytes) for p, e in zip(packed, ends, strict=True))
    signatures = tuple(
        _signature(p, cell, component[k], reads[k], writes[k], draft)
        for k, (p, cell, draft) in enumerate(zip(packed, cells, drafts, strict=True))
    )
    bounds = [
        [feed_bounds(cell.graph).get(node) for node, _ in draft.feeds]
        for cell, draft in zip(cells, drafts, strict=True)
    ]
    source = write_source(builder.functions)
    namespace = dict(builder.globals)
    exec(compile(source, FILENAME, "exec"), namespace)  # noqa: S102 - the text is our own
    width = max([1, *(len(draft.outputs) for draft in drafts)])
    collections = tuple(builder.collecting.values())
    integers = tuple(tuple(is_integer(f.type.dtype, f.type.shape) for _, f in d.feeds) for d in drafts)
    its = form(tuple(s.arguments for s in signatures), tuple(s.sequences for s in signatures), integers)
    tracer = Tracer(
        builder.functions, drafts, signatures, bounds, policy, its, source, namespace, width, collections
    )
    read = {p for cell in cells for p in cell.parameters}
    parameters = tuple(p for p in builder.parameters if p in read)
    return Lowered(
        block,
        type_,
        cells,
        signatures,
        arenas,
        tracer,
        tuple(tuple(name for name, _ in draft.metrics) for draft in drafts),
        tuple(tuple(draft.labels) for draft in drafts),
        tuple(tuple(draft.marks) for draft in drafts),
        tuple(tuple(draft.keys) for draft in drafts),
        parameters,
    )


def depth(lowered: Lowered, trace: Trace) -> int:
    """Return the longest chain of calls that compute something, in one example.

    A call that computes only what a loss or a metric takes counts where a chain ends, and not on the
    way of what it passes on.
    """
    cells = [cell.graph for cell in lowered.cells]
    passing = [_computes(cell.outputs, cell) for cell in cells]
    ending = [_computes(cell.results, cell) for cell in cells]
    chains = longest_chains(lowered.signatures, trace.calls, trace.elements, trace.values, passing)
    kinds = np.repeat(np.arange(len(cells)), list(map(len, trace.calls)))
    bases = np.concatenate([np.zeros(0, np.int32), *(rows[:, 0] for rows in trace.calls)])
    order = kinds[np.argsort(bases, kind="stable")].tolist()  # that of the chains
    return max((n - passing[k] + ending[k] for n, k in zip(chains, order, strict=True)), default=0)


def holds_objects(lowered: Lowered, trace: Trace) -> bool:
    """Whether a trace may hold parts of its example: in its result, or as labels of metrics."""
    labels = chain.from_iterable(chain.from_iterable(trace.labels))
    return has_objects(lowered.result) or not all(isinstance(label, ATOMS) for label in labels)


def _computes(results: Sequence[Node], graph: CellGraph) -> bool:
    """Whether results are more than data as it was read (categories as vectors too), constants and views."""
    given = set(graph.inputs)
    return any(
        n.op not in SOURCES and n not in given and not is_view(n) and n.op.name != "one_hot"
        for n in reachable(results, graph.inputs)
    )


def _refuse_endless(functions: Sequence[Function]) -> None:
    """Refuse declarations that refer to themselves whatever the example holds."""
    edges = {f.name: f.always for f in functions}
    component = components([f.name for f in functions], edges)
    for function in functions:
        if any(component[other] == component[function.name] for other in function.always):
            found, fix = "one that always refers to itself", "choose with OneOf where to end"
            raise BlockTypeError(function.path, "a definition that ends", found, fix)


def _packed(draft: Draft, component: dict[object, int]) -> _Packed:
    # what another cell of the region computes must be a mere input here, or derivatives would look behind it
    singles = [node if node.op is INPUT else input_node(node.type, node.axis) for node, _ in draft.operands]
    results = [*draft.outputs, *(n for _, n in draft.losses), *(n for _, n in draft.metrics)]
    replacement = dict(zip((node for node, _ in draft.operands), singles, strict=True))
    results = numbered_sites(substitute(results, replacement))
    at = component[draft.number]
    recursive = {i for i, (_, wire) in enumerate(draft.operands) if component[wire] == at}
    groups, new = pack(singles, results, recursive)
    single_wires = [wire for _, wire in draft.operands]
    nodes = [node for node, _ in groups]
    wires = [tuple(single_wires[i] for i in held) for _, held in groups]
    operands = [Operand(-1, held) for _, held in groups]
    for number, (_, members) in enumerate(draft.sequences):
        for member, (node, wire) in enumerate(members):
            nodes.append(node)
            wires.append((wire,))
            operands.append(Operand(-1, (), number, member))
    results_left = iter(new)
    parts = [tuple(next(results_left) for _ in part) for part in (draft.outputs, draft.losses, draft.metrics)]
    graph = CellGraph(draft.name, tuple(nodes), tuple(node for node, _ in draft.feeds), *parts)
    return _Packed(graph, tuple(wires), tuple(operands), tuple(draft.outputs.values()))


def numbered_sites(results: Sequence[Node]) -> list[Node]:
    """Return the results with the sites that draw random numbers counted from 0.

    Where they stand in the cell must decide what they draw, not what was built before.
    """
    drawing = [node for node in reachable(results) if node.op.name == "random"]
    new = {
        node: apply("random", *node.inputs, **{**node.attrs, "site": site})
        for site, node in enumerate(sorted(drawing, key=lambda node: node.attrs["site"]))
    }
    return substitute(results, new)


def _read(draft: Draft) -> list[Wire]:
    """Return the wires that a cell reads."""
    members = [wire for _, several in draft.sequences for _, wire in several]
    return [*(wire for _, wire in draft.operands), *members]


def _all_wires(drafts: Sequence[Draft]) -> list[Wire]:
    """Return every wire that a cell writes or reads, or that lies between."""
    found: dict[Wire, None] = {}
    stack = [w for draft in drafts for w in draft.outputs.values()] + [w for d in drafts for w in _read(d)]
    while stack:
        wire = stack.pop()
        if wire not in found:
            found[wire] = None
            stack += wire.flows_to
    return list(found)


def _components(drafts: Sequence[Draft], wires: Sequence[Wire]) -> dict[object, int]:
    """Return the component of each cell (by number) and wire, in topological order."""
    edges: dict[object, list[object]] = {wire: list(wire.flows_to) for wire in wires}
    for draft in drafts:
        edges[draft.number] = list(draft.outputs.values())
        for wire in _read(draft):
            edges[wire].append(draft.number)
    return components([*(draft.number for draft in drafts), *wires], edges)


def _arenas(
    packed: Sequence[_Packed], wires: Sequence[Wire]
) -> tuple[dict[Wire, int], tuple[TensorType, ...]]:
    """Give connected wires one arena; an operand that reads several at once connects them."""
    pairs = [(wire, other) for wire in wires for other in wire.flows_to]
    pairs += [(group[0], other) for p in packed for group in p.wires for other in group[1:]]
    arena_of = connected(pairs, wires)
    types: dict[int, TensorType] = {}
    for p in packed:
        for wire, node in zip(p.outputs, p.graph.outputs, strict=True):
            known = types.setdefault(arena_of[wire], node.type)
            assert known == node.type, f"an arena of {known} would hold {node.type}"
        for group, node, operand in zip(p.wires, p.graph.operands, p.operands, strict=True):
            shape = node.shape[1:] if len(operand.columns) > 1 else node.shape
            types.setdefault(arena_of[group[0]], TensorType(shape, node.dtype))
    count = max(arena_of.values(), default=-1) + 1
    return arena_of, tuple(types.get(i, TensorType(())) for i in range(count))


def _ends(
    packed: Sequence[_Packed], component: dict[object, int], reads: Arenas, writes: Arenas
) -> list[Ends]:
    """Find which ends of each cell are recursive, and between which gradients of parameters must flow."""
    graphs = [p.graph for p in packed]
    weighted = [bool(trainable(graph.outputs + graph.losses)) for graph in graphs]
    ends = []
    for k, (p, active) in enumerate(zip(packed, active_ends(graphs, reads, writes, weighted), strict=True)):
        at = component[k]
        recursive = (
            frozenset(i for i, group in enumerate(p.wires) if any(component[w] == at for w in group)),
            frozenset(j for j, wire in enumerate(p.outputs) if component[wire] == at),
        )
        ends.append(Ends(*recursive, *active))
    return ends


def _signature(
    p: _Packed, cell: Cell, component: int, reads: Sequence[int], writes: Sequence[int], draft: Draft
) -> CellSignature:
    operands = tuple(replace(operand, arena=arena) for operand, arena in zip(p.operands, reads, strict=True))
    signature = CellSignature(
        draft.name,
        component,
        bool(cell.ends.recursive_operands) and bool(cell.ends.recursive_outputs),
        operands,
        tuple(writes),
        len(draft.operands),
        tuple(len(members) for _, members in draft.sequences),
        not draft.keys and _is_shareable(cell.graph),
        not draft.keys and _is_repeatable(cell.graph),
    )
    return differentiated(signature, cell)


def differentiated(signature: CellSignature, cell: Cell) -> CellSignature:
    """Return the signature with what depends on how the cell was compiled.

    That is, which operands' cotangents it yields, and whose product it leaves to the runtime.
    """
    found = cell.differentiated
    operands = tuple(replace(x, differentiable=i in found) for i, x in enumerate(signature.operands))
    products = (product for product in (cell.hoisted, cell.hoisted_inference) if product is not None)
    hoisted = next((product.operand for product in products), None)
    return replace(signature, operands=operands, hoisted=hoisted)


def _is_shareable(graph: CellGraph) -> bool:
    """Whether calls are known by a few integers of data, and cost more than finding those alike."""
    ids = not graph.operands and all(not x.shape for x in graph.feeds)
    return ids and _is_repeatable(graph) and Graph(graph.inputs, graph.outputs).computes


def _is_repeatable(graph: CellGraph) -> bool:
    """Whether calls are known by integers and by what they read, and only results come of them."""
    if graph.losses or graph.metrics or not graph.outputs:
        return False
    return not any(x.type.is_float for x in graph.feeds)
