"""Recurrent cells: one step of an LSTM or of a GRU along a sequence.

Both take ``(x, state)`` and yield ``(output, state)``. x and the state before are multiplied by
matrices of their own, so that in a recursion the product with x, which need not wait for the
state, runs once per batch over all steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.blocks.layers.layer import (
    AnyLayer,
    Layer,
    describe,
    find_initializer,
    finite,
    hidden,
    pair,
    positive,
    projected,
)
from foldbatch.errors import GraphError
from foldbatch.params.parameters import Array, Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, parameter_node
from foldbatch.types import DEFAULT_DTYPE, TensorType, TupleType, Type, terminals

State = tuple[Node, Node]


def lstm_bias(size: int, forget_bias: float) -> Array:
    """Return the biases that an LSTM starts from: 0 for the gates u, i, o; `forget_bias` for f."""
    return np.concatenate([np.zeros(3 * size), np.full(size, forget_bias)])


def lstm_state(layer: AnyLayer, state: Any, size: int) -> State:
    """Return a state ``(h, c)``, refusing anything but two vectors of `size`."""
    if not (
        isinstance(state, tuple)
        and len(state) == 2
        and all(isinstance(part, Node) and part.shape == (size,) for part in state)
    ):
        expected = f"a state (h, c) of two vectors of {size}"
        raise GraphError(repr(layer), expected, describe(state), "give the result of another node")
    h, c = state
    return h, c


def lstm_output(u: Node, i: Node, o: Node, remembered: Node | None) -> State:
    """Return an LSTM's state from its gates and what the states before contribute to its memory."""
    c = i * u if remembered is None else i * u + remembered
    return o * ops.tanh(c), c


def _vector_for(element: Type, size: int) -> TensorType:
    """Return the type of a state's vector: its dtype is that of the input's first float tensor."""
    floats = (t.dtype for t in terminals(element) if isinstance(t, TensorType) and t.is_float)
    return TensorType((size,), next(floats, DEFAULT_DTYPE))


