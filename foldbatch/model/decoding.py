"""Decoding: from the terminals that a trace holds to the result of an example, in the form of its type."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from foldbatch.params.parameters import Array
from foldbatch.scheduler.trace import Ints
from foldbatch.types import BroadcastType, ObjectType, SequenceType, TensorType, TupleType, Type, VoidType

Terminal: TypeAlias = Any  # the number of a value, an object, or the list of terminals of a sequence
Terminals: TypeAlias = Any  # those of an example: an iterable of them


def decode(
    type_: Type,
    results: Sequence[Terminals],
    offsets: Sequence[int],
    fetch: Callable[[list[int]], list[Array]],
) -> list[Any]:
    """Return each example's result, from its terminals as its trace holds them.

    Offsets are what merging added to value numbers. `fetch` returns the arrays of some; it is called once.
    """
    if isinstance(type_, TensorType):  # of which there is one
        return fetch(numbers_in(type_, results, offsets))
    if isinstance(type_, SequenceType) and isinstance(type_.element, TensorType):
        sequences = [sequence for (sequence,) in results]
        ends = list(itertools.accumulate(map(len, sequences), initial=0))
        raised = np.repeat(np.array(offsets, np.int64), np.diff(ends))
        every = np.fromiter(itertools.chain.from_iterable(sequences), np.int64, ends[-1]) + raised
        tensors = fetch(every.tolist())
        return [tensors[start:stop] for start, stop in itertools.pairwise(ends)]
    arrays = iter(fetch(numbers_in(type_, results, offsets)))
    return [map_tensors(type_, iter(terminals), lambda _: next(arrays)) for terminals in results]


def numbers_in(type_: Type, results: Sequence[Terminals], offsets: Sequence[int]) -> list[int]:
    """Return the value numbers of all tensors in results, in the batch; arguments are those of `decode`."""
    if isinstance(type_, TensorType):
        return [number + offset for (number,), offset in zip(results, offsets, strict=True)]
    numbers: list[int] = []
    for terminals, offset in zip(results, offsets, strict=True):
        map_tensors(type_, iter(terminals), lambda number, offset=offset: numbers.append(number + offset))  # type: ignore[misc]
    return numbers


def map_tensors(type_: Type, terminals: Iterator[Terminal], tensor: Callable[[int], object]) -> object:
    """Return a value of a type, made of its terminals, with `tensor` applied to each value number."""
    match type_:
        case VoidType():
            return None
        case TupleType(items):
            return type_.value_of([map_tensors(item, terminals, tensor) for item in items])
        case BroadcastType(element):
            return itertools.repeat(map_tensors(element, terminals, tensor))
        case TensorType():
            return tensor(next(terminals))
        case SequenceType(element):
            single = terminal_count(element) == 1  # then an element is held as it is, else as a tuple
            return [
                map_tensors(element, iter((part,) if single else part), tensor) for part in next(terminals)
            ]
        case ObjectType():
            return next(terminals)


def renumbered(type_: Type, terminals: Iterator[Terminal], numbers: Ints) -> list[Terminal]:
    """Return the terminals of a value with another number for each value number, ``numbers: [n]``."""
    match type_:
        case TupleType(items):
            return [part for item in items for part in renumbered(item, terminals, numbers)]
        case BroadcastType(element):
            return renumbered(element, terminals, numbers)
        case TensorType():
            return [int(numbers[next(terminals)])]
        case SequenceType(element):
            single = terminal_count(element) == 1
            parts = (iter((part,) if single else part) for part in next(terminals))
            moved = [renumbered(element, part, numbers) for part in parts]
            return [[part[0] if single else tuple(part) for part in moved]]
        case ObjectType():
            return [next(terminals)]
    return []


def terminal_count(type_: Type) -> int:
    """Return how many terminals a trace holds for a value of a type."""
    match type_:
        case TupleType(items):
            return sum(map(terminal_count, items))
        case BroadcastType(element):
            return terminal_count(element)
        case VoidType():
            return 0
        case TensorType() | SequenceType() | ObjectType():
            return 1
