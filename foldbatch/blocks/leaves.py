"""Blocks that read Python objects: where an example's data enters the model."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as PySequence
from typing import Any

from foldbatch.blocks.block import Block, function_name
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Object, Sequence, Value, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.static.graph import Node
from foldbatch.types import DEFAULT_DTYPE, TensorType, describe_value


def expect_object(block: Block, builder: Builder, value: Value) -> Object:
    """Return `value`, refusing anything but a Python object."""
    if not isinstance(value, Object):
        found = str(type_of(value))
        fix = "what is a tensor already needs no reading" if isinstance(value, Node) else "give it one object"
        raise BlockTypeError(builder.where(block), "a Python object", found, fix)
    return value


class Tensor(Block):
    """Reads an object as a tensor of a fixed shape.

    Args:
        shape: the instance shape, without the batch axis.
        dtype: one of float32, float64, int32, int64, bool. What Python converts without loss is
            accepted: whole numbers for floats, bools for both.

    Raises:
        BlockTypeError: when the shape is none, or the input is no object.
        ExampleError: when tracing, where the datum has another shape or kind.

    >>> print(Tensor([2]).eval([1, 2]))
    [1. 2.]
    """

    def __init__(self, shape: Any, dtype: str = DEFAULT_DTYPE) -> None:
        if not isinstance(shape, PySequence) or isinstance(shape, str):
            fix = "Tensor([2, 3]) reads 2 lists of 3 numbers, Vector(3) one"
            raise BlockTypeError("Tensor", "a list or tuple as shape", describe_value(shape), fix)
        try:
            self.type = TensorType(tuple(shape), dtype)
        except BlockTypeError as error:
            raise BlockTypeError(type(self).__name__, error.expected, error.found, error.fix) from None

    def build(self, builder: Builder, value: Value) -> Node:
        source = expect_object(self, builder, value)
        return builder.read(source, self.type, builder.where(self))

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
                # an enum's repr is no expression, though it be a str or an int
                key = repr(self.key) if type(self.key) in (str, int) else builder.constant("key", self.key)
                place = (*value.place, f"[{_literal(repr(self.key))}]")
                return builder.assign(f"{value.code}[{key}]", place, value, f"an item {self.key!r}")
            case tuple():
                return self._of_tuple(builder, value)
            case Sequence():
                return self._of_sequence(builder, value)
        fix = (
            "select parts of a tensor in Function"
            if isinstance(value, Node)
            else "give it something with items"
        )
        raise BlockTypeError(
            builder.where(self), "an object, a tuple or a sequence", str(type_of(value)), fix
        )

    def _of_tuple(self, builder: Builder, value: tuple[Value, ...]) -> Value:
        if not isinstance(self.key, int | slice) or isinstance(self.key, bool):
            fix = f"the tuple is {type_of(value)}; a Record of names yields a tuple too"
            raise BlockTypeError(
                builder.where(self), "an int or a slice as key of a tuple", repr(self.key), fix
            )
        try:
            return value[self.key]
        except IndexError:
            expected = f"an index from {-len(value)} to {len(value) - 1}"
            expected = expected if value else "an item"
            found, fix = f"{self.key} of {type_of(value)}", "indices count from 0"
            raise BlockTypeError(builder.where(self), expected, found, fix) from None

    def _of_sequence(self, builder: Builder, value: Sequence) -> Value:
        if not isinstance(self.key, int) or isinstance(self.key, bool):
            fix = "to apply it to every element, write Map(GetItem(...))"
            raise BlockTypeError(builder.where(self), "an int as key of a sequence", repr(self.key), fix)
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
            fix = "for example InputTransform(len)"
            raise BlockTypeError("InputTransform", "a function", describe_value(fn), fix)
        self.fn = fn

    def build(self, builder: Builder, value: Value) -> Object:
        source = expect_object(self, builder, value)
        name = builder.constant("fn", self.fn)
        expression = f"{name}({source.code})"
        return builder.assign(expression, source.place, source, where=builder.where(self), calls="function")

    def arguments(self) -> str:
        return function_name(self.fn)


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
