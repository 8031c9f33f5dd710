"""Ops on tensors whose elements do not follow each other."""

import numpy as np

from foldbatch.static import ops
from foldbatch.static.graph import Node, apply, constant
from foldbatch.types import TensorType

PAIR = TensorType((4, 6))


def views(x: Node) -> list[Node]:
    """Return a tensor of shape [4, 6] with its elements in other places than one after the other."""
    wide = ops.concat([x, x], 1)
    return [ops.transpose(ops.transpose(x) * 1.5), wide[:, 6:], ops.transpose(x)[:, :4].T]


def table(*shape: int) -> Node:
    return constant(np.random.default_rng(2).normal(size=shape).astype("float32"))


def turned_table(n: int, k: int, m: int) -> Node:
    return ops.transpose(table(n, m, k), (0, 2, 1))


ON_VIEWS = {
    "add": lambda x, y: ops.add(x, y, x),
    "where": lambda x, y: ops.where(x < y, ops.log(ops.square(x)), y),
    "power": lambda x, y: ops.power(ops.square(x) + 0.5, 1.5),
    "sum": lambda x, y: ops.sum(x, 0) + ops.sum(y, (0, 1)),
    "max": lambda x, y: ops.max(x, 0),
    "argmax": lambda x, y: ops.argmax(x, 1),
    "topk": lambda x, y: ops.topk(x, 2, 0)[0],
    "looked_up": lambda x, y: ops.gather(x, ops.argmax(y, 0)),
    "softmax": lambda x, y: ops.softmax(x, 0) + ops.softmax(y, 1),
    "logsumexp": lambda x, y: ops.logsumexp(x, 0),
    "cross_entropy": lambda x, y: ops.cross_entropy(x, ops.argmax(y, 1)),
    "one_hot": lambda x, y: ops.transpose(ops.one_hot(ops.argmax(x, 0), 7)) * 2.0,
    "matmul": lambda x, y: ops.matmul(x, ops.transpose(y)),
    "linear": lambda x, y: ops.matmul(x, constant(np.arange(12, dtype="float32").reshape(6, 2))),
    "sum_outer": lambda x, y: apply("sum_outer", x, y),
    "linear_by": lambda x, y: apply("linear_by", x, turned_table(4, 6, 5), ops.argmax(x[:, 0], 0)),
    "linear_by_columns": lambda x, y: apply(
        "linear_by", ops.transpose(x), table(6, 4, 5), ops.argmax(y[0], 0)
    ),
    "sum_outer_by": lambda x, y: apply("sum_outer_by", x, y, ops.argmax(x[:, 0], 0), size=4),
    "sum_batch": lambda x, y: apply("sum_batch", x),
    "gather": lambda x, y: ops.gather(constant(np.ones((9, 2, 3), "float32")), ops.argmax(x, 0)) * y[0, 0],
    "concat": lambda x, y: ops.concat([x, y], 0),
    "stack": lambda x, y: ops.stack([x, y, x], 1),
    "pad": lambda x, y: ops.pad(x, 1, 2) * ops.pad(y, 2, 1),
    "cast": lambda x, y: ops.cast(ops.cast(x * 4.0, "int32"), "float64"),
    "broadcast": lambda x, y: ops.broadcast_to(x[:, :1], (2, 4, 6)) + ops.exp(y),
    "flattened": lambda x, y: ops.reshape(x, (24,)),
}
