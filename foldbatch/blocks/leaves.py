"""Blocks that read Python objects: where an example's data enters the model."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as PySequence
from typing import Any

from foldbatch.blocks.block import Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Object, Sequence, Value, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.static.graph import Node
from foldbatch.types import DEFAULT_DTYPE, TensorType


def expect_object(block: Block, builder: Builder, value: Value) -> Object:
    """Return `value`, refusing anything but a Python object."""
    if not isinstance(value, Object):
        fix = "tensors are made from objects once; drop this block, or feed it the object"
        raise BlockTypeError(f"{builder.path} {block!r}", "object", str(type_of(value)), fix)
    return value


class Tensor(Block):
    """Reads an object as a tensor of a fixed shape.

    Args:
        shape: the instance shape, without the batch axis.
        dtype: one of float32, float64, int32, int64, bool; integers are accepted for floats.

    Raises:
        ExampleError: when tracing, where the datum has another shape or kind.

    >>> print(Tensor([2]).eval([1, 2]))
    [1. 2.]
    """

    def __init__(self, shape: PySequence[int], dtype: str = DEFAULT_DTYPE) -> None:
        self.type = TensorType(tuple(shape), dtype)

    def build(self, builder: Builder, value: Value) -> Node:
        source = expect_object(self, builder, value)
        return builder.read(source, self.type, f"{builder.path} {self!r}")

    def arguments(self) -> str:
        return f"{list(self.type.shape)}, {self.type.dtype!r}"


class Scalar(Tensor):
    """Reads a number as a tensor of no axes.

    >>> Scalar("int32").eval(3)
    array(3, dtype=int32)
    """

    def __init__(self, dtype: str = DEFAULT_DTYPE) -> None:
        super().__init__((), dtype)

    def arguments(self) -> str:
        return repr(self.type.dtype)


class Vector(Tensor):
    """Reads a list of `size` numbers as a tensor of one axis.

    >>> Vector(3).eval([1, 2, 3])
    array([1., 2., 3.], dtype=float32)
    """

    def __init__(self, size: int, dtype: str = DEFAULT_DTYPE) -> None:
        super().__init__((size,), dtype)

    def arguments(self) -> str:
        return f"{self.type.shape[0]}, {self.type.dtype!r}"


class GetItem(Block):
    """Reads ``x[key]``: of an object when tracing, of a tuple when building.

    Args:
        key: any key of the object; for a tuple, an int or a slice.

    Raises:
        BlockTypeError: when the input has no items, or a tuple no such item.
        ExampleKeyError: when tracing, where the object lacks the key.

    >>> (GetItem("a") >> Scalar()).eval({"a": 1})
    array(1., dtype=float32)
    """

    def __init__(self, key: Any) -> None:
        self.key = key

    def build(self, builder: Builder, value: Value) -> Value:
        match value:
            case Object():
                key = repr(self.key) if isinstance(self.key, str | int) else builder.constant("key", self.key)
                place = (*value.place, f"[{_literal(repr(self.key))}]")
                return builder.assign(f"{value.code}[{key}]", place, value, f"an item {self.key!r}")
            case tuple():
                return self._of_tuple(builder, value)
            case Sequence():
                return self._of_sequence(builder, value)
        where = f"{builder.path} {self!r}"
        raise BlockTypeError(where, "an object, a tuple or a finite sequence", str(type_of(value)), "select inside Function instead")

    def _of_tuple(self, builder: Builder, value: tuple[Value, ...]) -> Value:
        if not isinstance(self.key, int | slice) or isinstance(self.key, bool):
            raise BlockTypeError(f"{builder.path} {self!r}", "an int or a slice as key of a tuple", repr(self.key))
        try:
            return value[self.key]
        except IndexError:
            expected = f"an index from {-len(value)} to {len(value) - 1}"
            raise BlockTypeError(f"{builder.path} {self!r}", expected, repr(self.key)) from None

    def _of_sequence(self, builder: Builder, value: Sequence) -> Value:
        if not isinstance(self.key, int) or isinstance(self.key, bool):
            raise BlockTypeError(f"{builder.path} {self!r}", "an int as key of a sequence", repr(self.key))
        return builder.element(value, f"{value.code}[{self.key}]", f"an element {self.key}")

    def arguments(self) -> str:
        return repr(self.key)


def _literal(text: str) -> str:
    """Escape text for `str.format`."""
    return text.replace("{", "{{").replace("}", "}}")


class InputTransform(Block):
    """Applies a Python function to an object before it becomes tensors.

    Args:
        fn: takes the object, returns another; it is called once per visit while tracing.

    Raises:
        BlockTypeError: when `fn` is not callable, or the input is not an object.
        ExampleError: when tracing, where `fn` raises; the cause is attached.

    >>> (InputTransform(len) >> Scalar("int32")).eval("abc")
    array(3, dtype=int32)
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        if not callable(fn):
            raise BlockTypeError("InputTransform", "a function", type(fn).__name__)
        self.fn = fn

    def build(self, builder: Builder, value: Value) -> Object:
        source = expect_object(self, builder, value)
        name = builder.constant("fn", self.fn)
        return builder.assign(f"{name}({source.code})", source.place, source)

    def arguments(self) -> str:
        return getattr(self.fn, "__name__", repr(self.fn))


class Identity(Block):
    """Passes its input on.

    >>> (Scalar() >> Identity()).eval(1)
    array(1., dtype=float32)
    """

    def build(self, builder: Builder, value: Value) -> Value:
        return value


class Void(Block):
    """Swallows its input.

    >>> Void().eval(1) is None
    True
    """

    def build(self, builder: Builder, value: Value) -> None:
        return None

