"""Layers on single tensors, and attention: maps, look-up tables, normalisation of each instance, dropout."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, Literal, TypeAlias, get_args

from foldbatch.blocks.layers.layer import (
    Activation,
    Layer,
    describe,
    dropout_rate,
    dropped,
    find_activation,
    find_initializer,
    finite,
    flat,
    pair,
    positive,
    single,
    vector,
)
from foldbatch.errors import BlockValueError, GraphError, UnknownNameError
from foldbatch.params.parameters import Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, parameter_node
from foldbatch.types import DEFAULT_DTYPE, TensorType, TupleType, truth


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

    >>> (fb.Vector(3) >> fb.Linear(2, init="ones")).eval([1, 2, 3])
    array([6., 6.], dtype=float32)
    """

    kind = "linear"

    def __init__(
        self,
        size: int,
        activation: Activation | Callable[[Any], object] | None = None,
        *,
        init: Initializer = "glorot_uniform",
        bias: bool = True,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.size = positive(size, "Linear")
        self.activation = activation
        self.init = find_initializer(init, "Linear")
        self.bias = truth("Linear bias", bias)
        self._activate = find_activation(activation, "Linear")

    def apply(self, *xs: object) -> Node:
        """Return the activation of ``x @ weight + bias``."""
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

    >>> (fb.Scalar("int32") >> fb.Embedding(2, 3, init=[[1, 2, 3], [4, 5, 6]])).eval(1)
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

    def apply(self, *xs: object) -> Node:
        ids = single(self, xs)
        if not isinstance(ids, Node) or not ids.dtype.startswith("int"):
            fix = "read them with Scalar('int32'); a plain function gives numbers, as words[word]"
            raise GraphError(repr(self), "an integer tensor of ids", describe(ids), fix)
        return ops.gather(self.parameters["weight"], ids)


Score: TypeAlias = Literal["additive", "dot"]
SCORES = get_args(Score)


class Attention(Layer[TupleType, TensorType]):
    """Sums the items of a sequence, weighted by the softmax over them of ``score(query, item)``.

    Takes ``(query, items)``, a vector and a sequence or tuple of vectors, yields a vector of the items'
    extent: zeros for an empty sequence. The score of item k for query q is ``v . tanh(W q + U k)`` if
    additive; as a scaled dot product it is ``q . k / sqrt(extent)``, which has no parameters.

    Shapes: query ``[N, a]``, items ``[M, b]`` to ``[N, b]``; ``query: [a, size]`` (W), ``items: [b, size]``
    (U), ``score: [size]`` (v).

    Args:
        size: the hidden extent of the additive score; for the dot product the extent of query
            and items, or None for any.
        score: additive or dot.
        init: the initialiser of W, U and v.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive, or None for the additive score.
        UnknownNameError: when there is no such score.
        BlockTypeError: when the input is not as above.

    Source: additive: Bahdanau, Cho and Bengio 2015, Neural Machine Translation by Jointly Learning
    to Align and Translate, section 3.1 and appendix A.1.2; dot: Vaswani et al. 2017, Attention Is
    All You Need, equation 1.

    >>> attend = (fb.Vector(2), fb.Map(fb.Vector(2))) >> fb.blocks.Attention(score="dot")
    >>> attend.eval([[0, 0], [[1, 2], [3, 4]]])  # all scores are 0
    array([2., 3.], dtype=float32)
    """

    kind = "attention"

    def __init__(
        self,
        size: int | None = None,
        score: Score = "additive",
        *,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        if score not in SCORES:
            raise UnknownNameError("Attention score", f"one of {', '.join(SCORES)}", repr(score))
        if size is None and score == "additive":
            fix = "give the extent of its hidden layer, or score='dot'"
            raise BlockValueError("Attention", "a size for the additive score", "None", fix)
        self.size = None if size is None else positive(size, "Attention")
        self.score = score
        self.init = find_initializer(init, "Attention")

    def apply(self, *xs: object) -> Node:
        """Return the sum of the items, weighted by the softmax of their scores against the query."""
        query, items = pair(self, xs, "(query, items)")
        query = flat(self, query, "query")
        score = self._additive if self.score == "additive" else self._dot
        if isinstance(items, tuple) and items:  # by its structure, also of one item; each may be of a list
            rows = ops.stack([flat(self, item, "item") for item in items])
            return ops.sum(ops.softmax(score(query, rows), axis=0) * rows, axis=0)
        if not isinstance(items, Node) or items.axis.rank < 2:
            expected = "a sequence or tuple of vectors as items"
            raise GraphError(repr(self), expected, describe(items), "read them with Map(Vector(...))")
        if query.axis.rank > 1:
            fix = "attend once per element inside a Map"
            raise GraphError(repr(self), "one vector as query", "a sequence of them", fix)
        items = flat(self, items, "item")
        return ops.segment_sum(ops.segment_softmax(score(query, items)) * items)

    def _additive(self, query: Node, items: Node) -> Node:
        """Return a score per item, [..., 1], for items [..., b]."""
        assert self.size is not None

        def weight(name: str, *extents: int) -> Node:
            return parameter_node(self.parameter(name, TensorType(extents, query.dtype), self.init))

        asked = ops.matmul(query, weight("query", query.shape[0], self.size))
        offered = ops.matmul(items, weight("items", items.shape[-1], self.size))
        return ops.matmul(ops.tanh(offered + asked), weight("score", self.size)[:, None])

    def _dot(self, query: Node, items: Node) -> Node:
        """Return the scaled products of query and items, one score an item."""
        extent = query.shape[0] if self.size is None else self.size
        if not query.shape[0] == items.shape[-1] == extent:
            expected = f"query and items of extent {extent}"
            actual = f"{query.shape[0]} and {items.shape[-1]}"
            raise GraphError(repr(self), expected, actual, "use score='additive', or Linear before it")
        return ops.sum(items * query, axis=-1, keepdims=True) * (1 / sqrt(extent))


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

    >>> (fb.Vector(2) >> fb.Dropout(0.5)).eval([1, 2])
    array([1., 2.], dtype=float32)
    """

    kind = "dropout"

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = dropout_rate(rate, "Dropout")

    def apply(self, *xs: object) -> Node:
        """Return the tensor with elements dropped at random while training, else unchanged."""
        x = single(self, xs)
        if not isinstance(x, Node) or not x.type.is_float:
            raise GraphError(repr(self), "a float tensor", describe(x), "cast it with ops.cast")
        if x.axis.rank > 1:
            fix = "drop in the elements instead, as in Map(Dropout(0.5))"
            raise GraphError(repr(self), "one tensor", f"a {x.type} for every element of a sequence", fix)
        return dropped(x, self.rate)


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

    >>> (fb.Vector(2) >> fb.blocks.LayerNorm()).eval([1, 5]).round(3)
    array([-1.,  1.], dtype=float32)
    """

    kind = "layer_norm"

    def __init__(self, epsilon: float = 1e-5, *, name: str | None = None) -> None:
        super().__init__(name)
        self.epsilon = finite(epsilon, "LayerNorm epsilon", above=0)

    def apply(self, *xs: object) -> Node:
        """Return the tensor with mean 0 and variance 1 along its last axis, scaled and shifted."""
        x = vector(self, single(self, xs))
        type_ = TensorType(x.shape[-1:], x.dtype)
        centred = x - ops.mean(x, axis=-1, keepdims=True)
        variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
        scaled = centred / ops.sqrt(variance + self.epsilon)
        return scaled * self.parameter("weight", type_, "ones") + self.parameter("bias", type_, "zeros")
