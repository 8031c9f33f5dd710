"""Recurrent cells: one step of an LSTM or of a GRU along a sequence.

Both take ``(x, state)`` and yield ``(output, state)``. x and the state before are multiplied by
matrices of their own, so that in a recursion the product with x, which need not wait for the
state, runs once per batch over all steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.blocks.block import In_contra, Out_co
from foldbatch.blocks.layers.layer import (
    Activation,
    AnyLayer,
    Layer,
    Tensors,
    describe,
    dropout_rate,
    dropped,
    find_activation,
    find_initializer,
    finite,
    flat,
    hidden,
    pair,
    positive,
    projected,
)
from foldbatch.errors import GraphError
from foldbatch.params.parameters import Array, Initializer
from foldbatch.static import ops
from foldbatch.static.graph import Node, constant, parameter_node
from foldbatch.types import DEFAULT_DTYPE, TensorType, TupleType, Type, terminals, truth

State = tuple[Node, Node]


def lstm_bias(size: int, forget_bias: float) -> Array:
    """Return the biases that an LSTM starts from: 0 for the gates u, i, o; `forget_bias` for f."""
    return np.concatenate([np.zeros(3 * size), np.full(size, forget_bias)])


def lstm_state(layer: AnyLayer, state: object, size: int) -> State:
    """Return a state ``(h, c)``, refusing anything but two vectors of `size`."""
    if not (
        isinstance(state, tuple)
        and len(state) == 2
        and all(isinstance(part, Node) and part.shape == (size,) for part in state)
    ):
        expected = f"a state (h, c) of two vectors of {size}"
        fix = "give that of another node, or (zeros, zeros) first; a step of LSTMCell yields (output, state)"
        raise GraphError(repr(layer), expected, describe(state), fix)
    h, c = state
    return h, c


def lstm_output(u: Node, i: Node, o: Node, remembered: Node | None) -> State:
    """Return an LSTM's state from its gates and the contribution of earlier states to its memory."""
    c = i * u if remembered is None else i * u + remembered
    return o * ops.tanh(c), c


def _vector_for(element: Type, size: int) -> TensorType:
    """Return the type of a state's vector: its dtype is that of the input's first float tensor."""
    floats = (t.dtype for t in terminals(element) if isinstance(t, TensorType) and t.is_float)
    return TensorType((size,), next(floats, DEFAULT_DTYPE))


class _Sized(Layer[In_contra, Out_co]):
    """A layer with a state of some size."""

    def __init__(self, size: int, *, init: Initializer = "glorot_uniform", name: str | None = None) -> None:
        super().__init__(name)
        self.size = positive(size, type(self).__name__)
        self.init = find_initializer(init, type(self).__name__)


class LSTMCell(_Sized[TupleType, TupleType]):
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

    >>> step = (fb.Vector(3), (fb.Vector(2), fb.Vector(2))) >> fb.LSTMCell(2, init="zeros")
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
        super().__init__(size, init=init, name=name)
        self.forget_bias = finite(forget_bias, "LSTMCell forget_bias")

    def state_type(self, element: Type) -> Type:
        """Return the type of ``(h, c)`` for an input x of a type.

        >>> print(LSTMCell(2).state_type(TensorType((3,), "float64")))
        (float64[2], float64[2])
        """
        vector = _vector_for(element, self.size)
        return TupleType((vector, vector))

    def apply(self, *xs: object) -> tuple[Node, State]:
        """Return the output and the next state ``(h, c)``, from an element and the last state."""
        x, state = pair(self, xs, "(x, (h, c))")
        h, c = lstm_state(self, state, self.size)
        n, all_gates = self.size, TensorType((4 * self.size,), h.dtype)
        x_gates = projected(self, x, self.init, all_gates, bias=lstm_bias(n, self.forget_bias))
        recurrent = self.parameter("recurrent", TensorType((n, 4 * n), h.dtype), self.init)
        gates = ops.matmul(h, parameter_node(recurrent)) + x_gates
        i, o, f = ops.split(ops.sigmoid(gates[n:]), 3)
        state = lstm_output(ops.tanh(gates[:n]), i, o, f * c)
        return state[0], state


