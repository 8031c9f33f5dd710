"""Ops that move elements without computing."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from foldbatch.operators import FUNCTIONS, numpys, plain_operands, public
from foldbatch.params.parameters import Array
from foldbatch.static.graph import Node, TensorLike, apply, lift, slice_of
from foldbatch.static.op import CALL, UNBATCHED, Attrs, Axis, Sample, define, fail
from foldbatch.static.places import Place, backward, section
from foldbatch.types import TensorType, describe_value

Copies = Iterator[tuple[Place, Place | None]]
_ALIKE = "make them alike with ops.reshape, or ops.cast"
_V, _M = TensorType((3,)), TensorType((2, 3))


def along(
    name: str, counterpart: str, result: Axis | None = None
) -> Callable[[tuple[Axis, ...], Attrs], Axis]:
    """Return the axis rule of an op on a sequence's elements: to `result`, by default to themselves.

    Errors name `counterpart`, the function for axes of one tensor.
    """

    def axis(axes: tuple[Axis, ...], attrs: Attrs) -> Axis:
        """Return the result's axis, refusing tensors that are not of a sequence's elements."""
        if axes[0].rank < 2:
            actual = "a tensor of each call" if axes[0].rank else "one that is the same for all calls"
            fail(
                name,
                "a tensor of a sequence's elements",
                actual,
                f"give a list, or use {counterpart} along axes",
            )
        return result or axes[0]

    return axis


def _define(
    name: str,
    infer: Callable[[tuple[TensorType, ...], Attrs], TensorType],
    evaluate: Callable[..., object],
    vjp: Callable[..., tuple[Node | None, ...]],
    *samples: Sample,
    **properties: Any,
) -> None:
    """Define an op that moves elements without computing: a view, or one that says what it copies."""
    define(name, infer, evaluate, vjp, samples, **properties)


def _infer_reshape(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    result = TensorType(attrs["shape"], types[0].dtype)
    if result.size != types[0].size:
        fail("reshape", f"a shape of {types[0].size} elements", str(list(attrs["shape"])))
    return result


_define(
    "reshape",
    _infer_reshape,
    lambda attrs, x: np.reshape(x, attrs["shape"]),
    lambda g, y, x: (apply("reshape", g, shape=x.shape),),
    Sample((_M,), {"shape": (3, 2)}),
    view="in order",
    keeps_values=True,
)


def _infer_transpose(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    (x,) = types
    if sorted(attrs["axes"]) != list(range(len(x.shape))):
        fail("transpose", f"a permutation of {len(x.shape)} axes", str(attrs["axes"]))
    return TensorType(tuple(x.shape[axis] for axis in attrs["axes"]), x.dtype)


_define(
    "transpose",
    _infer_transpose,
    lambda attrs, x: np.transpose(x, attrs["axes"]),
    lambda g, y, x: (apply("transpose", g, axes=tuple(int(i) for i in np.argsort(y.attrs["axes"]))),),
    Sample((TensorType((2, 3, 4)),), {"axes": (2, 0, 1)}),
    view="permuted",
    keeps_values=True,
)


def _infer_slice(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    shape, axis = list(types[0].shape), attrs["axis"]
    if not 0 <= axis < len(shape) or not 0 <= attrs["start"] <= attrs["stop"] <= shape[axis]:
        fail("slice", f"a range within {types[0]}", f"{attrs['start']}:{attrs['stop']} of axis {axis}")
    shape[axis] = attrs["stop"] - attrs["start"]
    return TensorType(tuple(shape), types[0].dtype)


def _evaluate_slice(attrs: Attrs, x: Array) -> object:
    return x[(slice(None),) * attrs["axis"] + (slice(attrs["start"], attrs["stop"]),)]


def _vjp_slice(g: Node, y: Node, x: Node) -> tuple[Node, ...]:
    axis, start, stop = y.attrs["axis"], y.attrs["start"], y.attrs["stop"]
    return (apply("pad", g, axis=axis, before=start, after=x.shape[axis] - stop),)


_define(
    "slice",
    _infer_slice,
    _evaluate_slice,
    _vjp_slice,
    Sample((_M,), {"axis": 1, "start": 1, "stop": 3}),
    view="in order",
)


def _infer_flip(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    if not 0 <= attrs["axis"] < len(types[0].shape):
        fail("flip", f"an axis of {types[0]}", str(attrs["axis"]))
    return types[0]


def _flipped(attrs: Attrs, write: Place, x: Place) -> Copies:
    yield write, backward(x, attrs["axis"])


_define(
    "flip",  # the elements along an axis from the last to the first
    _infer_flip,
    lambda attrs, x: np.flip(x, attrs["axis"]),
    lambda g, y, x: (apply("flip", g, axis=y.attrs["axis"]),),
    Sample((_V,), {"axis": 0}),
    Sample((_M,), {"axis": 1}),
    copies=_flipped,
    keeps_values=True,
)


def _infer_pad(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    """Return the type with one axis longer by both widths."""
    shape, axis = list(types[0].shape), attrs["axis"]
    if not 0 <= axis < len(shape) or min(attrs["before"], attrs["after"]) < 0:
        actual = f"{attrs['before']} and {attrs['after']} for axis {axis}"
        fail("pad", f"widths for an axis of {types[0]}", actual)
    shape[axis] += attrs["before"] + attrs["after"]
    return TensorType(tuple(shape), types[0].dtype)


def _evaluate_pad(attrs: Attrs, x: Array) -> Array:
    width = [(0, 0)] * np.ndim(x)
    width[attrs["axis"]] = (attrs["before"], attrs["after"])
    return np.pad(x, width)


def _vjp_pad(g: Node, y: Node, x: Node) -> tuple[Node, ...]:
    axis, start = y.attrs["axis"], y.attrs["before"]
    return (apply("slice", g, axis=axis, start=start, stop=start + x.shape[axis]),)


def _padded(attrs: Attrs, write: Place, x: Place) -> Copies:
    axis = attrs["axis"]
    yield write, None
    yield section(write, axis, attrs["before"], x.shape[axis]), x


_define(
    "pad",
    _infer_pad,
    _evaluate_pad,
    _vjp_pad,
    Sample((_M,), {"axis": 0, "before": 1, "after": 2}),
    copies=_padded,
)


def _infer_concat(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    """Return the type of joined tensors, refusing those that differ in other axes."""
    axis, first = attrs["axis"], types[0]
    other_extents = {(t.dtype, len(t.shape), t.shape[:axis], t.shape[axis + 1 :]) for t in types}
    if len(other_extents) > 1 or not 0 <= axis < len(first.shape):
        fail("concat", f"tensors alike but for axis {axis}", " and ".join(map(str, types)), _ALIKE)
    extent = sum(t.shape[axis] for t in types)
    return TensorType((*first.shape[:axis], extent, *first.shape[axis + 1 :]), first.dtype)


def _vjp_concat(g: Node, y: Node, *xs: Node) -> tuple[Node, ...]:
    axis, start, parts = y.attrs["axis"], 0, []
    for x in xs:
        parts.append(apply("slice", g, axis=axis, start=start, stop=start + x.shape[axis]))
        start += x.shape[axis]
    return tuple(parts)


def _joined(attrs: Attrs, write: Place, *xs: Place) -> Copies:
    axis, start = attrs["axis"], 0
    for x in xs:
        yield section(write, axis, start, x.shape[axis]), x
        start += x.shape[axis]


_define(
    "concat",
    _infer_concat,
    lambda attrs, *xs: np.concatenate(xs, attrs["axis"]),
    _vjp_concat,
    Sample((_V, TensorType((2,))), {"axis": 0}),
    Sample((_M, TensorType((2, 1))), {"axis": 1}),
    copies=_joined,
)


def _infer_broadcast_to(types: tuple[TensorType, ...], attrs: Attrs) -> TensorType:
    """Return the type in a larger shape, refusing one that the tensor does not broadcast to."""
    (x,) = types
    try:
        fits = np.broadcast_shapes(x.shape, attrs["shape"]) == tuple(attrs["shape"])
    except ValueError:
        fits = False
    if not fits:
        fail("broadcast_to", f"a shape that {x} broadcasts to", str(list(attrs["shape"])))
    return TensorType(tuple(attrs["shape"]), x.dtype)


# autodiff sums a cotangent down to its operand's shape, so the rule is the identity
_define(
    "broadcast_to",
    _infer_broadcast_to,
    lambda attrs, x: np.broadcast_to(x, attrs["shape"]),
    lambda g, y, x: (g,),
    Sample((_V,), {"shape": (2, 3)}),
    Sample((_V,), {"shape": (2, 3)}, (UNBATCHED,)),
    view="repeated",
    keeps_values=True,
)


def as_node(x: TensorLike, op: str) -> Node:
    return lift(op, (x,))[0]


def axis_of(x: Node, axis: object, op: str, *, extra: int = 0) -> int:
    """Return an instance axis of a tensor, counted from 0; `extra` axes are yet to come."""
    rank = x.ndim + extra
    if isinstance(axis, Node):
        fail(op, "a number as axis", str(axis), f"tensors stand in one list, as in ops.{op}([a, b])")
    if rank == 0:
        of_elements = x.axis.rank > CALL.rank and f"segment_{op}" in FUNCTIONS
        fix = f"over the elements of a list goes ops.segment_{op}" if of_elements else ""
        fix = "ops.stack makes a vector of scalars" if op == "concat" else fix
        fail(op, "a tensor of at least one axis", str(x.type), fix)
    if not isinstance(axis, int | np.integer) or isinstance(axis, bool) or not -rank <= axis < rank:
        fail(op, f"an axis from {-rank} to {rank - 1}", str(axis))
    return int(axis) % rank


def wholes(op: str, *numbers: int) -> list[int]:
    """Return settings of an op as ints, refusing values that are no whole numbers."""
    try:
        integers = [operator.index(number) for number in numbers]
    except TypeError:
        integers = []
    if len(integers) < len(numbers) or bool in map(type, numbers):
        fail(op, "whole numbers", str(numbers))
    return integers


@numpys
def reshape(x: TensorLike, shape: int | Sequence[int]) -> Node:
    """Return the elements in another shape; one extent may be -1."""
    node = as_node(x, "reshape")
    sizes = wholes("reshape", *(shape if np.iterable(shape) else [shape]))
    if any(size < -1 for size in sizes) or sizes.count(-1) > 1:
        fail("reshape", "extents of 0 or more, and -1 at most once", str(sizes))
    if -1 in sizes:
        known_size = 1
        for size in sizes:
            known_size *= size if size != -1 else 1
        sizes[sizes.index(-1)] = node.type.size // known_size if known_size else 0
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
    return reshape(node, (*node.shape[:place], *node.shape[place + 1 :]))


@numpys
def broadcast_to(x: TensorLike, shape: Sequence[int]) -> Node:
    """Return the tensor repeated along axes of extent 1 to `shape`."""
    node = as_node(x, "broadcast_to")
    sizes = tuple(wholes("broadcast_to", *shape))
    return node if sizes == node.shape else apply("broadcast_to", node, shape=sizes)


@public
def pad(x: TensorLike, before: int, after: int, axis: int = 0) -> Node:
    """Return `x` with zeros before and after it along an instance axis."""
    node = as_node(x, "pad")
    before, after = wholes("pad", before, after)
    return apply("pad", node, axis=axis_of(node, axis, "pad"), before=before, after=after)


@numpys
@plain_operands("parts")
def concat(xs: Sequence[TensorLike], axis: int = 0) -> Node:
    """Return tensors joined along an existing axis."""
    nodes = [as_node(x, "concat") for x in xs]
    if not nodes:
        fail("concat", "at least one tensor", "none")
    return nodes[0] if len(nodes) == 1 else apply("concat", *nodes, axis=axis_of(nodes[0], axis, "concat"))


@numpys
@plain_operands("parts")
def stack(xs: Sequence[TensorLike], axis: int = 0) -> Node:
    """Return tensors of one type joined along a new axis."""
    nodes = [as_node(x, "stack") for x in xs]
    if not nodes:
        fail("stack", "at least one tensor", "none")
    if len({x.type for x in nodes}) > 1:
        fail("stack", "tensors of one type", " and ".join(str(x.type) for x in nodes), _ALIKE)
    place = axis_of(nodes[0], axis, "stack", extra=1)
    return concat([expand_dims(x, place) for x in nodes], place)


@numpys
def split(x: TensorLike, parts: int, axis: int = 0) -> tuple[Node, ...]:
    """Return equal slices along an axis."""
    node = as_node(x, "split")
    place = axis_of(node, axis, "split")
    number: object = parts
    is_whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not is_whole or parts < 1 or node.shape[place] % parts:
        extent, fix = node.shape[place], "for parts of other lengths take slices, as x[:1], x[1:3]"
        fail("split", f"a number of parts that divides {extent}", describe_value(parts), fix)
    size = node.shape[place] // parts
    return tuple(slice_of(node, place, i * size, (i + 1) * size) for i in range(parts))
