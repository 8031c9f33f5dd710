"""Blocks that read an object as one of a list of known ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from foldbatch.blocks.block import AnyBlock, Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.leaves import as_tensor_type, expect_object
from foldbatch.blocks.purity import is_constant, pure
from foldbatch.blocks.values import Value, is_int
from foldbatch.errors import BlockIndexError, BlockTypeError, BlockUseError, ExampleKeyError
from foldbatch.model.columns import BadDataError
from foldbatch.static import ops
from foldbatch.static.graph import Node
from foldbatch.types import DEFAULT_DTYPE, OBJECT, ObjectType, TensorType, Type, describe_value

SHOWN = 8  # elements named in an error


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

    def __init__(self, start: int, stop: int | None = None, dtype: str = DEFAULT_DTYPE) -> None:
        self.start, self.stop = (0, start) if stop is None else (start, stop)
        for bound in (self.start, self.stop):
            if not is_int(bound):
                raise BlockTypeError(
                    "OneHot", "an int as bound", describe_value(bound), "as in OneHot(0, 10)"
                )
        if self.stop <= self.start:
            found = f"none from {self.start} to {self.stop}"
            raise BlockIndexError("OneHot", "one int or more", found, "give the bounds of a range")
        self.type = as_tensor_type("OneHot", (self.stop - self.start,), dtype)
        self.dtype = self.type.dtype

    @property
    def input_type(self) -> Type:
        return OBJECT

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

    def __init__(self, elements: Iterable[Any], dtype: str = DEFAULT_DTYPE, *, strict: bool = True) -> None:
        if not isinstance(elements, Iterable):
            found = describe_value(elements)
            raise BlockTypeError("OneHotFromList", "a list of elements", found, "for example ['a', 'b']")
        self.elements = tuple(elements)
        self.strict = strict
        self.numbers: dict[Any, int] = {}
        for number, element in enumerate(self.elements):
            try:
                first = self.numbers.setdefault(element, number)
            except TypeError:
                found, fix = describe_value(element), "for example tuples instead of lists"
                raise BlockTypeError("OneHotFromList", "hashable elements", found, fix) from None
            if first != number:
                found = f"{element!r} twice"
                raise BlockUseError("OneHotFromList", "distinct elements", found, "drop one")
        if not self.elements:
            raise BlockIndexError("OneHotFromList", "one element or more", "none", "for example ['a', 'b']")
        self.type = as_tensor_type("OneHotFromList", (len(self.elements),), dtype)
        self.dtype = self.type.dtype

    @property
    def input_type(self) -> Type:
        return OBJECT

    def build(self, builder: Builder, value: Value) -> Node:
        shown = [repr(element) for element in self.elements[:SHOWN]]
        more = ", ..." if len(self.elements) > SHOWN else ""
        unlisted = None if self.strict else len(self.elements)
        find = _finder(self.numbers, f"one of {', '.join(shown)}{more}", unlisted)
        return _one_hot(self, builder, value, find, self.type, extra=not self.strict)

    def arguments(self) -> str:
        return repr(list(self.elements)) + _dtype(self.type) + ("" if self.strict else ", strict=False")


def _dtype(type_: TensorType, *, named: bool = True) -> str:
    if type_.dtype == DEFAULT_DTYPE:
        return ""
    return f", dtype={type_.dtype!r}" if named else f", {type_.dtype!r}"


def _finder(given: dict[Any, int], expected: str, unlisted: int | None = None) -> Callable[[Any], int]:
    """Return the function that finds an object's number.

    Objects not in `given` have the number `unlisted`; without one, they are errors.
    """
    numbers = {**given}  # which nobody changes

    def find(x: Any) -> int:
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
