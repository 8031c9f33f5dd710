"""How NumPy spells each op: statements that write to a preallocated array.

An entry takes the statement, the expressions of its operands and of its result, and the result's dtype, and
returns lines of code. Ops on sequences have, in place of the offsets, the operands `starts` and `counts`, or
`owner`. Spelling only: what an op means stands in `foldbatch.static.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from foldbatch.engines.sums import FEW
from foldbatch.params.parameters import Array
from foldbatch.static.ops.random import BITS
from foldbatch.static.places import Place
from foldbatch.static.statements import Statement

Spelling = Callable[[Statement, Sequence[str], str, str], list[str]]

# What spellings refer to: arrays without axes are twice as fast operands as numbers of Python.
NUMBERS = {f"one_{dtype}": np.array(1, dtype) for dtype in ("float32", "float64")}


def _batched(place: Place) -> int:
    return 1 if place.axis.rank else 0


def _ufunc(name: str) -> Spelling:
    return lambda statement, xs, out, dtype: [f"np.{name}({', '.join(xs)}, out={out})"]


def _add(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    if len(xs) == 1:
        return [f"np.copyto({out}, {xs[0]})"]
    return [f"np.add({xs[0]}, {xs[1]}, out={out})"] + [f"np.add({out}, {x}, out={out})" for x in xs[2:]]


def _sigmoid(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [  # where exp(-x) is too large, 1 / inf is 0
        f"np.negative({xs[0]}, out={out})",
        "with np.errstate(over='ignore'):",
        f"    np.exp({out}, out={out})",
        f"np.add({out}, one_{dtype}, out={out})",
        f"np.reciprocal({out}, out={out})",
    ]


def _log_sigmoid(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [
        f"np.negative({xs[0]}, out={out})",
        f"np.logaddexp({out}, 0, out={out})",
        f"np.negative({out}, out={out})",
    ]


def _power(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [f"np.power({xs[0]}, {statement.attrs['exponent']}, out={out})"]


def _where(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    condition, a, b = xs
    return [f"np.copyto({out}, {b})", f"np.copyto({out}, {a}, where={condition})"]


def _random(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    bits = f"random_bits({xs[0]}, {statement.attrs['site']}, {statement.attrs['shape']})"
    return [f"np.multiply({bits}, {2.0**-BITS!r}, out={out}, casting='same_kind')"]


def _linear(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    x, w = xs
    inner, shape = statement.reads[0].shape[-1], statement.result.shape
    if inner == 0:
        return [f"{out}[...] = 0"]
    if len(shape) > 1 and shape[-1] > 0:  # one GEMM over all leading axes, not one a row
        return [f"np.matmul({x}.reshape(-1, {inner}), {w}, out={out}.reshape(-1, {shape[-1]}))"]
    return [f"np.matmul({x}, {w}, out={out})"]


def _sum_outer(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    if 0 in statement.result.shape:  # -1 would stand for any number of rows of nothing
        return [f"{out}[...] = 0"]
    left, right = (
        name if len(place.shape) + _batched(place) == 2 else f"{name}.reshape(-1, {place.shape[-1]})"
        for name, place in zip(xs, (statement.reads[0], statement.reads[1]), strict=True)
    )
    return [f"sum_outer({left}, {right}, {out})"]


def _function(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [f"{statement.op}({', '.join(xs)}, {out})"]


def _axes(place: Place, axes: Sequence[int]) -> str:
    shifted = [axis + _batched(place) for axis in axes]
    return str(shifted[0]) if len(shifted) == 1 else str(tuple(shifted))


def _reduce(ufunc: str) -> Spelling:
    def spell(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
        axes = statement.attrs.get("axes", (statement.attrs.get("axis"),))
        return [f"np.{ufunc}.reduce({xs[0]}, axis={_axes(statement.reads[0], axes)}, out={out})"]

    return spell


def _sum(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    place, axes = statement.reads[0], statement.attrs["axes"]
    if prod(place.shape[axis] for axis in axes) <= FEW:
        return _reduce("add")(statement, xs, out, dtype)
    return [f"sum_axes({xs[0]}, {tuple(axis + _batched(place) for axis in axes)}, {out})"]


def _argmax(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    axis = _axes(statement.reads[0], (statement.attrs["axis"],))
    return [f"{xs[0]}.argmax(axis={axis}, out={out})"]


def _softmax(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    axis = _axes(statement.reads[0], (statement.attrs["axis"],))
    return [
        f"np.subtract({xs[0]}, np.maximum.reduce({xs[0]}, axis={axis}, keepdims=True), out={out})",
        f"np.exp({out}, out={out})",
        f"np.divide({out}, np.add.reduce({out}, axis={axis}, keepdims=True), out={out})",
    ]


def _logsumexp(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    axis = _axes(statement.reads[0], (statement.attrs["axis"],))
    return [f"top, rest = top_and_rest({xs[0]}, {axis})", f"{out}[...] = (top + rest).squeeze({axis})"]


def _log_softmax(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    axis = _axes(statement.reads[0], (statement.attrs["axis"],))
    return [
        f"top, rest = top_and_rest({xs[0]}, {axis})",
        f"np.subtract({xs[0]}, top, out={out})",
        f"np.subtract({out}, rest, out={out})",
    ]


def _cross_entropy(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    # np.take_along_axis does not broadcast: what is the same for all rows is given a row axis
    logits, label = (
        x if place.axis is statement.result.axis else f"np.broadcast_to({x}, {out}.shape[:1] + {place.shape})"
        for x, place in zip(xs, (statement.reads[0], statement.reads[1]), strict=True)
    )
    return [
        f"top, rest = top_and_rest({logits}, -1)",
        f"picked = np.take_along_axis({logits}, {label}[..., None], -1)",
        f"{out}[...] = (top - picked + rest)[..., 0]",
    ]


def _one_hot(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [f"{out}[...] = 0", f"np.put_along_axis({out}, {xs[0]}[..., None], 1, -1)"]


def _take(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [f"{xs[0]}.take({xs[1]}, axis=0, out={out}, mode='clip')"]


def _sum_rows(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    return [f"{out}[...] = sum_rows({xs[0]}, {xs[1]}, {statement.attrs['size']}).dense()"]


_UFUNCS = (
    *("subtract", "multiply", "divide", "negative", "square", "exp", "log", "sqrt", "abs", "sign", "mod"),
    *("floor_divide", "floor", "tanh", "sin", "cos", "maximum", "minimum", "less", "less_equal", "equal"),
)

SPELLINGS: dict[str, Spelling] = {
    **{name: _ufunc(name) for name in _UFUNCS},
    "copy": lambda statement, xs, out, dtype: [f"np.copyto({out}, {xs[0]})"],
    "zero": lambda statement, xs, out, dtype: [f"{out}[...] = 0"],
    "add": _add,
    "sigmoid": _sigmoid,
    "relu": lambda statement, xs, out, dtype: [f"np.maximum({xs[0]}, 0, out={out})"],
    "softplus": lambda statement, xs, out, dtype: [f"np.logaddexp({xs[0]}, 0, out={out})"],
    "log_sigmoid": _log_sigmoid,
    "power": _power,
    "where": _where,
    "random": _random,
    "cast": lambda statement, xs, out, dtype: [f"cast_into({out}, {xs[0]})"],
    "linear": _linear,
    "sum_outer": _sum_outer,
    "matmul": _ufunc("matmul"),
    "round": lambda statement, xs, out, dtype: [f"np.rint({xs[0]}, out={out})"],
    "sum": _sum,
    "max": _reduce("maximum"),
    "argmax": _argmax,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "cross_entropy": _cross_entropy,
    "one_hot": _one_hot,
    "gather": _take,
    "repeat": _take,
    "sum_rows": _sum_rows,
    "sum_batch": lambda statement, xs, out, dtype: [f"sum_first({xs[0]}, {out})"],
    **dict.fromkeys(("linear_by", "sum_outer_by", "segment_sum", "segment_max"), _function),
    **dict.fromkeys(("segment_is_max", "segment_position", "segment_softmax"), _function),
}

PRODUCTS = ("linear", "matmul", "sum_outer")  # ops whose operands are rounded in bfloat16


def rounded(array: Array) -> Array:
    """Return numbers of float32 rounded to the nearest of bfloat16, the even one of two; others as they are.

    >>> rounded(np.float32([1.003, 1 + 1 / 256, 1 + 3 / 256])).tolist()
    [1.0, 1.0, 1.015625]
    """
    if array.dtype != np.float32:
        return array
    words = np.ascontiguousarray(array).view(np.uint32)
    whole = words + (0x7FFF + (words >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(array), array, whole.view(np.float32))


# Operands whose buffer the result may overwrite: a single pass reads each element before it
# writes it; of several passes, only those operands that no later pass reads.
OVERWRITES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_UFUNCS, "add"), (0, 1)),
    **dict.fromkeys(("sigmoid", "relu", "softplus", "log_sigmoid", "round", "power"), (0,)),
    "where": (2,),
    "softmax": (),
}
