"""Recursive cells over trees: the two Tree-LSTMs of Tai, Socher and Manning.

Both take ``(x, children)`` and yield a state ``(h, c)`` of two vectors. The four gates stand in
the order u (candidate), i (input), o (output), f (forget) along the last axis of parameters, so
that a leaf, which forgets nothing, uses the leading three quarters.

Source: Tai et al. 2015, Improved Semantic Representations From Tree-Structured Long Short-Term
Memory Networks, sections 3.1 and 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.blocks.layers.layer import (
    AnyLayer,
    Layer,
    describe,
    find_initializer,
    flat,
    pair,
    positive,
    projected,
)
from foldbatch.blocks.layers.recurrent import State, lstm_bias, lstm_output, lstm_state
from foldbatch.errors import GraphError
from foldbatch.params.parameters import Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, constant, parameter_node
from foldbatch.types import TensorType, TupleType


def leaf_input(layer: AnyLayer, x: Any) -> Node:
    """Return the x of a node without children, which needs one."""
    if x is None:
        raise GraphError(repr(layer), "an input x or children", "neither", "give a leaf an x")
    return flat(layer, x, "input x")


def children_in_places(layer: AnyLayer, children: Any, arity: int, fix: str) -> list[tuple[int, Any]]:
    """Return the states of the children that are there, with their places; void is none."""
    if children is None:
        return []
    if not isinstance(children, tuple) or len(children) > arity:
        expected = f"a tuple of up to {arity} states as children"
        raise GraphError(repr(layer), expected, describe(children), fix)
    return [(k, child) for k, child in enumerate(children) if child is not None]


def over_children(parts: list[Node]) -> Node:
    """Return the sum over children: of a ragged axis' elements, or of separate tensors."""
    if len(parts) == 1:
        return ops.segment_sum(parts[0]) if parts[0].axis.rank > 1 else parts[0]
    return ops.add(*parts)


class _NodeLSTM(Layer[TupleType, TupleType]):
    def __init__(self, size: int, init: Initializer, name: str | None) -> None:
        super().__init__(name)
        self.size = positive(size, type(self).__name__)
        self.init = find_initializer(init, type(self).__name__)

    def _projected(self, x: Any, dtype: str, gates: int) -> Node:
        """Return W x + b for the leading `gates` gates; b alone where a node has no input."""
        n = self.size
        bias = lstm_bias(n, forget_bias=1)  # so that a fresh cell remembers (Jozefowicz et al. 2015)
        all_gates = TensorType((4 * n,), dtype)
        return projected(self, x, self.init, all_gates, bias=bias, leading=gates * n)

    def _leaf(self, x: Any) -> State:
        """Return the state of a node without children."""
        n = self.size
        gates = self._projected(x, leaf_input(self, x).dtype, 3)
        i, o = ops.split(ops.sigmoid(gates[n:]), 2)
        return lstm_output(ops.tanh(gates[:n]), i, o, None)


