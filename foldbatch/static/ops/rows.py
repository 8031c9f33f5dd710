"""Ops that change the batch axis: rows repeated, rows summed, rows looked up in a table.

They come in pairs that are each other's transpose: `batch` and `sum_batch` between the whole
batch and its calls, `repeat` and `segment_sum` between a call and the elements of its
sequence, `gather` and `sum_rows` between a table and the rows that calls read from it. In one
instance (how the reference interpreter sees them) the sums over calls are the identity.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.static.graph import Node, apply
from foldbatch.static.op import CALL, UNBATCHED, Attrs, Axis, Op, Sample, Tangents, define, fail, ragged
from foldbatch.static.ops.shape import linear_jvp
from foldbatch.types import TensorType

_V, _T, _ID = TensorType((3,)), TensorType((4, 3)), TensorType((), "int32")
_ELEMENTS = ragged()
REPEATED, TOTAL = "y[k] = x", "total = sum(x[k])\ny = t(total)"


def _same_type(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    return types[0]


def _same_value(attrs: Attrs, x: Any) -> Any:
    return x


def _axis_batch(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is not UNBATCHED or attrs["axis"] is UNBATCHED:
        fail("batch", "a tensor that is the same for the whole batch", f"a tensor of axis {axes[0]}")
    return attrs["axis"]  # type: ignore[no-any-return]


def _axis_sum_batch(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is UNBATCHED:
        fail(
            "sum_batch",
            "a tensor with a row per call",
            "one that is the same for the whole batch",
            "use ops.batched",
        )
    return UNBATCHED


def _axis_repeat(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is not CALL or attrs["axis"].rank < 2:
        fail("repeat", "a tensor with a row per call", f"a tensor of axis {axes[0]}")
    return attrs["axis"]  # type: ignore[no-any-return]


define(
    Op(
        "batch",  # the same value for every row of an axis
        _same_type,
        _same_value,
        lambda g, y, x: (apply("sum_batch", g),),
        linear_jvp,
        (Sample((_V,), {"axis": CALL}, (UNBATCHED,)),),
        axis=_axis_batch,
    )
)
define(
    Op(
        "sum_batch",  # the sum over all rows
        _same_type,
        _same_value,
        lambda g, y, x: (apply("batch", g, axis=x.axis),),
        linear_jvp,
        (Sample((_V,), {}),),
        axis=_axis_sum_batch,
    )
)
define(
    Op(
        "repeat",  # each call's row, for every element of its sequence
        _same_type,
        _same_value,
        lambda g, y, x: (apply("segment_sum", g),),
        linear_jvp,
        (Sample((_V,), {"axis": _ELEMENTS}),),
        axis=_axis_repeat,
        body=REPEATED,
    )
)


def _axis_segment_sum(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0].rank < 2:
        fail(
            "segment_sum",
            "a tensor of a sequence's elements",
            f"a tensor of axis {axes[0]}",
            "use ops.sum for instance axes",
        )
    return CALL


define(
    Op(
        "segment_sum",  # the sum over the elements of each call's sequence; zero where it is empty
        _same_type,
        _same_value,
        lambda g, y, x: (apply("repeat", g, axis=x.axis),),
        linear_jvp,
        (Sample((_V,), {}, (_ELEMENTS,)),),
        axis=_axis_segment_sum,
        body=TOTAL,
    )
)


def _infer_gather(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    table, ids = types
    if not ids.dtype.startswith("int"):
        fail("gather", "integer ids", str(ids), "declare Scalar('int32'), or cast with ops.cast")
    if not table.shape:
        fail("gather", "a table of at least one axis", str(table))
    return TensorType(ids.shape + table.shape[1:], table.dtype)


def _axis_gather(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is not UNBATCHED:
        fail(
            "gather",
            "a table that is the same for the whole batch",
            "a table per call",
            "multiply by ops.one_hot",
        )
    return axes[1]


def _jvp_gather(tangents: Tangents, y: Node, table: Node, ids: Node) -> Node:
    assert tangents[0] is not None
    return apply("gather", tangents[0], ids)


define(
    Op(
        "gather",  # table: [n, *], ids: [N, ...] -> [N, ..., *]
        _infer_gather,
        lambda attrs, table, ids: np.asarray(table)[ids],
        lambda g, y, table, ids: (apply("sum_rows", g, ids, size=table.shape[0]), None),
        _jvp_gather,
        (
            Sample((_T, _ID), {}, (UNBATCHED, CALL)),
            Sample((_T, TensorType((2,), "int64")), {}, (UNBATCHED, CALL)),
        ),
        axis=_axis_gather,
        bound=lambda types, attrs: (1, types[0].shape[0]),
    )
)


def _infer_sum_rows(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    g, ids = types
    if not ids.dtype.startswith("int") or g.shape[: len(ids.shape)] != ids.shape:
        fail("sum_rows", "a row for every integer id", f"{g} and {ids}")
    return TensorType((attrs["size"], *g.shape[len(ids.shape) :]), g.dtype)


def _sum_rows(size: int, g: Any, ids: Any) -> Any:
    table = np.zeros((size, *g.shape[ids.ndim :]), g.dtype)
    for place in np.ndindex(ids.shape):
        table[ids[place]] += g[place]
    return table


def _jvp_sum_rows(tangents: Tangents, y: Node, g: Node, ids: Node) -> Node:
    assert tangents[0] is not None
    return apply("sum_rows", tangents[0], ids, **y.attrs)


define(
    Op(
        "sum_rows",  # g: [N, ..., *], ids: [N, ...] -> [n, *]: a table's gradient, sparse in kernels
        _infer_sum_rows,
        lambda attrs, g, ids: _sum_rows(attrs["size"], np.asarray(g), np.asarray(ids)),
        lambda d, y, g, ids: (apply("gather", d, ids), None),
        _jvp_sum_rows,
        (
            Sample((_V, _ID), {"size": 4}),
            Sample((TensorType((2, 3)), TensorType((2,), "int32")), {"size": 4}),
        ),
        axis=lambda axes, attrs: UNBATCHED,
        bound=lambda types, attrs: (1, attrs["size"]),
    )
)
