"""Simplifications of ops that only move elements: reshape, transpose, slice, pad, concat.

A rule takes a node and returns a simpler one that is equal to it, or None where it does not
apply.
"""

from __future__ import annotations

from foldbatch.static.graph import Node, apply, constant
from foldbatch.static.passes.arithmetic import in_place_of
from foldbatch.static.passes.fold_constants import fold
from foldbatch.types import TensorType


def zeros(type_: TensorType) -> Node:
    """Return zeros, as a constant unless they are many."""
    zero = constant(0, type_.dtype)
    return fold(apply("broadcast_to", zero, shape=type_.shape)) if type_.shape else zero


def same_shape(node: Node) -> Node | None:
    """Drop a reshape or broadcast to the shape that a tensor has."""
    return in_place_of(node, node.inputs[0])


def again(node: Node) -> Node | None:
    """Two reshapes, or two broadcasts, in a row are the last one."""
    (x,) = node.inputs
    return apply(node.op.name, x.inputs[0], **node.attrs) if x.op is node.op else None


def same_order(node: Node) -> Node | None:
    """Drop a transpose that keeps the order of the axes."""
    axes = node.attrs["axes"]
    return node.inputs[0] if axes == tuple(range(len(axes))) else None


def transposed_twice(node: Node) -> Node | None:
    """Two transposes in a row are one."""
    (x,) = node.inputs
    if x.op.name != "transpose":
        return None
    return apply("transpose", x.inputs[0], axes=tuple(x.attrs["axes"][axis] for axis in node.attrs["axes"]))


def _range(node: Node) -> tuple[int, int, int]:
    return node.attrs["axis"], node.attrs["start"], node.attrs["stop"]


def _slice(x: Node, axis: int, start: int, stop: int) -> Node:
    return x if (start, stop) == (0, x.shape[axis]) else apply("slice", x, axis=axis, start=start, stop=stop)


def full_slice(node: Node) -> Node | None:
    """Drop a slice of the whole axis."""
    return in_place_of(node, node.inputs[0])


def slice_of_slice(node: Node) -> Node | None:
    """``x[2:8][1:3]`` is ``x[3:5]``."""
    (x,) = node.inputs
    axis, start, stop = _range(node)
    if x.op.name != "slice" or x.attrs["axis"] != axis:
        return None
    offset = x.attrs["start"]
    return _slice(x.inputs[0], axis, offset + start, offset + stop)


def slice_of_concat(node: Node) -> Node | None:
    """Slice the one part of a concatenation within which the slice lies."""
    (concat,) = node.inputs
    axis, start, stop = _range(node)
    if concat.op.name != "concat" or concat.attrs["axis"] != axis:
        return None
    offset = 0
    for part in concat.inputs:
        extent = part.shape[axis]
        if offset <= start and stop <= offset + extent:
            return in_place_of(node, _slice(part, axis, start - offset, stop - offset))
        offset += extent
    return None


def slice_of_stack(node: Node) -> Node | None:
    """Replace a slice along the axis of a stack by one of its parts, or by a smaller stack."""
    (stack,) = node.inputs
    axis, start, stop = _range(node)
    if stack.op.name != "stack" or stack.attrs["axis"] != axis or start == stop:
        return None
    parts = stack.inputs[start:stop]
    if len(parts) == 1:
        return in_place_of(node, apply("reshape", parts[0], shape=node.shape))
    return in_place_of(node, apply("stack", *parts, axis=axis))


def slice_of_pad(node: Node) -> Node | None:
    """Replace a slice of a padded tensor that meets only the tensor, or only the zeros, by that."""
    (padded,) = node.inputs
    axis, start, stop = _range(node)
    if padded.op.name != "pad" or padded.attrs["axis"] != axis:
        return None
    (x,) = padded.inputs
    before = padded.attrs["before"]
    after = before + x.shape[axis]
    if before <= start and stop <= after:
        return _slice(x, axis, start - before, stop - before)
    return in_place_of(node, zeros(node.type)) if stop <= before or after <= start else None


def pad_of_pad(node: Node) -> Node | None:
    """Two pads along one axis are one; a pad by nothing is its operand."""
    (x,) = node.inputs
    attrs = node.attrs
    if attrs["before"] == attrs["after"] == 0:
        return x
    if x.op.name != "pad" or x.attrs["axis"] != attrs["axis"]:
        return None
    before, after = x.attrs["before"] + attrs["before"], x.attrs["after"] + attrs["after"]
    return apply("pad", x.inputs[0], axis=attrs["axis"], before=before, after=after)


def concat_of_one(node: Node) -> Node | None:
    """Drop a concatenation of one tensor."""
    return in_place_of(node, node.inputs[0]) if len(node.inputs) == 1 else None


def adjacent_slices(node: Node) -> Node | None:
    """``concat(x[0:2], x[2:5], y)`` is ``concat(x[0:5], y)``."""
    axis = node.attrs["axis"]
    parts: list[Node] = []
    for part in node.inputs:
        last = parts[-1] if parts else part
        if parts and _continues(last, part, axis):
            start, stop = last.attrs["start"], part.attrs["stop"]
            parts[-1] = apply("slice", last.inputs[0], axis=axis, start=start, stop=stop)
        else:
            parts.append(part)
    if len(parts) == len(node.inputs):
        return None
    return in_place_of(node, parts[0] if len(parts) == 1 else apply("concat", *parts, axis=axis))


def _continues(first: Node, second: Node, axis: int) -> bool:
    """Whether two slices of one tensor lie side by side along the axis."""
    if not first.op.name == second.op.name == "slice" or first.inputs != second.inputs:
        return False
    same_axis = first.attrs["axis"] == second.attrs["axis"] == axis
    return same_axis and bool(first.attrs["stop"] == second.attrs["start"])
