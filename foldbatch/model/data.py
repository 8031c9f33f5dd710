"""Values as plain data, and back: what JSON holds, and arrays beside it.

A kind that JSON lacks is a dict of one key, its name, ``{"tuple": [1, 2]}``. Functions are written by their
import paths. Reading calls no function of the user, and finds only those that `paths` lists or the reader
trusts.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeAlias

import msgspec
import numpy as np

from foldbatch.errors import ModelError
from foldbatch.model.paths import Trust, find, method_of, path_of, takes
from foldbatch.params.parameters import Array
from foldbatch.types import (
    OBJECT,
    VOID,
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

Data: TypeAlias = Any  # plain data: numbers, texts, lists, and dicts of one key

STORED = {"bool", "float16", "float32", "float64"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}
CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
INTS = 2**63  # more is no number of JSON's to every reader
MAX_RANGE = 10**6  # numbers of a range, which constructors make lists of
FLAGS = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE  # of patterns


class Sink:
    """Collects the arrays that data refer to, equal ones once, and the parts that cannot be written."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {*taken}  # names that no array may have
        self.arrays: dict[str, Array] = {}
        self.lost: list[str] = []
        self._names: dict[tuple[object, ...], str] = {}  # by content

    def refer(self, x: object) -> dict[str, object] | None:
        """Return data that refer to an object written elsewhere, or None for a value written in place."""
        return None

    def constant(self, array: Array) -> str:
        """Store an array, equal ones once; return the name that data refer to it by."""
        native = np.require(array, array.dtype.newbyteorder("="), "C")
        key = native.dtype.name, native.shape, hashlib.blake2b(native.data if native.size else b"").digest()
        if key not in self._names:
            name = f"constant {len(self._names)}"
            while name in self.taken:
                name += "'"
            self._names[key], self.arrays[name] = name, native
        return self._names[key]

    def lose(self, name: str) -> None:
        """Note a part that plain data cannot hold, by the name that errors show."""
        self.lost.append(name)


@dataclass(slots=True)
class Source:
    """The arrays, the trusted names and the objects that data refer to."""

    arrays: dict[str, Array]
    trust: Trust  # functions and classes that data may name besides the list
    objects: list[object] = field(default_factory=list)  # the objects that data refer to by number

    def object_of(self, number: object) -> object:
        """Return the object of a number; raise ModelError where there is none."""
        if type(number) is not int or not 0 <= number < len(self.objects):
            raise refused(f"a reference to object {number!r} of {len(self.objects)}")
        return self.objects[number]


def refused(actual: str) -> ModelError:
    """Return the error of data that `to_data` does not write."""
    return ModelError("data", "data of a block that foldbatch wrote", actual, "save the model anew")


# -- writing


def to_data(x: Any, sink: Sink) -> Data:
    """Return a value as data; `sink` notes parts for which that is not possible."""
    try:
        return _data(x, sink)
    except RecursionError:
        return sink.lose("data that contain themselves, or are nested too deep")


def _data(x: Any, sink: Sink) -> Data:
    """Return a value as data; functions by import path, arrays and objects by reference."""
    if type(x) in CONTAINERS:
        kind, items = CONTAINERS[type(x)], [_data(item, sink) for item in x]
        if kind in {"set", "frozenset"}:
            items.sort(key=msgspec.json.encode)
        return items if kind == "list" else {kind: items}
    match x:
        case None | bool():
            return x
        case int() if type(x) is int:
            return x if abs(x) < INTS else {"int": hex(x)}
        case float() if type(x) is float:
            return x if math.isfinite(x) else {"float": str(x)}
        case str() if type(x) is str:
            text = x.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in x)
            return x if text else {"text": x.encode("utf-16-le", "surrogatepass").hex()}
        case bytes() if type(x) is bytes:
            return {"bytes": x.hex()}
        case dict() if type(x) is dict:
            return {"dict": [[_data(key, sink), _data(value, sink)] for key, value in x.items()]}
        case slice():
            return {"slice": [_data(bound, sink) for bound in (x.start, x.stop, x.step)]}
        case range() if len(x) <= MAX_RANGE:
            return {"range": [_data(bound, sink) for bound in (x.start, x.stop, x.step)]}
        case np.ndarray() if x.dtype.name in STORED:
            return {"array": sink.constant(x)}
        case np.generic() if x.dtype.name in STORED:
            return {"number": [x.dtype.name, _data(x.item(), sink)]}
        case TensorType() | TupleType() | SequenceType() | BroadcastType() | ObjectType() | VoidType():
            return {"type": _type_data(x, sink)}
        case EllipsisType():
            return {"ellipsis": None}
        case Enum() if x.name in type(x).__members__ and (path := path_of(type(x))) is not None:
            return {"enum": [path, x.name]}
        case re.Pattern() if not x.flags & ~FLAGS:
            return {"pattern": [_data(x.pattern, sink), x.flags]}
    reference = sink.refer(x)
    return _function_data(x, sink) if reference is None else reference


