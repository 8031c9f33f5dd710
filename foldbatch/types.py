"""The types that flow through blocks: tensors, tuples, sequences, Python objects, nothing.

Types are immutable and compared by value. The batch axis is never part of a type: a
``TensorType`` is what one example holds. Wherever a type is asked for, a short-hand will do
(see `as_type`).

Source: the kinds are TensorFlow Fold's (Looks et al. 2017, section 3).
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Iterable, Iterator, Sized
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from foldbatch.errors import BlockTypeError, FoldbatchError

# What computes, for checkers; `foldbatch.engines.engine.ENGINES` says what each is.
BackendName: TypeAlias = Literal["auto", "cuda", "llvm", "numpy", "reference"]
DEFAULT_DTYPE = "float32"
MAX_ELEMENTS = 2**40  # elements of a tensor
DTYPES = ("float32", "float64", "int32", "int64", "bool")
# Of data that are read: what a narrower dtype is widened to.
WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32", "float16": "float32"}
_OTHER_DTYPES = ("int8", "int16", "uint8", "uint16", "uint32", "uint64", "float16")


@dataclass(frozen=True, slots=True)
class TensorType:
    """An array of known shape and dtype, without the batch axis.

    >>> print(TensorType((2, 3)), TensorType((), "int32"))
    float32[2,3] int32
    """

    shape: tuple[int, ...] = ()
    dtype: str = DEFAULT_DTYPE

    def __post_init__(self) -> None:
        try:
            shape = tuple(map(operator.index, self.shape))
        except TypeError:
            shape = (-1,)
        if shape and min(shape) < 0:
            expected = "whole numbers of 0 or more as extents"
            raise BlockTypeError("TensorType", expected, str(tuple(self.shape)), "give the full shape")
        if prod(shape) > MAX_ELEMENTS or (shape and max(shape) > MAX_ELEMENTS):
            expected = f"{MAX_ELEMENTS:,} elements or fewer"
            raise BlockTypeError("TensorType", expected, str(shape), "no machine holds as many")
        object.__setattr__(self, "shape", shape)
        if type(self.dtype) is str and self.dtype in DTYPES:
            return  # as nearly always
        try:
            dtype = np.dtype(self.dtype or "None").name  # NumPy reads None as float64
        except TypeError:
            dtype = str(self.dtype)
        if dtype not in DTYPES:
            fix = "cast the data first" if dtype in _OTHER_DTYPES else "name one of them"
            raise BlockTypeError("TensorType", f"a dtype of {', '.join(DTYPES)}", dtype, fix)
        object.__setattr__(self, "dtype", dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of one instance."""
        return self.size * np.dtype(self.dtype).itemsize

    @property
    def is_float(self) -> bool:
        """Whether gradients can flow through values of this type."""
        return self.dtype.startswith("float")

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]" if self.shape else self.dtype


@dataclass(frozen=True, slots=True, init=False)
class TupleType:
    """A fixed number of values, each with its own type: ``TupleType((a, b))`` or ``TupleType(a, b)``.

    >>> print(TupleType((TensorType((3,)), ObjectType())), TupleType(5, "int32"))
    (float32[3], object) (float32[5], int32)
    """

    items: tuple[Type, ...]

    def __init__(self, *items: Any) -> None:
        if len(items) == 1 and isinstance(items[0], tuple | list):
            (items,) = items
        object.__setattr__(self, "items", tuple(as_type(item, "TupleType") for item in items))

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Type]:
        return iter(self.items)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.items))
        return f"({inner},)" if len(self.items) == 1 else f"({inner})"

    def with_items(self, items: tuple[Type, ...]) -> TupleType:
        """Return the type of the same structure with other types in it."""
        return TupleType(items)

    def value_of(self, parts: Iterable[object]) -> Any:
        """Return a value of these parts."""
        return tuple(parts)


