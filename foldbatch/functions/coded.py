"""Codes of signatures: what compiled code is told, which does the calls of cells in walks; see `model.calls`.

What is common can be told so: values, plain numbers, None, tuples of these, and lists of values or of tuples
of values. Calls of signatures that hold anything else are done by the cell's own code in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from foldbatch.functions.cells import COUNTERS, Signature, Slow, go_fast
from foldbatch.functions.specs import EXACT as COMPARED
from foldbatch.functions.specs import FIXED, DataSpec, ListSpec, NestSpec, Path, Spec, StaticSpec, ValueSpec
from foldbatch.functions.values import refuse_made, value_class
from foldbatch.model import calls
from foldbatch.model.calls import PLACE_ITEMS
from foldbatch.types import TensorType

NOWHERE: Final = [0] * calls.Place.size


def hasten() -> None:
    """Let calls of cells be done by compiled functions from now on; see `loops.closures.can_close`."""
    from foldbatch.functions.call_loops import caller  # noqa: PLC0415 - it needs llvmlite

    if Slow.fast is not None:
        return
    make = caller(COUNTERS, value_class(TensorType((), "float32"))(1 << 40), refuse_made)
    if make is None:
        return

    def compiled(general: Callable[..., object], signatures: Sequence[Signature]) -> Callable[..., object]:
        for signature in signatures:
            signature.coded = signature.coded or coded(signature)
        codes = [signature.coded.numbers for signature in signatures if signature.coded is not None]
        function: Callable[..., Any] = make(general, codes) if codes else general
        return function

    go_fast(compiled)


class NotCommon(Exception):  # noqa: N818 - it is no error
    """A signature holds what cannot be told."""


class Coded:
    """The code of a signature, and the places where it tells of lists, besides that of rows."""

    def __init__(self, numbers: Sequence[int], lists: Sequence[int]) -> None:
        self.numbers = np.array(numbers, np.int64)
        self._words: Any = self.numbers.data
        self._lists = lists

    def bind(self, lists: Sequence[object]) -> None:
        """Let calls append to arrays and lists: that of rows, and then all others."""
        for place, items in zip(self._lists, lists[1:], strict=True):
            self._words[place] = id(items)
        self._words[calls.Signature.rows] = id(lists[0])

    def unbind(self) -> None:
        """Leave all calls to the general function, before lists go."""
        self._words[calls.Signature.rows] = 0


def coded(of: Signature) -> Coded | None:
    """Return the code of a signature; None where it cannot be told."""
    if of.silent or of.labels:
        return None
    places: dict[Path, list[int]] = {}
    list_words: dict[Path, tuple[list[int], list[Path]]] = {}  # of lists: what is told, the paths of members
    arrays = set[Path]()
    try:
        guards = [*_guards(of, places, list_words, arrays)]
        body = [x for path, _ in of.operands for x in places[path]]
        lists = list[int]()
        for path, _, members in of.sequences:
            words, paths = list_words[path]
            if [member for member, _ in members] != paths:
                return None
            lists.append(len(body) + calls.ListCode.elements)
            body += [0, *words, *places[path]]
        for path, _, _ in of.feeds:
            lists.append(len(body) + calls.Datum.column)
            how = calls.COPIED if path in arrays else calls.THERE if path else calls.COUNTED
            body += [0, how, *(places[path] if path else NOWHERE)]
        results = [*_results(of, places)]
    except NotCommon:
        return None
    begin, nest = calls.Signature.size + len(guards), of.result
    size, kind = (len(of.leaves), nest.kind) if isinstance(nest, NestSpec) else (-1, tuple)
    counts = len(guards) // calls.GUARD, len(of.operands), len(of.sequences), len(of.feeds)
    head = 0, of.width, *counts, begin + len(body), size, 0 if kind is tuple else id(kind)
    return Coded([*head, *guards, *body, *results], [begin + place for place in lists])


def found_by_value(static: Any) -> bool:
    """Whether what equals a static argument, and is of its class, is the same."""
    kind: Any = type(static)
    if kind is float:
        return static != 0 and not math.isnan(static)
    return kind in COMPARED or kind.__eq__ is object.__eq__  # members of enums, for example


def made_of_items(kind: type) -> bool:
    """Whether objects of a class are tuples of their items and no more: no code of the user's makes them."""
    if kind is tuple:
        return True
    scope: dict[str, Any] = getattr(kind.__new__, "__globals__", {})  # of `collections.namedtuple` its own
    named = issubclass(kind, tuple) and str(scope.get("__name__", "")).startswith("namedtuple_")
    initialized = any("__init__" in vars(base) for base in kind.__mro__[:-1])
    return named and type(kind) is type and not initialized


