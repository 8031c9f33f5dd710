"""Linking: from drafts of cells, and the wires between them, to a `Model`.

``drafts --wires--> components, arenas --> which ends recur, and where gradients flow --> staged cells``
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TypeVar, cast

from foldbatch.model.drafts import Draft, Flow, components, connected
from foldbatch.model.model import Arenas, Model, active_ends
from foldbatch.model.replacing import Replacements
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.trace import CellSignature, Operand
from foldbatch.static.cell import Cell, optimized, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends, pack
from foldbatch.static.graph import (
    INPUT,
    Graph,
    Node,
    apply,
    input_node,
    is_view,
    reachable,
    renewed,
    substitute,
)
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.types import TensorType, Type

T = TypeVar("T")
Nodes = tuple[Node, ...]


@dataclass(slots=True)
class StagedBefore:
    """A cache of cells that earlier links of a model have staged, by all that decides how."""

    cached: dict[Hashable, object] = field(default_factory=dict)
    used: dict[Hashable, object] = field(default_factory=dict)  # by the link under way

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached object of a key; make it if it is new."""
        if key not in self.used:
            self.used[key] = self.cached[key] if key in self.cached else make()
        return cast("T", self.used[key])

    def forget(self) -> None:
        """Forget what the link that ends did not use."""
        self.cached, self.used = self.used, {}


@dataclass(frozen=True, slots=True)
class _PackedDraft:
    """A draft with its operands packed: the graph, and per operand its wires and columns."""

    draft: Draft
    graph: CellGraph
    wires: tuple[tuple[Flow, ...], ...]
    operands: tuple[Operand, ...]
    outputs: tuple[Flow, ...]


def link(
    drafts: Sequence[Draft],
    result: Type,
    results: Iterable[Flow],
    parameters: Sequence[Parameter],
    staged: StagedBefore | None = None,
    replacements: Replacements | None = None,
) -> Model:
    """Return the model of connected cells, and of the wires whose values are tensors of results.

    Of the parameters, in the order in which they are to be listed, those that no cell reads are left out.
    Cells that are as before, when a model has grown and is linked again, are not staged anew; `staged`
    has these. Where a draft reads a parameter that has a replacement, its cell reads that.
    """
    results, staged = list(results), StagedBefore() if staged is None else staged
    wires = _all_wires(drafts, results)
    component = _components(drafts, wires)
    drafts = moved_upstream(map(closed, drafts), wires, component, results)
    packed = [_packed(draft, component, staged, replacements) for draft in drafts]
    arena_of, arenas = _arenas(packed, wires)
    reads = [[arena_of[group[0]] for group in p.wires] for p in packed]
    writes = [[arena_of[wire] for wire in p.outputs] for p in packed]
    trained = [tuple([x for x in p.graph.learning if x.attrs["parameter"].trainable]) for p in packed]
    ends = _ends(packed, component, reads, writes, [*map(bool, trained)])
    cells = tuple(
        staged.get((p.graph, end, nodes), partial(_staged, p.graph, end)).named(p.draft.name)
        for p, end, nodes in zip(packed, ends, trained, strict=True)
    )
    staged.forget()
    signatures = tuple(
        _signature(p, cell, component[k], reads[k], writes[k])
        for k, (p, cell) in enumerate(zip(packed, cells, strict=True))
    )
    read = {parameter for cell in cells for parameter in cell.parameters}
    return Model(
        result,
        cells,
        signatures,
        arenas,
        frozenset(arena_of[wire] for wire in results),
        tuple(tuple(name for name, _ in draft.losses) for draft in drafts),
        tuple(tuple(name for name, _ in draft.metrics) for draft in drafts),
        tuple(tuple(draft.labels) for draft in drafts),
        tuple(tuple(draft.marks) for draft in drafts),
        tuple(tuple(draft.keys) for draft in drafts),
        tuple(tuple(feed for _, feed in draft.feeds) for draft in drafts),
        tuple(parameter for parameter in parameters if parameter in read),
    )


