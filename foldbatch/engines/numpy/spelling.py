"""How NumPy spells each op: statements that write to a preallocated array.

An entry takes the statement, the expressions of its operands and of its result, and the result's dtype, and
returns lines of code; most are texts with these filled in. Ops on sequences have, in place of the offsets,
the operands `starts` and `counts`, or `owner`. Spelling only: what an op means stands in
`foldbatch.static.ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from foldbatch.engines.sums import PLAIN_ROWS
from foldbatch.params.parameters import Array
from foldbatch.static.ops.random import BITS
from foldbatch.static.places import Place
from foldbatch.static.statements import Statement

Spelling = Callable[[Statement, Sequence[str], str, str], list[str]]

# What spellings refer to: arrays without axes are twice as fast operands as numbers of Python.
NUMBERS = {f"one_{dtype}": np.array(1, dtype) for dtype in ("float32", "float64")}


def _batched(place: Place) -> int:
    return 1 if place.axis.rank else 0


def _axes(statement: Statement) -> str:
    """Return the axes that an op goes along, as the array of its operand has them."""
    axes = statement.attrs.get("axes", (statement.attrs.get("axis"),))
    shifted = [axis + _batched(statement.reads[0]) for axis in axes]
    return str(shifted[0]) if len(shifted) == 1 else str(tuple(shifted))


def _spelt(text: str) -> Spelling:
    """Return the spelling that a text tells: operands by number, all `xs`, the result `out`, attributes."""

    def spell(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
        names = {**statement.attrs, "op": statement.op, "xs": ", ".join(xs), "out": out, "dtype": dtype}
        if "{axis}" in text:
            names["axis"] = _axes(statement)
        return text.format(*xs, **names).splitlines()

    return spell


def _add(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    if len(xs) == 1:
        return [f"np.copyto({out}, {xs[0]})"]
    return [f"np.add({xs[0]}, {xs[1]}, out={out})"] + [f"np.add({out}, {x}, out={out})" for x in xs[2:]]


def _linear(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    """Return the lines of a product with a matrix: one GEMM over all leading axes."""
    x, w = xs
    inner, shape = statement.reads[0].shape[-1], statement.result.shape
    if inner == 0:
        return [f"{out}[...] = 0"]
    if len(shape) > 1 and shape[-1] > 0:  # one GEMM over all leading axes, not one a row
        return [f"np.matmul({x}.reshape(-1, {inner}), {w}, out={out}.reshape(-1, {shape[-1]}))"]
    return [f"np.matmul({x}, {w}, out={out})"]


def _segment_spread(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    terms = [f"{a}[..., None], {g}.take({xs[-1]}, axis=0)" for a, g in zip(xs[:-1:2], xs[1::2], strict=True)]
    additions = [f"np.add({out}, np.multiply({term}), out={out})" for term in terms[1:]]
    return [f"np.multiply({terms[0]}, out={out})", *additions]


def _sum_outer(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    """Return the lines of a sum of outer products: one GEMM over all rows."""
    if 0 in statement.result.shape:  # -1 would stand for any number of rows of nothing
        return [f"{out}[...] = 0"]
    lhs, rhs = (
        name if len(place.shape) + _batched(place) == 2 else f"{name}.reshape(-1, {place.shape[-1]})"
        for name, place in zip(xs, (statement.reads[0], statement.reads[1]), strict=True)
    )
    return [f"sum_outer({lhs}, {rhs}, {out})"]


def _sum(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
    place, axes = statement.reads[0], statement.attrs["axes"]
    if prod(place.shape[axis] for axis in axes) <= PLAIN_ROWS:
        return [f"np.add.reduce({xs[0]}, axis={_axes(statement)}, out={out})"]
    return [f"sum_axes({xs[0]}, {tuple(axis + _batched(place) for axis in axes)}, {out})"]


def _by_label(text: str) -> Spelling:
    """Return the spelling of an op that picks an element of each line {0} by a label."""

    def spell(statement: Statement, xs: Sequence[str], out: str, dtype: str) -> list[str]:
        """Return the lines that pick an element of each line."""
        # np.take_along_axis does not broadcast: what is the same for all rows is given a row axis
        lines, label = (
            x
            if place.axis is statement.result.axis
            else f"np.broadcast_to({x}, {out}.shape[:1] + {place.shape})"
            for x, place in zip(xs, (statement.reads[0], statement.reads[1]), strict=True)
        )
        picked = f"picked = np.take_along_axis({lines}, {label}[..., None], -1)"
        return [picked, *text.format(lines, out=out).splitlines()]

    return spell


_UFUNCS = (
    *("subtract", "multiply", "divide", "negative", "square", "exp", "log", "sqrt", "abs", "sign", "mod"),
    *("floor_divide", "floor", "tanh", "sin", "cos", "maximum", "minimum", "less", "less_equal", "equal"),
)
_FUNCTIONS = (
    *("linear_by", "sum_outer_by", "segment_sum", "segment_max", "segment_is_max", "segment_position"),
    *("segment_softmax", "segment_log_softmax", "segment_logsumexp", "segment_mix"),
)

_TEXTS = {
    **dict.fromkeys((*_UFUNCS, "matmul"), "np.{op}({xs}, out={out})"),
    **dict.fromkeys(_FUNCTIONS, "{op}({xs}, {out})"),
    "copy": "np.copyto({out}, {0})",
    "zero": "{out}[...] = 0",
    # where exp(-x) is too large, 1 / inf is 0
    "sigmoid": """\
