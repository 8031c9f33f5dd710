"""Derivatives of finite numbers, however large or small, are those that wider floats have.

Where a derivative is finite in float64, float32 has it, too, or an infinity of its sign where it is beyond float32: never a
NaN of ``0 * inf`` or ``inf - inf``. The ops are those of `test_edges`, which has them all, and functions that are made of several.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.static.graph import Node, input_node
from foldbatch.static.op import ragged
from foldbatch.types import TensorType
from tests.backends import BACKENDS
from tests.test_edges import BINARY, FLOATS, LINES, SEQUENCES, UNARY, Case

LARGEST = float(np.finfo("float32").max)
NUMBERS = np.array(
    [
        sign * x
        for x in (0, 1e-45, 1e-40, 1e-30, 1e-8, 0.3, 1, 2.5, 9, 20, 89, 745, 1e10, 1e19, 2e19, 1e30, 3e38)
        for sign in (1, -1)
    ],
    "float32",
)
FEW = np.array([0, 1e-20, 1, -2.5, 1e10, -1e20, 1e30, 3e38], "float32")
LINE = np.stack(np.meshgrid(FEW, FEW, FEW), -1).reshape(-1, 3)
VECTOR, LIST = input_node(TensorType((3,))), input_node(TensorType((3,)), ragged())
WEIGHTS = np.array([1, 2, -0.5], "float32")

Function = Callable[..., Any]
OF_ELEMENTS: Mapping[str, Function] = {
    "gelu": ops.gelu,
    "silu": lambda x: x * ops.sigmoid(x),
    "elu": lambda x: ops.where(x > 0, x, ops.exp(ops.minimum(x, 0.0)) - 1.0),
    "soft sign": lambda x: x / (1.0 + ops.abs(x)),
    "Cauchy": lambda x: 1.0 / (1.0 + x * x),
    "power of 2": lambda x: 2.0**x,
}
OF_LINES: Mapping[str, Function] = {
    "norm": lambda x: ops.norm(x, axis=-1),
    "norm, two axes": lambda x: ops.norm(ops.reshape(x, (-1, 3, 1)), axis=(1, 2), keepdims=True),
    "sort": ops.sort,
    "cumsum": lambda x: ops.cumsum(x, axis=-1),
    "squares": lambda x: ops.sum(ops.square(x) * 1e-40, axis=-1),
}


def of_floats(cases: tuple[Case, ...], symbol: Node, operands: int = 1) -> dict[str, Function]:
    """Return the functions among cases that take and yield floats, by name."""
    functions = {case.name: case.ours for case in cases if {*case.dtypes} & {*FLOATS}}
    return {name: f for name, f in functions.items() if f(*[symbol] * operands).type.is_float}


def derivatives(
    functions: Mapping[str, Function], read: fb.Block, data: list[Any], backend: str
) -> list[Any]:
    """Return the gradients of what functions yield, each of which reads data of its own."""
    count = len(data)

    def loss(*xs: Any) -> Any:
        several = [
            ops.cast(f(*xs[i * count : (i + 1) * count]), "float32") for i, f in enumerate(functions.values())
        ]
        return ops.add(*[ops.sum(y * WEIGHTS if y.shape[-1:] == (3,) else y) for y in several])

    block = fb.Record((read,) * count * len(functions)) >> fb.Function(loss) >> fb.Loss()
    pulled = fb.compile(block, backend, threads=1).vjp([data * len(functions)], losses=True, inputs=True)
    return [np.asarray(gradient.values, "float64") for gradient in pulled.inputs.values()]


KINDS = {
    "elements": ({**of_floats(UNARY, VECTOR), **OF_ELEMENTS}, fb.Vector(len(NUMBERS)), [NUMBERS]),
    "pairs": (
        of_floats(BINARY, VECTOR, 2),
        fb.Vector(len(NUMBERS) ** 2),
        [np.repeat(NUMBERS, len(NUMBERS)), np.tile(NUMBERS, len(NUMBERS))],
    ),
    "lines": ({**of_floats(LINES, VECTOR), **OF_LINES}, fb.Tensor(LINE.shape), [LINE]),
    "lists": (of_floats(SEQUENCES, LIST), fb.Map(fb.Vector(len(LINE))), [list(np.ascontiguousarray(LINE.T))]),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backend", [name for name in BACKENDS if name != "reference"])
def test_derivatives_of_finite_numbers_are_those_of_wider_floats(backend: str, kind: str) -> None:
    functions, read, data = KINDS[kind]
    pairs = zip(*[derivatives(functions, read, data, name) for name in (backend, "reference")], strict=True)
    failures = []
    for number, (y, right) in enumerate(pairs):
        with np.errstate(invalid="ignore"):
            near = np.abs(y - right) <= 1e-4 * np.abs(right) + 1e-6
        beyond = (np.abs(right) > LARGEST) & np.isinf(y) & (np.sign(y) == np.sign(right))
        fits = near | (y == right) | beyond | np.isnan(right)
        if not fits.all():
            at = tuple(np.argwhere(~fits)[0])
            name = [*functions][number // len(data)]
            failures.append(f"{name} at {at}: {y[at]}, right {right[at]}; {(~fits).sum()} such")
    assert failures == []
