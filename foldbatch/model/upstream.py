"""Work that a recursion does on words alone, moved to the cell that reads the words.

Source: common subexpressions across calls, by moving code to where they meet ("hoisting": Muchnick 1997,
Advanced Compiler Design and Implementation, section 13.5).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from foldbatch.model.drafts import Draft
from foldbatch.model.wires import Flow, connected
from foldbatch.static.cell import optimized
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import INPUT, Node, apply, input_node, is_view, reachable, substitute
from foldbatch.static.op import CALL, UNBATCHED

PRODUCTS = ("linear", "linear_by", "matmul")


def moved_upstream(
    drafts: Iterable[Draft], wires: Sequence[Flow], component: Mapping[object, int], results: Iterable[Flow]
) -> list[Draft]:
    """Return the drafts, with products that recursive cells make of words alone in the cells of the words.

    Products are moved where the cells of the words read ids and nothing else, and where each cell that reads
    the words makes a product of them. If several do, each must be of a recursion of its own, as both
    directions of a sequence are. Cells of one recursion may be alternatives, which read some words each.
    """
    drafts = list(drafts)
    part_of = connected(((wire, other) for wire in wires for other in wire.flows_to), wires)
    refused = {part_of[wire] for wire in results}
    refused |= {part_of[wire] for draft in drafts for _, several in draft.sequences for _, wire in several}
    readers, writers = defaultdict[int, list[tuple[int, int]]](list), defaultdict[int, list[int]](list)
    for at, draft in enumerate(drafts):
        for number, (_, wire) in enumerate(draft.operands):
            readers[part_of[wire]].append((at, number))
        for wire in draft.outputs.values():
            writers[part_of[wire]].append(at)
    for part, places in readers.items():
        words = {source: drafts[source] for source in writers[part]}
        own = [component[drafts[at].number] for at, _ in places]
        if part in refused or len(set(own)) < len(own) or not all(map(_is_word, words.values())):
            continue
        cuts = [_cut(drafts[at], number, _ends(drafts[at], component)) for at, number in places]
        found = [cut for cut in cuts if cut is not None]
        if len(found) < len(cuts) or (len(found) > 1 and not _are_side_by_side(found)):
            continue
        new = {source: _yielding(draft, part, part_of, found) for source, draft in words.items()}
        if any(len(draft.outputs) < len(words[source].outputs) for source, draft in new.items()):
            continue  # a cell of words yields that very product already: its two outputs would be one
        for (at, _), cut, start in zip(places, found, _starts(found), strict=True):
            drafts[at] = _reading(cut, found, start)
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
    operands = [
        (node if node.op is INPUT else input_node(node.type, node.axis), wire)
        for node, wire in draft.operands
    ]
    replacement = {old: new for (old, _), (new, _) in zip(draft.operands, operands, strict=True)}
    return _with_results(draft, operands, substitute(_results(draft), replacement))


def _results(draft: Draft) -> list[Node]:
    return [*draft.outputs, *(node for _, node in draft.losses), *(node for _, node in draft.metrics)]


def _with_results(draft: Draft, operands: list[tuple[Node, Flow]], results: Iterable[Node]) -> Draft:
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


def _ends(draft: Draft, component: Mapping[object, int]) -> Ends:
    own = component[draft.number]
    operands = frozenset(i for i, (_, wire) in enumerate(draft.operands) if component[wire] == own)
    outputs = frozenset(i for i, wire in enumerate(draft.outputs.values()) if component[wire] == own)
    return Ends(operands, outputs)


def _cut(draft: Draft, number: int, ends: Ends) -> _WordProduct | None:
    """Return the product that a recursive cell makes of an operand, if the cell needs nothing else of it."""
    if not ends.recursive_operands:
        return None
    operands = tuple(node for node, _ in draft.operands)
    members = (node for _, several in draft.sequences for node, _ in several)
    feeds = tuple(node for node, _ in draft.feeds)
    graph = CellGraph(draft.name, (*operands, *members), feeds, tuple(_results(draft)))
    if not any(node.op.name == "when_training" for node in reachable(graph.results, graph.inputs)):
        graph = optimized(graph, ends, training=True).graph  # in it a product of x and h is one of each
    word = operands[number]
    made = _made_of(word, graph)
    if len(made) != 1 or len(set(graph.outputs[: len(draft.outputs)])) < len(draft.outputs):
        return None
    (product,) = made
    sizes = [x.type.size for x in reachable([product], [word]) if x.op.name in PRODUCTS and x.axis is CALL]
    return (
        _WordProduct(draft, number, graph.results, word, product) if product.type.size <= sum(sizes) else None
    )


def _made_of(word: Node, graph: CellGraph) -> set[Node]:
    """Return what a cell makes of an operand alone and reads elsewhere, or yields; views are made again."""
    alone, read = {word}, set(graph.results)
    for node in reachable(graph.results, graph.inputs):
        others = [x for x in node.inputs if x not in alone]
        if node in graph.inputs:
            continue
        if node.axis is CALL and len(others) < len(node.inputs) and all(x.axis is UNBATCHED for x in others):
            alone.add(node)
        else:
            read.update(node.inputs)
    return {_behind_views(node) for node in alone & read}


def _behind_views(node: Node) -> Node:
    while is_view(node):
        (node,) = node.inputs
    return node


def _are_side_by_side(cuts: Sequence[_WordProduct]) -> bool:
    """Whether products can be one vector: those of several cells, as of a sequence read both ways."""
    types = [cut.product.type for cut in cuts]
    return all(len(x.shape) == 1 and x.dtype == types[0].dtype for x in types)


def _starts(cuts: Sequence[_WordProduct]) -> Iterator[int]:
    """Yield where each product begins in a vector of all."""
    return accumulate((cut.product.type.size for cut in cuts[:-1]), initial=0)


def _reading(cut: _WordProduct, cuts: Sequence[_WordProduct], start: int) -> Draft:
    product = given = input_node(_joined([each.product for each in cuts]).type)
    if len(cuts) > 1:
        product = apply("slice", given, axis=0, start=start, stop=start + cut.product.type.size)
    operands = [*cut.draft.operands]
    operands[cut.number] = given, operands[cut.number][1]
    return _with_results(cut.draft, operands, substitute(cut.results, {cut.product: product}))


def _joined(products: Sequence[Node]) -> Node:
    return apply("concat", *products, axis=0) if len(products) > 1 else products[0]


def _yielding(draft: Draft, part: int, part_of: Mapping[Flow, int], cuts: Sequence[_WordProduct]) -> Draft:
    """Return the cell of words with products in the place of each word, on wires of a connected part."""

    def products_of(word: Node) -> Node:
        return _joined([substitute([cut.product], {cut.word: word})[0] for cut in cuts])

    outputs = draft.outputs.items()
    return _with_results(
        draft,
        draft.operands,
        [products_of(node) if part_of[wire] == part else node for node, wire in outputs],
    )
