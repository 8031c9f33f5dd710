"""How NumPy spells each op: statements that write to a preallocated buffer.

An entry takes the node, its operands' expressions, the name of its buffer and the expression
of its number of rows, and returns lines of code (for a view: one expression). Spelling only:
what an op means stands in `foldbatch.static.ops`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.params import Array, SparseRows
from foldbatch.static.graph import Node
from foldbatch.static.ops.random import BITS, random_bits

Spelling = Callable[[Node, Sequence[str], str, str], list[str]]


def sum_rows(
    values: Array, ids: Array, size: int, sum_copies: Callable[..., None] | None = None
) -> SparseRows:
    """Sum rows of equal id, in the order of the batch: a table's gradient, bitwise repeatable.

    Shapes: ``values: [N, ..., *]``, ``ids: [N, ...]``; the result's rows are ascending. The sums are made by
    `sum_copies` of `named_loops`, if it is given.
    """
    flat = ids.reshape(-1)
    rows = values.reshape(len(flat), *values.shape[ids.ndim :])
    if (flat[1:] > flat[:-1]).all():  # as of shared calls, each of another row
        return SparseRows(flat.astype(np.int64), np.array(rows), (size, *rows.shape[1:]))
    order = np.argsort(flat, kind="stable")
    ranked = flat[order]
    starts = np.flatnonzero(np.diff(ranked, prepend=-1))
    if sum_copies is not None:
        sums = np.empty((len(starts), math.prod(rows.shape[1:])), rows.dtype)
        whole = np.ascontiguousarray(rows).reshape(len(flat), sums.shape[1])
        sum_copies(whole, np.append(starts, len(flat)), order, sums)
        shape = (len(starts), *rows.shape[1:])
        return SparseRows(ranked[starts].astype(np.int64), sums.reshape(shape), (size, *rows.shape[1:]))
    sums = rows[order]
    if len(starts) < len(flat):
        parts, sums = sums, np.empty((len(starts), *rows.shape[1:]), rows.dtype)
        segment_sum(parts, starts, np.diff(starts, append=len(flat)), sums)
    return SparseRows(ranked[starts].astype(np.int64), sums, (size, *rows.shape[1:]))


def segment_sum(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Sum runs of rows; an empty run gives zero. ``starts, counts: [n]``, ``x: [sum(counts), *]``."""
    _reduce_segments(np.add, x, starts, counts, out)