class LSTMCell(Layer[TupleType, TupleType]):
    """One step of a long short-term memory.

    Takes ``(x, (h, c))``, yields ``(h, (h, c))``: output and state. A step may have no x (void). With
    W, U, b for all gates: ``i, o, f = sigmoid(W x + U h + b)``, ``u = tanh(W x + U h + b)``, then
    ``c = i u + f c`` and ``h = o tanh(c)``.

    Shapes: ``x: [N, in]``, ``h, c: [N, size]``; ``weight: [in, 4 size]``, ``recurrent: [size, 4 size]``,
    ``bias: [4 size]``. The gates stand in the order u (candidate), i (input), o (output), f (forget)
    along the last axis, as in the Tree-LSTMs; torch has i, f, u, o, and two biases that are added.

    Args:
        size: extent of h and c.
        init: the weights' initialiser.
        forget_bias: what the bias of f starts from; above 0, a fresh cell remembers.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive, or `forget_bias` no finite number.
        BlockTypeError: when the input is not as above.

    Source: Gers, Schmidhuber and Cummins 2000, Learning to Forget, sections 2 and 3; the forget
    gate's bias: Jozefowicz, Zaremba and Sutskever 2015.

    >>> from foldbatch.blocks.leaves import Vector
    >>> step = (Vector(3), (Vector(2), Vector(2))) >> LSTMCell(2, init="zeros")
    >>> h, (_, c) = step.eval([[1, 2, 3], ([0, 0], [1, 1])])
    >>> h.round(2), c.round(2)  # c is sigmoid(1)
    (array([0.31, 0.31], dtype=float32), array([0.73, 0.73], dtype=float32))
    """

    kind = "lstm"

    def __init__(
        self,
        size: int,
        *,
        init: Initializer = "glorot_uniform",
        forget_bias: float = 1.0,
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.size = positive(size, "LSTMCell")
        self.init = find_initializer(init, "LSTMCell")
        self.forget_bias = finite(forget_bias, "LSTMCell forget_bias")

    def state_type(self, element: Type) -> Type:
        """Return the type of ``(h, c)`` for an input x of a type.

        >>> print(LSTMCell(2).state_type(TensorType((3,), "float64")))
        (float64[2], float64[2])
        """
        vector = _vector_for(element, self.size)
        return TupleType((vector, vector))

    def apply(self, *xs: Any) -> tuple[Node, State]:
        x, state = pair(self, xs, "(x, (h, c))")
        h, c = lstm_state(self, state, self.size)
        n, all_gates = self.size, TensorType((4 * self.size,), h.dtype)
        given = projected(self, x, self.init, all_gates, bias=lstm_bias(n, self.forget_bias))
        recurrent = self.parameter("recurrent", TensorType((n, 4 * n), h.dtype), self.init)
        gates = ops.matmul(h, parameter_node(recurrent)) + given
        i, o, f = ops.split(ops.sigmoid(gates[n:]), 3)
        state = lstm_output(ops.tanh(gates[:n]), i, o, f * c)
        return state[0], state


class GRUCell(Layer[TupleType, TupleType]):
    """One step of a gated recurrent unit.

    Takes ``(x, h)``, yields ``(h, h)``: output and state. A step may have no x (void). With gates
    ``r, z = sigmoid(W x + U h + b)`` and the candidate n below, ``h = (1 - z) n + z h``.

    With `reset_after` (cuDNN's and torch's form) ``n = tanh(W_n x + b_n + r (U_n h + b_rn))``: one
    product with h makes all of it. Without (the paper's) ``n = tanh(W_n x + U_n (r h) + b_n)``.

    Shapes: ``x: [N, in]``, ``h: [N, size]``; ``weight: [in, 3 size]``, ``recurrent: [size, 3 size]``,
    ``bias: [3 size]``, and with `reset_after` ``recurrent_bias: [size]``, which is b_rn. The gates stand in
    the order n (candidate), r (reset), z (update) along the last axis; torch has r, z, n.

    Args:
        size: extent of h.
        reset_after: whether r acts after the product with h, or before it.
        init: the weights' initialiser; biases start at 0.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive.
        BlockTypeError: when the input is not as above.

    Source: Cho et al. 2014, Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation, equations 5 to 8; `reset_after`: the documentation of torch.nn.GRU.

    >>> from foldbatch.blocks.leaves import Vector
    >>> h, state = ((Vector(3), Vector(2)) >> GRUCell(2, init="zeros")).eval([[1, 2, 3], [1, 2]])
    >>> h, state
    (array([0.5, 1. ], dtype=float32), array([0.5, 1. ], dtype=float32))
    """

    kind = "gru"

    def __init__(
        self,
        size: int,
        *,
        reset_after: bool = True,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(name)
        self.size = positive(size, "GRUCell")
        self.reset_after = reset_after
        self.init = find_initializer(init, "GRUCell")

    def state_type(self, element: Type) -> Type:
        """Return the type of h for an input x of a type.

        >>> print(GRUCell(2).state_type(TensorType((3,), "float64")))
        float64[2]
        """
        return _vector_for(element, self.size)

    def apply(self, *xs: Any) -> tuple[Node, Node]:
        x, state = pair(self, xs, "(x, h)")
        h, n = hidden(self, state, self.size), self.size
        given = projected(self, x, self.init, TensorType((3 * n,), h.dtype))
        weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), h.dtype), self.init))
        if self.reset_after:
            remembered = ops.matmul(h, weight)
            r, z = ops.split(ops.sigmoid(remembered[n:] + given[n:]), 2)
            bias = self.parameter("recurrent_bias", h.type, "zeros")
            candidate = ops.tanh(given[:n] + r * (remembered[:n] + bias))
        else:
            r, z = ops.split(ops.sigmoid(ops.matmul(h, weight[:, n:]) + given[n:]), 2)
            candidate = ops.tanh(given[:n] + ops.matmul(r * h, weight[:, :n]))
        h = candidate + z * (h - candidate)  # one product less than (1 - z) n + z h
        return h, h
