"""Products: over all rows of a batch, within one instance, summed into a weight's gradient; `einsum` of them.

A weight is the same for all rows, or an id chooses it from a table for each row. All products are bilinear:
each is the others' derivative.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from foldbatch.operators import numpys
from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, TensorLike, apply, lift, matmul
from foldbatch.static.op import CALL, UNBATCHED, Attrs, Axis, Sample, define, fail
from foldbatch.types import TensorType


def _check(name: str, types: tuple[TensorType, ...], fits: bool) -> str:  # noqa: FBT001 - a type rule's verdict
    """Return the dtype of a product; refuse operands of other types, or that do not fit."""
    a, b = types[:2]
    if a.dtype != b.dtype or not a.is_float:
        fail(name, "float tensors of one dtype", f"{a} and {b}", "cast one with ops.cast")
    if not fits:
        fail(name, "matching inner extents", f"{a} and {b}", "check the sizes of both sides")
    return a.dtype


def _infer_linear(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, w = types
    dtype = _check("linear", types, x.shape[-1:] == w.shape[:1] and len(w.shape) == 2)
    return TensorType((*x.shape[:-1], w.shape[1]), dtype)


def _axis_linear(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[1] is not UNBATCHED:
        fail("linear", "a weight that is the same for the whole batch", "a weight per call", "use ops.matmul")
    return axes[0]


_X, _W, _G = TensorType((3,)), TensorType((3, 2)), TensorType((2,))

define(
    "linear",  # x: [N, *, k] @ w: [k, n] -> [N, *, n], one GEMM over all rows
    _infer_linear,
    lambda attrs, x, w: x @ w,
    lambda g, y, x, w: (apply("linear", g, w.T), apply("sum_outer", x, g)),
    (
        Sample((_X, _W), {}, (CALL, UNBATCHED)),
        Sample((TensorType((4, 3)), _W), {}, (CALL, UNBATCHED)),
        Sample((_X, _W), {}, (UNBATCHED, UNBATCHED)),
    ),
    axis=_axis_linear,
    product=True,
)


def _infer_sum_outer(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, g = types
    dtype = _check("sum_outer", types, x.shape[:-1] == g.shape[:-1] and bool(x.shape))
    return TensorType((x.shape[-1], g.shape[-1]), dtype)


def _evaluate_sum_outer(attrs: Attrs, x: Array, g: Array) -> Array:
    rows = tuple(range(x.ndim - 1))
    return np.tensordot(x, g, (rows, rows))


define(
    "sum_outer",  # x: [N, *, k], g: [N, *, n] -> [k, n], summed over all rows: a weight's gradient
    _infer_sum_outer,
    _evaluate_sum_outer,
    lambda d, y, x, g: (apply("linear", g, d.T), apply("linear", x, d)),
    (Sample((_X, _G), {}), Sample((TensorType((4, 3)), TensorType((4, 2))), {})),
    axis=lambda axes, attrs: UNBATCHED,
    product=True,
)


def _infer_matmul(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    a, b = types
    dtype = _check("matmul", types, len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    return TensorType((a.shape[0], b.shape[1]), dtype)


define(
    "matmul",  # a: [N, m, k] @ b: [N, k, n]: a product per instance
    _infer_matmul,
    lambda attrs, a, b: a @ b,
    lambda g, y, a, b: (apply("matmul", g, b.T), apply("matmul", a.T, g)),
    (
        Sample((TensorType((2, 3)), TensorType((3, 4))), {}),
        Sample((TensorType((2, 3)), TensorType((3, 4))), {}, (UNBATCHED, CALL)),
    ),
    product=True,
)


def _one_id(name: str, ids: TensorType) -> bool:
    if not ids.dtype.startswith("int") or ids.shape:
        fail(name, "one integer id for each row", str(ids))
    return True


def _same_rows(name: str, x: Axis, ids: Axis) -> None:
    if x is not ids or x is UNBATCHED:
        fail(name, "rows and ids of one batch axis", f"{x} and {ids}")


def _infer_linear_by(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, w, ids = types
    fits = _one_id("linear_by", ids) and len(w.shape) == 3 and x.shape[-1:] == w.shape[1:2]
    return TensorType((*x.shape[:-1], w.shape[2]), _check("linear_by", types, fits))


def _axis_linear_by(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    _same_rows("linear_by", axes[0], axes[2])
    if axes[1] is not UNBATCHED:
        fail("linear_by", "a table that is the same for the whole batch", "a table per call")
    return axes[0]


_TABLE, _ID = TensorType((4, 3, 2)), TensorType((), "int32")


def _transposed(table: Node) -> Node:
    return apply("transpose", table, axes=(0, 2, 1))


define(
    "linear_by",  # x: [N, *, k], table: [n, k, m], ids: [N] -> [N, *, m]: row r times table[ids[r]]
    _infer_linear_by,
    lambda attrs, x, table, ids: x @ table[ids],
    lambda g, y, x, table, ids: (
        apply("linear_by", g, _transposed(table), ids),
        apply("sum_outer_by", x, g, ids, size=table.shape[0]),
        None,
    ),
    (
        Sample((_X, _TABLE, _ID), {}, (CALL, UNBATCHED, CALL)),
        Sample((TensorType((2, 3)), _TABLE, _ID), {}, (CALL, UNBATCHED, CALL)),
    ),
    axis=_axis_linear_by,
    bound=lambda types, attrs: (2, types[1].shape[0]),
    product=True,
    table=1,
)


def _infer_sum_outer_by(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, g, ids = types
    fits = _one_id("sum_outer_by", ids) and x.shape[:-1] == g.shape[:-1] and bool(x.shape)
    return TensorType((attrs["size"], x.shape[-1], g.shape[-1]), _check("sum_outer_by", types, fits))


def _axis_sum_outer_by(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    for axis in axes[:2]:
        _same_rows("sum_outer_by", axis, axes[2])
    return UNBATCHED


def _evaluate_sum_outer_by(attrs: Attrs, x: Array, g: Array, ids: Array) -> Array:
    sums = np.zeros((attrs["size"], x.shape[-1], g.shape[-1]), x.dtype)
    sums[ids] = _evaluate_sum_outer(attrs, x, g)
    return sums


define(
    "sum_outer_by",  # x: [N, *, k], g: [N, *, m], ids: [N] -> [n, k, m]: a table's gradient
    _infer_sum_outer_by,
    _evaluate_sum_outer_by,
    lambda d, y, x, g, ids: (apply("linear_by", g, _transposed(d), ids), apply("linear_by", x, d, ids), None),
    (Sample((_X, _G, _ID), {"size": 4}), Sample((TensorType((2, 3)), TensorType((2, 2)), _ID), {"size": 4})),
    axis=_axis_sum_outer_by,
    bound=lambda types, attrs: (2, attrs["size"]),
    product=True,
)


@numpys
def einsum(subscripts: str, *operands: TensorLike) -> Node:
    """Return the sum of products that Einstein's notation describes, over instance axes.

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
    spec, output_letters = _parse(subscripts, len(operands))
    nodes = lift("einsum", operands)
    extents = _extents(spec, nodes)
    parts = list(zip(spec, nodes, strict=True))
    while len(parts) > 1:
        (a_letters, a), (b_letters, b), *following = parts
        later = set(output_letters).union(*(letters for letters, _ in following))
        parts = [_joined(a_letters, a, b_letters, b, later, extents), *following]
    letters, result = _summed(*parts[0], set(output_letters))
    return _ordered(letters, result, output_letters)


