"""Blocks on tensors: a Python function of symbolic tensors becomes part of a cell.

The function is called once, when the block is built. Blocks that follow each other without a
choice between them land in one region's graph, so that they cost one call (see `builder`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from foldbatch.blocks.block import BLOCK_LIKES, Block, In_contra, Out_co, Result, function_name
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.drafts import (
    Object,
    Repeated,
    Sequence,
    Value,
    leaves,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.errors import BlockTypeError, FoldbatchError, GraphError
from foldbatch.operators import active_recorder, in_function, is_symbolic
from foldbatch.params.parameters import Array, Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Node, constant, lift, parameter_node
from foldbatch.system.showing import arguments_of
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


class TensorBlock(Block[In_contra, Out_co]):
    """A block that is a function of tensors; layers derive from it.

    Subclasses implement `apply`; a tuple input is spread over its arguments.
    """

    def apply(self, *xs: object) -> Result:
        """Return the result for symbolic tensors (or nested tuples of them)."""
        raise NotImplementedError

    def called(self) -> tuple[str, str]:
        """Return the names for cells of the block: the user's function and the layer; empty if none."""
        return "", ""

    @property
    def is_named(self) -> bool:
        """Whether the user gave the layer's name."""
        return False

    def __call__(self, *xs: object) -> Result:
        """Apply the block to symbolic tensors, inside the function of another block or of a cell.

        In a plain function that stands for a model it is a call of a small cell.
        """
        recorder = active_recorder()
        if recorder is None or is_symbolic():
            return self.apply(*map(_read, xs))
        return recorder.layer(self, xs)

    def build(self, builder: Builder, value: Value) -> Value:
        """Call the block's function of symbolic tensors; its result joins the region's graph."""
        argument = self._symbolic(builder, value)
        xs = argument if isinstance(argument, tuple) else (argument,)
        try:
            with in_function():
                result = self.apply(*xs)
        except FoldbatchError:
            raise
        except Exception as error:
            actual = f"one that raised {type(error).__name__}: {error}"
            fix = f"it is called with {type_of(value)}, a symbol and no number; compute with foldbatch.ops"
            raise BlockTypeError(
                builder.where(self), "a function of symbolic tensors", actual, fix
            ) from error
        outcome = self._checked(builder, result)
        builder.note(outcome, *self.called(), named=self.is_named)
        return outcome

    def _symbolic(self, builder: Builder, value: Value) -> Any:
        """Return a value as the function's argument: tensors, tuples of them, or a sequence's elements."""
        match value:
            case Node():
                return value
            case tuple():  # a void member arrives as None
                return tuple(None if item is None else self._symbolic(builder, item) for item in value)
            case Sequence():
                return builder.elements(value)
        match value:
            case Object():
                fix = "read the object as a tensor first, for example with Scalar or Vector"
            case Repeated():
                fix = "Zip it with a sequence first"
            case _:
                fix = "give it an input"
        raise BlockTypeError(builder.where(self), "tensors", str(type_of(value)), fix)

    def _checked(self, builder: Builder, result: object) -> Value:
        """Return a function's result as tensors and tuples; refuse any other object."""
        match result:
            case Node():
                return result
            case tuple() | list():
                return tuple(self._checked(builder, item) for item in result)
            case Parameter() | np.ndarray() | np.generic():
                operand: Any = result
                return lift("Function", (operand,))[0]
        fix = "compute with foldbatch.ops and operators on the function's arguments"
        if result is None:
            fix = "return what the function computes"
        expected = "a tensor, or a tuple or list of tensors, as result"
        raise BlockTypeError(builder.where(self), expected, describe_value(result), fix)


def _read(x: object) -> Any:
    """Return parameters as symbolic tensors, in tuples too."""
    if type(x) is tuple:
        return tuple(map(_read, x))
    return parameter_node(x) if isinstance(x, Parameter) else x