@dataclass(frozen=True, slots=True, init=False)
class NestType(TupleType):
    """A dict, dataclass or named tuple with a type for each key or field: walks return it, no block reads it.

    >>> print(NestType(dict, ("score", "words"), (TensorType(()), OBJECT)))
    dict(score: float32, words: object)
    """

    kind: type
    keys: tuple[str, ...]

    def __init__(self, kind: type, keys: tuple[str, ...], items: tuple[Type, ...]) -> None:
        TupleType.__init__(self, items)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "keys", keys)

    def __str__(self) -> str:
        parts = [f"{key}: {item}" for key, item in zip(self.keys, self.items, strict=True)]
        return f"{self.kind.__name__}({', '.join(parts)})"

    def with_items(self, items: tuple[Type, ...]) -> NestType:
        """Return the type of the same keys or fields with other types in it."""
        return NestType(self.kind, self.keys, items)

    def value_of(self, parts: Iterable[object]) -> Any:
        """Return a value of these parts; no code of a dataclass runs, as parts may be numbers of values."""
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        if issubclass(self.kind, tuple):
            return tuple.__new__(self.kind, parts)
        value: Any = object.__new__(self.kind)
        for key, part in zip(self.keys, parts, strict=True):
            object.__setattr__(value, key, part)
        return value


@dataclass(frozen=True, slots=True)
class SequenceType:
    """Any finite number of values of one type.

    >>> print(SequenceType(TensorType((3,))), SequenceType(3))
    [float32[3], ...] [float32[3], ...]
    """

    element: Type

    def __post_init__(self) -> None:
        object.__setattr__(self, "element", as_type(self.element, "SequenceType"))

    def __str__(self) -> str:
        return f"[{self.element}, ...]"


@dataclass(frozen=True, slots=True)
class BroadcastType:
    """One value repeated as often as its reader asks.

    >>> print(BroadcastType(TensorType((3,))))
    repeat(float32[3])
    """

    element: Type

    def __post_init__(self) -> None:
        object.__setattr__(self, "element", as_type(self.element, "BroadcastType"))

    def __str__(self) -> str:
        return f"repeat({self.element})"


@dataclass(frozen=True, slots=True)
class ObjectType:
    """Any Python object: what an example is made of before it becomes tensors."""

    def __str__(self) -> str:
        return "object"


@dataclass(frozen=True, slots=True)
class VoidType:
    """No value at all."""

    def __str__(self) -> str:
        return "void"


Type = TensorType | TupleType | SequenceType | BroadcastType | ObjectType | VoidType
OBJECT = ObjectType()
VOID = VoidType()


def as_type(spec: object, where: str = "type") -> Type:
    """Return the type that a short-hand stands for.

    A Type stands for itself, an int ``n`` for a float32 vector of n, a list of ints (with an
    optional dtype at its end) for a tensor of that shape, a dtype name for a scalar, a text such as
    ``"float32[2,3]"`` for what prints so, a tuple for a `TupleType`, ``"object"`` for a Python object,
    None for void.

    Raises:
        BlockTypeError: when the short-hand is none of these.

    >>> print(as_type((5, [2, 3], [4, "int32"], "int64")))
    (float32[5], float32[2,3], int32[4], int64)
    """
    match spec:
        case TensorType() | TupleType() | SequenceType() | BroadcastType() | ObjectType() | VoidType():
            return spec
        case None:
            return VOID
        case bool() | np.ndarray():
            pass
        case "object":
            return OBJECT
        case int() | np.integer():
            return _tensor((int(spec),), DEFAULT_DTYPE, where)
        case str() | np.dtype():
            return tensor_written(str(spec)) or _tensor((), str(spec), where)
        case tuple():
            return TupleType(tuple(as_type(item, where) for item in spec))
        case list():
            *shape, last = spec or [None]
            if isinstance(last, str):
                return _tensor(tuple(shape), last, where)
            return _tensor(tuple(spec), DEFAULT_DTYPE, where)
    expected = 'a type, an int, a dtype name, "object", a list (shape) or a tuple of these'
    actual, fix = repr(spec), "for example 150 or (150, 150)"
    if hasattr(spec, "shape"):
        actual, fix = describe_value(spec), "numbers are Parameter([3, 4], init=array)"
    raise BlockTypeError(where, expected, actual, fix)