def _packed(
    draft: Draft, component: dict[object, int], staged: StagedBefore, replacements: Replacements | None
) -> _PackedDraft:
    """Return a draft as it is staged: values that are read side by side are one operand."""
    recursive = frozenset(
        i for i, (_, wire) in enumerate(draft.operands) if component[wire] == component[draft.number]
    )
    singles = tuple([node for node, _ in draft.operands])
    members = [(n, m, *pair) for n, (_, pairs) in enumerate(draft.sequences) for m, pair in enumerate(pairs)]
    nodes = singles, tuple([node for _, _, node, _ in members]), tuple([node for node, _ in draft.feeds])
    ends = tuple(draft.outputs), tuple([x for _, x in draft.losses]), tuple([x for _, x in draft.metrics])
    graph, groups = staged.get(
        (*nodes, *ends, recursive), lambda: _graph_of(draft.name, *nodes, ends, recursive, replacements)
    )
    wires = [tuple([draft.operands[i][1] for i in group]) for group in groups]
    operands = [Operand(-1, group) for group in groups] + [Operand(-1, (), n, m) for n, m, _, _ in members]
    wires += [(wire,) for *_, wire in members]
    return _PackedDraft(
        draft, graph.named(draft.name), tuple(wires), tuple(operands), tuple(draft.outputs.values())
    )


def _graph_of(
    name: str,
    singles: Nodes,
    members: Nodes,
    feeds: Nodes,
    ends: Sequence[Nodes],
    recursive: frozenset[int],
    replacements: Replacements | None,
) -> tuple[CellGraph, list[tuple[int, ...]]]:
    """Return the graph of a cell with its operands packed, and the numbers of those in each pack."""
    results = [node for nodes in ends for node in nodes]
    successors = {} if replacements is None else replacements.nodes(results, (*singles, *members, *feeds))
    if successors:
        copies, results = renewed((*singles, *members, *feeds), results, successors)
        singles = tuple(copies[: len(singles)])
        members = tuple(copies[len(singles) : len(singles) + len(members)])
        feeds = tuple(copies[len(singles) + len(members) :])
    groups, new = pack(singles, numbered_sites(results, (*singles, *members, *feeds)), recursive)
    packed = iter(new)
    parts = [tuple([next(packed) for _ in nodes]) for nodes in ends]
    graph = CellGraph(name, (*(node for node, _ in groups), *members), feeds, *parts)
    return graph, [members_of for _, members_of in groups]


def _staged(graph: CellGraph, ends: Ends) -> Cell:
    """Stage a copy of a cell's graph, in which passes find no node that another model's passes have made."""
    copies, results = renewed(graph.inputs, graph.results, {})
    copied = iter(results)
    parts = [tuple([next(copied) for _ in nodes]) for nodes in (graph.outputs, graph.losses, graph.metrics)]
    operands = tuple(copies[: len(graph.operands)])
    return stage_cell(CellGraph(graph.name, operands, tuple(copies[len(operands) :]), *parts), ends)


def numbered_sites(results: Sequence[Node], inputs: Iterable[Node]) -> list[Node]:
    """Return the results of a cell with the sites that draw random numbers counted from 0.

    So the numbers drawn depend on a site's place in the cell, not on blocks built before. What lies behind
    the inputs is of other cells, and stays: an operand may be a node that one of these has computed.
    """
    stays = {node: node for node in inputs}
    drawing = [node for node in reachable(results, stays) if node.op.name == "random" and node not in stays]
    new = {
        node: apply("random", *node.inputs, **{**node.attrs, "site": site})
        for site, node in enumerate(sorted(drawing, key=lambda node: node.attrs["site"]))
    }
    return substitute(results, stays | new)


