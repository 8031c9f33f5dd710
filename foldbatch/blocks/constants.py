"""Blocks that yield the same whatever they read: arrays, parameters, zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from foldbatch.blocks.block import BLOCK_LIKES, Block
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.values import Sequence, Value, new_wires, run_time_terminals
from foldbatch.errors import BlockTypeError
from foldbatch.params.parameters import Array, Parameter
from foldbatch.static.graph import Node, constant, parameter_node
from foldbatch.types import (
    VOID,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
    as_type,
    describe_value,
)

SHOWN = 20  # elements of an array that `repr` prints


class FromTensor(Block[Any, TensorType]):
    """A constant array or a parameter, whatever the input.

    Args:
        tensor: an array, a number or a `foldbatch.Parameter`.

    Raises:
        BlockTypeError: when it is none of these, or an array of another kind than numbers.

    >>> FromTensor(np.array([1, 2])).eval("whatever")
    array([1, 2])
    """

    def __init__(self, tensor: Any) -> None:
        if not isinstance(tensor, Parameter | np.ndarray | np.generic | int | float):
            found, fix = describe_value(tensor), "convert it with np.asarray"
            raise BlockTypeError("FromTensor", "an array or a Parameter", found, fix)
        if isinstance(tensor, np.ndarray | np.generic) and tensor.dtype.kind not in "fiub":
            raise BlockTypeError(
                "FromTensor", "an array of numbers", describe_value(tensor), "encode it as numbers"
            )
        copied: Any = tensor if isinstance(tensor, Parameter) else constant(tensor).attrs["value"]
        self.tensor: Parameter | Array = copied

    @property
    def input_type(self) -> Type:
        return VOID

    def build(self, builder: Builder, value: Value) -> Node:
        node = parameter_node(self.tensor) if isinstance(self.tensor, Parameter) else constant(self.tensor)
        builder.note(node)
        return node

    def arguments(self) -> str:
        if isinstance(self.tensor, Parameter):
            return repr(self.tensor)
        array = self.tensor
        if array.size > SHOWN:
            return f"<{TensorType(array.shape, array.dtype.name)}>"
        text = repr(array).replace("\n", "")
        return text if "dtype" in text or array.dtype.kind != "f" else f"{text[:-1]}, dtype={array.dtype})"


class Zeros(Block[Any, Any]):
    """Zeros of a type: tensors of zeros, tuples of them, empty sequences.

    Args:
        type: a type, or a short-hand for one (`foldbatch.types.as_type`).

    Raises:
        BlockTypeError: when the type is none, or holds objects or broadcasts.

    >>> Zeros((2, "int32", None)).eval(None)
    (array([0., 0.], dtype=float32), array(0, dtype=int32), None)
    """

    def __init__(self, type: Any) -> None:
        self.type = as_type(type, "Zeros")
        _refuse_no_zero(self.type, self.type, "Zeros")

    @property
    def input_type(self) -> Type:
        return VOID

    def build(self, builder: Builder, value: Value) -> Value:
        return zeros(self.type)

    def arguments(self) -> str:
        return shorthand(self.type)


def _refuse_no_zero(part: Type, whole: Type, where: str) -> None:
    match part:
        case ObjectType() | BroadcastType():
            fix = "build it from tensor types, tuples and sequences"
            raise BlockTypeError(where, "a type that has a zero", str(whole), fix)
        case TupleType(items):
            for item in items:
                _refuse_no_zero(item, whole, where)


def zeros(type_: Type, where: str = "Zeros") -> Value:
    """Return the zero of a type; `where` says who asks, for errors.

    Raises:
        BlockTypeError: when it has none.
    """
    _refuse_no_zero(type_, type_, where)
    match type_:
        case TensorType(shape, dtype):
            return constant(np.zeros(shape, dtype))
        case TupleType(items):
            return tuple(zeros(item, where) for item in items)
        case SequenceType(element):
            return Sequence("[]", element, tuple(map(new_wires, run_time_terminals(element))))
    return None


def shorthand(type_: Type) -> str:
    """Return an expression that `foldbatch.types.as_type` reads as a type, or the type's `repr`.

    >>> print(shorthand(as_type((5, [2, "int32"], "bool", None))))
    ([5], [2, 'int32'], 'bool', None)
    """
    match type_:
        case VoidType():
            return "None"
        case TensorType(shape, dtype):
            if not shape:
                return repr(dtype)
            return repr([*shape] if dtype == "float32" else [*shape, dtype])
        case TupleType(items):
            inner = ", ".join(map(shorthand, items))
            return f"({inner},)" if len(items) == 1 else f"({inner})"
    return repr(type_)


BLOCK_LIKES.append(((np.ndarray, np.generic, Parameter), FromTensor))
