"""Normalisation of each instance on its own, which knows nothing of the batch."""

from __future__ import annotations

from typing import Any

from foldbatch.blocks.layers.layer import Layer, finite, single, vector
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import TensorType


class LayerNorm(Layer[TensorType, TensorType]):
    """Shifts and scales the last axis to mean 0 and variance 1, then by parameters.

    With mean m and variance v (over n, not n - 1) of the last axis:
    ``(x - m) / sqrt(v + epsilon) * weight + bias``.

    Shapes: ``x: [N, ..., n]`` to the same; ``weight: [n]``, which starts at 1, ``bias: [n]``, at 0.

    Args:
        epsilon: above 0; bounds the result where all of x is the same.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `epsilon` is not a finite number above 0.
        BlockTypeError: when the input is no float tensor of at least one axis.

    Source: Ba, Kiros and Hinton 2016, Layer Normalization, equations 3 and 4; epsilon as in torch.

    >>> from foldbatch.blocks.leaves import Vector
    >>> (Vector(2) >> LayerNorm()).eval([1, 5]).round(3)
    array([-1.,  1.], dtype=float32)
    """

    kind = "layer_norm"

    def __init__(self, epsilon: float = 1e-5, *, name: str | None = None) -> None:
        super().__init__(name)
        self.epsilon = finite(epsilon, "LayerNorm epsilon", above=0)

    def apply(self, *xs: Any) -> Node:
        x = vector(self, single(self, xs))
        type_ = TensorType(x.shape[-1:], x.dtype)
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        scaled = centred / ops.sqrt(variance + self.epsilon)
        return scaled * self.parameter("weight", type_, "ones") + self.parameter("bias", type_, "zeros")
