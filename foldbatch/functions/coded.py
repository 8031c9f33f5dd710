"""Signatures as whole numbers, for compiled code that does the calls of cells in walks: see `model.calls`.

What is common can be told so: values, plain numbers, None, tuples of these, and lists of values or of tuples
of values. Calls of signatures that hold anything else are done by the cell's own code in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from foldbatch.functions.specs import EXACT as COMPARED
from foldbatch.functions.specs import DataSpec, ListSpec, NestSpec, Path, Spec, StaticSpec, ValueSpec
from foldbatch.functions.values import value_class
from foldbatch.model import calls
from foldbatch.model.calls import DEEPEST, HEAD, ROWS
from foldbatch.types import TensorType

# Given the general function of a cell, and the codes of its signatures, returns what does its calls.
Maker = Callable[[Callable[..., Any], Sequence["Coded"]], Callable[..., Any]]
NOWHERE = [0] * calls.PLACE
PLAIN = {bool, int, float}


class NotCommon(Exception):  # noqa: N818 - it is no error
    """A signature holds what cannot be told."""


class Coded:
    """The code of a signature, and where it is told of the lists that calls append to."""

    def __init__(self, numbers: Sequence[int], lists: Sequence[int]) -> None:
        self.numbers = np.array(numbers, np.int64)
        self._words, self._lists = memoryview(self.numbers), lists

    def bind(self, lists: Sequence[list[Any]]) -> None:
        """Let calls append to lists: that of rows, and then all others."""
        for place, items in zip(self._lists, lists[1:], strict=True):
            self._words[place] = id(items)
        self._words[ROWS] = id(lists[0])

    def unbind(self) -> None:
        """Leave all calls to the general function, before lists go."""
        self._words[ROWS] = 0


def coded(
    specs: Mapping[str, Spec],
    static: Sequence[str],
    operands: Sequence[Path],
    sequences: Sequence[tuple[Path, Sequence[Path]]],
    feeds: Sequence[Path],
    width: int,
    outputs: Sequence[TensorType],
    result: Spec,
    leaves: Sequence[int | str],
) -> Coded | None:
    """Return the code of a signature; None where it cannot be told. Arguments are as `Signature` has them."""
    places: dict[Path, list[int]] = {}
    held: dict[Path, tuple[int, bool, list[Path]]] = {}  # of lists: members, whether in tuples, their paths
    try:
        guards = [*_guards(specs, static, places, held)]
        found = [x for path, members in sequences for x in _list(places[path], *held[path], members)]
        kinds = result.items if isinstance(result, NestSpec) and result.kind is tuple else (result,)
        if any(isinstance(item, NestSpec) for item in kinds) or len({*leaves}) < len(leaves) - leaves.count("None"):
            return None
        made = [x for leaf in leaves for x in _result(leaf, outputs, places)]
    except NotCommon:
        return None
    values = [x for path in operands for x in places[path]]
    data = [x for path in feeds for x in (0, int(bool(path)), *(places[path] if path else NOWHERE))]
    body = [*guards, *values]
    lists = [HEAD + len(body) + calls.LIST * i + calls.ELEMENTS for i in range(len(sequences))]
    body += found
    lists += [HEAD + len(body) + calls.DATUM * i + calls.COLUMN for i in range(len(feeds))]
    body += data
    in_tuple = len(leaves) if isinstance(result, NestSpec) else -1
    head = [0, width, len(guards) // calls.GUARD, len(operands), len(sequences), len(feeds), HEAD + len(body), in_tuple]
    return Coded([*head, *body, *made], lists)


def _guards(
    specs: Mapping[str, Spec],
    static: Sequence[str],
    places: dict[Path, list[int]],
    held: dict[Path, tuple[int, bool, list[Path]]],
) -> Iterator[int]:
    def of(spec: Spec, path: Path, way: list[int]) -> Iterator[int]:
        if len(way) > 1 + DEEPEST:
            raise NotCommon
        place = places[path] = [way[0], len(way) - 1, *way[1:], *[0] * (1 + DEEPEST - len(way))]
        match spec:
            case ValueSpec(type_):
                yield from (calls.EXACT, id(value_class(type_)), 0, *place)
            case DataSpec(type_, None) if not type_.shape:
                yield from (calls.PLAIN, 0, 0, *place)
            case DataSpec(_, found, None) if found in PLAIN:
                yield from (calls.EXACT, id(found), 0, *place)
            case StaticSpec(None):
                yield from (calls.SAME, id(None), 0, *place)
            case StaticSpec(value) if path in static and type(value) in COMPARED:  # found by what it equals
                yield from (calls.EXACT, id(type(value)), 0, *place)
            case NestSpec(kind, _, items) if issubclass(kind, tuple):
                yield from (calls.SIZED, id(kind), len(items), *place)
                for i, item in enumerate(items):
                    yield from of(item, path + spec.item(i), [*way, i])
            case ListSpec(ValueSpec(type_), hinted):
                held[path] = 1, False, [""]
                yield from (calls.MAY_BE_EMPTY if hinted else calls.OF, 0, 1, *place)
                yield from (calls.EXACT, id(value_class(type_)), 0, *NOWHERE)
            case ListSpec(NestSpec(kind, _, items) as nest, hinted) if issubclass(kind, tuple):
                held[path] = len(items), True, [nest.item(i) for i in range(len(items))]
                yield from (calls.MAY_BE_EMPTY if hinted else calls.OF, id(kind), len(items), *place)
                for item in items:
                    if not isinstance(item, ValueSpec):
                        raise NotCommon
                    yield from (calls.EXACT, id(value_class(item.type)), 0, *NOWHERE)
            case _:
                raise NotCommon

    for number, (name, spec) in enumerate(specs.items()):
        yield from of(spec, name, [number])


def _list(place: list[int], members: int, in_tuples: bool, known: list[Path], read: Sequence[Path]) -> list[int]:  # noqa: FBT001
    if [*read] != known:
        raise NotCommon
    return [0, members, int(in_tuples), *place]


def _result(leaf: int | str, outputs: Sequence[TensorType], places: Mapping[Path, list[int]]) -> list[int]:
    if isinstance(leaf, int):
        return [calls.OUTPUT, id(value_class(outputs[leaf])), leaf, *NOWHERE]
    return [calls.NONE, 0, 0, *NOWHERE] if leaf == "None" else [calls.GIVEN, 0, 0, *places[leaf]]
