"""Recursive cells with a state of one vector: the plain tree network, the tensor network, a tree GRU.

All take ``(x, children)`` and yield h. As in the Tree-LSTMs, an inner node may have no x (void).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.blocks.layers.layer import (
    Activation,
    Layer,
    describe,
    find_activation,
    find_initializer,
    hidden,
    pair,
    positive,
    projected,
)
from foldbatch.blocks.layers.trees import children_in_places, leaf_input, over_children
from foldbatch.errors import GraphError
from foldbatch.params.parameters import Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, constant, parameter_node
from foldbatch.types import TensorType, TupleType


class TreeRNN(Layer[TensorType | TupleType, TensorType]):
    """A recursive neural network: ``h = activation(W x + sum_k U_k h_k + b)``.

    Takes ``(x, (h_1, ..., h_arity))``, yields h. An inner node may have no x (void), a leaf no children
    (an empty tuple), and a missing child (void) counts as a state of zeros.

    Shapes: ``x: [N, in]``, ``h: [N, size]``; ``weight: [in, size]``, ``recurrent: [arity size, size]``, the
    rows child by child, ``bias: [size]``.

    Args:
        size: extent of h.
        arity: the most children a node can have.
        activation: a name (see `foldbatch.blocks.layers.layer.Activation`), a function of tensors, or None.
        init: the weights' initialiser; the bias starts at 0.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` or `arity` is not positive.
        BlockTypeError: when the input is not as above.

    Source: Socher et al. 2011, Parsing Natural Scenes and Natural Language with Recursive Neural
    Networks, section 4; there leaves are what W x + b is here.

    >>> from foldbatch.blocks.leaves import Vector
    >>> node = (Vector(1), (Vector(2), Vector(2))) >> TreeRNN(2, activation=None, init="ones")
    >>> node.eval([[1], ([1, 2], [3, 4])])
    array([11., 11.], dtype=float32)
    """

    kind = "tree_rnn"
    _fix_for_more = "raise arity, or use TreeGRU"

    def __init__(
        self,
        size: int,
        arity: int = 2,
        activation: Activation | Callable[[Any], Any] | None = "tanh",
        *,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        where = type(self).__name__
        self.size = positive(size, where)
        self.arity = positive(arity, where)
        self.activation = activation
        self.init = find_initializer(init, where)
        self._activate = find_activation(activation, where)

    def apply(self, *xs: Any) -> Node:
        x, children = pair(self, xs, "(x, children)")
        n = self.size
        places = children_in_places(self, children, self.arity, self._fix_for_more)
        states = {k: hidden(self, child, n) for k, child in places}
        dtype = next(iter(states.values())).dtype if states else leaf_input(self, x).dtype
        total = projected(self, x, self.init, TensorType((n,), dtype))
        if states:
            zeros = constant(np.zeros(n, dtype))
            total = self._composed(ops.concat([states.get(k, zeros) for k in range(self.arity)])) + total
        result: Node = self._activate(total)
        return result

    def _composed(self, z: Node) -> Node:
        """Return what the children's states, joined to one vector, contribute."""
        weight = self.parameter("recurrent", TensorType((z.shape[0], self.size), z.dtype), self.init)
        return ops.matmul(z, parameter_node(weight))


class RNTN(TreeRNN):
    """A recursive neural tensor network, for binary trees: ``h = tanh(z V z + U z + W x + b)``.

    Takes ``(x, (a, b))``, yields h; z is a and b joined to one vector, and ``z V z`` a bilinear form for
    each element of h. A leaf has no children (an empty tuple) or is given as x alone; an inner node
    may have no x (void), and a missing child (void) counts as a state of zeros.

    Shapes: ``x: [N, in]``, ``h: [N, size]``; ``tensor: [2 size, 2 size, size]``, ``weight: [in, size]``,
    ``recurrent: [2 size, size]``, ``bias: [size]``.

    Args:
        size: extent of h.
        init: the initialiser of weights and tensor; the bias starts at 0.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive.
        BlockTypeError: when the input is not as above.

    Source: Socher et al. 2013, Recursive Deep Models for Semantic Compositionality Over a Sentiment
    Treebank, section 4.3, where leaves are word vectors and nothing has a bias.

    >>> from foldbatch.blocks.leaves import Vector
    >>> (Vector(3) >> RNTN(2, init="zeros")).eval([1, 2, 3])
    array([0., 0.], dtype=float32)
    """

    kind = "rntn"
    _fix_for_more = "binarise the tree, or use TreeGRU"

    def __init__(self, size: int, *, init: Initializer = "glorot_uniform", name: str | None = None) -> None:
        super().__init__(size, init=init, name=name)

    def apply(self, *xs: Any) -> Node:
        return super().apply(*xs, ()) if len(xs) == 1 else super().apply(*xs)

    def _composed(self, z: Node) -> Node:
        n, width = self.size, z.shape[0]
        tensor = parameter_node(self.parameter("tensor", TensorType((width, width, n), z.dtype), self.init))
        # one GEMM with the unfolded tensor; the outer product of z and z would take twice the memory
        products = ops.reshape(ops.matmul(z, ops.reshape(tensor, (width, width * n))), (width, n))
        return ops.sum(ops.reshape(z, (width, 1)) * products, axis=0) + super()._composed(z)


