"""Results: what walks return, as a type that all examples share, and terminals that traces hold."""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foldbatch.errors import WalkError
from foldbatch.functions.values import Value
from foldbatch.types import OBJECT, VOID, SequenceType, TupleType, Type, describe_value

Index = NDArray[np.int64]
ATOMS = {bool, float, int, str}  # of lists whose items are not looked at one by one


@dataclass(frozen=True, slots=True)
class _Single:
    n: int


@dataclass(frozen=True, slots=True)
class _ListOfValues:
    """A list of values of one type, by number."""

    numbers: list[int]


@dataclass(frozen=True, slots=True)
class _Several:
    items: list[Any]


def relative(part: Any, begin: int, start: int, new: NDArray[np.integer] | None) -> Any:
    """Return part of a result with numbers that count from the example's beginning."""
    if isinstance(part, _Single):
        number = part.n - start
        return int(number if new is None else new[number]) - begin
    if isinstance(part, _ListOfValues):
        found = np.array(part.numbers, np.int64) - start
        counted: list[int] = ((found if new is None else new[found]) - begin).tolist()
        return counted
    if isinstance(part, _Several):
        return [relative(item, begin, start, new) for item in part.items]
    if type(part) is tuple and part and isinstance(part[0], _Single | _ListOfValues | _Several | tuple):
        return tuple([relative(item, begin, start, new) for item in part])
    return part


def joined_result(
    known: Type | None, value: Any, start: int, held: list[Any], seen: set[int], example: int
) -> Type:
    """Return the type of results, those known and one more; put its terminals into `held`.

    Raises:
        WalkError: when it is of another structure, or holds what no result is.
    """
    type_ = _taken(value, start, held, seen, example)
    found = _joined(known, type_)
    if found is None:
        expected, fix = f"a result of {known}, as of other examples", "return the same structure"
        raise WalkError(f"walk at example {example}", expected, str(type_), fix)
    return found


def _taken(x: Any, start: int, held: list[Any], seen: set[int], example: int) -> Type:
    """Return the type of a result, and put its terminals into `held`."""
    match x:
        case Value():
            if x.n < start:
                found, fix = "one kept from another example or run", "return what this example's calls yield"
                raise WalkError(f"walk at example {example}", "a value of the same example", found, fix)
            seen.add(x.n)
            held.append(_Single(x.n))
            return x.type
        case None:
            return VOID
        case tuple():
            return TupleType(tuple([_taken(item, start, held, seen, example) for item in x]))
        case list() if {*map(type, x)} <= ATOMS:
            held.append(_Several(x))
            return SequenceType(OBJECT if x else VOID)
        case list():
            kinds = {item.__class__ for item in x}
            if len(kinds) == 1 and issubclass(kind := kinds.pop(), Value):
                numbers = [item.n for item in x]
                if min(numbers) >= start:  # else the first that is not is told of below
                    seen.update(numbers)
                    held.append(_ListOfValues(numbers))
                    return SequenceType(kind.type)
            element: Type | None = None
            items: list[Any] = []
            for item in x:
                parts: list[Any] = []
                type_ = _taken(item, start, parts, seen, example)
                joined = _joined(element, type_)
                if joined is None:
                    where = f"result of example {example}"
                    raise WalkError(where, f"a list of {element}", f"a {type_} in it", "return a tuple")
                element = joined
                items.append(parts[0] if len(parts) == 1 else tuple(parts))
            held.append(_Several(items))
            return SequenceType(VOID if element is None else element)
    if isinstance(x, dict) or (is_dataclass(x) and not isinstance(x, type)):
        fix = "return a tuple of them"
        raise WalkError(f"walk at example {example}", "values, tuples and lists", describe_value(x), fix)
    held.append(x)
    return OBJECT


def _joined(a: Type | None, b: Type) -> Type | None:
    """Return the type of both of two results; an empty list is one of any elements. None if there is none."""
    if a is None or a == b:
        return b
    match a, b:
        case SequenceType(x), SequenceType(y):
            if VOID in (x, y):
                return b if x == VOID else a
            joined = _joined(x, y)
            return None if joined is None else SequenceType(joined)
        case TupleType(xs), TupleType(ys) if len(xs) == len(ys):
            items = [_joined(x, y) for x, y in zip(xs, ys, strict=True)]
            return None if None in items else TupleType(tuple(items))
    return None
