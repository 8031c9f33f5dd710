"""Blocks on tensors: a Python function of symbolic tensors becomes part of a cell.

The function is called once, when the block is built. Blocks that follow each other without a
choice between them land in one region's graph, so that they cost one call (see `builder`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.blocks.block import Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Broadcast, Object, Sequence, Value, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node, lift


class TensorBlock(Block):
    """A block that is a function of tensors; layers derive from it.

    Subclasses implement `apply`; a tuple input is spread over its arguments.
    """

    def apply(self, *xs: Any) -> Any:
        """Return the result for symbolic tensors (or nested tuples of them)."""
        raise NotImplementedError

    def __call__(self, *xs: Any) -> Any:
        """Apply the block to symbolic tensors, inside the function of another block."""
        return self.apply(*xs)

    def build(self, builder: Builder, value: Value) -> Value:
        argument = self._symbolic(builder, value)
        result = self.apply(*argument) if isinstance(argument, tuple) else self.apply(argument)
        outcome = self._checked(builder, result)
        builder.note(outcome)
        return outcome

    def _symbolic(self, builder: Builder, value: Value) -> Any:
        match value:
            case Node():
                return value
            case tuple():  # a void member arrives as None
                return tuple(None if item is None else self._symbolic(builder, item) for item in value)
            case Sequence():
                return builder.elements(value)
        where = f"{builder.path} {self!r}"
        fix = "read the object as a tensor first, for example with Scalar or Vector"
        match value:
            case Object():
                raise BlockTypeError(where, "tensors", "object", fix)
            case Broadcast():
                raise BlockTypeError(where, "tensors", str(type_of(value)), "Zip it with a sequence first")
        raise BlockTypeError(where, "tensors", str(type_of(value)), "give it an input")

    def _checked(self, builder: Builder, result: Any) -> Value:
        match result:
            case Node():
                return result
            case tuple() | list():
                return tuple(self._checked(builder, item) for item in result)
            case Parameter() | np.ndarray() | np.generic():
                return lift("Function", (result,))[0]
        where = f"{builder.path} {self!r}"
        fix = "compute with foldbatch.ops and operators on the function's arguments"
        raise BlockTypeError(where, "a tensor, or a tuple or list of tensors, as result", type(result).__name__, fix)


class Function(TensorBlock):
    """A function of tensors, written with `foldbatch.ops` and ordinary operators.

    Args:
        fn: takes symbolic tensors (a tuple input calls ``fn(a, b, ...)``; a sequence arrives as its
            elements along a ragged axis, for `ops.segment_sum`) and returns a tensor or nested tuples.

    Raises:
        BlockTypeError: when `fn` is not callable, its input is not of tensors, shapes do not fit, or
            its result is not of tensors.

    >>> from foldbatch.blocks.leaves import Vector
    >>> (Vector(2) >> Function(lambda x: x * 2)).eval([1, 2])
    array([2., 4.], dtype=float32)
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise BlockTypeError("Function", "a function of tensors", type(fn).__name__)
        self.fn = fn

    def apply(self, *xs: Any) -> Any:
        return self.fn(*xs)

    def arguments(self) -> str:
        return getattr(self.fn, "__name__", repr(self.fn))


class Concat(TensorBlock):
    """Joins a tuple of tensors along an instance axis; scalars count as vectors of one.

    Args:
        axis: the axis to join along.
        flatten: whether nested tuples are accepted.

    Raises:
        BlockTypeError: when there is nothing to join, tuples are nested without `flatten`, or
            shapes and dtypes differ elsewhere.

    >>> from foldbatch.blocks.leaves import Scalar, Vector
    >>> from foldbatch.blocks.records import Record
    >>> (Record((Scalar(), Vector(2))) >> Concat()).eval([1, [2, 3]])
    array([1., 2., 3.], dtype=float32)
    """

    def __init__(self, axis: int = 0, *, flatten: bool = False) -> None:
        self.axis = axis
        self.flatten = flatten

    def build(self, builder: Builder, value: Value) -> Value:
        where = f"{builder.path} {self!r}"
        if not isinstance(value, tuple):
            raise BlockTypeError(where, "a tuple of tensors", str(type_of(value)), "put it behind a Record")
        parts = self._parts(where, value)
        if not parts:
            raise BlockTypeError(where, "at least one tensor", "an empty tuple")
        return ops.concat([ops.expand_dims(x, 0) if x.ndim == 0 else x for x in parts], self.axis)

    def _parts(self, where: str, value: tuple[Value, ...]) -> list[Node]:
        parts: list[Node] = []
        for item in value:
            match item:
                case Node():
                    parts.append(item)
                case tuple() if self.flatten:
                    parts += self._parts(where, item)
                case tuple():
                    raise BlockTypeError(where, "a flat tuple", str(type_of(value)), "pass flatten=True")
                case _:
                    raise BlockTypeError(where, "tensors", str(type_of(item)), "read objects as tensors first")
        return parts

    def arguments(self) -> str:
        return f"axis={self.axis}" + (", flatten=True" if self.flatten else "")
