"""Random functions of tensors, smooth and tame, so that programs can be compared to the last digits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from foldbatch.errors import GraphError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node, lift
from foldbatch.static.op import fail
from foldbatch.types import TensorType, TupleType, Type
from tests.programs.recipes import FLOAT


@dataclass(eq=False)
class Expression:
    """A random function of tensors: steps chosen by numbers, the same at every call.

    A step that does not fit its operands is left out: whether it fits must be a matter of their types.
    Its parameters are made at the first call and belong to it from then on.
    """

    steps: Sequence[Sequence[int]]
    picks: Sequence[int]
    out: Type
    free: Sequence[Parameter]
    weights: dict[tuple[int, ...], Parameter] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = f"expression to {self.out}"

    def __call__(self, *xs: Any) -> Any:
        nodes = [node for x in xs for node in _flat(x)]
        if self.free or not nodes:
            nodes += lift("expression", (*self.free, np.array([0.5, -0.25], FLOAT)))
        for which, i, j in self.steps:
            a, b = nodes[-1 - i % len(nodes)], nodes[-1 - j % len(nodes)]
            try:
                node = STEPS[which % len(STEPS)](a, b, self)
            except GraphError:
                continue
            if prod(node.shape) <= 24:
                nodes.append(node)
        return self._result(self.out, nodes, iter(self.picks))

    def _result(self, type_: Type, nodes: list[Node], picks: Iterator[int]) -> Any:
        if isinstance(type_, TupleType):
            return [self._result(item, nodes, picks) for item in type_.items]
        assert isinstance(type_, TensorType)
        node = nodes[-1 - next(picks) % len(nodes)]
        node = ops.segment_sum(node) if node.axis.rank == 2 else node
        if prod(node.shape) != prod(type_.shape):
            node = ops.tanh(ops.reshape(node, -1) @ self.weight((prod(node.shape), prod(type_.shape))))
        return ops.reshape(node, type_.shape)

    def weight(self, shape: tuple[int, ...]) -> Parameter:
        if shape not in self.weights:
            self.weights[shape] = parameter(shape)
        return self.weights[shape]


def parameter(shape: tuple[int, ...], *, trainable: bool = True) -> Parameter:
    return Parameter(TensorType(shape, FLOAT), moderate, "w", trainable=trainable)


def moderate(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    return rng.normal(0.0, 0.6, shape)


def _product(a: Node, b: Node) -> Node:
    """Return a product of two axes at most, which is one whatever the batch axes.

    With more axes the right must be a weight. A parameter read by a block is one when compiled, but
    a mere input in the oracle: the step would be taken in one and left out in the other.
    """
    if max(a.ndim, b.ndim) > 2:
        fail("matmul", "at most two axes on both sides", f"{a.type} @ {b.type}")
    return a @ b


def _with_weights(a: Node, w: Parameter) -> Node:
    """Return a sum of terms with a mean of weights alone, which both directions need."""
    return ops.sum(w * ops.mean(a) + ops.mean(w))


def _untied(a: Node) -> Node:
    """Return elements of which no two are equal because they were read twice: an order of ties has kinks."""
    return a + 0.31 * np.arange(a.shape[-1] if a.shape else 1, dtype=FLOAT)


def _attended(a: Node, b: Node, e: Expression, heads: int = 1) -> Node:
    """Return a mixture of a sequence's elements, by their products with what a call has, or they have."""
    size = 2 if heads == 1 else 8 * heads
    q, x = (ops.tanh(y) @ e.weight((y.shape[-1] if y.shape else 0, size)) for y in (a, b))
    x = x + e.weight((size,))
    if heads > 1:
        q, x = ops.reshape(q, (heads, 8)), ops.reshape(x, (heads, 8))
    shares = ops.segment_softmax(ops.sum(q * x, axis=-1))
    return ops.segment_sum(ops.reshape(shares, (*shares.shape, 1)) * x)


STEPS: tuple[Callable[[Node, Node, Expression], Node], ...] = (
    lambda a, b, e: a + b,
    lambda a, b, e: ops.tanh(a) * b,
    lambda a, b, e: ops.tanh(a @ e.weight((a.shape[-1] if a.shape else 0, 2))),
    lambda a, b, e: ops.sigmoid(a - b),
    lambda a, b, e: ops.concat([a, b]),
    lambda a, b, e: ops.stack([a, b]),
    lambda a, b, e: a[..., -1],
    lambda a, b, e: a[..., :1],
    lambda a, b, e: ops.sum(a),
    lambda a, b, e: ops.segment_sum(a),
    lambda a, b, e: ops.softmax(a),
    lambda a, b, e: ops.exp(ops.tanh(a)) / (1 + ops.square(b)),
    lambda a, b, e: 0.5 * a - 1,
    lambda a, b, e: ops.reshape(a, -1),
    lambda a, b, e: ops.logsumexp(a) + b,
    lambda a, b, e: _product(ops.transpose(a), b),
    lambda a, b, e: a * np.array([1.5, -0.5], FLOAT),
    lambda a, b, e: ops.where(ops.less(a, b), a, ops.sigmoid(a)) - ops.where(ops.less(a, b), a, 0.0),
    lambda a, b, e: ops.softmax(a @ e.weight((2, 3)))[..., 0] * b,
    lambda a, b, e: ops.segment_softmax(a) * b,
    lambda a, b, e: ops.segment_mean(a),
    lambda a, b, e: ops.tanh(ops.segment_log_softmax(a)) * b,
    lambda a, b, e: ops.tanh(ops.segment_logsumexp(a)),
    lambda a, b, e: _with_weights(a, e.weight((2,))),
    lambda a, b, e: ops.softplus(a) - ops.gelu(b),
    lambda a, b, e: ops.log(1 + ops.square(a)) * ops.sin(b),
    lambda a, b, e: ops.einsum("i,j->ij", ops.tanh(a), b),
    lambda a, b, e: ops.pad(a, 1, 1),
    lambda a, b, e: ops.sqrt(1 + ops.square(a)),
    lambda a, b, e: _attended(a, b, e),
    lambda a, b, e: _attended(a, b, e, 2),
    lambda a, b, e: ops.sort(_untied(a)) * b,
    lambda a, b, e: ops.topk(_untied(a), 1)[0] - ops.sort(_untied(b)),
)


def _flat(x: Any) -> Iterator[Node]:
    if isinstance(x, tuple):
        for item in x:
            yield from _flat(item)
    elif x is not None:
        yield x


@dataclass(eq=False)
class FromBool:
    """The float tensor of a shape that a bool stands for."""

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        self.__name__ = f"to {FLOAT}{list(self.shape)}"

    def __call__(self, x: Node) -> Node:
        return ops.broadcast_to(ops.cast(x, FLOAT), self.shape)


def apart(x: Node, at: Node) -> Node:
    return at + 0.1 * ops.tanh(x)