def _parse(subscripts: object, count: int) -> tuple[list[str], str]:
    """Return the letters of each operand and of the result; refuse any other notation."""
    if not isinstance(subscripts, str):
        fail("einsum", "a string of letters", type(subscripts).__name__, "as in einsum('ij,jk->ik', a, b)")
    text = subscripts.replace(" ", "")
    lhs, arrow, rhs = text.partition("->")
    spec = lhs.split(",")
    every = "".join(spec)
    if len(spec) != count or not all(letter.isalpha() for letter in every + rhs):
        fix = "as in einsum('ij,jk->ik', a, b); instance axes only, without dots"
        fail("einsum", f"letters for {count} operands", repr(subscripts), fix)
    twice = next((letters for letters in (*spec, rhs) if len(set(letters)) < len(letters)), None)
    if twice is not None:
        fail("einsum", "each letter once in an operand", repr(twice), "a diagonal is no contraction")
    output_letters = rhs if arrow else "".join(sorted(x for x in set(every) if every.count(x) == 1))
    missing = set(output_letters) - set(every)
    if missing:
        fail("einsum", "a result of letters that operands have", f"{sorted(missing)} in {subscripts!r}")
    return spec, output_letters


def _extents(spec: Sequence[str], nodes: Sequence[Node]) -> dict[str, int]:
    """Return the extent of each letter; refuse operands that disagree."""
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
    """Sum over the letters that are in no other operand and not in the result."""
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
    """Return the product of two operands, summed over the letters that no other operand has."""
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
    lhs = _ordered(a_letters, a, rows + "".join(shared))
    rhs = _ordered(b_letters, b, "".join(shared) + columns)
    lhs = _shaped(lhs, ([prod(extents[x] for x in rows)] if rows else []) + [inner])
    rhs = _shaped(rhs, [inner] + ([prod(extents[x] for x in columns)] if columns or rows else []))
    product = matmul(lhs, rhs)
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
