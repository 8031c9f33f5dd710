"""Dropout: a layer without parameters that trains differently than it infers."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.layers.layer import Layer, describe, single
from foldbatch.errors import BlockValueError, GraphError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import TensorType, describe_value


class Dropout(Layer[TensorType, TensorType]):
    """Sets a random share of a tensor's elements to 0 while training, and scales the others up.

    What is dropped depends on the step of training, the example, the call and the element alone, so
    a batch drops what its examples would drop one by one. In inference the tensor stays as it is.

    Shapes: ``x: [N, ...]`` of any shape to the same.

    Args:
        rate: the share that is dropped, from 0 up to but not including 1.

    Raises:
        BlockValueError: when `rate` is not such a number.
        BlockTypeError: when the input is no float tensor.

    Source: Srivastava et al. 2014, in the form that scales while training.

    >>> from foldbatch.blocks.leaves import Vector
    >>> (Vector(2) >> Dropout(0.5)).eval([1, 2])
    array([1., 2.], dtype=float32)
    """

    kind = "dropout"

    def __init__(self, rate: float) -> None:
        super().__init__()
        given: Any = rate
        if not isinstance(given, int | float) or isinstance(given, bool) or not 0 <= given < 1:
            found, fix = describe_value(rate), "0.5 drops half of the elements"
            raise BlockValueError("Dropout", "a rate from 0 up to 1", found, fix)
        self.rate = float(rate)

    def apply(self, *xs: Any) -> Node:
        x = single(self, xs)
        if not isinstance(x, Node) or not x.type.is_float:
            raise GraphError(repr(self), "a float tensor", describe(x), "cast it with ops.cast")
        if x.axis.rank > 1:
            fix = "drop in the elements instead, as in Map(Dropout(0.5))"
            raise GraphError(repr(self), "one tensor", f"a {x.type} for every element of a sequence", fix)
        if self.rate == 0:
            return x
        kept = ops.cast(ops.less_equal(self.rate, ops.random(x.shape, x.dtype)), x.dtype)
        return ops.when_training(x * kept * (1 / (1 - self.rate)), ops.batched(x))
