"""Contractions by index names: `einsum`, made of products, transposes and sums, which have gradients."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from foldbatch.operators import numpys
from foldbatch.static.graph import Node, TensorLike, apply, lift, matmul
from foldbatch.static.op import UNBATCHED, fail


@numpys
def einsum(subscripts: str, *operands: TensorLike) -> Node:
    """Return the sum of products that Einstein's notation says, over instance axes.

    ``einsum("i,ijk,j->k", a, W, b)`` is the bilinear form of two vectors for each k. Operands are joined
    from left to right, two at a time, by one matrix product where they share no index of the result.

    Args:
        subscripts: a letter for each instance axis of each operand, and behind ``->`` those of the
            result; without it, all letters that stand once, in the order of the alphabet.
        operands: tensors, parameters, arrays.

    Raises:
        GraphError: when the letters do not fit the operands, or one stands twice in an operand.

    Source: NumPy's function of that name.
    """
    spec, given = _parse(subscripts, len(operands))
    nodes = lift("einsum", operands)
    extents = _extents(spec, nodes)
    parts = list(zip(spec, nodes, strict=True))
    while len(parts) > 1:
        (a_letters, a), (b_letters, b), *rest = parts
        later = set(given).union(*(letters for letters, _ in rest))
        parts = [_joined(a_letters, a, b_letters, b, later, extents), *rest]
    letters, result = _summed(*parts[0], set(given))
    return _ordered(letters, result, given)


def _parse(subscripts: Any, count: int) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        fail("einsum", "a string of letters", type(subscripts).__name__, "as in einsum('ij,jk->ik', a, b)")
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    spec = left.split(",")
    every = "".join(spec)
    if len(spec) != count or not all(letter.isalpha() for letter in every + right):
        fix = "as in einsum('ij,jk->ik', a, b); instance axes only, without dots"
        fail("einsum", f"letters for {count} operands", repr(subscripts), fix)
    twice = next((letters for letters in (*spec, right) if len(set(letters)) < len(letters)), None)
    if twice is not None:
        fail("einsum", "each letter once in an operand", repr(twice), "a diagonal is no contraction")
    given = right if arrow else "".join(sorted(x for x in set(every) if every.count(x) == 1))
    missing = set(given) - set(every)
    if missing:
        fail("einsum", "a result of letters that operands have", f"{sorted(missing)} in {subscripts!r}")
    return spec, given


def _extents(spec: Sequence[str], nodes: Sequence[Node]) -> dict[str, int]:
    extents: dict[str, int] = {}
    for letters, node in zip(spec, nodes, strict=True):
        if len(letters) != node.ndim:
            fail(
                "einsum", f"{node.ndim} letters for {node.type}", repr(letters), "one for each instance axis"
            )
        for letter, extent in zip(letters, node.shape, strict=True):
            if extents.setdefault(letter, extent) != extent:
                fail("einsum", f"one extent for {letter!r}", f"{extents[letter]} and {extent}")
    return extents


def _summed(letters: str, node: Node, wanted: set[str]) -> tuple[str, Node]:
    """Sum over the letters that neither the other operands nor the result have."""
    axes = tuple(i for i, letter in enumerate(letters) if letter not in wanted)
    if not axes:
        return letters, node
    return "".join(x for x in letters if x in wanted), apply("sum", node, axes=axes)


def _ordered(letters: str, node: Node, wanted: str) -> Node:
    axes = tuple(letters.index(letter) for letter in wanted)
    return node if axes == tuple(range(len(axes))) else apply("transpose", node, axes=axes)


def _joined(
    a_letters: str, a: Node, b_letters: str, b: Node, later: set[str], extents: dict[str, int]
) -> tuple[str, Node]:
    """Return the product of two operands, summed over the letters that no one else has."""
    a_letters, a = _summed(a_letters, a, later | set(b_letters))
    b_letters, b = _summed(b_letters, b, later | set(a_letters))
    shared = [x for x in a_letters if x in b_letters]
    if any(x in later for x in shared) or not a.type.is_float or not shared:
        return _by_elements(a_letters, a, b_letters, b, later)
    if a.axis is UNBATCHED and b.axis is not UNBATCHED:  # a weight goes to the right: one product for all
        a_letters, a, b_letters, b = b_letters, b, a_letters, a
    rows = "".join(x for x in a_letters if x not in shared)
    columns = "".join(x for x in b_letters if x not in shared)
    inner = prod(extents[x] for x in shared)
    left = _ordered(a_letters, a, rows + "".join(shared))
    right = _ordered(b_letters, b, "".join(shared) + columns)
    left = _shaped(left, ([prod(extents[x] for x in rows)] if rows else []) + [inner])
    right = _shaped(right, [inner] + ([prod(extents[x] for x in columns)] if columns or rows else []))
    product = matmul(left, right)
    return rows + columns, _shaped(product, [extents[x] for x in rows + columns])


def _by_elements(a_letters: str, a: Node, b_letters: str, b: Node, later: set[str]) -> tuple[str, Node]:
    every = a_letters + "".join(x for x in b_letters if x not in a_letters)
    wide = [_spread(letters, node, every) for letters, node in ((a_letters, a), (b_letters, b))]
    return _summed(every, apply("multiply", *wide), later)


def _spread(letters: str, node: Node, every: str) -> Node:
    """Return a tensor with an axis for every letter, of extent 1 where it has none."""
    wanted = "".join(x for x in every if x in letters)
    ordered = _ordered(letters, node, wanted)
    shape = iter(ordered.shape)
    return _shaped(ordered, [next(shape) if x in letters else 1 for x in every])


def _shaped(node: Node, shape: Sequence[int]) -> Node:
    return node if node.shape == tuple(shape) else apply("reshape", node, shape=tuple(shape))
