"""Algebraic simplification: a table of small rules by op name, applied until none fits.

A rule takes a node and returns a simpler one that is equal to it, or None where it does not
apply. It keeps the type and the batch axis: an operand that is the same for the whole batch
stands for a batched node only inside a ``batch`` (see `in_place_of`).

The gradient of reading slices of one tensor (the gates of an LSTM, computed by one GEMM) is a
sum of padded parts, each as large as the whole. Where the parts do not overlap, that sum is
their concatenation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foldbatch.static.graph import CONSTANT, Graph, Node, apply, constant
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.passes.rewrite import fold, rebuilt, rewrite, sealed
from foldbatch.types import TensorType

Simplification = Callable[[Node], Node | None]


def in_place_of(node: Node, x: Node) -> Node | None:
    """Return `x`, which equals `node`, along the axis of `node`; None where the types differ."""
    if x.type != node.type:
        return None
    if x.axis is node.axis:
        return x
    if x.axis is UNBATCHED:
        return apply("batch", x, axis=node.axis)
    return apply("repeat", x, axis=node.axis) if x.axis is CALL and node.axis.rank == 2 else None


def _is_uniform(node: Node, value: float) -> bool:
    return node.op is CONSTANT and bool(np.all(node.attrs["value"] == value))


def times_one(node: Node) -> Node | None:
    """``x * 1`` and ``1 * x`` are x."""
    a, b = node.inputs
    if _is_uniform(b, 1):
        return in_place_of(node, a)
    return in_place_of(node, b) if _is_uniform(a, 1) else None


def plus_zero(node: Node) -> Node | None:
    """``x + 0 + y`` is ``x + y`` where the zero does not make the sum larger."""
    terms = [x for x in node.inputs if not _is_uniform(x, 0)]
    if not 0 < len(terms) < len(node.inputs):
        return None
    return in_place_of(node, terms[0] if len(terms) == 1 else apply("add", *terms))


def without_spreading(node: Node) -> Node | None:
    """``op(broadcast_to(x), y)`` is ``op(x, y)`` where y is as large; likewise ``op(batch(x), y)``."""
    spreads = [i for i, x in enumerate(node.inputs) if x.op.view == "repeated"]
    attempts = [spreads, *([i] for i in spreads)] if len(spreads) > 1 else [spreads]
    for places in attempts if spreads else ():
        operands = [x.inputs[0] if i in places else x for i, x in enumerate(node.inputs)]
        bare = apply(node.op.name, *operands, **node.attrs)
        if bare.type == node.type and bare.axis is node.axis:
            return bare
    return None


def batched_last(node: Node) -> Node | None:
    """``op(batch(x))`` is ``batch(op(x))``: one row is computed instead of many."""
    if not node.inputs or node.axis is UNBATCHED:
        return None
    if any(x.op.name != "batch" and x.axis is not UNBATCHED for x in node.inputs):
        return None
    operands = (x.inputs[0] if x.op.name == "batch" else x for x in node.inputs)
    return in_place_of(node, fold(apply(node.op.name, *operands, **node.attrs)))


def repeated_batch(node: Node) -> Node | None:
    """``repeat(batch(x))`` is x, along the elements of sequences at once."""
    (x,) = node.inputs
    return in_place_of(node, x.inputs[0]) if x.op.name == "batch" else None


def same_type(node: Node) -> Node | None:
    """Drop a cast to the dtype, or a slice, reshape or broadcast to the shape, that a tensor has."""
    return in_place_of(node, node.inputs[0])


def of_one(node: Node) -> Node | None:
    """Replace a sum of one term, or a concatenation of one part, by it."""
    return in_place_of(node, node.inputs[0]) if len(node.inputs) == 1 else None


def sum_over_one(node: Node) -> Node | None:
    """Replace a sum over axes of extent 1 by a reshape; drop one over no axes."""
    (x,) = node.inputs
    if any(x.shape[axis] != 1 for axis in node.attrs["axes"]):
        return None
    return apply("reshape", x, shape=node.shape) if node.attrs["axes"] else x


def zeros(type_: TensorType) -> Node:
    """Return zeros, as a constant unless they are many."""
    zero = constant(0, type_.dtype)
    return fold(apply("broadcast_to", zero, shape=type_.shape)) if type_.shape else zero


def again(node: Node) -> Node | None:
    """Two reshapes, or two broadcasts, in a row are the last one."""
    (x,) = node.inputs
    return apply(node.op.name, x.inputs[0], **node.attrs) if x.op is node.op else None


def same_order(node: Node) -> Node | None:
    """Drop a transpose that keeps the order of the axes."""
    axes = node.attrs["axes"]
    return node.inputs[0] if axes == tuple(range(len(axes))) else None


MOST_TERMS = 64  # of sums that become one; each term is an array that a loop of the engine has at hand


def flatten_sums(graph: Graph) -> Graph:
    """Return the graph with each sum that only one other sum reads merged into that one.

    A sum with other readers stays, lest it be computed for each of them. The graph's inputs
    must be inputs throughout (see `rewrite.sealed`).
    """
    merged = _merged_sums(graph)
    if not merged:
        return graph
    new: dict[Node, Node] = {x: x for x in graph.inputs}
    for node in graph.nodes:
        if node not in merged:
            operands = _terms(node, merged) if node.op.name == "add" else node.inputs
            new[node] = rebuilt(node, [new[x] for x in operands])
    return Graph(graph.inputs, tuple(new[node] for node in graph.outputs))


def _merged_sums(graph: Graph) -> set[Node]:
    """Return the sums that only another sum of the same type reads: their terms become its terms."""
    reads = Counter(graph.outputs)
    for node in graph.nodes:
        reads.update(node.inputs)
    merged = set[Node]()
    terms = dict[Node, int]()
    for node in graph.nodes:
        if node.op.name != "add":
            continue
        terms[node] = len(node.inputs)
        for x in node.inputs:
            if x not in terms or reads[x] > 1 or x.type != node.type or x.axis is not node.axis:
                continue
            total = terms[node] + terms[x] - 1
            if total <= MOST_TERMS:
                merged.add(x)
                terms[node] = total
    return merged


def _terms(node: Node, merged: set[Node]) -> list[Node]:
    """Return the terms of a sum, with merged sums replaced by their terms."""
    terms: list[Node] = []
    stack = list(reversed(node.inputs))
    while stack:
        x = stack.pop()
        if x in merged:
            stack.extend(reversed(x.inputs))
        else:
            terms.append(x)
    return terms


@dataclass(frozen=True, slots=True)
class _PaddedTerm:
    """A term of a sum that is zero but for some `parts`: a pad, or a concatenation with zeros.

    Part i fills what lies along `axis` from its start to its stop. `term` is the term's number.
    """

    term: int
    axis: int
    parts: tuple[tuple[int, int, Node], ...]


def pads_joined(node: Node) -> Node | None:
    """``pad(a) + pad(b) + rest``, where a and b do not overlap, is ``concat(a, b) + rest``."""
    by_axis: defaultdict[int, list[_PaddedTerm]] = defaultdict(list)
    for term, x in enumerate(node.inputs):
        filled = _filled(term, x) if x.shape == node.shape else None
        if filled is not None:
            by_axis[filled.axis].append(filled)
    for candidates in by_axis.values():
        chosen = _disjoint(candidates)
        if len(chosen) > 1:
            return _joined(node, chosen)
    return None


def _filled(term: int, x: Node) -> _PaddedTerm | None:
    """Return a term as padded parts; None if it fills its axis, or is no pad or concatenation."""
    match x.op.name:
        case "pad":
            start = x.attrs["before"]
        case "concat":
            start = 0
        case _:
            return None
    axis = x.attrs["axis"]
    parts: list[tuple[int, int, Node]] = []
    for part in x.inputs:
        stop = start + part.shape[axis]
        if start < stop and not _is_zero(part):
            parts.append((start, stop, part))
        start = stop
    covered = sum(stop - start for start, stop, _ in parts) == x.shape[axis]
    return None if covered or not parts else _PaddedTerm(term, axis, tuple(parts))


def _is_zero(x: Node) -> bool:
    if x.op.name == "broadcast_to":
        return _is_zero(x.inputs[0])
    return x.op is CONSTANT and not x.attrs["value"].any()


def _disjoint(candidates: Sequence[_PaddedTerm]) -> list[_PaddedTerm]:
    """Return terms that do not overlap; choosing those that end first gives as many pads as possible."""
    taken: list[tuple[int, int]] = []
    chosen: list[_PaddedTerm] = []
    for filled in sorted(candidates, key=lambda filled: filled.parts[-1][1]):
        if all(_is_free(taken, start, stop) for start, stop, _ in filled.parts):
            chosen.append(filled)
            for start, stop, _ in filled.parts:
                insort(taken, (start, stop))
    return chosen


def _is_free(taken: Sequence[tuple[int, int]], start: int, stop: int) -> bool:
    place = bisect_left(taken, (start, stop))
    return (place == 0 or taken[place - 1][1] <= start) and (place == len(taken) or stop <= taken[place][0])


def _joined(node: Node, chosen: Sequence[_PaddedTerm]) -> Node | None:
    """Return the sum with the chosen terms as one concatenation, where the first of them stood."""
    first, shape = chosen[0], node.shape
    axis = first.axis

    def gap(start: int, stop: int) -> list[Node]:
        extents = (*shape[:axis], stop - start, *shape[axis + 1 :])
        return [zeros(TensorType(extents, node.dtype))] if start < stop else []

    pieces: list[Node] = []
    end = 0
    for start, stop, part in sorted((part for x in chosen for part in x.parts), key=lambda part: part[0]):
        pieces += [*gap(end, start), part]
        end = stop
    pieces += gap(end, shape[axis])
    joined = apply("concat", *pieces, axis=axis)
    gone = {x.term for x in chosen[1:]}
    terms = [joined if i == first.term else x for i, x in enumerate(node.inputs) if i not in gone]
    return in_place_of(node, terms[0] if len(terms) == 1 else apply("add", *terms))


RULES: dict[str, tuple[Simplification, ...]] = {
    "add": (of_one, plus_zero, pads_joined),
    "multiply": (times_one,),
    "cast": (same_type,),
    "sum": (sum_over_one,),
    "repeat": (repeated_batch,),
    "reshape": (same_type, again),
    "broadcast_to": (same_type, again),
    "transpose": (same_order,),
    "slice": (same_type,),
    "concat": (of_one,),
}

# Every rule makes a graph smaller or an op cheaper, so these bounds are never met; they turn a
# mistake in a rule into a poor graph rather than a hang.
_MAX_ROUNDS = 100
_STEPS = 100


def simplify(graph: Graph) -> Graph:
    """Return the graph simplified: fewer nodes, less to read and write, the same values.

    Values are equal up to the order of floating-point sums. An operand of a rule that becomes
    constant on the way is folded.
    """
    return sealed(graph, _simplified)


def _simplified(graph: Graph) -> Graph:
    """Return the graph after rounds of all rules, until nothing changes."""
    for _ in range(_MAX_ROUNDS):
        simpler = rewrite(flatten_sums(graph), simplify_node)
        if simpler.outputs == graph.outputs:
            break
        graph = simpler
    return graph


def simplify_node(node: Node) -> Node:
    """Return a node equal to `node` that no rule can simplify any more."""
    for _ in range(_STEPS):
        simpler = _once(node)
        if simpler is node:
            break
        node = simpler
    return node


def _once(node: Node) -> Node:
    """Return a node after one rule, or folding; the node itself if none applies."""
    folded = fold(node)
    if folded is not node:
        return folded
    rules = RULES.get(node.op.name, ()) + (without_spreading,) * node.op.elementwise
    # an op with an axis rule of its own may count rows
    for rule in rules if node.op.axis else (*rules, batched_last):
        simpler = rule(node)
        if simpler is not None:
            return simpler
    return node


def in_phase(graph: Graph, *, training: bool) -> Graph:
    """Return the graph with every ``when_training(a, b)`` replaced by a, or by b in inference.

    A graph without any is returned itself.
    """
    if all(node.op.name != "when_training" for node in graph.nodes):
        return graph

    def settled(node: Node) -> Node:
        if node.op.name != "when_training":
            return node
        chosen = in_place_of(node, node.inputs[0 if training else 1])
        assert chosen is not None, f"{node} has operands of other types"
        return chosen

    return rewrite(graph, settled)