def _all_wires(drafts: Sequence[Draft], results: Sequence[Flow]) -> list[Flow]:
    """Return every wire of a model, from those that cells write to those that results read."""
    wires: dict[Flow, None] = {}
    stack = [wire for draft in drafts for wire in draft.outputs.values()]
    stack += [wire for draft in drafts for wire in draft.reads]
    while stack:
        wire = stack.pop()
        if wire not in wires:
            wires[wire] = None
            stack += wire.flows_to
    return list(dict.fromkeys([*wires, *results]))


def _components(drafts: Sequence[Draft], wires: Sequence[Flow]) -> dict[object, int]:
    """Return the number of the strongly connected component of each cell and wire."""
    edges: dict[object, list[object]] = {wire: list(wire.flows_to) for wire in wires}
    for draft in drafts:
        edges[draft.number] = list(draft.outputs.values())
        for wire in draft.reads:
            edges[wire].append(draft.number)
    return components([*(draft.number for draft in drafts), *wires], edges)


def _arenas(
    packed: Sequence[_PackedDraft], wires: Sequence[Flow]
) -> tuple[dict[Flow, int], tuple[TensorType, ...]]:
    """Give connected wires one arena; an operand that reads several at once connects them."""
    pairs = [(wire, target) for wire in wires for target in wire.flows_to]
    pairs += [(group[0], target) for p in packed for group in p.wires for target in group[1:]]
    arena_of = connected(pairs, wires)
    types: dict[int, TensorType] = {}
    for p in packed:
        for wire, node in zip(p.outputs, p.graph.outputs, strict=True):
            first = types.setdefault(arena_of[wire], node.type)
            assert first == node.type, f"an arena of {first} would hold {node.type}"
        for group, node, operand in zip(p.wires, p.graph.operands, p.operands, strict=True):
            shape = node.shape[1:] if len(operand.columns) > 1 else node.shape
            types.setdefault(arena_of[group[0]], TensorType(shape, node.dtype))
    count = max(arena_of.values(), default=-1) + 1
    return arena_of, tuple(types.get(i, TensorType(())) for i in range(count))


def _ends(
    packed: Sequence[_PackedDraft],
    component: dict[object, int],
    reads: Arenas,
    writes: Arenas,
    weighted: Sequence[bool],
) -> list[Ends]:
    """Find which ends of each cell are recursive, and between which gradients of parameters must flow."""
    graphs = [p.graph for p in packed]
    ends = []
    for k, (p, active) in enumerate(zip(packed, active_ends(graphs, reads, writes, weighted), strict=True)):
        cell_component = component[k]
        recursive = (
            frozenset(
                i
                for i, group in enumerate(p.wires)
                if any(component[wire] == cell_component for wire in group)
            ),
            frozenset(j for j, wire in enumerate(p.outputs) if component[wire] == cell_component),
        )
        ends.append(Ends(*recursive, *active))
    return ends


def _signature(
    p: _PackedDraft, cell: Cell, component: int, reads: Sequence[int], writes: Sequence[int]
) -> CellSignature:
    """Return the scheduler's view of a cell: operands, arenas, and whether calls may be shared."""
    wanted, draft = cell.differentiated, p.draft
    operands = tuple(
        replace(operand, arena=arena, differentiable=i in wanted)
        for i, (operand, arena) in enumerate(zip(p.operands, reads, strict=True))
    )
    return CellSignature(
        draft.name,
        component,
        bool(cell.ends.recursive_operands) and bool(cell.ends.recursive_outputs),
        operands,
        tuple(writes),
        len(draft.operands),
        tuple(len(members) for _, members in draft.sequences),
        not draft.keys and _is_shareable(cell.graph),
        not draft.keys and _is_repeatable(cell.graph),
        cell.built.weights,
    )


def _is_shareable(graph: CellGraph) -> bool:
    """Whether a few integers of data determine a call, and running it costs more than finding its equals."""
    ids = not graph.operands and all(not x.shape for x in graph.feeds)
    return ids and _is_repeatable(graph) and Graph(graph.inputs, graph.outputs).computes


