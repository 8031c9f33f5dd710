"""Products: over all rows of a batch, within one instance, and summed into a weight's gradient.

A weight is the same for all rows, or an id chooses it from a table for each row. All products are bilinear:
each is the others' derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.static.graph import Node, apply
from foldbatch.static.op import CALL, UNBATCHED, Attrs, Axis, Op, Sample, Tangents, define, fail
from foldbatch.types import TensorType


def bilinear_jvp(name: str) -> Callable[..., Node]:
    """Return the product rule: ``op(da, b) + op(a, db)``; operands after these two have no tangent."""

    def jvp(tangents: Tangents, y: Node, a: Node, b: Node, *ids: Node) -> Node:
        da, db = tangents[:2]
        terms = [apply(name, *pair, *ids, **y.attrs) for pair in ((da, b), (a, db)) if None not in pair]
        return terms[0] if len(terms) == 1 else apply("add", *terms)

    return jvp


def _check(name: str, types: tuple[TensorType, ...], fits: bool) -> str:  # noqa: FBT001 - a type rule's verdict
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
    Op(
        "linear",  # x: [N, *, k] @ w: [k, n] -> [N, *, n], one GEMM over all rows
        _infer_linear,
        lambda attrs, x, w: x @ w,
        lambda g, y, x, w: (apply("linear", g, w.T), apply("sum_outer", x, g)),
        bilinear_jvp("linear"),
        (
            Sample((_X, _W), {}, (CALL, UNBATCHED)),
            Sample((TensorType((4, 3)), _W), {}, (CALL, UNBATCHED)),
            Sample((_X, _W), {}, (UNBATCHED, UNBATCHED)),
        ),
        axis=_axis_linear,
    )
)


def _infer_sum_outer(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, g = types
    dtype = _check("sum_outer", types, x.shape[:-1] == g.shape[:-1] and bool(x.shape))
    return TensorType((x.shape[-1], g.shape[-1]), dtype)


def _evaluate_sum_outer(attrs: Attrs, x: Any, g: Any) -> Any:
    rows = tuple(range(x.ndim - 1))
    return np.tensordot(x, g, (rows, rows))


define(
    Op(
        "sum_outer",  # x: [N, *, k], g: [N, *, n] -> [k, n], summed over all rows: a weight's gradient
        _infer_sum_outer,
        _evaluate_sum_outer,
        lambda d, y, x, g: (apply("linear", g, d.T), apply("linear", x, d)),
        bilinear_jvp("sum_outer"),
        (Sample((_X, _G), {}), Sample((TensorType((4, 3)), TensorType((4, 2))), {})),
        axis=lambda axes, attrs: UNBATCHED,
    )
)


def _infer_matmul(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    a, b = types
    dtype = _check("matmul", types, len(a.shape) == len(b.shape) == 2 and a.shape[1] == b.shape[0])
    return TensorType((a.shape[0], b.shape[1]), dtype)


def _evaluate_matmul(attrs: Attrs, a: Any, b: Any) -> Any:
    return a @ b


define(
    Op(
        "matmul",  # a: [N, m, k] @ b: [N, k, n]: a product per instance
        _infer_matmul,
        _evaluate_matmul,
        lambda g, y, a, b: (apply("matmul", g, b.T), apply("matmul", a.T, g)),
        bilinear_jvp("matmul"),
        (
            Sample((TensorType((2, 3)), TensorType((3, 4))), {}),
            Sample((TensorType((2, 3)), TensorType((3, 4))), {}, (UNBATCHED, CALL)),
        ),
    )
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
    Op(
        "linear_by",  # x: [N, *, k], table: [n, k, m], ids: [N] -> [N, *, m]: row r times table[ids[r]]
        _infer_linear_by,
        lambda attrs, x, table, ids: x @ table[ids],
        lambda g, y, x, table, ids: (
            apply("linear_by", g, _transposed(table), ids),
            apply("sum_outer_by", x, g, ids, size=table.shape[0]),
            None,
        ),
        bilinear_jvp("linear_by"),
        (
            Sample((_X, _TABLE, _ID), {}, (CALL, UNBATCHED, CALL)),
            Sample((TensorType((2, 3)), _TABLE, _ID), {}, (CALL, UNBATCHED, CALL)),
        ),
        axis=_axis_linear_by,
        bound=lambda types, attrs: (2, types[1].shape[0]),
    )
)


def _infer_sum_outer_by(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    x, g, ids = types
    fits = _one_id("sum_outer_by", ids) and x.shape[:-1] == g.shape[:-1] and bool(x.shape)
    return TensorType((attrs["size"], x.shape[-1], g.shape[-1]), _check("sum_outer_by", types, fits))


def _axis_sum_outer_by(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    for axis in axes[:2]:
        _same_rows("sum_outer_by", axis, axes[2])
    return UNBATCHED


def _evaluate_sum_outer_by(attrs: Attrs, x: Any, g: Any, ids: Any) -> Any:
    sums = np.zeros((attrs["size"], x.shape[-1], g.shape[-1]), x.dtype)
    sums[ids] = _evaluate_sum_outer(attrs, x, g)
    return sums


define(
    Op(
        "sum_outer_by",  # x: [N, *, k], g: [N, *, m], ids: [N] -> [n, k, m]: a table's gradient
        _infer_sum_outer_by,
        _evaluate_sum_outer_by,
        lambda d, y, x, g, ids: (
            apply("linear_by", g, _transposed(d), ids),
            apply("linear_by", x, d, ids),
            None,
        ),
        bilinear_jvp("sum_outer_by"),
        (
            Sample((_X, _G, _ID), {"size": 4}),
            Sample((TensorType((2, 3)), TensorType((2, 2)), _ID), {"size": 4}),
        ),
        axis=_axis_sum_outer_by,
        bound=lambda types, attrs: (2, attrs["size"]),
    )
)