def _guards(
    signature: Signature,
    places: dict[Path, list[int]],
    list_words: dict[Path, tuple[list[int], list[Path]]],
    arrays: set[Path],
) -> Iterator[int]:
    """Yield the words by which compiled code checks a call's arguments against a signature.

    It fills in the place of each path, widths and members of lists, and the paths of arrays. A structure
    that compiled code cannot check raises `NotCommon`.
    """
    static = signature.cell.static

    def of(spec: Spec, path: Path, way: list[int]) -> Iterator[int]:
        """Yield the words that check one argument, or a part of it; `way` has the numbers that lead to it."""
        if len(way) > 1 + PLACE_ITEMS:
            raise NotCommon
        place = places[path] = [way[0], len(way) - 1, *way[1:], *[0] * (1 + PLACE_ITEMS - len(way))]
        match spec:
            case ValueSpec(type_):
                yield from (calls.EXACT, id(value_class(type_)), 0, *place)
            case DataSpec(type_, None) if not type_.shape:
                yield from (calls.PLAIN, 0, 0, *place)
            case DataSpec(_, class_, None) if class_ in FIXED:
                yield from (calls.EXACT, id(class_), 0, *place)
            case DataSpec(_, None):  # which are looked at when the batch is noted
                arrays.add(path)
                yield from (calls.EXACT, id(np.ndarray), 0, *place)
            case DataSpec(_, np.ndarray, (shape, dtype)):
                arrays.add(path)
                yield from (calls.ARRAY, id(np.dtype(dtype)), len(shape), *place)
                for extent in shape:
                    yield from (calls.EXACT, extent, 0, *NOWHERE)
            case StaticSpec(None):
                yield from (calls.IDENTICAL, id(None), 0, *place)
            case StaticSpec(value) if path in static and found_by_value(value):
                yield from (calls.EXACT, id(type(value)), 0, *place)
            case NestSpec(kind, _, items) if issubclass(kind, tuple):
                yield from (calls.SIZED, id(kind), len(items), *place)
                for i, item in enumerate(items):
                    yield from of(item, path + spec.item(i), [*way, i])
            case ListSpec(element, hinted) if element is not None:
                nest = element if isinstance(element, NestSpec) else None
                items = (element,) if nest is None else nest.items
                if nest is not None and not issubclass(nest.kind, tuple):
                    raise NotCommon
                inner = [""] if nest is None else [nest.item(i) for i in range(len(items))]
                list_words[path] = [len(items), int(nest is not None)], inner
                like = calls.MAY_BE_EMPTY if hinted else calls.OF
                yield from (like, 0 if nest is None else id(nest.kind), len(items), *place)
                for item in items:
                    if not isinstance(item, ValueSpec):
                        raise NotCommon
                    yield from (calls.EXACT, id(value_class(item.type)), 0, *NOWHERE)
            case _:
                raise NotCommon

    for number, (name, spec) in enumerate(signature.specs.items()):
        yield from of(spec, name, [number])


def _results(of: Signature, places: Mapping[Path, list[int]]) -> Iterator[int]:
    """Yield the integers that tell compiled code how to build the result of a call.

    Args:
        of: the signature.
        places: the places of the call's arguments, by path.

    Raises:
        NotCommon: when the result has nests in nests, or one output at two places: then Python builds it.
    """
    nest, numbers = of.result, [leaf for leaf in of.leaves if isinstance(leaf, int)]
    if isinstance(nest, NestSpec):
        flat = not any(isinstance(item, NestSpec) for item in nest.items)
        repeated = len({*numbers}) < len(numbers)  # one object stands at two places
        if repeated or not (flat and made_of_items(nest.kind)):
            raise NotCommon
    for leaf in of.leaves:
        if isinstance(leaf, int):
            yield from (calls.OUTPUT, id(value_class(of.outputs[leaf].type)), leaf, *NOWHERE)
        elif leaf == "None":
            yield from (calls.NONE, 0, 0, *NOWHERE)
        else:
            yield from (calls.PASSED, 0, 0, *places[leaf])
