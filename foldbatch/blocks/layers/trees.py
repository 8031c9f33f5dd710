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

from foldbatch.blocks.layers.dense import positive
from foldbatch.blocks.layers.layer import Layer, describe, find_initializer, vector
from foldbatch.errors import GraphError
from foldbatch.params import Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, constant, parameter_node
from foldbatch.types import TensorType

State = tuple[Node, Node]


def _forget_bias(size: int) -> Any:
    """0 for the gates u, i, o; 1 for f, so that a fresh cell remembers (Jozefowicz et al. 2015)."""
    return np.concatenate([np.zeros(3 * size), np.ones(size)])


class _TreeCell(Layer):
    def __init__(self, size: int, init: Initializer, name: str | None) -> None:
        super().__init__(name)
        self.size = positive(size, type(self).__name__)
        self.init = find_initializer(init, type(self).__name__)

    def _projected(self, x: Any, dtype: str, gates: int) -> Node:
        """Return W x + b for the leading `gates` gates; b alone where a node has no input."""
        n = self.size
        bias = parameter_node(self.parameter("bias", TensorType((4 * n,), dtype), _forget_bias(n)))[
            : gates * n
        ]
        if x is None:
            return bias
        x = vector(self, x, "input x")
        weight = parameter_node(self.parameter("weight", TensorType((x.shape[-1], 4 * n), dtype), self.init))
        return ops.matmul(x, weight[:, : gates * n]) + bias

    def _state(self, state: Any) -> State:
        if not (
            isinstance(state, tuple)
            and len(state) == 2
            and all(isinstance(part, Node) and part.shape == (self.size,) for part in state)
        ):
            expected = f"a state (h, c) of two vectors of {self.size}"
            raise GraphError(repr(self), expected, describe(state), "give the result of another node")
        h, c = state
        return h, c

    def _output(self, u: Node, i: Node, o: Node, remembered: Node | None) -> State:
        """Return the state from the gates and what the children's memory contributes."""
        c = i * u if remembered is None else i * u + remembered
        return o * ops.tanh(c), c

    def arguments(self) -> str:
        return str(self.size)


def _arguments(layer: Layer, xs: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(xs) != 2:
        found = describe(xs if len(xs) > 1 else xs[0]) if xs else "()"
        raise GraphError(repr(layer), "a pair (x, children)", found, "put it behind a Record or AllOf of two")
    return xs[0], xs[1]


class TreeLSTM(_TreeCell):
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
    >>> from foldbatch.blocks.records import Record
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
        x, children = _arguments(self, xs)
        if not isinstance(children, tuple) or len(children) > self.arity:
            expected = f"a tuple of up to {self.arity} states as children"
            raise GraphError(repr(self), expected, describe(children), "raise arity, or use ChildSumTreeLSTM")
        present = [(k, self._state(child)) for k, child in enumerate(children) if child is not None]
        n = self.size
        if not present:
            if x is None:
                raise GraphError(repr(self), "an input x or children", "neither", "give a leaf an x")
            gates = self._projected(x, vector(self, x).dtype, 3)
            i, o = ops.split(ops.sigmoid(gates[n:]), 2)
            return self._output(ops.tanh(gates[:n]), i, o, None)
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
        return self._output(ops.tanh(gates[:n]), rest[:n], rest[n : 2 * n], ops.sum(f * c, axis=0))

    def arguments(self) -> str:
        return f"{self.size}, arity={self.arity}"


class ChildSumTreeLSTM(_TreeCell):
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
    >>> from foldbatch.blocks.records import Record
    >>> leaf = Record((Vector(3), Record(()))) >> ChildSumTreeLSTM(2)
    >>> [part.shape for part in leaf.eval([[1, 2, 3], []])]
    [(2,), (2,)]
    """

    kind = "child_sum_tree_lstm"

    def __init__(self, size: int, *, init: Initializer = "glorot_uniform", name: str | None = None) -> None:
        super().__init__(size, init, name)

    def apply(self, *xs: Any) -> State:
        x, children = _arguments(self, xs)
        n = self.size
        if children is None or children == ():
            if x is None:
                raise GraphError(repr(self), "an input x or children", "neither", "give a leaf an x")
            gates = self._projected(x, vector(self, x).dtype, 3)
            i, o = ops.split(ops.sigmoid(gates[n:]), 2)
            return self._output(ops.tanh(gates[:n]), i, o, None)
        states = self._states(children)
        dtype = states[0][0].dtype
        u_weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), dtype), self.init))
        f_weight = parameter_node(self.parameter("recurrent_forget", TensorType((n, n), dtype), self.init))
        given = self._projected(x, dtype, 4)
        total = _over_children([h for h, _ in states])
        gates = ops.matmul(total, u_weight) + given[: 3 * n]
        i, o = ops.split(ops.sigmoid(gates[n:]), 2)
        remembered = [ops.sigmoid(ops.matmul(h, f_weight) + given[3 * n :]) * c for h, c in states]
        return self._output(ops.tanh(gates[:n]), i, o, _over_children(remembered))

    def _states(self, children: Any) -> list[State]:
        if isinstance(children, tuple) and all(isinstance(child, tuple) for child in children):
            return [self._state(child) for child in children]
        return [self._state(children)]  # one state along a ragged axis stands for all children


def _over_children(parts: list[Node]) -> Node:
    """Return the sum over children: of a ragged axis' elements, or of separate tensors."""
    if len(parts) == 1:
        return ops.segment_sum(parts[0]) if parts[0].axis.rank > 1 else parts[0]
    return ops.add(*parts)
