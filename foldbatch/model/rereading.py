"""Reading an example a second time: allowed where the first reading has left the example as it was.

A walk, or a function in a block, may take items from its example, write to it, or go through an iterator. A
second reading then sees what the first one has left. So whatever would read an example again asks here first:
a `Snapshot` holds the contents of examples before the first reading, and `obstacle` compares them with the
present ones. Without a snapshot only examples whose parts cannot change may be read again.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import fractions
import pathlib
import pickle
import re
import types
import uuid
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from operator import is_
from typing import Any, Final, NamedTuple

import numpy as np

from foldbatch.trees.tree import Node, Tree
from foldbatch.types import describe_value

# exact types of most parts of examples: such a part has no contents that change
_ATOMS: Final = frozenset({type(None), bool, int, float, complex, str, bytes})
_CONSTANT: Final = (
    np.generic,
    np.dtype,
    decimal.Decimal,
    fractions.Fraction,
    dt.date,
    dt.time,
    dt.timedelta,
    dt.tzinfo,
    uuid.UUID,
    pathlib.PurePath,
    re.Pattern,
    range,
    slice,
    enum.Enum,
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.EllipsisType,
    types.NotImplementedType,
    Tree,
    Node,
)
_BUFFERS: Final = (bytearray, memoryview, array)
_ITEMS: Final[dict[type, Callable[[Any], list[Any]]]] = {
    list: lambda part: [*list.__iter__(part)],
    tuple: lambda part: [*tuple.__iter__(part)],
    dict: lambda part: [*dict.keys(part), *dict.values(part)],
    defaultdict: lambda part: [*dict.keys(part), *dict.values(part)],
    OrderedDict: lambda part: [*OrderedDict.keys(part), *OrderedDict.values(part)],
    set: lambda part: [*set.__iter__(part)],
    frozenset: lambda part: [*frozenset.__iter__(part)],
    deque: lambda part: [*deque.__iter__(part)],
}
# the built-in classes at which the bases of a part's class end, whose contents can be listed
_ROOTS: Final = frozenset({object, *_ITEMS, *_ATOMS})
PICKLED: Final = 16  # parts of a snapshot: a text of spaCy holds its vocabulary, which takes 10 ms
_WORD: Final = tuple.__itemsize__  # bytes of an attribute in an object

COPY: Final = "let the function that reads it copy it first: list(x), dict(x)"


class Obstacle(NamedTuple):
    """The reason why an example cannot be read a second time."""

    place: int  # of the example among the examples
    actual: str  # for `found` of an error
    fix: str


class Contents(NamedTuple):
    """The contents of one part of an example at one moment."""

    items: list[
        object
    ]  # the parts inside, compared by identity, or by value where they are numbers and texts
    digest: bytes = b""  # of memory, as of an array
    names: tuple[str, ...] = ()  # of attributes


# What the contents of a part are where the part is an iterator, and where nothing lists them.
_READ_ONCE: Final = Contents([], b"iterator")
_HIDDEN: Final = Contents([], b"hidden")


class Snapshot:
    """The contents of examples at one moment, to find out later whether the examples have changed.

    It takes about a microsecond for each object inside an example. Objects of classes that are written in C
    are pickled, which may take milliseconds each: after `PICKLED` of them, further ones count as objects
    whose contents nothing lists.

    Args:
        examples: the examples, which are looked through to any depth.

    >>> examples = [{"words": [1, 2]}, ([3],)]
    >>> before = Snapshot(examples)
    >>> obstacle(examples, before) is None, examples[1][0].pop()
    (True, 3)
    >>> obstacle(examples, before)
    Obstacle(place=1, actual='list of 0, which has changed since it was read', fix=...
    """

    def __init__(self, examples: Sequence[object]) -> None:
        budget = _Budget(PICKLED)
        self.parts = [[*_parts(example, budget)] for example in examples]

    def tail(self, start: int) -> Snapshot:
        """Return the snapshot of the examples from a place on."""
        following = Snapshot(())
        following.parts = self.parts[start:]
        return following


def obstacles(
    examples: Sequence[object], before: Snapshot | None = None, *, hidden: bool = True
) -> Iterator[Obstacle]:
    """Yield for each example that cannot be read a second time the reason why.

    Args:
        examples: the examples after their first reading.
        before: their contents before the first reading. Without it an example can be read again only if no
            part of it can change.
        hidden: whether a part whose contents nothing can list is an obstacle.
    """
    for place, example in enumerate(examples):
        for part, contents in _parts(example) if before is None else before.parts[place]:
            reason = _obstacle(part, contents, compared=before is not None)
            if reason and (hidden or contents is not _HIDDEN):
                fix = "give a list of its items" if contents is _READ_ONCE else COPY
                yield Obstacle(place, f"{describe_value(part)}{reason}", fix)
                break


def obstacle(examples: Sequence[object], before: Snapshot | None = None) -> Obstacle | None:
    """Return the first of the `obstacles` of examples; None where all of them can be read again.

    >>> obstacle([(1, "a"), ("b",)]) is None
    True
    >>> obstacle([(1, [2])])
    Obstacle(place=0, actual='list of 1, which may have changed since it was read', fix=...
    """
    return next(obstacles(examples, before), None)


def iterator_in(example: object) -> object:
    """Return an iterator inside an example, which can be read only once; None where there is none."""
    parts = _parts(example, _Budget(0))  # whether something goes through a part, its pickle does not tell
    return next((part for part, contents in parts if contents is _READ_ONCE), None)


def _obstacle(part: object, contents: Contents, *, compared: bool) -> str:
    """Return the reason why a part cannot be read again, as the end of a phrase; empty where it can."""
    if contents is _READ_ONCE:
        return ", which can be read once"
    if contents is _HIDDEN:
        return ", whose contents nothing can list"
    if compared:
        return "" if _alike(contents, _contents(part)) else ", which has changed since it was read"
    kind: type = type(part)
    return "" if _is_frozen(kind) else ", which may have changed since it was read"


@dataclass(slots=True)
class _Budget:
    """The number of parts that may still be pickled."""

    remaining: int


def _parts(example: object, budget: _Budget | None = None) -> Iterator[tuple[object, Contents]]:
    """Yield each object inside an example that is no number or text, with its contents."""
    waiting, seen = [example], set[int]()
    while waiting:
        part = waiting.pop()
        if type(part) in _ATOMS or id(part) in seen or isinstance(part, _CONSTANT):
            continue
        seen.add(id(part))
        contents = _contents(part, budget)
        yield part, contents
        waiting += [inner for inner in contents.items if type(inner) not in _ATOMS]


def _contents(part: Any, budget: _Budget | None = None) -> Contents:
    """Return the contents of a part for comparison: its items, attributes or digest; or a mark."""
    kind: type = type(part)
    if kind is list or kind is tuple:
        return Contents([*part])
    if kind is dict:
        return Contents([*part, *part.values()])
    if getattr(kind, "__next__", None) is not None:
        return _READ_ONCE
    if isinstance(part, _BUFFERS):
        return Contents([], _digest(bytes(part)))
    if getattr(kind, "__array__", None) is not None:
        return _contents_of_array(part)
    slots = _slots(kind)
    if slots is None:  # a class that is written in C
        if budget is not None:
            if not budget.remaining:
                return _HIDDEN
            budget.remaining -= 1
        try:
            return Contents([], _digest(pickle.dumps(part)))
        except Exception:  # noqa: BLE001 - whatever such a class raises
            return _HIDDEN
    root = _root(kind)
    items = _ITEMS[root](part) if root in _ITEMS else []
    names = [name for name in slots if hasattr(part, name)]
    items += [object.__getattribute__(part, name) for name in names]
    if kind.__dictoffset__:
        attributes = object.__getattribute__(part, "__dict__")
        names += attributes
        items += attributes.values()
    return Contents(items, names=tuple(names))


def _contents_of_array(part: object) -> Contents:
    """Return the contents of an array or tensor: a digest of its bytes, or its objects."""
    try:
        values = np.asarray(part.detach().cpu() if hasattr(part, "detach") else part)
    except Exception:  # noqa: BLE001 - a class of the user's, or a dtype that NumPy has not
        return _HIDDEN
    if values.dtype.hasobject:
        return Contents(values.ravel().tolist(), str(values.shape).encode())
    return Contents([], _digest(values.tobytes()) + f"{values.dtype} {values.shape}".encode())


def _digest(memory: bytes) -> bytes:
    return blake2b(memory, digest_size=16).digest()


def _alike(before: Contents, now: Contents) -> bool:
    if before.digest != now.digest or before.names != now.names or len(before.items) != len(now.items):
        return False
    if all(map(is_, before.items, now.items)):
        return True
    return all(a is b or _equal(a, b) for a, b in zip(before.items, now.items, strict=True))


def _equal(a: object, b: object) -> bool:
    kind = type(a)
    return kind in _ATOMS and type(b) is kind and (a == b or (a != a and b != b))  # noqa: PLR0124 - NaN


def _root(kind: type) -> type:
    """Return the built-in class at which the bases of a class end."""
    while kind not in _ROOTS:
        base = kind.__base__
        assert base is not None, "all bases end at object"
        kind = base
    return kind


@lru_cache(1024)
def _slots(kind: type) -> tuple[str, ...] | None:
    """Return the names of attributes of a class that are in no dict; None where it has other contents.

    Objects of classes that are written in C have contents that no attribute shows.
    """
    names: list[str] = []
    while kind not in _ROOTS:
        base = kind.__base__
        assert base is not None, "all bases end at object"
        declared = vars(kind).get("__slots__", ())
        slots = [declared] if isinstance(declared, str) else [*declared]
        slots_of_class = [name for name in slots if name not in ("__dict__", "__weakref__")]
        room = len(slots_of_class) + ("__dict__" in vars(kind)) + ("__weakref__" in vars(kind))
        if kind.__basicsize__ - base.__basicsize__ > _WORD * room:
            return None
        private = f"_{kind.__name__.lstrip('_')}"
        names += [
            private + name if name.startswith("__") and name[-2:] != "__" else name for name in slots_of_class
        ]
        kind = base
    return tuple(names)


@lru_cache(1024)
def _is_frozen(kind: type) -> bool:
    """Whether the objects of a class have the contents that they were made with."""
    frozen = getattr(getattr(kind, "__dataclass_params__", None), "frozen", False)
    frozen = frozen or getattr(getattr(kind, "__struct_config__", None), "frozen", False)
    return bool(frozen) or (_root(kind) in (tuple, frozenset) and not kind.__dictoffset__)
