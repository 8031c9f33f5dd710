"""Simplifications of sums: nested ones flattened, padded parts joined.

The gradient of reading slices of one tensor (the gates of an LSTM, computed by one GEMM) is a
sum of padded parts, each as large as the whole. Where the parts do not overlap, that sum is
their concatenation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from foldbatch.static.graph import CONSTANT, Graph, Node, apply
from foldbatch.static.passes.arithmetic import in_place_of
from foldbatch.static.passes.movement import zeros
from foldbatch.static.passes.rewrite import rebuilt
from foldbatch.types import TensorType


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
    reads = Counter(graph.outputs)
    for node in graph.nodes:
        reads.update(node.inputs)
    return {
        x
        for node in graph.nodes
        if node.op.name == "add"
        for x in node.inputs
        if x.op.name == "add" and reads[x] == 1 and x.type == node.type and x.axis is node.axis
    }


def _terms(node: Node, merged: set[Node]) -> list[Node]:
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

    Seen as ``[lead, total]``, part i fills the columns from its start to its stop. `shape` and
    `axis` are the pad's own; it may stand under a reshape. `term` is the term's number.
    """

    term: int
    shape: tuple[int, ...]
    axis: int
    parts: tuple[tuple[int, int, Node], ...]

    @property
    def lead(self) -> int:
        """The rows, which all parts fill alike."""
        return prod(self.shape[: self.axis])


def pads_joined(node: Node) -> Node | None:
    """``pad(a) + pad(b) + rest``, where a and b do not overlap, is ``concat(a, b) + rest``."""
    if node.type.size == 0:
        return None
    by_lead: defaultdict[int, list[_PaddedTerm]] = defaultdict(list)
    for term, x in enumerate(node.inputs):
        filled = _filled(term, x) if x.shape == node.shape else None
        if filled is not None:
            by_lead[filled.lead].append(filled)
    for candidates in by_lead.values():
        chosen = _disjoint(candidates)
        if len(chosen) > 1:
            return _joined(node, chosen)
    return None


def _filled(term: int, x: Node) -> _PaddedTerm | None:
    filled = x.inputs[0] if x.op.name == "reshape" else x
    if filled.op.name not in ("pad", "concat"):
        return None
    axis = filled.attrs["axis"]
    inner = prod(filled.shape[axis + 1 :])
    parts: list[tuple[int, int, Node]] = []
    start = filled.attrs.get("before", 0) * inner
    for part in filled.inputs:
        stop = start + part.shape[axis] * inner
        if start < stop and not _is_zero(part):
            parts.append((start, stop, part))
        start = stop
    covered = sum(stop - start for start, stop, _ in parts) == filled.shape[axis] * inner
    return None if covered or not parts else _PaddedTerm(term, filled.shape, axis, tuple(parts))


def _is_zero(x: Node) -> bool:
    if x.op.name == "broadcast_to":
        return _is_zero(x.inputs[0])
    return x.op is CONSTANT and not x.attrs["value"].any()


def _disjoint(candidates: Sequence[_PaddedTerm]) -> list[_PaddedTerm]:
    """Return terms that do not overlap; choosing those that end first gives as many pads as possible."""
    taken: list[tuple[int, int]] = []
    chosen: list[_PaddedTerm] = []
    for filled in sorted(candidates, key=lambda filled: filled.parts[-1][1]):
        ranges = [(start, stop) for start, stop, _ in filled.parts]
        if all(_is_free(taken, start, stop) for start, stop in ranges):
            chosen.append(filled)
            for range_ in ranges:
                insort(taken, range_)
    return chosen


def _is_free(taken: Sequence[tuple[int, int]], start: int, stop: int) -> bool:
    place = bisect_left(taken, (start, stop))
    return (place == 0 or taken[place - 1][1] <= start) and (place == len(taken) or stop <= taken[place][0])


def _joined(node: Node, chosen: Sequence[_PaddedTerm]) -> Node | None:
    """Return the sum with the chosen terms as one concatenation, where the first of them stood."""
    first = chosen[0]
    alike = all((x.shape, x.axis) == (first.shape, first.axis) for x in chosen)
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    axis = 0  # parts of a single row are contiguous: one axis is enough for them
    if first.lead > 1 and alike:
        before, axis, after = first.shape[: first.axis], first.axis, first.shape[first.axis + 1 :]
    elif first.lead > 1:
        before, axis = (first.lead,), 1

    def extents(start: int, stop: int) -> tuple[int, ...]:
        return (*before, (stop - start) // prod(after), *after)

    def gap(start: int, stop: int) -> list[Node]:
        return [zeros(TensorType(extents(start, stop), node.dtype))] if start < stop else []

    pieces: list[Node] = []
    end = 0
    for start, stop, part in sorted((part for x in chosen for part in x.parts), key=lambda part: part[0]):
        pieces += [*gap(end, start), _reshaped(part, extents(start, stop))]
        end = stop
    pieces += gap(end, node.type.size // first.lead)
    joined = _reshaped(apply("concat", *pieces, axis=axis), node.shape)
    gone = {x.term for x in chosen[1:]}
    terms = [joined if i == first.term else x for i, x in enumerate(node.inputs) if i not in gone]
    return in_place_of(node, terms[0] if len(terms) == 1 else apply("add", *terms))


def _reshaped(x: Node, shape: tuple[int, ...]) -> Node:
    return x if x.shape == shape else apply("reshape", x, shape=shape)
