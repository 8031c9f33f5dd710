"""Work that a recursion does on words alone, moved to the cell that reads the words.

An LSTM multiplies each word of a sentence by a weight. That product needs no state, so it is made before the
recursion. It depends on the word alone, so the cell that looks the word up may as well make it. Equal calls
of that cell run once (`foldbatch.scheduler.sharing`), so the product is made once for each distinct word of a
batch, forward and backward. The recursion then reads the product in the place of the word.

A draft keeps its operands, outputs and wires. Only what they hold is another tensor, so the same traces fit.

Source: common subexpressions across calls, by moving code to where they meet ("hoisting": Muchnick 1997,
Advanced Compiler Design and Implementation, section 13.5).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from foldbatch.model.drafts import Draft
from foldbatch.model.wires import Flow, connected
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import INPUT, Node, input_node, reachable, substitute
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.sides import optimized
from foldbatch.static.stages import is_view

PRODUCTS = ("linear", "linear_by", "matmul")


def moved_upstream(
    drafts: Iterable[Draft],
    wires: Sequence[Flow],
    component: Mapping[object, int],
    results: Iterable[Flow],
) -> list[Draft]:
    """Return the drafts, with products that recursive cells make of words alone in the cells of the words.

    A product is moved where one operand of one cell is all that reads the words, and where the cells of the
    words read ids and nothing else.

    Args:
        drafts: the cells; their operands are inputs (`closed`).
        wires: all wires.
        component: of cells (by number) and wires.
        results: the wires whose values are tensors of an example's result.
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
    for part, ((at, number), *others) in readers.items():
        ends = _ends(drafts[at], component)
        words = {source: drafts[source] for source in writers[part]}
        if others or part in refused or not ends.recursive_operands or not all(map(_is_word, words.values())):
            continue
        cut = _cut(drafts[at], number, ends)
        if cut is not None:
            word, product, drafts[at] = cut
            for source, draft in words.items():
                drafts[source] = _yielding(draft, part, part_of, word, product)
    return drafts


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
    """Return a cell with other operands and results."""
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
    """Return which operands and outputs of a cell are recursive."""
    own = component[draft.number]
    operands = frozenset(i for i, (_, wire) in enumerate(draft.operands) if component[wire] == own)
    outputs = frozenset(i for i, wire in enumerate(draft.outputs.values()) if component[wire] == own)
    return Ends(operands, outputs)


def _cut(draft: Draft, number: int, ends: Ends) -> tuple[Node, Node, Draft] | None:
    """Return an operand, the product made of it, and the cell that reads the product; None if there is none.

    The cell must need nothing else of the operand.
    """
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
    if product.type.size > sum(sizes):
        return None
    given = input_node(product.type)
    ends_of = [*draft.operands]
    ends_of[number] = given, draft.operands[number][1]
    return word, product, _with_results(draft, ends_of, substitute(graph.results, {product: given}))


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


def _yielding(draft: Draft, part: int, part_of: Mapping[Flow, int], word: Node, product: Node) -> Draft:
    """Return the cell of words with the product in the place of each word, on wires of a connected part."""
    results = [
        substitute([product], {word: node})[0] if part_of[wire] == part else node
        for node, wire in draft.outputs.items()
    ]
    return _with_results(draft, draft.operands, results)