class TreeLSTM(_NodeLSTM):
    """An N-ary Tree-LSTM: children have places, and weights and a forget gate of their own.

    Takes ``(x, (state_1, ..., state_arity))``, yields ``(h, c)``. An inner node may have no x (void),
    a leaf no children (an empty tuple), and a missing child (void) counts as a state of zeros.
    With W, U, b for all gates: ``i, o, f_k = sigmoid(W x + sum_l U_l h_l + b)``, ``u = tanh(...)``,
    ``c = i u + sum_k f_k c_k``, ``h = o tanh(c)``.

    Shapes: ``x: [N, in]``, ``h, c: [N, size]``; ``weight: [in, 4 size]``, ``bias: [4 size]`` (1 at f),
    ``recurrent: [arity size, (3 + arity) size]``, the rows child by child, the columns u, i, o, f_1 ... .

    Args:
        size: extent of h and c.
        arity: the most children a node can have.
        init: the weights' initialiser.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` or `arity` is not positive.
        BlockTypeError: when the input is not as above.

    Source: Tai et al. 2015, equations 9 to 14.

    >>> from foldbatch.blocks.leaves import Vector
    >>> from foldbatch.blocks.items import Record
    >>> leaf = Record((Vector(3), Record(()))) >> TreeLSTM(2)
    >>> [part.shape for part in leaf.eval([[1, 2, 3], []])]
    [(2,), (2,)]
    """

    kind = "tree_lstm"

    def __init__(
        self, size: int, arity: int = 2, *, init: Initializer = "glorot_uniform", name: str | None = None
    ) -> None:
        super().__init__(size, init, name)
        self.arity = positive(arity, "TreeLSTM")

    def apply(self, *xs: Any) -> State:
        x, children = pair(self, xs, "(x, children)")
        places = children_in_places(self, children, self.arity, "raise arity, or use ChildSumTreeLSTM")
        present = [(k, lstm_state(self, child, self.size)) for k, child in places]
        if not present:
            return self._leaf(x)
        n = self.size
        dtype = present[0][1][0].dtype
        recurrent = TensorType((self.arity * n, (3 + self.arity) * n), dtype)
        weight = parameter_node(self.parameter("recurrent", recurrent, self.init))
        zeros = constant(np.zeros(n, dtype))
        states = dict(present)
        h = ops.stack([states[k][0] if k in states else zeros for k in range(self.arity)])
        c = ops.stack([states[k][1] if k in states else zeros for k in range(self.arity)])
        given = self._projected(x, dtype, 4)
        given = ops.concat([given] + [given[3 * n :]] * (self.arity - 1))
        gates = ops.matmul(ops.reshape(h, -1), weight) + given
        rest = ops.sigmoid(gates[n:])
        f = ops.reshape(rest[2 * n :], (self.arity, n))
        return lstm_output(ops.tanh(gates[:n]), rest[:n], rest[n : 2 * n], ops.sum(f * c, axis=0))


class ChildSumTreeLSTM(_NodeLSTM):
    """A Tree-LSTM for any number of unordered children, in one call per node.

    Takes ``(x, states)``, with a sequence (or tuple) of states ``(h, c)``, yields ``(h, c)``. A node may
    have no x (void) if it has children. ``i, o, u`` see the sum of the children's h; child k's forget
    gate ``f_k = sigmoid(W_f x + U_f h_k + b_f)`` sees its own; ``c = i u + sum_k f_k c_k``.

    Shapes: ``x: [N, in]``, ``h, c: [N, size]``; ``weight: [in, 4 size]``, ``bias: [4 size]`` (1 at f),
    ``recurrent: [size, 3 size]`` (u, i, o), ``recurrent_forget: [size, size]``.

    Args:
        size: extent of h and c.
        init: the weights' initialiser.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive.
        BlockTypeError: when the input is not as above.

    Source: Tai et al. 2015, equations 2 to 8.

    >>> from foldbatch.blocks.leaves import Vector
    >>> from foldbatch.blocks.items import Record
    >>> leaf = Record((Vector(3), Record(()))) >> ChildSumTreeLSTM(2)
    >>> [part.shape for part in leaf.eval([[1, 2, 3], []])]
    [(2,), (2,)]
    """

    kind = "child_sum_tree_lstm"

    def __init__(self, size: int, *, init: Initializer = "glorot_uniform", name: str | None = None) -> None:
        super().__init__(size, init, name)

    def apply(self, *xs: Any) -> State:
        x, children = pair(self, xs, "(x, children)")
        if children is None or (isinstance(children, tuple) and not children):  # == would compare elements
            return self._leaf(x)
        n = self.size
        states = self._states(children)
        dtype = states[0][0].dtype
        u_weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), dtype), self.init))
        f_weight = parameter_node(self.parameter("recurrent_forget", TensorType((n, n), dtype), self.init))
        given = self._projected(x, dtype, 4)
        total = over_children([h for h, _ in states])
        gates = ops.matmul(total, u_weight) + given[: 3 * n]
        i, o = ops.split(ops.sigmoid(gates[n:]), 2)
        remembered = [ops.sigmoid(ops.matmul(h, f_weight) + given[3 * n :]) * c for h, c in states]
        return lstm_output(ops.tanh(gates[:n]), i, o, over_children(remembered))

    def _states(self, children: Any) -> list[State]:
        if isinstance(children, tuple) and all(isinstance(child, tuple) for child in children):
            return [lstm_state(self, child, self.size) for child in children]
        return [
            lstm_state(self, children, self.size)
        ]  # one state along a ragged axis stands for all children