def tensor_written(text: str) -> TensorType | None:
    """Return the type that a text such as ``float32[2,3]`` names, as types are printed; None of others.

    >>> print(tensor_written("int32[4]"), tensor_written("children"))
    int32[4] None
    """
    match = re.fullmatch(r"(\w+)(?:\[([\d, ]+)\])?", text)
    if match is None or match[1] not in DTYPES:
        return None
    return TensorType(tuple(map(int, (match[2] or "").replace(",", " ").split())), match[1])


def _tensor(shape: tuple[int, ...], dtype: str, where: str) -> TensorType:
    try:
        return TensorType(shape, dtype)
    except BlockTypeError as error:
        raise BlockTypeError(where, error.expected, error.found, error.fix) from None


def sequence_of(spec: object) -> SequenceType:
    """Return the type of a sequence whose elements have the type that a short-hand stands for.

    Raises:
        BlockTypeError: when the short-hand is none, as of `as_type`.

    >>> print(as_type(("object", sequence_of(5))))
    (object, [float32[5], ...])
    """
    return SequenceType(as_type(spec, "sequence_of"))


def types_in(type_: Type) -> Iterator[Type]:
    """Yield a type and all types in it, outer ones first.

    >>> print(*types_in(as_type((5, sequence_of(None)))))
    (float32[5], [void, ...]) float32[5] [void, ...] void
    """
    yield type_
    inside = type_.items if isinstance(type_, TupleType) else ()
    for part in (type_.element,) if isinstance(type_, SequenceType | BroadcastType) else inside:
        yield from types_in(part)


def is_void(type_: Type) -> bool:
    """Return whether values of a type hold nothing: the void, and tuples and sequences of it.

    >>> is_void(as_type((None, sequence_of(None)))), is_void(as_type((None, 5)))
    (True, False)
    """
    return not any(isinstance(part, TensorType | ObjectType) for part in types_in(type_))


def terminals(type_: Type) -> Iterator[Type]:
    """Yield the leaves of a type in order; a sequence counts as one leaf.

    >>> [str(t) for t in terminals(as_type((5, (3, None))))]
    ['float32[5]', 'float32[3]']
    """
    match type_:
        case TupleType(items):
            for item in items:
                yield from terminals(item)
        case VoidType():
            return
        case _:
            yield type_


def is_masked(value: object) -> bool:
    """Return whether a value, or a list of values, holds numbers under a mask of NumPy."""
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)  # not where a thread imports it now
    if masked is not None and isinstance(value, list | tuple):
        return bool({*map(type, value)} - {float, int, bool}) and any(map(is_masked, value))
    return masked is not None and isinstance(value, masked) and bool(np.ma.getmaskarray(value).any())


def truth(
    where: str, value: object, kind: type[FoldbatchError] = BlockTypeError, fix: str = "True asks for it"
) -> bool:
    """Return a setting that is True or False; a text would be true, whatever it says.

    Raises:
        FoldbatchError: of that kind, when it is neither.
    """
    if not isinstance(value, bool | np.bool_):
        raise kind(where, "True or False", describe_value(value), fix)
    return bool(value)


def describe_value(value: object) -> str:
    """Return a short phrase for a piece of user data, for error messages.

    >>> describe_value({"a": 1}), describe_value(np.zeros(3)), describe_value("x" * 99)[:20]
    ("dict with keys ['a']", 'float64 array of shape (3,)', "str 'xxxxxxxxxxxxxxx")
    """
    match value:
        case None:
            return "None"
        case type():
            return f"the class {value.__name__}"
        case dict():
            keys = [repr(key) for key in list(value)[:8]]
            ending = ", ..." if len(value) > len(keys) else ""
            return f"dict with keys [{', '.join(keys)}{ending}]"
        case np.ndarray():
            return f"{value.dtype} array of shape {value.shape}{', masked in part' * is_masked(value)}"
        case str() | bytes() | int() | float() | np.generic():
            text = repr(value)
            return f"{type(value).__name__} {text if len(text) <= 48 else text[:45] + '...'}"
        case Sized():
            with suppress(Exception):  # a user's class may refuse
                if type(value).__module__ == "torch":
                    dtype, shape = (getattr(value, name) for name in ("dtype", "shape"))
                    return f"{str(dtype).removeprefix('torch.')} tensor of shape {tuple(shape)}"
                return f"{type(value).__name__} of {len(value)}"
    return type(value).__name__
