"""Blocks that read Python objects: where an example's data enters the model, as numbers or ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as PySequence
from typing import Any

import numpy as np

from foldbatch.blocks.block import AnyBlock, Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import Object, Value, as_object, is_int, type_of
from foldbatch.blocks.purity import is_constant, pure
from foldbatch.errors import BlockIndexError, BlockTypeError, BlockUseError, ExampleKeyError
from foldbatch.model.columns import BadDataError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import (
    DEFAULT_DTYPE,
    OBJECT,
    VOID,
    WIDER,
    ObjectType,
    TensorType,
    TupleType,
    VoidType,
    describe_value,
)


def expect_object(block: AnyBlock, builder: Builder, value: Value) -> Object:
    """Return `value` as one Python object, refusing anything else."""
    value = as_object(value)
    if not isinstance(value, Object):
        actual = str(type_of(value))
        fix = "what is a tensor already needs no reading" if isinstance(value, Node) else "give it one object"
        raise BlockTypeError(builder.where(block), "a Python object", actual, fix)
    return value


def as_tensor_type(where: str, shape: tuple[int, ...], dtype: str) -> TensorType:
    """Return the tensor type of a shape and a dtype; errors name `where`.

    Raises:
        BlockTypeError: when the shape or the dtype is none.
    """
    try:
        return TensorType(shape, dtype)
    except BlockTypeError as error:
        raise BlockTypeError(where, error.expected, error.found, error.fix) from None


def _dtype_name(dtype: Any) -> str:
    """Return NumPy's name for a dtype; a value that is no dtype, as text.

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

    input_type = OBJECT

    def __init__(self, shape: object, dtype: str = DEFAULT_DTYPE) -> None:
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

    input_type = OBJECT

    def __init__(self, fn: Callable[[Any], object]) -> None:
        if not callable(fn):
            fix = "for example InputTransform(len)"
            raise BlockTypeError("InputTransform", "a function", describe_value(fn), fix)
        self.fn = fn

    def build(self, builder: Builder, value: Value) -> Object:
        source = expect_object(self, builder, value)
        function = builder.constant("fn", self.fn)
        return builder.apply(function, source, where=builder.where(self), calls="function")


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

    input_type = VOID

    def build(self, builder: Builder, value: Value) -> None:
        return None


SHOWN_ELEMENTS = 8  # elements named in an error


class OneHot(Block[ObjectType, TensorType]):
    """Reads an int as a vector of zeros with a single one; ``range``'s arguments say which ints.

    Args:
        start: the first int; if `stop` is not given, the number of ints, which start at 0.
        stop: one more than the last int.
        dtype: of the vector.

    Raises:
        BlockTypeError: when a bound is no int.
        BlockIndexError: when there is no int between them.
        ExampleKeyError: when tracing, where the int is not among them.

    >>> OneHot(3).eval(1), OneHot(1, 3, "int32").eval(1)
    (array([0., 1., 0.], dtype=float32), array([1, 0], dtype=int32))
    """

    input_type = OBJECT

    def __init__(self, start: int, stop: int | None = None, dtype: str = DEFAULT_DTYPE) -> None:
        self.start, self.stop = (0, start) if stop is None else (start, stop)
        for bound in (self.start, self.stop):
            if not is_int(bound):
                fix = "as in OneHot(0, 10)"
                raise BlockTypeError("OneHot", "an int as bound", describe_value(bound), fix)
        if self.stop <= self.start:
            actual = f"none from {self.start} to {self.stop}"
            raise BlockIndexError("OneHot", "one int or more", actual, "give the bounds of a range")
        self.type = as_tensor_type("OneHot", (self.stop - self.start,), dtype)
        self.dtype = self.type.dtype

    def build(self, builder: Builder, value: Value) -> Node:
        numbers = {number: number - self.start for number in range(self.start, self.stop)}
        expected = f"an int from {self.start} to {self.stop - 1}"
        return _one_hot(self, builder, value, _finder(numbers, expected), self.type)

    def arguments(self) -> str:
        bounds = f"{self.start}, {self.stop}" if self.start else str(self.stop)
        return bounds + _dtype(self.type, named=not self.start)


