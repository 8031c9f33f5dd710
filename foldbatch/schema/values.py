"""Values of Python as data of JSON: what numbers of NumPy, times, rows and objects with fields stand for.

One function decides for all who read values: `foldbatch.schema.infer`, the blocks of schemas, estimators, the
command line and the server. Nothing is taken for missing because of its type: `plain_value` returns what a
value stands for, or refuses it.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, lru_cache
from math import copysign, isfinite, isinf, nan
from numbers import Integral, Real
from os import PathLike, fspath
from types import ModuleType
from typing import Any, NoReturn
from uuid import UUID

import msgspec
import numpy as np

from foldbatch.errors import ExampleTypeError
from foldbatch.model.columns import BadDataError, Datum
from foldbatch.trees.given import rows_of
from foldbatch.trees.tree import TreeNode
from foldbatch.types import describe_value

PLAIN = frozenset({type(None), bool, int, float, str, list, dict})
KINDS = {bool: "flag", int: "number", float: "number", str: "text", list: "list", dict: "record"}
EXPECTED = "a value of JSON, or what stands for one"
LOOKED_AT = 10_000  # parts of a value, after which it is taken to hold something


def plain_value(value: Datum) -> Datum:
    """Convert a value to None, a bool, int, float, str, list or dict, whose items are left as they are.

    Numbers of NumPy, Arrow, PyTorch and `decimal` become numbers; durations seconds; points in time their
    text of ISO 8601; arrays lists; named tuples, rows of tables and objects with fields dicts; enums the
    values of their members; bytes their text in UTF-8. None, NaN, pandas' NA and NaT, and what NumPy masks
    are missing.

    Raises:
        BadDataError: when a value stands for none of these, such as a set or a function.

    >>> plain_value(np.float32(1.5)), plain_value(np.array([1, 2])), plain_value(timedelta(minutes=1))
    (1.5, [1, 2], 60.0)
    >>> plain_value(date(2024, 5, 6)), plain_value(Decimal("0.1")), plain_value(np.datetime64("NaT"))
    ('2024-05-06', 0.1, None)
    """
    kind = type(value)
    if kind in PLAIN:
        return value
    return list(value) if kind is tuple else _conversion(kind)(value)  # type: ignore[arg-type]


def kind_of(value: Datum) -> str | None:
    """Name the kind of a plain value; None for a value that is missing, such as NaN.

    >>> kind_of(True), kind_of(2), kind_of("a"), kind_of(None), kind_of(float("nan"))
    ('flag', 'number', 'text', None, None)
    """
    kind = type(value)
    return None if kind is float and not isfinite(value) else KINDS.get(kind)


def differing_kind(value: object, kinds: Sequence[str]) -> str | None:
    """Name the kind of a plain value where it is none of some kinds; None where it is, or holds nothing.

    >>> differing_kind("1.5", ("number",)), differing_kind(1.5, ("number",)), differing_kind([[]], ("text",))
    ('text', None, None)
    """
    kind = kind_of(value)
    return None if kind is None or kind in kinds or not has_content(value) else kind


def has_content(value: object) -> bool:
    """Return whether a value, or anything inside it, is not missing.

    >>> has_content([{"a": None}, []]), has_content([{"a": 0}])
    (False, True)
    """
    waiting, count = [value], 0
    while waiting:
        part = plain_value(waiting.pop())
        count += 1
        if isinstance(part, list | dict) and count < LOOKED_AT:
            waiting.extend(part.values() if isinstance(part, dict) else part)
        elif kind_of(part) is not None:
            return True
    return False


@lru_cache(1000)
def _conversion(kind: type) -> Callable[[Any], object]:
    """Choose the function that converts the values of a type."""
    if _is_missing(kind):
        return lambda value: None
    if hasattr(kind, "as_py"):  # a scalar of Arrow
        return lambda value: plain_value(value.as_py())
    for base, convert in CONVERSIONS:
        if issubclass(kind, base):
            return convert
    if any(hasattr(kind, name) for name in ("iterrows", "to_dicts", "to_struct_array")):  # a table
        return lambda value: list(rows_of(value))
    if hasattr(kind, "iloc"):
        return _of_series
    for name in ("to_pylist", "to_list", "tolist"):  # arrays and tensors
        if hasattr(kind, name):
            return lambda value: plain_value(getattr(value, name)())
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__"):
        return lambda value: {key: value[key] for key in value.keys()}  # noqa: SIM118 - it is no dict
    if hasattr(kind, "isoformat"):
        return lambda value: str(value.isoformat())
    if hasattr(kind, "__float__"):
        return _of_number
    return _of_message if hasattr(getattr(kind, "DESCRIPTOR", None), "fields_by_name") else _of_object


def _is_missing(kind: type) -> bool:
    if str(kind.__module__).partition(".")[0] == "pandas" and kind.__name__ in ("NAType", "NaTType"):
        return True
    masked = getattr(sys.modules.get("numpy.ma.core"), "MaskedConstant", None)
    return kind is msgspec.UnsetType or kind is masked


def _of_number(value: Datum) -> float:
    """Convert a real number; a finite one beyond all floats becomes the largest of its sign."""
    try:
        number = float(value)
    except OverflowError:
        return copysign(sys.float_info.max, 1 if value > 0 else -1)
    if not isinf(number):
        return number
    try:
        infinite = value - value != 0
    except ArithmeticError:
        infinite = True
    return number if infinite else copysign(sys.float_info.max, number)


def _of_decimal(value: Decimal) -> float:
    if value.is_nan():
        return nan
    exponent = value.as_tuple().exponent
    integral = isinstance(exponent, int) and 0 <= exponent < 20
    return int(value) if integral else _of_number(value)


def _of_bytes(value: Datum) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        fix = "decode it, or leave it out"
        raise BadDataError("bytes of text in UTF-8", describe_value(value), fix, ExampleTypeError) from None


def _of_moment(value: np.datetime64) -> str | None:
    """Write a moment of NumPy as `datetime` writes the same one."""
    if np.isnat(value):
        return None
    micro = value.astype("datetime64[us]") if np.datetime_data(value.dtype)[0] in FINE else value
    item = micro.item() if micro == value else None
    return item.isoformat() if isinstance(item, date) else str(value)


FINE = ("ns", "ps", "fs", "as")  # units that `datetime` has not


def _of_duration(value: np.timedelta64) -> float | None:
    """Return a duration of NumPy in seconds; None for a missing one."""
    if np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] == "generic":
        _refuse(value, "give it a unit, such as np.timedelta64(5, 's')")
    try:
        return float(value / np.timedelta64(1, "s"))
    except TypeError:  # of months or years
        _refuse(value, "give it in days, seconds or another unit of fixed length")


def _of_array(value: np.ndarray[Any, Any]) -> object:
    if not value.ndim:
        return plain_value(value[()])
    return value.tolist() if value.dtype.kind in "biufUO" else list(value)


def _of_structured(value: np.void) -> object:
    if value.dtype.names is None:
        _refuse(value, "convert it to what it stands for")
    return {name: value[name] for name in value.dtype.names}


def _of_tuple(value: Datum) -> object:
    names = getattr(value, "_fields", None)
    if isinstance(names, tuple) and len(names) == len(value):
        return dict(zip(names, value, strict=True))
    return list(value)


def _of_series(value: Datum) -> Any:
    """Convert a row of a table, whose labels are names of columns, to a dict; other columns to lists."""
    labels = list(value.index)
    if not labels or not all(isinstance(label, str) for label in labels):
        return value.tolist()
    if len(set(labels)) < len(labels):
        _refuse(value, "give columns different names")
    return dict(zip(labels, value.tolist(), strict=True))


def _refuse(value: object, fix: str) -> NoReturn:
    raise BadDataError(EXPECTED, describe_value(value), fix, ExampleTypeError)


def _refusing(fix: str) -> Callable[[object], object]:
    return lambda value: _refuse(value, fix)


CONVERSIONS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (Enum, lambda value: plain_value(value.value)),
    (
        TreeNode,
        _refusing("trees are described by blocks, as in fb.zoo.child_sum; give their words, or fields"),
    ),
    ((type, ModuleType), _refusing("give an object of it")),
    (np.bool_, bool),
    (str, str.__str__),
    ((bytes, bytearray, memoryview), _of_bytes),
    (np.datetime64, _of_moment),
    (np.timedelta64, _of_duration),
    (np.ndarray, _of_array),
    (np.void, _of_structured),
    (Integral, int),
    (Real, _of_number),
    (Decimal, _of_decimal),
    ((complex, np.complexfloating), _refusing("give its parts as two numbers")),
    ((datetime, date, time), lambda value: value.isoformat()),
    (timedelta, lambda value: value.total_seconds()),
    (tuple, _of_tuple),
    (list, list),
    (Mapping, dict),
    (Sequence, _of_tuple),
    (AbstractSet, _refusing("a set has no order: give sorted(value)")),
    (Iterator, _refusing("reading uses it up: give list(value)")),
    (PathLike, lambda value: plain_value(fspath(value))),
    (UUID, str),
)


def _of_object(value: object) -> dict[str, object]:
    """Convert an object to a dict of its fields, for example of a dataclass or of pydantic."""
    names = _names_of(type(value))
    if names is None:
        names = dict.fromkeys(name for name in getattr(value, "__dict__", ()) if not name.startswith("_"))
        names |= dict.fromkeys(_attributes(type(value)))  # type: ignore[arg-type]
    else:
        names |= dict.fromkeys(getattr(value, "model_extra", None) or ())  # of pydantic
    fields = {name: getattr(value, name) for name in names if hasattr(value, name)}
    if not fields or callable(value):
        _refuse(value, "give numbers, texts, lists, dicts, or objects with fields")
    return fields


def _of_message(value: Datum) -> dict[str, Any]:
    """Convert a message of protobuf to a dict; fields that are not set, and can tell so, are None."""
    return {
        field.name: None
        if field.has_presence and not value.HasField(field.name)
        else getattr(value, field.name)
        for field in value.DESCRIPTOR.fields
    }


def _names_of(kind: type) -> dict[str, None] | None:
    """List the fields that a class declares; None where it declares none."""
    if dataclasses.is_dataclass(kind):
        return dict.fromkeys(field.name for field in dataclasses.fields(kind))
    for name in ("__struct_fields__", "model_fields", "__fields__"):  # msgspec, and pydantic 2 and 1
        declared = getattr(kind, name, None)
        if isinstance(declared, tuple | Mapping):
            return dict.fromkeys(declared)
    declared = getattr(kind, "__attrs_attrs__", None)
    return None if declared is None else dict.fromkeys(attribute.name for attribute in declared)


@lru_cache(1000)
def _attributes(kind: type) -> tuple[str, ...]:
    """List the properties, slots and values that a class without declared fields has; no constants."""
    names: dict[str, None] = {}
    for base in reversed(kind.__mro__[:-1]):
        for name, value in vars(base).items():
            data = (
                isinstance(value, property | cached_property) or type(value).__name__ == "member_descriptor"
            )
            plain = not callable(value) and not hasattr(type(value), "__get__")
            if (data or plain) and not name.startswith("_") and not name.isupper():
                names[name] = None
    return tuple(names)