class GRUCell(_Sized[TupleType, TupleType]):
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

    >>> h, state = ((fb.Vector(3), fb.Vector(2)) >> fb.GRUCell(2, init="zeros")).eval([[1, 2, 3], [1, 2]])
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
        super().__init__(size, init=init, name=name)
        self.reset_after = truth("GRUCell reset_after", reset_after)

    def state_type(self, element: Type) -> Type:
        """Return the type of h for an input x of a type.

        >>> print(GRUCell(2).state_type(TensorType((3,), "float64")))
        float64[2]
        """
        return _vector_for(element, self.size)

    def apply(self, *xs: object) -> tuple[Node, Node]:
        """Return the output and the next state, which are one vector, from an element and the last state."""
        x, state = pair(self, xs, "(x, h)")
        h, n = hidden(self, state, self.size), self.size
        x_gates = projected(self, x, self.init, TensorType((3 * n,), h.dtype))
        weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), h.dtype), self.init))
        if self.reset_after:
            remembered = ops.matmul(h, weight)
            r, z = ops.split(ops.sigmoid(remembered[n:] + x_gates[n:]), 2)
            bias = self.parameter("recurrent_bias", h.type, "zeros")
            candidate = ops.tanh(x_gates[:n] + r * (remembered[:n] + bias))
        else:
            r, z = ops.split(ops.sigmoid(ops.matmul(h, weight[:, n:]) + x_gates[n:]), 2)
            candidate = ops.tanh(x_gates[:n] + ops.matmul(r * h, weight[:, :n]))
        h = candidate + z * (h - candidate)  # one product less than (1 - z) n + z h
        return h, h


# -- recursive cells over trees: all take ``(x, children)``; an inner node may have no x (void). Tree-LSTMs
# yield a state ``(h, c)``; their gates stand in the order u (candidate), i (input), o (output), f (forget)
# along the last axis of parameters, so that a leaf, which forgets nothing, uses the leading three quarters.
# Source: Tai et al. 2015, Improved Semantic Representations From Tree-Structured Long Short-Term Memory
# Networks, sections 3.1 and 3.2. The others have a state of one vector.


def leaf_input(layer: AnyLayer, x: object) -> Node:
    """Return the input x of a node without children, refusing None."""
    if x is None:
        raise GraphError(repr(layer), "an input x or children", "neither", "give a leaf an x")
    return flat(layer, x, "input x")


def children_in_places(layer: AnyLayer, children: object, arity: int, fix: str) -> list[tuple[int, Tensors]]:
    """Return the states of the children that are there, with their places; void is none."""
    if children is None:
        return []
    if not isinstance(children, tuple) or len(children) > arity:
        expected = f"a tuple of up to {arity} states as children"
        if not isinstance(children, tuple):
            fix = "read (x, children): AllOf(Void(), Record((left, right))), or layer(None, (left, right))"
        raise GraphError(repr(layer), expected, describe(children), fix)
    return [(k, child) for k, child in enumerate(children) if child is not None]


def is_sequence(layer: AnyLayer, x: object, state: Node | State) -> bool:
    """Whether a state that stands alone as children is that of a sequence's elements.

    A tuple of states is a tuple of children, however many it has: its items may be elements of a list that
    the layer is applied over. Only a state outside of any tuple stands for all elements of a sequence.

    Raises:
        GraphError: when `x` runs along a list, too: whether each element has one child or all is open.
    """
    axes = {node.axis for node in (state if isinstance(state, tuple) else (state,))}
    if len(axes) > 1 or axes.pop().rank < 2:
        return False
    if isinstance(x, Node) and x.axis.rank > 1:
        expected = "a tuple of children beside an x of every element of a list"
        fix = "a tuple of one child is (child,); for all elements as children give an x of the call"
        raise GraphError(repr(layer), expected, f"{describe(state)} of every element", fix)
    return True


def over_children(parts: list[Node], *, sequence: bool) -> Node:
    """Sum the contributions of children: all elements of a sequence, or the items of a tuple."""
    if sequence:
        return ops.segment_sum(parts[0])
    return ops.add(*parts) if len(parts) > 1 else parts[0]


