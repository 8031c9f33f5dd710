"""Layers on single tensors: an affine map and a look-up table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foldbatch.blocks.layers.layer import (
    Activation,
    Layer,
    describe,
    find_activation,
    find_initializer,
    positive,
    single,
    vector,
)
from foldbatch.errors import GraphError
from foldbatch.params.parameters import Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import DEFAULT_DTYPE, TensorType


class Linear(Layer[TensorType, TensorType]):
    """An affine map, ``activation(x @ weight + bias)``.

    Shapes: ``x: [N, ..., in]`` to ``[N, ..., size]``; ``weight: [in, size]``, ``bias: [size]``.

    Args:
        size: the extent of the result's last axis.
        activation: a name (see `foldbatch.blocks.layers.layer.Activation`), a function of tensors, or None.
        init: the weight's initialiser.
        bias: whether a bias is added; it starts at 0.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive.
        BlockTypeError: when the input is no float tensor of at least one axis.

    >>> from foldbatch.blocks.leaves import Vector
    >>> (Vector(3) >> Linear(2, init="ones")).eval([1, 2, 3])
    array([6., 6.], dtype=float32)
    """

    kind = "linear"

    def __init__(
        self,
        size: int,
        activation: Activation | Callable[[Any], Any] | None = None,
        *,
        init: Initializer = "glorot_uniform",
        bias: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.size = positive(size, "Linear")
        self.activation = activation
        self.init = find_initializer(init, "Linear")
        self.bias = bias
        self._activate = find_activation(activation, "Linear")

    def apply(self, *xs: Any) -> Node:
        x = vector(self, single(self, xs))
        weight = self.parameter("weight", TensorType((x.shape[-1], self.size), x.dtype), self.init)
        y = ops.matmul(x, weight)
        if self.bias:
            y = y + self.parameter("bias", TensorType((self.size,), x.dtype), "zeros")
        result: Node = self._activate(y)
        return result


class Embedding(Layer[TensorType, TensorType]):
    """A row of a table for each id.

    Shapes: ids ``[N, ...]`` of int32 or int64 to ``[N, ..., size]``; ``weight: [count, size]``.

    Args:
        count: number of rows; an id must lie from 0 to ``count - 1``.
        size: extent of a row.
        init: the table's initialiser, or the table itself as an array ``[count, size]``.
        trainable: False freezes the table; no gradient is computed for it.
        dtype: of the table.
        name: the stem of the parameter's name.

    Raises:
        BlockValueError: when `count` or `size` is not positive.
        ParameterError: when the array given as `init` has another shape.
        BlockTypeError: when the input is no integer tensor.
        ExampleError: where an id is out of range; ids are never wrapped.

    >>> from foldbatch.blocks.leaves import Scalar
    >>> (Scalar("int32") >> Embedding(2, 3, init=[[1, 2, 3], [4, 5, 6]])).eval(1)
    array([4., 5., 6.], dtype=float32)
    """

    kind = "embedding"

    def __init__(
        self,
        count: int,
        size: int,
        init: Initializer = "uniform",
        *,
        trainable: bool = True,
        dtype: str = DEFAULT_DTYPE,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.count = positive(count, "Embedding")
        self.size = positive(size, "Embedding")
        self.init = find_initializer(init, "Embedding")
        self.trainable = trainable
        type_ = TensorType((self.count, self.size), dtype)
        self.dtype = type_.dtype
        self.parameter("weight", type_, self.init, trainable=trainable)

    def apply(self, *xs: Any) -> Node:
        ids = single(self, xs)
        if not isinstance(ids, Node) or not ids.dtype.startswith("int"):
            fix = "read them with Scalar('int32'); a plain function gives numbers, as words[word]"
            raise GraphError(repr(self), "an integer tensor of ids", describe(ids), fix)
        return ops.gather(self.parameters["weight"], ids)