def _function_data(x: Any, sink: Sink) -> Data:
    """Return a function as data: its path, a partial of one, a getter, or a method of plain data."""
    path = path_of(x)
    if path is not None:
        return {"function": path}
    if type(x) is partial and takes(x.func, x.keywords):
        words = [[name, _data(value, sink)] for name, value in x.keywords.items()]
        return {"partial": [_data(x.func, sink), [_data(value, sink) for value in x.args], words]}
    if type(x) is itemgetter:
        return {"items": [_data(key, sink) for key in x.__reduce__()[1]]}
    if type(x) is attrgetter:
        attributes: Any = x.__reduce__()[1]
        return sink.lose(f"{x!r}") if _hidden(attributes) else {"attributes": list(attributes)}
    owner, name = getattr(x, "__self__", None), getattr(x, "__name__", None)
    if callable(x) and owner is not None and isinstance(name, str):
        try:
            method_of(owner, name, Trust((type(owner).__module__,)))
        except ModelError:
            return sink.lose(_name_for_errors(x))
        return {"method": [_data(owner, sink), name]}
    return sink.lose(_name_for_errors(x))


def _name_for_errors(x: object) -> str:
    """Return how errors name an object that cannot be saved, as it has no import path: its name and line."""
    code, name = getattr(x, "__code__", None), getattr(x, "__qualname__", None)
    place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code is not None else ""
    if not callable(x) or not isinstance(name, str):
        return describe_value(x)
    return f"{'a lambda' if name.endswith('<lambda>') else f'the function {name}'}{place}"


def _hidden(attributes: Sequence[str]) -> bool:
    return any(name.startswith("_") for path in attributes for name in path.split("."))


def _type_data(type_: Type, sink: Sink) -> Data:
    """Return a type as data."""
    match type_:
        case TensorType(shape, dtype):
            return [*shape, dtype]
        case NestType(items, kind, keys):
            path = None if kind is dict else path_of(kind)
            if path is None and kind is not dict:
                sink.lose(f"the class {kind.__qualname__}")
            return {"nest": [path, [_data(key, sink) for key in keys], [_type_data(x, sink) for x in items]]}
        case TupleType(items):
            return {"tuple": [_type_data(item, sink) for item in items]}
        case SequenceType(element):
            return {"sequence": _type_data(element, sink)}
        case BroadcastType(element):
            return {"broadcast": _type_data(element, sink)}
    return "object" if isinstance(type_, ObjectType) else None


# -- reading


