"""Blocks that read Python objects: where an example's data enters the model."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as PySequence
from typing import Any

import numpy as np

from foldbatch.blocks.block import AnyBlock, Block, function_name
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Object, Value, as_object, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.static.graph import Node
from foldbatch.types import (
    DEFAULT_DTYPE,
    OBJECT,
    VOID,
    WIDER,
    ObjectType,
    TensorType,
    TupleType,
    Type,
    VoidType,
    describe_value,
)


def expect_object(block: AnyBlock, builder: Builder, value: Value) -> Object:
    """Return `value` as one Python object, refusing anything else."""
    value = as_object(value)
    if not isinstance(value, Object):
        found = str(type_of(value))
        fix = "what is a tensor already needs no reading" if isinstance(value, Node) else "give it one object"
        raise BlockTypeError(builder.where(block), "a Python object", found, fix)
    return value


def as_tensor_type(where: str, shape: tuple[int, ...], dtype: str) -> TensorType:
    """Return a tensor's type, blaming `where` for a shape or dtype that is none."""
    try:
        return TensorType(shape, dtype)
    except BlockTypeError as error:
        raise BlockTypeError(where, error.expected, error.found, error.fix) from None


def _dtype_name(dtype: Any) -> str:
    """Return NumPy's name for a dtype, or what was given as text where it is none.

    >>> _dtype_name(np.int8), _dtype_name("i2"), _dtype_name("number")
    ('int8', 'int16', 'number')
    """
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return str(dtype)


class Tensor(Block[ObjectType, TensorType]):
    """Reads an object as a tensor of a fixed shape.

    Args:
        shape: the instance shape, without the batch axis.
        dtype: one of float32, float64, int32, int64, bool. What Python converts without loss is
            accepted: whole numbers for floats, bools for both. Or a narrow one that data are stored
            as: int8, uint8, int16 and uint16 are read as int32, with their own range checked,
            float16 as float32. `type` is what the tensor becomes.

    Raises:
        BlockTypeError: when the shape is none, or the input is no object.
        ExampleError: when tracing, where the datum has another shape or kind, or is out of range.

    >>> print(Tensor([2]).eval([1, 2]))
    [1. 2.]
    >>> pixels = Tensor([2, 2], "uint8")
    >>> pixels, str(pixels.output_type)
    (Tensor([2, 2], 'uint8'), 'int32[2,2]')
    """

    def __init__(self, shape: Any, dtype: str = DEFAULT_DTYPE) -> None:
        if not isinstance(shape, PySequence) or isinstance(shape, str):
            fix = "Tensor([2, 3]) reads 2 lists of 3 numbers, Vector(3) one"
            raise BlockTypeError("Tensor", "a list or tuple as shape", describe_value(shape), fix)
        self.declared = _dtype_name(dtype)
        widened = WIDER.get(self.declared, dtype)
        self.type = as_tensor_type(type(self).__name__, tuple(shape), widened)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.declared

    @property
    def input_type(self) -> Type:
        return OBJECT

    def build(self, builder: Builder, value: Value) -> Node:
        source = expect_object(self, builder, value)
        declared = self.declared if self.declared in WIDER else ""
        return builder.read(source, self.type, builder.where(self), declared)

    def arguments(self) -> str:
        return f"{list(self.type.shape)}, {self.declared!r}"


class Scalar(Tensor):
    """Reads a number as a tensor of no axes.

    >>> Scalar("int32").eval(3)
    array(3, dtype=int32)
    """

    def __init__(self, dtype: str = DEFAULT_DTYPE) -> None:
        super().__init__((), dtype)

    def arguments(self) -> str:
        return repr(self.declared)


class Vector(Tensor):
    """Reads a list of `size` numbers as a tensor of one axis.

    >>> Vector(3).eval([1, 2, 3])
    array([1., 2., 3.], dtype=float32)
    """

    def __init__(self, size: int, dtype: str = DEFAULT_DTYPE) -> None:
        super().__init__((size,), dtype)

    @property
    def size(self) -> int:
        return self.type.shape[0]

    def arguments(self) -> str:
        return f"{self.type.shape[0]}, {self.declared!r}"


class InputTransform(Block[ObjectType | TupleType, ObjectType]):
    """Applies a Python function to an object before it becomes tensors.

    Args:
        fn: takes the object, returns another; it is called once per visit while tracing, or less often where
            it is known to be pure (see `foldbatch.blocks.purity`).

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

    @property
    def input_type(self) -> Type:
        return OBJECT

    def build(self, builder: Builder, value: Value) -> Object:
        source = expect_object(self, builder, value)
        function = builder.constant("fn", self.fn)
        return builder.apply(function, source, where=builder.where(self), calls="function")

    def arguments(self) -> str:
        return function_name(self.fn)


class Identity(Block[Any, Any]):
    """Passes its input on.

    >>> (Scalar() >> Identity()).eval(1)
    array(1., dtype=float32)
    """

    passes_on = True

    def build(self, builder: Builder, value: Value) -> Value:
        return value


class Void(Block[Any, VoidType]):
    """Swallows its input.

    >>> Void().eval(1) is None
    True
    """

    @property
    def input_type(self) -> Type:
        return VOID

    def build(self, builder: Builder, value: Value) -> None:
        return None