class _NodeLSTM(_Sized[TupleType, TupleType]):
    dropout: float  # of the candidate u

    def _candidate(self, gates: Node) -> Node:
        """Return u, of which training drops elements."""
        return dropped(ops.tanh(gates[: self.size]), self.dropout)

    def _projected(self, x: object, dtype: str, gates: int) -> Node:
        """Return W x + b for the leading `gates` gates; b alone where a node has no input."""
        n = self.size
        bias = lstm_bias(n, forget_bias=1)  # so that a fresh cell remembers (Jozefowicz et al. 2015)
        all_gates = TensorType((4 * n,), dtype)
        return projected(self, x, self.init, all_gates, bias=bias, leading=gates * n)

    def _leaf(self, x: object) -> State:
        """Return the state of a node without children."""
        n = self.size
        gates = self._projected(x, leaf_input(self, x).dtype, 3)
        i, o = ops.split(ops.sigmoid(gates[n:]), 2)
        return lstm_output(self._candidate(gates), i, o, None)


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
        dropout: the share of the candidate u that training drops, so that no node forgets what its children
            remember (recurrent dropout).
        init: the weights' initialiser.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` or `arity` is not positive, or `dropout` not from 0 up to 1.
        BlockTypeError: when the input is not as above.

    Source: Tai et al. 2015, equations 9 to 14; dropout: Semeniuta et al. 2016, Recurrent Dropout without
    Memory Loss, section 3.

    >>> leaf = fb.Record((fb.Vector(3), fb.Record(()))) >> fb.TreeLSTM(2)
    >>> [part.shape for part in leaf.eval([[1, 2, 3], []])]
    [(2,), (2,)]
    """

    kind = "tree_lstm"

    def __init__(
        self,
        size: int,
        arity: int = 2,
        *,
        dropout: float = 0.0,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(size, init=init, name=name)
        self.arity = positive(arity, "TreeLSTM")
        self.dropout = dropout_rate(dropout, "TreeLSTM dropout")

    def apply(self, *xs: object) -> State:
        """Return the state ``(h, c)`` of a node, from its input and the states of up to `arity` children."""
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
        x_gates = self._projected(x, dtype, 4)
        x_gates = ops.concat([x_gates] + [x_gates[3 * n :]] * (self.arity - 1))
        gates = ops.matmul(ops.reshape(h, -1), weight) + x_gates
        sigmoids = ops.sigmoid(gates[n:])
        f = ops.reshape(sigmoids[2 * n :], (self.arity, n))
        return lstm_output(self._candidate(gates), sigmoids[:n], sigmoids[n : 2 * n], ops.sum(f * c, axis=0))


class ChildSumTreeLSTM(_NodeLSTM):
    """A Tree-LSTM for any number of unordered children, in one call per node.

    Takes ``(x, states)``, with a sequence (or tuple) of states ``(h, c)``, yields ``(h, c)``; one child is
    ``((h, c),)``. A node may have no x (void) if it has children. ``i, o, u`` see the sum of the children's
    h; child k's forget gate ``f_k = sigmoid(W_f x + U_f h_k + b_f)`` sees its own;
    ``c = i u + sum_k f_k c_k``.

    Shapes: ``x: [N, in]``, ``h, c: [N, size]``; ``weight: [in, 4 size]``, ``bias: [4 size]`` (1 at f),
    ``recurrent: [size, 3 size]`` (u, i, o), ``recurrent_forget: [size, size]``.

    Args:
        size: extent of h and c.
        dropout: the share of the candidate u that training drops, as in `TreeLSTM`.
        init: the weights' initialiser.
        name: the stem of the parameters' names.

    Raises:
        BlockValueError: when `size` is not positive, or `dropout` not from 0 up to 1.
        BlockTypeError: when the input is not as above.

    Source: Tai et al. 2015, equations 2 to 8.

    >>> leaf = fb.Record((fb.Vector(3), fb.Record(()))) >> fb.ChildSumTreeLSTM(2)
    >>> [part.shape for part in leaf.eval([[1, 2, 3], []])]
    [(2,), (2,)]
    """

    kind = "child_sum_tree_lstm"

    def __init__(
        self,
        size: int,
        *,
        dropout: float = 0.0,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(size, init=init, name=name)
        self.dropout = dropout_rate(dropout, "ChildSumTreeLSTM dropout")

    def apply(self, *xs: object) -> State:
        """Return the state ``(h, c)`` of a node, from its input and the states of any number of children."""
        x, children = pair(self, xs, "(x, children)")
        if children is None or (isinstance(children, tuple) and not children):  # == would compare elements
            return self._leaf(x)
        n = self.size
        states, sequence = self._states(x, children)
        dtype = states[0][0].dtype
        u_weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), dtype), self.init))
        f_weight = parameter_node(self.parameter("recurrent_forget", TensorType((n, n), dtype), self.init))
        x_gates = self._projected(x, dtype, 4)
        total = over_children([h for h, _ in states], sequence=sequence)
        gates = ops.matmul(total, u_weight) + x_gates[: 3 * n]
        i, o = ops.split(ops.sigmoid(gates[n:]), 2)
        remembered = [ops.sigmoid(ops.matmul(h, f_weight) + x_gates[3 * n :]) * c for h, c in states]
        return lstm_output(self._candidate(gates), i, o, over_children(remembered, sequence=sequence))

    def _states(self, x: object, children: object) -> tuple[list[State], bool]:
        """Return the children's states, and whether the only one is that of a sequence's elements."""
        if isinstance(children, tuple) and all(isinstance(child, tuple) for child in children):
            return [lstm_state(self, child, self.size) for child in children], False
        state = lstm_state(self, children, self.size)
        if is_sequence(self, x, state):
            return [state], True
        expected = "a sequence or tuple of states (h, c) as children"
        raise GraphError(repr(self), expected, describe(children), "a tuple of one child is ((h, c),)")


class TreeRNN(_Sized[TensorType | TupleType, TensorType]):
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

    >>> node = (fb.Vector(1), [fb.Vector(2)] * 2) >> fb.blocks.TreeRNN(2, activation=None, init="ones")
    >>> node.eval([[1], ([1, 2], [3, 4])])
    array([11., 11.], dtype=float32)
    """

    kind = "tree_rnn"
    _fix_for_more = "raise arity, or use TreeGRU"

    def __init__(
        self,
        size: int,
        arity: int = 2,
        activation: Activation | Callable[[Any], object] | None = "tanh",
        *,
        init: Initializer = "glorot_uniform",
        name: str | None = None,
    ) -> None:
        super().__init__(size, init=init, name=name)
        self.arity = positive(arity, type(self).__name__)
        self.activation = activation
        self._activate = find_activation(activation, type(self).__name__)

    def apply(self, *xs: object) -> Node:
        """Return the state of a node, from its input and the states of up to `arity` children."""
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
        """Return the product of the children's states, joined to one vector, with the recurrent weight."""
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

    >>> (fb.Vector(3) >> fb.blocks.RNTN(2, init="zeros")).eval([1, 2, 3])
    array([0., 0.], dtype=float32)
    """

    kind = "rntn"
    _fix_for_more = "binarise the tree, or use TreeGRU"

    def __init__(self, size: int, *, init: Initializer = "glorot_uniform", name: str | None = None) -> None:
        super().__init__(size, init=init, name=name)

    def apply(self, *xs: object) -> Node:
        return super().apply(*xs, ()) if len(xs) == 1 else super().apply(*xs)

    def _composed(self, z: Node) -> Node:
        n, width = self.size, z.shape[0]
        tensor = parameter_node(self.parameter("tensor", TensorType((width, width, n), z.dtype), self.init))
        # one GEMM with the unfolded tensor; the outer product of z and z would take twice the memory
        products = ops.reshape(ops.matmul(z, ops.reshape(tensor, (width, width * n))), (width, n))
        return ops.sum(ops.reshape(z, (width, 1)) * products, axis=0) + super()._composed(z)


class TreeGRU(_Sized[TupleType, TensorType]):
    """A gated recurrent unit for any number of unordered children, in one call per node.

    Takes ``(x, states)``, with a sequence or tuple of vectors, yields h; one child is ``(h,)``. A node
    may have no x (void) if it has children; a missing child (void) of a tuple counts as none. With s the
    sum of the children's h, ``z = sigmoid(W_z x + U_z s + b_z)``; for each child,
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

    >>> node = (fb.Vector(3), fb.Map(fb.Vector(2))) >> fb.blocks.TreeGRU(2, init="zeros")
    >>> node.eval([[1, 2, 3], [[1, 2], [3, 4], [5, 6]]])  # z is 1/2, u is 0
    array([4.5, 6. ], dtype=float32)
    """

    kind = "tree_gru"

    def apply(self, *xs: object) -> Node:
        """Return the state of a node, from its input and the states of its children."""
        x, children = pair(self, xs, "(x, children)")
        n = self.size
        states, sequence = self._states(x, children)
        dtype = states[0].dtype if states else leaf_input(self, x).dtype
        leading = None if states else 2 * n
        x_gates = projected(self, x, self.init, TensorType((3 * n,), dtype), leading=leading)
        if not states:
            return ops.sigmoid(x_gates[n:]) * ops.tanh(x_gates[:n])
        weight = parameter_node(self.parameter("recurrent", TensorType((n, 3 * n), dtype), self.init))
        kept = [h * ops.sigmoid(ops.matmul(h, weight[:, 2 * n :]) + x_gates[2 * n :]) for h in states]
        total = over_children(states, sequence=sequence)
        z = ops.sigmoid(ops.matmul(total, weight[:, n : 2 * n]) + x_gates[n : 2 * n])
        reset = over_children(kept, sequence=sequence)
        candidate = ops.tanh(ops.matmul(reset, weight[:, :n]) + x_gates[:n])
        return total + z * (candidate - total)  # one product less than (1 - z) s + z u

    def _states(self, x: object, children: object) -> tuple[list[Node], bool]:
        """Return the children's vectors, and whether the only one is that of a sequence's elements."""
        if children is None:
            return [], False
        if isinstance(children, tuple):
            return [hidden(self, child, self.size) for child in children if child is not None], False
        if isinstance(children, Node) and is_sequence(self, x, children):
            return [hidden(self, children, self.size)], True
        expected = f"a sequence or tuple of vectors of {self.size} as children"
        raise GraphError(repr(self), expected, describe(children), "put a single child into a Record")