def from_data(data: object, source: Source) -> Any:
    """Return the value that data stand for.

    Raises:
        ModelError: when a function or class is not found, or data refer to what is not there.
        Exception: whatever Python raises for data of another form.
    """
    if isinstance(data, list):
        return [from_data(item, source) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind not in READERS:
        raise refused(f"data of kind {kind!r}")
    return READERS[kind](content, source)


def _list(content: object, source: Source) -> list[Any]:
    """Return the values of a list of data, refusing any other content."""
    if not isinstance(content, list):
        raise refused(f"{describe_value(content)} in place of a list")
    return [from_data(item, source) for item in content]


def _dict(content: Data, source: Source) -> dict[object, object]:
    return {from_data(key, source): from_data(value, source) for key, value in content}


def _number(content: Data, source: Source) -> object:
    dtype, value = content
    if dtype not in STORED:
        raise refused(f"a number of {dtype!r}")
    return np.dtype(dtype).type(from_data(value, source))


def _partial(content: Data, source: Source) -> object:
    """Return the `functools.partial` that a file describes by function, arguments and keyword arguments."""
    data, values, words = content
    function, named = from_data(data, source), {name: from_data(value, source) for name, value in words}
    if not takes(function, named):
        raise refused(f"arguments of {data}, which takes no such")
    return partial(function, *_list(values, source), **named)


def _attributes(content: object, source: Source) -> object:
    if not isinstance(content, list) or _hidden(content):
        raise refused(f"the attributes {content}")
    return attrgetter(*content)


def _enum(content: Data, source: Source) -> object:
    path, name = content
    cls = find(path, source.trust)
    if not isinstance(cls, type) or not issubclass(cls, Enum):
        raise refused(f"{path}, which is no enumeration")
    return cls[name]


def _method(content: Data, source: Source) -> object:
    owner, name = content
    return method_of(from_data(owner, source), name, source.trust)


def _pattern(content: Data, source: Source) -> object:
    text, flags = content
    if flags & ~FLAGS:
        raise refused(f"a pattern with the flags {flags}")
    return re.compile(from_data(text, source), flags)


def _range(content: object, source: Source) -> range:
    numbers = range(*_list(content, source))
    if len(numbers) > MAX_RANGE:
        raise refused(f"a range of {len(numbers)} numbers, of {MAX_RANGE} at most")
    return numbers


def _type(content: Data, source: Source) -> Type:
    """Return the type that data stand for; the inverse of `_type_data`."""
    match content:
        case [*shape, str(dtype)]:
            return TensorType(tuple(shape), dtype)
        case {"tuple": list(items)}:
            return TupleType(tuple(_type(item, source) for item in items))
        case {"nest": [path, list(keys), list(items)]} if len(keys) == len(items):
            kind: Any = dict if path is None else find(path, source.trust)
            named = isinstance(kind, type) and (issubclass(kind, tuple) and hasattr(kind, "_fields"))
            if not (named or kind is dict or (isinstance(kind, type) and is_dataclass(kind))):
                raise refused(f"{path}, which is no dataclass and no named tuple")
            names = tuple([str(from_data(key, source)) for key in keys])
            if kind is not dict:
                refuse_other_fields(kind, names)
            return NestType(kind, names, tuple([_type(item, source) for item in items]))
        case {"sequence": element}:
            return SequenceType(_type(element, source))
        case {"broadcast": element}:
            return BroadcastType(_type(element, source))
        case "object":
            return OBJECT
        case None:
            return VOID
    raise refused(f"the type {content!r}")


def refuse_other_fields(kind: Any, names: tuple[object, ...]) -> None:
    """Refuse a dataclass or a named tuple that had other fields when the file was written."""
    present = tuple([field.name for field in fields(kind)]) if is_dataclass(kind) else kind._fields
    if present != names:
        fix = "restore the class that the file was saved with, or train anew"
        raise ModelError(kind.__qualname__, f"the fields {names}", f"{present}", fix)


READERS: dict[str, Callable[[Data, Source], object]] = {
    "array": lambda content, source: source.arrays[content],
    "attributes": _attributes,
    "bytes": lambda content, _: bytes.fromhex(content),
    "dict": _dict,
    "ellipsis": lambda content, source: ...,
    "enum": _enum,
    "float": lambda content, _: float(content),
    "frozenset": lambda content, source: frozenset(_list(content, source)),
    "function": lambda content, source: find(content, source.trust),
    "int": lambda content, _: int(content, 16),
    "items": lambda content, source: itemgetter(*_list(content, source)),
    "method": _method,
    "number": _number,
    "object": lambda content, source: source.object_of(content),
    "partial": _partial,
    "pattern": _pattern,
    "range": _range,
    "set": lambda content, source: set(_list(content, source)),
    "slice": lambda content, source: slice(*_list(content, source)),
    "text": lambda content, _: bytes.fromhex(content).decode("utf-16-le", "surrogatepass"),
    "tuple": lambda content, source: tuple(_list(content, source)),
    "type": _type,
}
