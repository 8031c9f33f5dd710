"""The ops as users call them, where they change shapes: reshape, transpose, join and cut."""

from __future__ import annotations

from collections.abc import Sequence

from foldbatch.operators import FUNCTIONS, numpys, public
from foldbatch.static.graph import Node, TensorLike, apply, lift
from foldbatch.static.op import CALL, fail


def as_node(x: TensorLike, op: str) -> Node:
    """Return an operand of an op as a node."""
    return lift(op, (x,))[0]


def axis_of(x: Node, axis: int, op: str, *, extra: int = 0) -> int:
    """Return an instance axis of a tensor, counted from 0; `extra` axes are yet to come."""
    rank = x.ndim + extra
    if rank == 0:
        own = x.axis.rank > CALL.rank and f"segment_{op}" in FUNCTIONS
        fix = f"over the elements of a list goes ops.segment_{op}" if own else ""
        fail(op, "a tensor of at least one axis", str(x.type), fix)
    if not -rank <= axis < rank:
        fail(op, f"an axis from {-rank} to {rank - 1}", str(axis))
    return axis % rank


@numpys
def reshape(x: TensorLike, shape: int | Sequence[int]) -> Node:
    """Return the elements in another shape; one extent may be -1."""
    node = as_node(x, "reshape")
    sizes = [int(size) for size in ([shape] if isinstance(shape, int) else shape)]
    if any(size < -1 for size in sizes) or sizes.count(-1) > 1:
        fail("reshape", "extents of 0 or more, and -1 at most once", str(sizes))
    if -1 in sizes:
        rest = 1
        for size in sizes:
            rest *= size if size != -1 else 1
        sizes[sizes.index(-1)] = node.type.size // rest if rest else 0
    return node if tuple(sizes) == node.shape else apply("reshape", node, shape=tuple(sizes))


@numpys
def transpose(x: TensorLike, axes: Sequence[int] | None = None) -> Node:
    """Return the tensor with its axes permuted, reversed by default."""
    node = as_node(x, "transpose")
    if axes is None:
        return node.T
    return apply("transpose", node, axes=tuple(axis_of(node, a, "transpose") for a in axes))


@numpys
def expand_dims(x: TensorLike, axis: int) -> Node:
    """Return the tensor with a new axis of extent 1."""
    node = as_node(x, "expand_dims")
    place = axis_of(node, axis, "expand_dims", extra=1)
    return reshape(node, (*node.shape[:place], 1, *node.shape[place:]))


@numpys
def squeeze(x: TensorLike, axis: int) -> Node:
    """Return the tensor without one axis of extent 1."""
    node = as_node(x, "squeeze")
    place = axis_of(node, axis, "squeeze")
    if node.shape[place] != 1:
        fail("squeeze", "an axis of extent 1", f"{node.type}, axis {axis}")
    return node[(slice(None),) * place + (0,)]


@numpys
def broadcast_to(x: TensorLike, shape: Sequence[int]) -> Node:
    """Return the tensor repeated along axes of extent 1 to `shape`."""
    node = as_node(x, "broadcast_to")
    sizes = tuple(int(size) for size in shape)
    return node if sizes == node.shape else apply("broadcast_to", node, shape=sizes)


@public
def pad(x: TensorLike, before: int, after: int, axis: int = 0) -> Node:
    """Return `x` with zeros before and after it along an instance axis."""
    node = as_node(x, "pad")
    return apply("pad", node, axis=axis_of(node, axis, "pad"), before=int(before), after=int(after))


@numpys
def concat(xs: Sequence[TensorLike], axis: int = 0) -> Node:
    """Return tensors joined along an existing axis."""
    nodes = [as_node(x, "concat") for x in xs]
    if not nodes:
        fail("concat", "at least one tensor", "none")
    return nodes[0] if len(nodes) == 1 else apply("concat", *nodes, axis=axis_of(nodes[0], axis, "concat"))


@numpys
def stack(xs: Sequence[TensorLike], axis: int = 0) -> Node:
    """Return tensors of one type joined along a new axis."""
    nodes = [as_node(x, "stack") for x in xs]
    if not nodes:
        fail("stack", "at least one tensor", "none")
    return apply("stack", *nodes, axis=axis_of(nodes[0], axis, "stack", extra=1))


@numpys
def split(x: TensorLike, parts: int, axis: int = 0) -> tuple[Node, ...]:
    """Return equal slices along an axis."""
    node = as_node(x, "split")
    place = axis_of(node, axis, "split")
    if parts < 1 or node.shape[place] % parts:
        fail("split", f"a divisor of {node.shape[place]}", str(parts))
    size = node.shape[place] // parts
    before = (slice(None),) * place
    return tuple(node[(*before, slice(i * size, (i + 1) * size))] for i in range(parts))