class TreeGRU(Layer[TupleType, TensorType]):
    """A gated recurrent unit for any number of unordered children, in one call per node.

    Takes ``(x, states)``, with a sequence or tuple of vectors, yields h. A node may have no x (void) if
    it has children; a missing child (void) of a tuple counts as none. With s the sum of the
    children's h, ``z = sigmoid(W_z x + U_z s + b_z)``; for each child,
    ``r_k = sigmoid(W_r x + U_r h_k + b_r)``; then ``u = tanh(W_u x + U_u sum_k r_k h_k + b_u)`` and
    ``h = (1 - z) s + z u``.

    Shapes: ``x: [N, in]``, ``h: [N, size]``; ``weight: [in, 3 size]``, ``recurrent: [size, 3 size]``,
    ``bias: [3 size]``. The gates stand in the order u (candidate), z (update), r (reset) along the last
    axis, so that a leaf, which resets nothing, uses the leading two thirds.

    Args:
        size: extent of h.
        init: the weights' initialiser; the bias starts at 0.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive.
        BlockTypeError: when the input is not as above.

    Source: Zhou, Liu and Pan 2016, Modelling Sentence Pairs with Tree-structured Attentive Encoder,
    the child-sum Tree-GRU.

    >>> from foldbatch.blocks.leaves import Vector
    >>> from foldbatch.blocks.sequences import Map
    >>> node = (Vector(3), Map(Vector(2))) >> TreeGRU(2, init="zeros")
    >>> node.eval([[1, 2, 3], [[1, 2], [3, 4], [5, 6]]])  # z is 1/2, u is 0
    array([4.5, 6. ], dtype=float32)
    """

    kind = "tree_gru"

    def __init__(self, size: int, *, init: Initializer = "glorot_uniform", name: str | None = None) -> None:
        super().__init__(name)
        self.size = positive(size, "TreeGRU")
        self.init = find_initializer(init, "TreeGRU")

    def apply(self, *xs: Any) -> Node:
        x, children = pair(self, xs, "(x, children)")
        n = self.size
        states = self._states(children)
        dtype = states[0].dtype if states else leaf_input(self, x).dtype
        leading = None if states else 2 * n
        given = projected(self, x, self.init, TensorType((3 * n,), dtype), leading=leading)
        if not states:
            return ops.sigmoid(given[n:]) * ops.tanh(given[:n])
        weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), dtype), self.init))
        kept = [h * ops.sigmoid(ops.matmul(h, weight[:, 2 * n :]) + given[2 * n :]) for h in states]
        total = over_children(states)
        z = ops.sigmoid(ops.matmul(total, weight[:, n : 2 * n]) + given[n : 2 * n])
        candidate = ops.tanh(ops.matmul(over_children(kept), weight[:, :n]) + given[:n])
        return total + z * (candidate - total)  # one product less than (1 - z) s + z u

    def _states(self, children: Any) -> list[Node]:
        if children is None:
            return []
        if isinstance(children, tuple):
            return [hidden(self, child, self.size) for child in children if child is not None]
        if isinstance(children, Node) and children.axis.rank > 1:
            return [hidden(self, children, self.size)]  # along a ragged axis it stands for all children
        expected = f"a sequence or tuple of vectors of {self.size} as children"
        raise GraphError(repr(self), expected, describe(children), "put a single child into a Record")