def _is_repeatable(graph: CellGraph) -> bool:
    """Whether integers of data and arguments determine a call, and it yields nothing but results."""
    if graph.losses or graph.metrics or not graph.outputs:
        return False
    return not any(x.type.is_float for x in graph.feeds)


# -- upstream: work that a recursion does on words alone is moved to the cell that reads the words.
# Source: common subexpressions across calls, by moving code to where they meet ("hoisting": Muchnick 1997,
# Advanced Compiler Design and Implementation, section 13.5).


def moved_upstream(
    drafts: Iterable[Draft], wires: Sequence[Flow], component: Mapping[object, int], results: Iterable[Flow]
) -> list[Draft]:
    """Return the drafts, with products that recursive cells make of words alone in the cells of the words.

    Products are moved where the cells of the words read ids and nothing else, and where each cell that reads
    the words makes a product of them. If several do, each must be of a recursion of its own, as both
    directions of a sequence are. Cells of one recursion may be alternatives, which read some words each.
    """
    drafts = list(drafts)
    part_of = connected(((wire, target) for wire in wires for target in wire.flows_to), wires)
    refused = {part_of[wire] for wire in results}
    refused |= {part_of[wire] for draft in drafts for _, pairs in draft.sequences for _, wire in pairs}
    readers, writers = defaultdict[int, list[tuple[int, int]]](list), defaultdict[int, list[int]](list)
    for at, draft in enumerate(drafts):
        for number, (_, wire) in enumerate(draft.operands):
            readers[part_of[wire]].append((at, number))
        for wire in draft.outputs.values():
            writers[part_of[wire]].append(at)
    for part, places in readers.items():
        words = {source: drafts[source] for source in writers[part]}
        components_read = [component[drafts[at].number] for at, _ in places]
        if (
            part in refused
            or len(set(components_read)) < len(components_read)
            or not all(map(_is_word, words.values()))
        ):
            continue
        cuts = [_cut(drafts[at], number, _ends_of(drafts[at], component)) for at, number in places]
        products = [cut for cut in cuts if cut is not None]
        types = [cut.product.type for cut in products]
        vectors = all(len(x.shape) == 1 and x.dtype == types[0].dtype for x in types)
        if len(products) < len(cuts) or (len(products) > 1 and not vectors):
            continue  # products of several cells, as of a sequence read both ways, are one vector
        new = {source: _yielding(draft, part, part_of, products) for source, draft in words.items()}
        if any(len(draft.outputs) < len(words[source].outputs) for source, draft in new.items()):
            continue  # a cell of words yields that very product already: its two outputs would be one
        starts = accumulate((cut.product.type.size for cut in products[:-1]), initial=0)
        for (at, _), cut, start in zip(places, products, starts, strict=True):
            drafts[at] = _reading(cut, products, start)
        for source, draft in new.items():
            drafts[source] = draft
    return drafts


@dataclass(frozen=True, slots=True)
class _WordProduct:
    draft: Draft  # the cell
    number: int  # of the operand that is the word
    results: tuple[Node, ...]  # all that the cell yields
    word: Node  # the operand
    product: Node  # what is made of it


def closed(draft: Draft) -> Draft:
    """Return a cell whose operands are inputs: else derivatives would look at what other cells compute."""
    if all(node.op is INPUT for node, _ in draft.operands):
        return draft
    operands = [
        (node if node.op is INPUT else input_node(node.type, node.axis), wire)
        for node, wire in draft.operands
    ]
    replacement = {old: new for (old, _), (new, _) in zip(draft.operands, operands, strict=True)}
    return _with_results(draft, operands, substitute(draft.results, replacement))


def _with_results(draft: Draft, operands: list[tuple[Node, Flow]], results: Iterable[Node]) -> Draft:
    """Return a draft with other operands, and with these results in place of its own."""
    new = iter(results)
    return replace(
        draft,
        operands=operands,
        outputs={next(new): wire for wire in draft.outputs.values()},
        losses=[(name, next(new)) for name, _ in draft.losses],
        metrics=[(name, next(new)) for name, _ in draft.metrics],
    )


