"""Hypothesis strategies and random values for the laws: tensors, graphs.

A random graph is built with the public ops from a pool of nodes; an op whose type rule refuses
its operands is skipped. It comes with values for its inputs, in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from foldbatch.errors import GraphError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.static.printer import print_graph
from foldbatch.types import TensorType

ELEMENTS = ragged("M")
Draw = Callable[[st.SearchStrategy[Any]], Any]


def random_tensor(
    rng: np.random.Generator, type_: TensorType, *, positive: bool = False, below: int = 2
) -> Any:
    """Return a random array of a type; integers lie from 0 to `below`, excluded."""
    if not type_.is_float:
        return rng.integers(0, below, type_.shape).astype(type_.dtype)
    return rng.uniform(0.5, 2.0, type_.shape) if positive else rng.normal(size=type_.shape)


def random_value(rng: np.random.Generator, node: Node, *, length: int = 3, positive: bool = False) -> Any:
    """Return a random value of an input: an array, or `length` of them along a ragged axis."""
    if node.axis.rank < 2:
        return random_tensor(rng, node.type, positive=positive)
    return [random_tensor(rng, node.type, positive=positive) for _ in range(length)]


@dataclass(frozen=True, slots=True)
class Problem:
    """A graph with a value for each of its inputs, and the seed to draw more from."""

    graph: Graph
    values: list[Any]
    seed: int
    length: int

    def __repr__(self) -> str:
        return f"Problem(seed={self.seed}, length={self.length})\n{print_graph(self.graph)}"


shapes: st.SearchStrategy[tuple[int, ...]] = st.sampled_from(
    [(), (2,), (3,), (2, 3), (4, 3), (1, 3), (2, 1, 3)]
)
axes: st.SearchStrategy[Axis] = st.sampled_from([CALL, UNBATCHED, ELEMENTS])


Step = Callable[["_Pool"], Node]


class _Pool:
    """The nodes made so far, and ways to choose among them."""

    def __init__(self, draw: Draw, nodes: Sequence[Node]) -> None:
        self.draw = draw
        self.nodes = list(nodes)

    def number(self, below: int) -> int:
        return int(self.draw(st.integers(0, max(below, 1) - 1)))

    def pick(self) -> Node:
        return self.nodes[-1 - self.number(len(self.nodes))]

    def mate(self, x: Node) -> Node:
        """Return a node that broadcasts with `x` and does not run along another sequence."""
        return self._among([y for y in self.nodes if _broadcast(x, y)])

    def twin(self, x: Node) -> Node:
        return self._among([y for y in self.nodes if y.type == x.type])

    def _among(self, nodes: Sequence[Node]) -> Node:
        return nodes[-1 - self.number(len(nodes))]

    def axis_of(self, x: Node) -> int:
        if not x.shape:
            raise GraphError("strategies", "an axis", "none")
        return self.number(x.ndim)

    def weight(self, shape: tuple[int, ...]) -> Parameter:
        return Parameter(TensorType(shape, "float64"), "normal")


def _broadcast(x: Node, y: Node) -> bool:
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return False
    return x.dtype == y.dtype


def _pair(op: Callable[[Node, Node], Node]) -> Step:
    def step(pool: _Pool) -> Node:
        x = pool.pick()
        return op(x, pool.mate(x))

    return step


def _sum(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.add(x, *(pool.twin(x) for _ in range(pool.number(4))))


def _product(pool: _Pool) -> Node:
    x = pool.pick()
    return x @ pool.weight((*x.shape[-1:], 1 + pool.number(3)))


def _gram(pool: _Pool) -> Node:
    x = pool.pick()
    return x @ x.T


def _reshape(pool: _Pool) -> Node:
    x = pool.pick()
    choices = [(-1,), (1, *x.shape), (*x.shape, 1), tuple(reversed(x.shape)), (x.type.size, 1)]
    return ops.reshape(x, choices[pool.number(len(choices))])


def _transpose(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.transpose(x, pool.draw(st.permutations(range(x.ndim))))


def _slice(pool: _Pool) -> Node:
    x = pool.pick()
    axis = pool.axis_of(x)
    start = pool.number(x.shape[axis] + 1)
    stop = start + pool.number(x.shape[axis] - start + 1)
    return apply("slice", x, axis=axis, start=start, stop=stop)


def _pad(pool: _Pool) -> Node:
    x = pool.pick()
    return apply("pad", x, axis=pool.axis_of(x), before=pool.number(3), after=pool.number(3))


def _element(pool: _Pool) -> Node:
    x = pool.pick()
    return x[pool.number(len(x))]


def _concat(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.concat([x, pool.twin(x), -x][: 1 + pool.number(3)], pool.axis_of(x))


def _stack(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.stack([x, pool.twin(x), -x][pool.number(2) :], pool.number(x.ndim + 1))


def _resplit(pool: _Pool) -> Node:
    x = pool.pick()
    axis = pool.axis_of(x)
    parts = ops.split(x, x.shape[axis], axis)
    return ops.concat(pool.draw(st.permutations(parts)) if pool.number(2) else parts, axis)


def _window(pool: _Pool) -> Node:
    """A slice of something joined, of a slice, or of a pad."""
    join = (_concat, _stack, _slice, _pad)[pool.number(4)]
    pool.nodes.append(join(pool))
    return _slice(pool)


def _gates(pool: _Pool) -> Node:
    """Parts of one tensor, used apart, as the gates of an LSTM are."""
    x = pool.pick()
    axis = pool.axis_of(x)
    if x.shape[axis] < 2:
        raise GraphError("strategies", "two gates", "one")
    first = apply("slice", x, axis=axis, start=0, stop=1)
    last = apply("slice", x, axis=axis, start=x.shape[axis] - 1, stop=x.shape[axis])
    whole = ops.reshape(ops.reshape(x, (-1,))[-first.type.size :], first.shape)
    return ops.tanh(first) * (last, whole)[pool.number(2)]


def _broadcast_to(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.broadcast_to(x, (1 + pool.number(2), *(extent if extent > 1 else 2 for extent in x.shape)))


def _reduce(pool: _Pool) -> Node:
    x = pool.pick()
    reduce = (ops.sum, ops.mean)[pool.number(2)]
    return reduce(x, pool.axis_of(x), keepdims=bool(pool.number(2)))


def _neutral(pool: _Pool) -> Node:
    x = pool.pick()
    return (x * 1, 1 * x, x + 0, x - 0, x / 1, ops.negative(-x), x + constant(np.zeros(x.shape)) + 1)[
        pool.number(7)
    ]


def _batched(pool: _Pool) -> Node:
    return ops.batched(pool.pick())


def _chosen(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.where(constant(bool(pool.number(2))), x, pool.mate(x))


def _where(pool: _Pool) -> Node:
    x = pool.pick()
    return ops.where(pool.mate(x) < pool.mate(x), x, pool.mate(x))


SMOOTH: Mapping[str, Step] = {
    "add": _pair(ops.add),
    "subtract": _pair(ops.subtract),
    "multiply": _pair(lambda a, b: ops.tanh(a) * b),
    "divide": _pair(lambda a, b: a / (1 + ops.square(ops.tanh(b)))),
    "sum": _sum,
    "tanh": lambda pool: ops.tanh(pool.pick()),
    "sigmoid": lambda pool: ops.sigmoid(pool.pick()),
    "softplus": lambda pool: ops.softplus(pool.pick()),
    "exp": lambda pool: ops.exp(ops.tanh(pool.pick())),
    "log": lambda pool: ops.log(ops.square(pool.pick()) + 1),
    "sqrt": lambda pool: ops.sqrt(ops.square(pool.pick()) + 1),
    "power": lambda pool: (ops.sigmoid(pool.pick()) + 1) ** 1.5,
    "negative": lambda pool: -pool.pick(),
    "linear": _product,
    "matmul": _gram,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "pad": _pad,
    "element": _element,
    "concat": _concat,
    "stack": _stack,
    "resplit": _resplit,
    "window": _window,
    "gates": _gates,
    "broadcast_to": _broadcast_to,
    "reduce": _reduce,
    "softmax": lambda pool: ops.softmax(pool.pick()),
    "logsumexp": lambda pool: ops.logsumexp(pool.pick()),
    "neutral": _neutral,
    "batched": _batched,
    "chosen": _chosen,
    "segment_sum": lambda pool: ops.segment_sum(pool.pick()),
    "segment_softmax": lambda pool: ops.segment_softmax(pool.pick()),
    "segment_log_softmax": lambda pool: ops.segment_log_softmax(pool.pick()),
    "segment_logsumexp": lambda pool: ops.segment_logsumexp(pool.pick()),
    "sum_batch": lambda pool: apply("sum_batch", pool.pick()),
}

# with kinks or jumps, where a finite difference says nothing
ROUGH: Mapping[str, Step] = {
    "relu": lambda pool: ops.relu(pool.pick()),
    "abs": lambda pool: ops.abs(pool.pick()),
    "sign": lambda pool: ops.sign(pool.pick()),
    "maximum": _pair(ops.maximum),
    "minimum": _pair(ops.minimum),
    "where": _where,
    "max": lambda pool: ops.max(pool.pick()),
    "segment_max": lambda pool: ops.segment_max(pool.pick()),
    "cast": lambda pool: ops.cast(pool.pick() <= 0, "float64"),
    "one_hot": lambda pool: ops.one_hot(ops.argmax(pool.pick()), 64, "float64"),
}


@st.composite
def problems(draw: Draw, *, smooth: bool = True, steps: int = 12, gradients: bool = False) -> Problem:
    """Return a random graph: of differentiable ops only, or of all; with the gradients of its sum, or not."""
    seed, length = draw(st.integers(0, 2**32 - 1)), draw(st.integers(0, 3))
    ends = draw(st.lists(st.tuples(shapes, axes), min_size=1, max_size=3))
    inputs = tuple(input_node(TensorType(shape, "float64"), axis) for shape, axis in ends)
    menu = {**SMOOTH} if smooth else {**SMOOTH, **ROUGH}
    pool = _Pool(draw, [constant(np.ones(())), constant(np.array([0.5, -2.0])), *inputs])
    for name in draw(st.lists(st.sampled_from(sorted(menu)), min_size=steps // 3, max_size=steps)):
        try:
            node = menu[name](pool)
        except GraphError:
            continue
        if prod(node.shape) <= 256:
            pool.nodes.append(node)
    outputs = [pool.nodes[-1], *(pool.pick() for _ in range(pool.number(3)))]
    if gradients:
        found = vjp(outputs, [ops.tanh(node) for node in outputs], inputs)
        outputs += [g for g in found if g is not None]
    rng = np.random.default_rng(seed)
    values = [random_value(rng, x, length=length) for x in inputs]
    return Problem(Graph(inputs, tuple(outputs)), values, seed, length)