class Function(TensorBlock[TensorType | TupleType | SequenceType, Any]):
    """A function of tensors, written with `foldbatch.ops` and ordinary operators.

    Args:
        fn: takes symbolic tensors (a tuple input calls ``fn(a, b, ...)``; a sequence arrives as its
            elements along a ragged axis, for `ops.segment_sum`) and returns a tensor or nested tuples.

    Raises:
        BlockTypeError: when `fn` is not callable, its input is not of tensors, shapes do not fit, or
            its result is not of tensors.

    >>> (fb.Vector(2) >> fb.Function(lambda x: x * 2)).eval([1, 2])
    array([2., 4.], dtype=float32)
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        if not callable(fn):
            fix = "for example Function(lambda a, b: a + b)"
            raise BlockTypeError("Function", "a function of tensors", describe_value(fn), fix)
        self.fn = fn

    def build(self, builder: Builder, value: Value) -> Value:
        """Call the function; refuse inputs and results without a tensor."""
        if not any(isinstance(leaf, Node | Sequence) for leaf in leaves(value)):
            fix = (
                "read the object first, for example with Scalar, in a case of OneOf too; a constant is "
                "FromTensor; to choose between tensors, use ops.where"
            )
            raise BlockTypeError(builder.where(self), "at least one tensor", str(type_of(value)), fix)
        result = super().build(builder, value)
        if not any(True for _ in leaves(result)):
            raise BlockTypeError(builder.where(self), "at least one tensor as result", "none", "or use Void")
        return result

    def called(self) -> tuple[str, str]:
        name = function_name(self.fn)
        return name if name.isidentifier() else "", ""  # a lambda has none

    def apply(self, *xs: object) -> Result:
        self._check_arity(xs)
        return self.fn(*xs)

    def _check_arity(self, xs: tuple[object, ...]) -> None:
        """Refuse a function that cannot be called with as many arguments as the input has items."""
        try:
            signature = arguments_of(self.fn)
        except (ValueError, TypeError):
            return  # some built-ins have none
        try:
            signature.bind(*xs)
        except TypeError:
            count = "1 argument" if len(xs) == 1 else f"{len(xs)} arguments"
            fix = "an input of several values is spread over the arguments"
            expected = f"a function of {count}"
            raise GraphError(repr(self), expected, f"{function_name(self.fn)}{signature}", fix) from None


class Concat(TensorBlock[TupleType, TensorType]):
    """Joins a tuple of tensors along an instance axis; scalars count as vectors of one.

    Args:
        axis: the axis to join along.
        flatten: whether nested tuples are accepted.

    Raises:
        BlockTypeError: when there is nothing to join, tuples are nested without `flatten`, or
            shapes and dtypes differ elsewhere.

    >>> (fb.Record((fb.Scalar(), fb.Vector(2))) >> fb.Concat()).eval([1, [2, 3]])
    array([1., 2., 3.], dtype=float32)
    """

    def __init__(self, axis: int = 0, *, flatten: bool = False) -> None:
        self.axis = axis
        self.flatten = flatten

    def build(self, builder: Builder, value: Value) -> Value:
        """Return the joined tensors of a tuple; scalars become vectors of one element."""
        where = builder.where(self)
        if not isinstance(value, tuple):
            fix = "put it behind a Record or an AllOf"
            raise BlockTypeError(where, "a tuple of tensors", str(type_of(value)), fix)
        parts = self._parts(where, value)
        if not parts:
            raise BlockTypeError(where, "at least one tensor", "an empty tuple", "give it something to join")
        return ops.concat([ops.expand_dims(x, 0) if x.ndim == 0 else x for x in parts], self.axis)

    def _parts(self, where: str, value: tuple[Value, ...]) -> list[Node]:
        """Return the tensors of a tuple, and of tuples in it if `flatten` is set; refuse any other value."""
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
                    fix = "read objects as tensors first"
                    raise BlockTypeError(where, "tensors", str(type_of(item)), fix)
        return parts


SHOWN_NUMBERS = 20  # elements of an array that `repr` prints


# -- blocks that yield the same whatever they read: arrays, parameters, zeros


class FromTensor(Block[Any, TensorType]):
    """A constant array or a parameter, whatever the input.

    Args:
        tensor: an array, a number or a `foldbatch.Parameter`.

    Raises:
        BlockTypeError: when it is none of these, or an array of another kind than numbers.

    >>> FromTensor(np.array([1, 2])).eval("whatever")
    array([1, 2])
    """

    input_type = VOID

    def __init__(self, tensor: object) -> None:
        if not isinstance(tensor, Parameter | np.ndarray | np.generic | int | float):
            actual, fix = describe_value(tensor), "convert it with np.asarray"
            raise BlockTypeError("FromTensor", "an array or a Parameter", actual, fix)
        if isinstance(tensor, np.ndarray | np.generic) and tensor.dtype.kind not in "fiub":
            fix = "encode it as numbers"
            raise BlockTypeError("FromTensor", "an array of numbers", describe_value(tensor), fix)
        copied: Any = tensor if isinstance(tensor, Parameter) else constant(tensor).attrs["value"]
        self.tensor: Parameter | Array = copied

    def build(self, builder: Builder, value: Value) -> Node:
        node = parameter_node(self.tensor) if isinstance(self.tensor, Parameter) else constant(self.tensor)
        builder.note(node)
        return node

    def arguments(self) -> str:
        """Return the array or parameter as text; of a large array, its type alone."""
        if isinstance(self.tensor, Parameter):
            return repr(self.tensor)
        array = self.tensor
        if array.size > SHOWN_NUMBERS:
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

    input_type = VOID

    def __init__(self, type: object) -> None:
        self.type = as_type(type, "Zeros")
        _refuse_no_zero(self.type, self.type, "Zeros")

    def build(self, builder: Builder, value: Value) -> Value:
        return zeros(self.type)

    def arguments(self) -> str:
        return shorthand(self.type)


def _refuse_no_zero(part: Type, full: Type, where: str) -> None:
    """Refuse a type with a part that has no zero, as an object; `full` is the type that errors show."""
    match part:
        case ObjectType() | BroadcastType():
            fix = "build it from tensor types, tuples and sequences"
            raise BlockTypeError(where, "a type that has a zero", str(full), fix)
        case TupleType(items):
            for item in items:
                _refuse_no_zero(item, full, where)


def zeros(type_: Type, where: str = "Zeros") -> Value:
    """Return the zero of a type; `where` names the caller in errors.

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