class OneHotFromList(Block[ObjectType, TensorType]):
    """Reads one of a list of objects as a vector of zeros with a one at its place in the list.

    Args:
        elements: the objects, hashable and distinct.
        dtype: of the vector.
        strict: whether any other object is an error; otherwise it is read as zeros.

    Raises:
        BlockTypeError: when the elements are not hashable.
        BlockIndexError: when there are none.
        BlockUseError: when one stands twice.
        ExampleKeyError: when tracing, where the object is not in the list, if `strict`.

    >>> OneHotFromList(["red", "blue"]).eval("blue")
    array([0., 1.], dtype=float32)
    """

    input_type = OBJECT

    def __init__(
        self, elements: Iterable[object], dtype: str = DEFAULT_DTYPE, *, strict: bool = True
    ) -> None:
        if not isinstance(elements, Iterable):
            actual = describe_value(elements)
            raise BlockTypeError("OneHotFromList", "a list of elements", actual, "for example ['a', 'b']")
        self.elements = tuple(elements)
        self.strict = strict
        self.numbers: dict[Any, int] = {}
        for number, element in enumerate(self.elements):
            try:
                first = self.numbers.setdefault(element, number)
            except TypeError:
                actual, fix = describe_value(element), "for example tuples instead of lists"
                raise BlockTypeError("OneHotFromList", "hashable elements", actual, fix) from None
            if first != number:
                actual = f"{element!r} twice"
                raise BlockUseError("OneHotFromList", "distinct elements", actual, "drop one")
        if not self.elements:
            raise BlockIndexError("OneHotFromList", "one element or more", "none", "for example ['a', 'b']")
        self.type = as_tensor_type("OneHotFromList", (len(self.elements),), dtype)
        self.dtype = self.type.dtype

    def build(self, builder: Builder, value: Value) -> Node:
        shown = [repr(element) for element in self.elements[:SHOWN_ELEMENTS]]
        ellipsis = ", ..." if len(self.elements) > SHOWN_ELEMENTS else ""
        unlisted = None if self.strict else len(self.elements)
        find = _finder(self.numbers, f"one of {', '.join(shown)}{ellipsis}", unlisted)
        return _one_hot(self, builder, value, find, self.type, extra=not self.strict)

    def arguments(self) -> str:
        return repr(list(self.elements)) + _dtype(self.type) + ("" if self.strict else ", strict=False")


def _dtype(type_: TensorType, *, named: bool = True) -> str:
    if type_.dtype == DEFAULT_DTYPE:
        return ""
    return f", dtype={type_.dtype!r}" if named else f", {type_.dtype!r}"


def _finder(numbering: dict[Any, int], expected: str, unlisted: int | None = None) -> Callable[[Any], int]:
    """Return the function that finds an object's number.

    Objects not in `numbering` have the number `unlisted`; without one, they are errors.
    """
    numbers = {**numbering}  # a copy, which no caller can change

    def find(x: object) -> int:
        """Return the number of an object, or of the unlisted ones; raise BadDataError where there is none."""
        try:
            number = numbers.get(x, unlisted)
        except TypeError:  # not hashable, so none of them
            number = unlisted
        if number is None:
            fix = "add it to those that are known, or give another"
            raise BadDataError(expected, describe_value(x), fix, ExampleKeyError)
        return number

    return pure(find) if all(map(is_constant, numbers)) else find


def _one_hot(
    block: AnyBlock,
    builder: Builder,
    value: Value,
    find: Callable[[Any], int],
    type_: TensorType,
    extra: int = 0,
) -> Node:
    """Read an object's number as a vector with a one at that place.

    With `extra` 1, the number next to the last place is read as zeros.
    """
    source = expect_object(block, builder, value)
    number = builder.apply(builder.constant("find", find), source, where=builder.where(block))
    ids = builder.read(number, TensorType((), "int32"), builder.where(block))
    (size,) = type_.shape
    return ops.one_hot(ids, size + extra, type_.dtype)[:size]
