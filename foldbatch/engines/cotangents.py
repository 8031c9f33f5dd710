"""Cotangents of results, as callers give them: which values of an example they belong to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from foldbatch.errors import ExampleError, ExampleTypeError
from foldbatch.model.decoding import Terminal, terminal_count
from foldbatch.params.parameters import Array
from foldbatch.types import (
    BroadcastType,
    NestType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
    describe_value,
)


def seeds_of(
    type_: Type, results: Sequence[Sequence[object]], cotangents: Iterable[object]
) -> list[list[tuple[int, Array]]]:
    """Return, for each example, the numbers of its values that have a cotangent, each with it.

    Results are terminals as traces hold them; cotangents have the form of results.
    """
    expected = f"one for each of {len(results)} examples"
    if isinstance(cotangents, str | bytes | dict) or not isinstance(cotangents, Iterable):
        fix = "for a single example, pass a list of one"
        raise ExampleTypeError("cotangents", expected, describe_value(cotangents), fix)
    cotangent_list = list(cotangents)
    if len(cotangent_list) != len(results):
        raise ExampleError(
            "cotangents", expected, str(len(cotangent_list)), "give None for an example that has none"
        )
    return [
        list(numbered(type_, iter(terminals), cotangent, f"cotangents[{i}]"))
        for i, (terminals, cotangent) in enumerate(zip(results, cotangent_list, strict=True))
    ]


def numbered(
    type_: Type, terminals: Iterator[Terminal], cotangent: object, where: str
) -> Iterator[tuple[int, Array]]:
    """Yield the numbers of an example's values that have a cotangent, each with it.

    Args:
        type_: the result's type.
        terminals: those of the example's result as its trace holds them.
        cotangent: in the form of the result; None for a part, or the whole, that has none.
        where: what errors call it.

    Raises:
        ExampleError: when a cotangent has another shape or length than its part of the result, or is not
            finite.
        ExampleTypeError: when it is of another kind, or its part of the result has no derivative.
    """
    match type_:
        case VoidType():
            _refuse(cotangent, where, "nothing")
        case ObjectType():
            next(terminals)
            _refuse(cotangent, where, "an object")
        case BroadcastType(element):
            yield from numbered(element, terminals, cotangent, where)
        case TensorType():
            number = next(terminals)
            if cotangent is not None:
                yield number, _array(type_, cotangent, where)
        case NestType(items, kind, keys) if cotangent is not None and not issubclass(kind, tuple):
            by_key = cotangent if isinstance(cotangent, dict) else dict.fromkeys(keys)
            if type(cotangent) is not kind or by_key.keys() != {*keys}:
                actual, fix = describe_value(cotangent), "give it the form of the result"
                raise ExampleTypeError(where, f"a {type_} of cotangents, or None", actual, fix)
            for key, item in zip(keys, items, strict=True):
                part, path = (
                    (by_key[key], f"[{key!r}]") if kind is dict else (getattr(cotangent, key), f".{key}")
                )
                yield from numbered(item, terminals, part, where + path)
        case TupleType(items):
            parts = _parts(cotangent, len(items), where, "a tuple")
            for i, (item, part) in enumerate(zip(items, parts, strict=True)):
                yield from numbered(item, terminals, part, f"{where}[{i}]")
        case SequenceType(element):
            elements = next(terminals)
            single = terminal_count(element) == 1  # then an element is that one thing, else a tuple
            parts = _parts(cotangent, len(elements), where, "a sequence")
            for i, (element_terminals, part) in enumerate(zip(elements, parts, strict=True)):
                yield from numbered(
                    element,
                    iter((element_terminals,) if single else element_terminals),
                    part,
                    f"{where}[{i}]",
                )


def _refuse(cotangent: object, where: str, kind: str) -> None:
    """Raise an error if there is a cotangent of a part of the result that has no derivative."""
    if cotangent is not None:
        actual = describe_value(cotangent)
        raise ExampleTypeError(where, f"None, as this part of the result is {kind}", actual, "leave it out")


def _parts(cotangent: object, count: int, where: str, kind: str) -> list[object]:
    """Return the cotangents of the parts of a tuple or sequence."""
    if cotangent is None:
        return [None] * count
    expected = f"{kind} of {count} cotangents, or None"
    scalar = isinstance(cotangent, np.ndarray) and cotangent.ndim == 0
    if scalar or not isinstance(cotangent, tuple | list | np.ndarray):
        raise ExampleTypeError(where, expected, describe_value(cotangent), "give it the form of the result")
    if len(cotangent) != count:
        raise ExampleError(where, expected, f"{len(cotangent)} of them", "give it the form of the result")
    return list(cotangent)


def _array(type_: TensorType, cotangent: object, where: str) -> Array:
    """Return a caller's cotangent of a result as an array of the result's type.

    Args:
        type_: the type of the result.
        cotangent: numbers of its shape.
        where: the place of the result, for errors.

    Raises:
        ExampleTypeError: when it is no array of numbers, or the result has no derivative.
        ExampleError: when its shape differs, or a number is not finite.
    """
    if not type_.is_float:
        fix = "give None: only floats have derivatives"
        raise ExampleTypeError(where, f"None for a result of {type_}", describe_value(cotangent), fix)
    expected = f"numbers of shape {type_.shape}"
    fix = "give an array of the result's shape"
    try:
        array: Array = np.asarray(cotangent)
    except (ValueError, TypeError):
        raise ExampleTypeError(where, expected, describe_value(cotangent), fix) from None
    if array.dtype.kind not in "fiub":
        raise ExampleTypeError(where, expected, describe_value(cotangent), fix)
    if array.shape != type_.shape:
        raise ExampleError(where, expected, f"shape {array.shape}", fix)
    with np.errstate(over="ignore"):  # what is too large for the dtype is infinite, and refused
        array = array.astype(type_.dtype)
    if not np.isfinite(array).all():
        raise ExampleError(where, "finite numbers", "NaN or infinity", "look at what computes the cotangent")
    return array
