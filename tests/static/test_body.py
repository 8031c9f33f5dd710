"""Bodies: which kernels have one, and what it says of their arguments."""

from __future__ import annotations

import numpy as np

from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.body import Argument, body_of
from foldbatch.static.graph import input_node
from foldbatch.static.op import CALL, UNBATCHED, Axis
from foldbatch.types import TensorType

X = TensorType((3,), "float64")


def test_a_body_tells_types_and_whether_there_are_rows() -> None:
    x, weight = input_node(X), Parameter([3, 2])
    arguments = {
        "x0": Argument("operand", 0),
        "n": Argument("rows", CALL),
        "p0": Argument("parameter", weight),
    }
    y = ops.tanh(x)
    body = body_of(
        arguments, {Argument("operand", 0): x}, {"c0": np.ones(2, "float32")}, ["s0 = x0"], [("s0", y)]
    )
    assert body is not None
    assert [(name, b.kind, b.shape, b.dtype, b.batched) for name, b in body.given] == [
        ("x0", "operand", (3,), "float64", True),
        ("p0", "parameter", (3, 2), "float32", False),
        ("c0", "constant", (2,), "float32", False),
    ]
    assert body.lines == ("s0 = x0",)
    assert body.results == (("s0", y),)


def test_what_runs_along_sequences_or_once_has_none() -> None:
    ragged, once = input_node(X, Axis("elements", 2)), input_node(X, UNBATCHED)
    operand = Argument("operand", 0)
    assert body_of({"x0": operand}, {operand: ragged}, {}, [], []) is None
    assert body_of({}, {}, {}, [], [("s0", once)]) is None
