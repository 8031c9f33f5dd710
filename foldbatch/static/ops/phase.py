"""Values that differ between training and inference: dropout, teacher forcing.

`when_training` only marks a place. Before a cell is compiled, `foldbatch.static.passes.phase` puts
the one operand or the other there, so kernels of inference compute nothing for training only.
Wherever it is left in a graph it means training, which is also what is differentiated.
"""

from __future__ import annotations

from foldbatch.static.graph import Node, apply, constant
from foldbatch.static.op import Attrs, Op, Sample, Tangents, define, fail
from foldbatch.types import TensorType

_V = TensorType((3,))


def _infer(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    a, b = types
    if a != b:
        fail("when_training", "two tensors of one type", f"{a} and {b}", "cast or reshape one of them")
    return a


def _jvp(tangents: Tangents, y: Node, a: Node, b: Node) -> Node:
    t = tangents[0]
    return apply("broadcast_to", constant(0, y.dtype), shape=y.shape) if t is None else t


define(
    Op(
        "when_training",  # a while training, b in inference
        _infer,
        lambda attrs, a, b: a,
        lambda g, y, a, b: (g, None),
        _jvp,
        (Sample((_V, _V), {}), Sample((TensorType((2, 3), "float64"),) * 2, {})),
        copies=lambda attrs, write, a, b: iter([(write, a)]),
    )
)