np.negative({0}, out={out})
with np.errstate(over='ignore'):
    np.exp({out}, out={out})
np.add({out}, one_{dtype}, out={out})
np.reciprocal({out}, out={out})""",
    "relu": "np.maximum({0}, 0, out={out})",
    "softplus": "np.logaddexp({0}, 0, out={out})",
    "power": "np.power({0}, {exponent}, out={out})",
    "round": "np.rint({0}, out={out})",
    "stop_gradient": "np.copyto({out}, {0})",
    "where": "np.copyto({out}, {2})\nnp.copyto({out}, {1}, where={0})",
    "random": f"""\
np.multiply(random_bits({{0}}, {{site}}, {{shape}}), {2.0**-BITS!r}, out={{out}}, casting='same_kind')""",
    "cast": "cast_into({out}, {0})",
    "max": "np.maximum.reduce({0}, axis={axis}, out={out})",
    "argmax": "{0}.argmax(axis={axis}, out={out})",
    "softmax": """\
np.subtract({0}, np.maximum.reduce({0}, axis={axis}, keepdims=True), out={out})
np.exp({out}, out={out})
np.divide({out}, np.add.reduce({out}, axis={axis}, keepdims=True), out={out})""",
    "log_softmax": """\
top, rest = top_and_rest({0}, {axis})
np.subtract({0}, top, out={out})
np.subtract({out}, rest, out={out})""",
    "logsumexp": "top, rest = top_and_rest({0}, {axis})\n{out}[...] = (top + rest).squeeze({axis})",
    "order": "{out}[...] = ordered({0}, {count}, descending={descending})",
    "one_hot": "{out}[...] = 0\nnp.put_along_axis({out}, {0}[..., None], 1, -1)",
    **dict.fromkeys(("gather", "repeat"), "{0}.take({1}, axis=0, out={out}, mode='clip')"),
    "segment_dot": "np.einsum('...k,...k->...', {0}, {1}.take({2}, axis=0), out={out})",
    "sum_rows": "{out}[...] = sum_rows({0}, {1}, {size}).dense()",
    "sum_batch": "sum_first({0}, {out})",
}
SPELLINGS: dict[str, Spelling] = {name: _spelt(text) for name, text in _TEXTS.items()} | {
    "add": _add,
    "linear": _linear,
    "sum_outer": _sum_outer,
    "segment_spread": _segment_spread,
    "sum": _sum,
    "cross_entropy": _by_label(
        "top, rest = top_and_rest({0}, -1)\n{out}[...] = (top - picked + rest)[..., 0]"
    ),
    "pick": _by_label("{out}[...] = picked[..., 0]"),
}


def rounded(array: Array) -> Array:
    """Return numbers of float32 rounded to the nearest of bfloat16, the even one of two; others as they are.

    >>> rounded(np.float32([1.003, 1 + 1 / 256, 1 + 3 / 256])).tolist()
    [1.0, 1.0, 1.015625]
    """
    if array.dtype != np.float32:
        return array
    words = np.ascontiguousarray(array).view(np.uint32)
    rounded_words = words + (0x7FFF + (words >> 16 & 1)) & 0xFFFF0000
    return np.where(np.isnan(array), array, rounded_words.view(np.float32))


# Operands whose buffer the result may overwrite: a single pass reads each element before it
# writes it; of several passes, only those operands that no later pass reads.
OVERWRITES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_UFUNCS, "add"), (0, 1)),
    **dict.fromkeys(("sigmoid", "relu", "softplus", "round", "power", "stop_gradient"), (0,)),
    "where": (2,),
    "softmax": (),
}