def _is_word(draft: Draft) -> bool:
    """Whether a cell reads ids and nothing else, and yields nothing but outputs: equal calls run once."""
    if draft.operands or draft.sequences or draft.losses or draft.metrics or draft.keys:
        return False
    return all(not x.shape and not x.type.is_float for x, _ in draft.feeds)


def _ends_of(draft: Draft, component: Mapping[object, int]) -> Ends:
    """Return the operands and outputs of a cell that lie in its own component."""
    cell_component = component[draft.number]
    operands = frozenset(i for i, (_, wire) in enumerate(draft.operands) if component[wire] == cell_component)
    outputs = frozenset(
        i for i, wire in enumerate(draft.outputs.values()) if component[wire] == cell_component
    )
    return Ends(operands, outputs)


def _cut(draft: Draft, number: int, ends: Ends) -> _WordProduct | None:
    """Return the product that a recursive cell makes of an operand, if the cell needs nothing else of it."""
    if not ends.recursive_operands:
        return None
    operands = tuple(node for node, _ in draft.operands)
    members = (node for _, pairs in draft.sequences for node, _ in pairs)
    feeds = tuple(node for node, _ in draft.feeds)
    graph = CellGraph(draft.name, (*operands, *members), feeds, tuple(draft.results))
    if not any(node.op.name == "when_training" for node in reachable(graph.results, graph.inputs)):
        graph = optimized(graph, ends, training=True).graph  # in it a product of x and h is one of each
    word = operands[number]
    computed = _made_of(word, graph)
    if len(computed) != 1 or len(set(graph.outputs[: len(draft.outputs)])) < len(draft.outputs):
        return None
    (product,) = computed
    sizes = [x.type.size for x in reachable([product], [word]) if x.op.product and x.axis is CALL]
    return (
        _WordProduct(draft, number, graph.results, word, product) if product.type.size <= sum(sizes) else None
    )


def _made_of(word: Node, graph: CellGraph) -> set[Node]:
    """Return the nodes that a cell computes of one operand alone and uses elsewhere, or yields."""
    alone, read = {word}, set(graph.results)
    for node in reachable(graph.results, graph.inputs):
        remaining = [x for x in node.inputs if x not in alone]
        if node in graph.inputs:
            continue
        if (
            node.axis is CALL
            and len(remaining) < len(node.inputs)
            and all(x.axis is UNBATCHED for x in remaining)
        ):
            alone.add(node)
        else:
            read.update(node.inputs)
    computed = set[Node]()
    for node in alone & read:
        behind = node
        while is_view(behind):
            (behind,) = behind.inputs
        computed.add(behind)
    return computed


def _reading(cut: _WordProduct, cuts: Sequence[_WordProduct], start: int) -> Draft:
    """Return the draft of a recursive cell that reads its product from the cell of the words."""
    product = operand = input_node(_joined([part.product for part in cuts]).type)
    if len(cuts) > 1:
        product = apply("slice", operand, axis=0, start=start, stop=start + cut.product.type.size)
    operands = [*cut.draft.operands]
    operands[cut.number] = operand, operands[cut.number][1]
    return _with_results(cut.draft, operands, substitute(cut.results, {cut.product: product}))


def _joined(products: Sequence[Node]) -> Node:
    return apply("concat", *products, axis=0) if len(products) > 1 else products[0]


def _yielding(draft: Draft, part: int, part_of: Mapping[Flow, int], cuts: Sequence[_WordProduct]) -> Draft:
    """Return the cell of words with products in the place of each word, on wires of a connected part."""
    outputs = [
        _joined([substitute([cut.product], {cut.word: node})[0] for cut in cuts])
        if part_of[wire] == part
        else node
        for node, wire in draft.outputs.items()
    ]
    return _with_results(draft, draft.operands, outputs)
