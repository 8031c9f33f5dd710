"""Ops that change the batch axis: rows repeated, rows summed, rows looked up in a table; indexing.

They come in pairs that are each other's transpose: `batch` and `sum_batch` between the whole
batch and its calls, `repeat` and `segment_sum` between a call and the elements of its
sequence, `gather` and `sum_rows` between a table and the rows that calls read from it. In one
instance (how the reference interpreter sees them) the sums over calls are the identity.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from foldbatch.operators import plain_operands, public
from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, TensorLike, apply, constant, lift, slice_of
from foldbatch.static.op import BEYOND, CALL, OF_LIST, UNBATCHED, Attrs, Axis, Sample, define, fail, ragged
from foldbatch.static.ops.reduce import TOTAL
from foldbatch.static.ops.shape import along
from foldbatch.types import TensorType

_V, _T, _ID = TensorType((3,)), TensorType((4, 3)), TensorType((), "int32")
_ELEMENTS = ragged()
REPEATED = "y[k] = x"


def _same_type(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    return types[0]


def _same_value(attrs: Attrs, x: object) -> object:
    return x


def _axis_batch(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is not UNBATCHED or attrs["axis"] is UNBATCHED:
        fail("batch", "a tensor that is the same for the whole batch", f"a tensor of axis {axes[0]}")
    return attrs["axis"]  # type: ignore[no-any-return]


def _axis_sum_batch(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is UNBATCHED:
        actual = "one that is the same for the whole batch"
        fail("sum_batch", "a tensor with a row per call", actual, "use ops.batched")
    return UNBATCHED


def _axis_repeat(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is not CALL or attrs["axis"].rank < 2:
        fail("repeat", "a tensor with a row per call", f"a tensor of axis {axes[0]}")
    return attrs["axis"]  # type: ignore[no-any-return]


define(
    "batch",  # the same value for every row of an axis
    _same_type,
    _same_value,
    lambda g, y, x: (apply("sum_batch", g),),
    (Sample((_V,), {"axis": CALL}, (UNBATCHED,)),),
    axis=_axis_batch,
    view="repeated",
    keeps_values=True,
)
define(
    "sum_batch",  # the sum over all rows
    _same_type,
    _same_value,
    lambda g, y, x: (apply("batch", g, axis=x.axis),),
    (Sample((_V,), {}),),
    axis=_axis_sum_batch,
)
define(
    "repeat",  # each call's row, for every element of its sequence
    _same_type,
    _same_value,
    lambda g, y, x: (apply("segment_sum", g),),
    (Sample((_V,), {"axis": _ELEMENTS}),),
    axis=_axis_repeat,
    body=REPEATED,
    sequence="owner",
)


define(
    "segment_sum",  # the sum over the elements of each call's sequence; zero where it is empty
    _same_type,
    _same_value,
    lambda g, y, x: (apply("repeat", g, axis=x.axis),),
    (Sample((_V,), {}, (_ELEMENTS,)),),
    axis=along("segment_sum", "ops.sum", CALL),
    body=TOTAL,
    sequence="bounds",
)


def _infer_gather(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    """Return the type of rows of a table, one for each id."""
    table, ids = types
    if not ids.dtype.startswith("int"):
        fail("gather", "integer ids", str(ids), "declare Scalar('int32'), or cast with ops.cast")
    if not table.shape:
        fail("gather", "a table of at least one axis", str(table))
    return TensorType(ids.shape + table.shape[1:], table.dtype)


def _axis_gather(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
    if axes[0] is not UNBATCHED:
        expected, fix = "a table that is the same for the whole batch", "multiply by ops.one_hot"
        fail("gather", expected, "a table per call", fix)
    return axes[1]


define(
    "gather",  # table: [n, *], ids: [N, ...] -> [N, ..., *]
    _infer_gather,
    lambda attrs, table, ids: np.asarray(table)[ids],
    lambda g, y, table, ids: (apply("sum_rows", g, ids, size=table.shape[0]), None),
    (
        Sample((_T, _ID), {}, (UNBATCHED, CALL)),
        Sample((_T, TensorType((2,), "int64")), {}, (UNBATCHED, CALL)),
    ),
    axis=_axis_gather,
    bound=lambda types, attrs: (1, types[0].shape[0]),
    table=0,
)


define(
    "segment_check",  # codes of elements, each of which the call's sequence must have: 0, see `op.OF_LIST`
    _same_type,
    _same_value,
    samples=(Sample((TensorType((), "int64"),), {}), Sample((TensorType((2,), "int64"),), {})),
    bound=lambda types, attrs: (0, OF_LIST),
    copies=lambda attrs, write, code: iter([(write, code)]),
)


def _infer_sum_rows(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    g, ids = types
    if not ids.dtype.startswith("int") or g.shape[: len(ids.shape)] != ids.shape:
        fail("sum_rows", "a row for every integer id", f"{g} and {ids}")
    return TensorType((attrs["size"], *g.shape[len(ids.shape) :]), g.dtype)


def _sum_rows(size: int, g: Array, ids: Array) -> Array:
    table = np.zeros((size, *g.shape[ids.ndim :]), g.dtype)
    for place in np.ndindex(ids.shape):
        table[ids[place]] += g[place]
    return table


define(
    "sum_rows",  # g: [N, ..., *], ids: [N, ...] -> [n, *]: a table's gradient, sparse in kernels
    _infer_sum_rows,
    lambda attrs, g, ids: _sum_rows(attrs["size"], np.asarray(g), np.asarray(ids)),
    lambda d, y, g, ids: (apply("gather", d, ids), None),
    (Sample((_V, _ID), {"size": 4}), Sample((TensorType((2, 3)), TensorType((2,), "int32")), {"size": 4})),
    axis=lambda axes, attrs: UNBATCHED,
    bound=lambda types, attrs: (1, attrs["size"]),
)


@public
def getitem(x: Node, key: Any) -> Node:
    """Return ``x[key]`` for ints, slices, ``...`` and None; for one tensor or array of ids, rows of `x`."""
    if isinstance(key, Node | np.ndarray | list):
        with suppress(ValueError):  # rows of several lengths, which are refused
            key = np.asarray(key) if isinstance(key, list) else key
        return gather(x, key)
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(k is Ellipsis for k in keys):
        ellipsis = next(i for i, k in enumerate(keys) if k is Ellipsis)
        missing = x.ndim - sum(k is not None and k is not Ellipsis for k in keys)
        keys[ellipsis : ellipsis + 1] = [slice(None)] * missing
    shape: list[int] = []
    axis = 0
    for k in keys:
        if k is None:
            shape.append(1)
            continue
        if axis >= x.ndim:
            fix = "the elements of a list, as the examples of a batch, are no axis: write for one of them"
            fail("getitem", f"at most {x.ndim} indices", f"{len(keys)}", fix)
        extent = x.shape[axis]
        match k:
            case slice():
                x = _stepped(x, axis, k)
                shape.append(x.shape[axis])
            case int() | np.integer() if not isinstance(k, bool):
                if not -extent <= k < extent:
                    fail("getitem", f"an index from {-extent} to {extent - 1} on axis {axis}", str(k))
                x = slice_of(x, axis, int(k) % extent, int(k) % extent + 1)
            case _:
                fix = "computed ids stand alone, as in x[ids]; choose elements by a condition with ops.where"
                fail("getitem", "ints, slices, None or ..., or one tensor of ids", repr(k), fix)
        axis += 1
    shape.extend(x.shape[axis:])
    return x if tuple(shape) == x.shape else apply("reshape", x, shape=tuple(shape))


def _stepped(x: Node, axis: int, key: slice) -> Node:
    """Return ``x[start:stop:step]`` along an axis."""
    if key.step == 0:
        fail("getitem", "a step other than 0", "0", "leave it out, or go back with -1")
    places = range(*key.indices(x.shape[axis]))
    if not places:
        return apply("slice", x, axis=axis, start=0, stop=0)
    low, high = sorted((places[0], places[-1]))
    x = slice_of(x, axis, low, high + 1)
    if key.step is not None and key.step < 0:
        x = apply("flip", x, axis=axis)
    step = abs(key.step or 1)
    if step > 1:  # the first of each `step` neighbours, the last of which lack some
        padded = apply("pad", x, axis=axis, before=0, after=len(places) * step - x.shape[axis])
        rows = (*x.shape[:axis], len(places), step, *x.shape[axis + 1 :])
        first = apply("slice", apply("reshape", padded, shape=rows), axis=axis + 1, start=0, stop=1)
        x = apply("reshape", first, shape=(*x.shape[:axis], len(places), *x.shape[axis + 1 :]))
    return x


@public
@plain_operands("ids")
def gather(table: TensorLike, ids: TensorLike) -> Node:
    """Return rows of a table by ids that may be computed; an id out of range is an error.

    The table is a parameter or a constant, or it is computed for each call; then its first axis is looked up.
    A call's sequence is a table, too: its ids count the elements.

    Shapes: table ``[n, *]``, ids ``[N, ...]`` to ``[N, ..., *]``; of a sequence ``[M, *]`` the same.

    Raises:
        GraphError: when the ids are no integers, or the table has no axis.

    >>> best = fb.Function(lambda x: gather(x, fb.ops.argmax(x)))
    >>> float((fb.Vector(3) >> best).eval([1, 5, 2]))
    5.0
    """
    (x,), (numbers,) = lift("gather", (table,)), lift("gather", (ids,))
    if x.axis is UNBATCHED:
        return apply("gather", x, numbers)
    if not numbers.dtype.startswith("int"):
        fix = "declare Scalar('int32'), or cast with ops.cast"
        if numbers.dtype == "bool":
            fix = "choose with ops.where: how long a tensor is does not depend on numbers"
        fail("gather", "integer ids", str(numbers.type), fix)
    if x.axis.rank > 1 and numbers.axis is not x.axis:
        return _of_sequence(x, numbers)
    if not x.shape:
        fail("gather", "a table of at least one axis", str(x.type))
    lines = apply("transpose", x, axes=(*range(1, x.ndim), 0))
    shape = (*numbers.shape, *lines.shape[:-1])
    places = apply("reshape", numbers, shape=(*numbers.shape, *(1,) * (x.ndim - 1)))
    lines = apply("broadcast_to", lines, shape=(*shape, x.shape[0]))
    return apply("pick", lines, apply("broadcast_to", places, shape=shape))


def _of_sequence(x: Node, ids: Node) -> Node:
    """Return an element of each call's sequence for each id."""
    wanted, position = apply("cast", ids, dtype="int64"), segment_position(x)
    matches = apply("segment_sum", apply("cast", apply("equal", position, wanted), dtype="int64"))
    below = apply("maximum", wanted, 1 - BEYOND)
    beyond = -BEYOND - apply("minimum", wanted, BEYOND // 2)
    code = apply("where", wanted < 0, below, beyond)  # as `id_of_code` reads it
    code = apply("where", apply("equal", matches, 1), constant(0, "int64"), code)
    inside = apply("equal", apply("segment_check", code), 0)
    column = (*ids.shape, *(1,) * x.ndim)
    chosen = apply("equal", position, apply("reshape", wanted, shape=column))
    rows = apply("segment_sum", apply("where", chosen, x, constant(0, x.dtype)))
    return apply("where", apply("reshape", inside, shape=column), rows, constant(0, x.dtype))


@public
def segment_position(x: TensorLike) -> Node:
    """Return the index of each element in its call's sequence, as int64.

    Shapes: ``[M, *]`` to ``[M]``.

    Raises:
        GraphError: when `x` is not a tensor of a sequence's elements.

    >>> last = fb.Function(lambda x: fb.ops.segment_max(segment_position(x)))
    >>> int((fb.Map(fb.Scalar()) >> last).eval([7, 7, 7]))
    2
    """
    (node,) = lift("segment_position", (x,))
    along("segment_position", "np.arange")((node.axis,), {})
    # of an element only its place counts; where it holds nothing, a constant stands for it
    zero = apply("batch", constant(0, "int64"), axis=node.axis)
    element = getitem(node, (0,) * node.ndim) if node.type.size else zero
    return apply("segment_position", element)


@public
def segment_argmax(x: TensorLike) -> Node:
    """Return, per call, the index of the (first) maximum in its sequence, as int64; 0 for an empty one.

    Shapes: ``[M, *]`` to ``[N, *]``. With `gather` it selects an element by what was computed.

    Raises:
        GraphError: when `x` is not a tensor of a sequence's elements.

    >>> pointer = fb.Function(lambda x: gather(x * 10, segment_argmax(x)))
    >>> float((fb.Map(fb.Scalar()) >> pointer).eval([2, 8, 5]))
    80.0
    """
    (node,) = lift("segment_argmax", (x,))
    first = apply("segment_is_max", node)
    return apply("segment_sum", apply("where", first, segment_position(node), constant(0, "int64")))