def segment_max(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Find the greatest of runs of rows; an empty run gives zero. Shapes: as for `segment_sum`."""
    _reduce_segments(np.maximum, x, starts, counts, out)


MANY, WIDE = 64, 32  # runs, and numbers in a row, from which it pays not to go run by run


def _reduce_segments(
    ufunc: np.ufunc, x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array
) -> None:
    if len(x) == 0:
        out[...] = 0
    elif len(counts) >= MANY and x[0].size >= WIDE:
        reduce_by_length(ufunc, x, starts, counts, out)
    elif counts.all():
        ufunc.reduceat(x, starts, axis=0, out=out)
    else:
        out[...] = 0
        full = np.flatnonzero(counts)
        out[full] = ufunc.reduceat(x, starts[full], axis=0)


def reduce_by_length(
    ufunc: np.ufunc,
    x: Array,
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    out: Array,
    at: NDArray[np.int64] | None = None,
) -> None:
    """Reduce runs of one length together: five times as fast as ``reduceat``, which goes run by run.

    Shapes: as for `segment_sum`; with ``at: [sum(counts)]`` the runs are of ``x[at]``, which is not made.
    """
    for count in np.unique(counts):
        runs = np.flatnonzero(counts == count)
        if count == 0:
            out[runs] = 0
            continue
        places = starts[runs][:, None] + np.arange(count)
        rows = x[places if at is None else at[places]]
        out[runs] = rows[:, 0] if count == 1 else ufunc.reduce(rows, axis=1)


def segment_is_max(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Mark the first greatest row of each run (or the first NaN). Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    np.equal(x, np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0), out=out)
    np.logical_or(out, np.isnan(x), out=out)  # NaN equals nothing
    rows = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
    first = np.minimum.reduceat(np.where(out, rows, len(x)), starts, axis=0)
    np.equal(rows, np.repeat(first, counts, axis=0), out=out)


def segment_softmax(x: Array, starts: NDArray[np.int64], counts: NDArray[np.int64], out: Array) -> None:
    """Normalise exp(x) over each run, without overflow. Shapes: ``x, out: [sum(counts), *]``."""
    if len(x) == 0:
        return
    full = np.flatnonzero(counts)
    starts, counts = starts[full], counts[full]
    np.subtract(x, np.repeat(np.maximum.reduceat(x, starts, axis=0), counts, axis=0), out=out)
    np.exp(out, out=out)
    np.divide(out, np.repeat(np.add.reduceat(out, starts, axis=0), counts, axis=0), out=out)


class OutOfRangeError(IndexError):
    """A computed index is out of range; `row` is the first such row of the kernel's slice."""

    def __init__(self, row: int, found: int, size: int) -> None:
        super().__init__(row, found, size)
        self.row, self.found, self.size = row, found, size


def check_range(
    ids: NDArray[np.integer[Any]], size: int, owner: NDArray[np.integer[Any]] | None = None
) -> None:
    """Refuse indices below 0 or not below `size` (NumPy would wrap negative ones silently).

    Shapes: ``ids: [n, ...]``; ``owner: [n]``, the call of each row where rows are elements of sequences.
    """
    bad = (ids < 0) | (ids >= size)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise OutOfRangeError(at[0] if owner is None else int(owner[at[0]]), int(ids[at]), size)


GLOBALS = {
    "np": np,
    "sum_rows": sum_rows,
    "segment_sum": segment_sum,
    "segment_max": segment_max,
    "segment_is_max": segment_is_max,
    "segment_softmax": segment_softmax,
    "check_range": check_range,
    "random_bits": random_bits,
}


def _batched(node: Node) -> int:
    return 1 if node.axis.rank else 0


def _shape(node: Node, rows: str, shape: Sequence[int] | None = None) -> str:
    extents = [rows] * _batched(node) + [str(extent) for extent in (node.shape if shape is None else shape)]
    return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"


def _section(node: Node, axis: int, start: int, stop: int) -> str:
    return f"[{':, ' * (axis + _batched(node))}{start}:{stop}]"


def _ufunc(name: str) -> Spelling:
    return lambda node, xs, out, rows: [f"np.{name}({', '.join(xs)}, out={out})"]


def _add(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    if len(xs) == 1:
        return [f"np.copyto({out}, {xs[0]})"]
    return [f"np.add({xs[0]}, {xs[1]}, out={out})"] + [f"np.add({out}, {x}, out={out})" for x in xs[2:]]


def _sigmoid(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [
        f"np.multiply({xs[0]}, 0.5, out={out})",
        f"np.tanh({out}, out={out})",
        f"np.multiply({out}, 0.5, out={out})",
        f"np.add({out}, 0.5, out={out})",
    ]


def _where(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    condition, a, b = xs
    return [f"np.copyto({out}, {b})", f"np.copyto({out}, {a}, where={condition})"]


def _random(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    bits = f"random_bits({xs[0]}, {node.attrs['site']}, {node.attrs['shape']})"
    return [f"np.multiply({bits}, {2.0**-BITS!r}, out={out}, casting='same_kind')"]


def _linear(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    x, w = xs
    inner, outer = node.inputs[0].shape[-1], node.shape[-1]
    if inner == 0:
        return [f"{out}[...] = 0"]
    if node.ndim > 1 and outer > 0:  # one GEMM over all leading axes, not one a row
        return [f"np.matmul({x}.reshape(-1, {inner}), {w}, out={out}.reshape(-1, {outer}))"]
    return [f"np.matmul({x}, {w}, out={out})"]


def _sum_outer(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    x, g = node.inputs
    if node.type.size == 0:  # -1 would stand for any number of rows of nothing
        return [f"{out}[...] = 0"]
    left = xs[0] if x.ndim + _batched(x) == 2 else f"{xs[0]}.reshape(-1, {x.shape[-1]})"
    right = xs[1] if g.ndim + _batched(g) == 2 else f"{xs[1]}.reshape(-1, {g.shape[-1]})"
    return [f"np.matmul({left}.T, {right}, out={out})"]


def _reshape(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [f"{xs[0]}.reshape({_shape(node, rows)})"]


def _slice(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [xs[0] + _section(node, node.attrs["axis"], node.attrs["start"], node.attrs["stop"])]


def _transpose(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    b = _batched(node)
    axes = [0] * b + [axis + b for axis in node.attrs["axes"]]
    return [f"{xs[0]}.transpose({', '.join(map(str, axes))})"]


def _broadcast_to(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    (x,) = node.inputs
    aligned = (1,) * (node.ndim - x.ndim) + x.shape
    operand = xs[0] if aligned == x.shape else f"{xs[0]}.reshape({_shape(node, rows, aligned)})"
    return [f"np.broadcast_to({operand}, {_shape(node, rows)})"]


def _batch(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [f"np.broadcast_to({xs[0]}, {_shape(node, rows)})"]


def _pad(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    start = node.attrs["before"]
    stop = start + node.inputs[0].shape[node.attrs["axis"]]
    return [f"{out}[...] = 0", f"{out}{_section(node, node.attrs['axis'], start, stop)} = {xs[0]}"]


def _concat(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    lines, start, axis = [], 0, node.attrs["axis"]
    for x, source in zip(xs, node.inputs, strict=True):
        stop = start + source.shape[axis]
        if x:  # an empty expression: the part was computed in place
            lines.append(f"{out}{_section(node, axis, start, stop)} = {x}")
        start = stop
    return lines


def _stack(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    before = ":, " * (node.attrs["axis"] + _batched(node))
    return [f"{out}[{before}{i}] = {x}" for i, x in enumerate(xs)]


def _axes(node: Node, axes: Sequence[int]) -> str:
    shifted = [axis + _batched(node) for axis in axes]
    return str(shifted[0]) if len(shifted) == 1 else str(tuple(shifted))


def _reduce(name: str) -> Spelling:
    def spell(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
        axes = node.attrs.get("axes", (node.attrs.get("axis"),))
        return [f"np.{name}({xs[0]}, axis={_axes(node, axes)}, out={out})"]

    return spell


def _softmax(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    axis = _axes(node, (node.attrs["axis"],))
    return [
        f"np.subtract({xs[0]}, {xs[0]}.max({axis}, keepdims=True), out={out})",
        f"np.exp({out}, out={out})",
        f"np.divide({out}, {out}.sum({axis}, keepdims=True), out={out})",
    ]


def _logsumexp(x: str, axis: str, out: str) -> list[str]:
    return [
        f"top = {x}.max({axis}, keepdims=True)",
        f"np.log(np.exp({x} - top).sum({axis}), out={out})",
        f"np.add({out}, top.squeeze({axis}), out={out})",
    ]


def _logsumexp_along(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return _logsumexp(xs[0], _axes(node.inputs[0], (node.attrs["axis"],)), out)


def _cross_entropy(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    # np.take_along_axis does not broadcast: what is the same for all rows is given a row axis
    logits, label = (
        x if source.axis is node.axis else f"np.broadcast_to({x}, {_shape(node, rows, source.shape)})"
        for x, source in zip(xs, node.inputs, strict=True)
    )
    picked = f"np.take_along_axis({logits}, {label}[..., None], -1)[..., 0]"
    return [*_logsumexp(logits, "-1", out), f"np.subtract({out}, {picked}, out={out})"]


def _one_hot(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [f"{out}[...] = 0", f"np.put_along_axis({out}, np.asarray({xs[0]})[..., None], 1, -1)"]


def _take(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [f"np.take({xs[0]}, {xs[1]}, axis=0, out={out}, mode='clip')"]


def sum_rows_call(node: Node, xs: Sequence[str]) -> str:
    """Return the expression of rows summed by id, as SparseRows."""
    return f"sum_rows({xs[0]}, {xs[1]}, {node.attrs['size']})"


def _sum_rows(node: Node, xs: Sequence[str], out: str, rows: str) -> list[str]:
    return [f"{out}[...] = {sum_rows_call(node, xs)}.dense()"]


def _segments(name: str) -> Spelling:
    return lambda node, xs, out, rows: [f"{name}({', '.join(xs)}, {out})"]


_UFUNCS = (
    *(
        "subtract",
        "multiply",
        "divide",
        "negative",
        "square",
        "exp",
        "log",
        "sqrt",
        "abs",
        "sign",
        "tanh",
        "sin",
        "cos",
    ),
    *("maximum", "minimum", "less", "less_equal", "equal"),
)

SPELLINGS: dict[str, Spelling] = {
    **{name: _ufunc(name) for name in _UFUNCS},
    "add": _add,
    "sigmoid": _sigmoid,
    "relu": lambda node, xs, out, rows: [f"np.maximum({xs[0]}, 0, out={out})"],
    "softplus": lambda node, xs, out, rows: [f"np.logaddexp({xs[0]}, 0, out={out})"],
    "power": lambda node, xs, out, rows: [f"np.power({xs[0]}, {node.attrs['exponent']}, out={out})"],
    "where": _where,
    "when_training": lambda node, xs, out, rows: [f"np.copyto({out}, {xs[0]})"],
    "random": _random,
    "cast": lambda node, xs, out, rows: [f"np.copyto({out}, {xs[0]}, casting='unsafe')"],
    "linear": _linear,
    "sum_outer": _sum_outer,
    "matmul": _ufunc("matmul"),
    "reshape": _reshape,
    "slice": _slice,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "batch": _batch,
    "pad": _pad,
    "concat": _concat,
    "stack": _stack,
    "sum": _reduce("sum"),
    "max": _reduce("max"),
    "argmax": _reduce("argmax"),
    "softmax": _softmax,
    "logsumexp": _logsumexp_along,
    "cross_entropy": _cross_entropy,
    "one_hot": _one_hot,
    "gather": _take,
    "repeat": _take,
    "sum_rows": _sum_rows,
    "sum_batch": lambda node, xs, out, rows: [f"np.sum({xs[0]}, axis=0, out={out})"],
    **{name: _segments(name) for name in ("segment_sum", "segment_max", "segment_is_max", "segment_softmax")},
}

# Operands whose buffer the result may overwrite: a single pass reads each element before it
# writes it; of several passes, only those operands that no later pass reads.
OVERWRITES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_UFUNCS, "add"), (0, 1)),
    "sigmoid": (0,),
    "relu": (0,),
    "softplus": (0,),
    "power": (0,),
    "where": (2,),
    "softmax": (),
}
