"""The values of the oracle: arrays, tuples and nothing as they are, and what Python has no name for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType, Type


@dataclass(frozen=True, slots=True)
class Given:
    """A Python object of the example."""

    value: Any


@dataclass(frozen=True, slots=True)
class Listed:
    """A sequence with the type of its elements, which an empty one could not tell."""

    items: list[Any]
    element: Type


@dataclass(frozen=True, slots=True)
class Repeated:
    """One value without end."""

    value: Any


def plain(value: Any) -> Any:
    """Return a value as `Program.run` gives it: arrays, lists, tuples, objects."""
    match value:
        case Given():
            return value.value
        case Listed():
            return [plain(item) for item in value.items]
        case tuple():
            return tuple(map(plain, value))
    return value


def as_object(value: Any) -> Any:
    """Return a tuple of objects as one object, anything else as it is."""
    if isinstance(value, tuple) and value:
        items = [as_object(item) for item in value]
        if all(isinstance(item, Given) for item in items):
            return Given(tuple(item.value for item in items))
    return value


def item_of(value: Any, key: Any) -> Any:
    """Return an item, or for a slice several."""
    match value:
        case Given():
            return Given(value.value[key])
        case Listed() if isinstance(key, slice):
            return Listed(value.items[key], value.element)
        case Listed():
            return value.items[key]
    return value[key]


def elements(value: Any) -> tuple[list[Any], Type]:
    """Return the elements of a sequence, and their type."""
    match value:
        case Given():
            return [Given(item) for item in value.value], OBJECT
        case Listed():
            return value.items, value.element
    return list(value), type_of_value(as_object(value[0]))


def listed(found: list[Any], element: Type) -> Any:
    """Return a sequence; of objects, an object."""
    if only_objects(element):
        return Given([as_object(item).value for item in found])
    return Listed(found, element)


def only_objects(type_: Type) -> bool:
    """Whether a type is of objects alone, so that a value of it is one object."""
    if isinstance(type_, TupleType) and type_.items:
        return all(map(only_objects, type_.items))
    return type_ == OBJECT


def type_of_value(value: Any) -> Type:
    match value:
        case None:
            return VOID
        case Given():
            return OBJECT
        case Listed():
            return SequenceType(value.element)
        case Repeated():
            return BroadcastType(type_of_value(value.value))
        case tuple():
            return TupleType(tuple(map(type_of_value, value)))
    return TensorType(value.shape, value.dtype.name)


def zero(type_: Type) -> Any:
    match type_:
        case TensorType():
            return np.zeros(type_.shape, type_.dtype)
        case TupleType():
            return tuple(map(zero, type_))
        case SequenceType():
            return Listed([], type_.element)
    assert type_ == VOID, type_
    return None
