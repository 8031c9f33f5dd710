"""Values as plain data, and back: what blocks are made with, as JSON and arrays hold it.

What JSON lacks is a dict of one key, which names the kind: ``{"tuple": [1, 2]}``. Functions are written by
their import paths; reading calls none of them, and finds only those that `paths` lists or the reader trusts.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from foldbatch.blocks.paths import Trust, find, method_of, path_of, takes
from foldbatch.errors import ModelError
from foldbatch.params.parameters import Array
from foldbatch.types import (
    OBJECT,
    VOID,
    BroadcastType,
    ObjectType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    VoidType,
    describe_value,
)

STORED = {"bool", "float16", "float32", "float64"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}
CONTAINERS: dict[Any, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
INTS = 2**63  # more is no number of JSON's to every reader
LONGEST = 10**6  # numbers of a range, which constructors make lists of
FLAGS = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE  # of patterns


class Sink(Protocol):
    """Takes what data refer to."""

    def refer(self, x: object) -> dict[str, Any] | None:
        """Return data that refer to a thing written elsewhere, or None where a value is none."""
        ...

    def constant(self, array: Array) -> str:
        """Store an array; return its name."""
        ...

    def lose(self, what: str) -> None:
        """Note that something cannot be written."""
        ...


class Source(Protocol):
    """Has what data refer to."""

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays, by name."""
        ...

    @property
    def trust(self) -> Trust:
        """What the data may name besides what is listed."""
        ...

    def thing(self, number: Any) -> Any:
        """Return the thing of a number; raise ModelError where there is none."""
        ...


def refused(found: str) -> ModelError:
    """Return the error of data that `to_data` does not write."""
    return ModelError("data", "data of a block that foldbatch wrote", found, "save the model anew")


# -- writing


def to_data(x: Any, sink: Sink) -> Any:
    """Return a value as data; `sink` is told where that is not possible."""
    try:
        return _data(x, sink)
    except RecursionError:
        return sink.lose("data that contain themselves, or are nested too deep")


def _data(x: Any, sink: Sink) -> Any:
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
            return x if _is_text(x) else {"text": x.encode("utf-16-le", "surrogatepass").hex()}
        case bytes() if type(x) is bytes:
            return {"bytes": x.hex()}
        case dict() if type(x) is dict:
            return {"dict": [[_data(key, sink), _data(value, sink)] for key, value in x.items()]}
        case slice():
            return {"slice": [_data(bound, sink) for bound in (x.start, x.stop, x.step)]}
        case range() if len(x) <= LONGEST:
            return {"range": [_data(bound, sink) for bound in (x.start, x.stop, x.step)]}
        case np.ndarray() if x.dtype.name in STORED:
            return {"array": sink.constant(x)}
        case np.generic() if x.dtype.name in STORED:
            return {"number": [x.dtype.name, _data(x.item(), sink)]}
        case TensorType() | TupleType() | SequenceType() | BroadcastType() | ObjectType() | VoidType():
            return {"type": _type_data(x)}
        case Enum() if (path := path_of(type(x))) is not None:
            return {"enum": [path, x.name]}
        case re.Pattern() if not x.flags & ~FLAGS:
            return {"pattern": [_data(x.pattern, sink), x.flags]}
    reference = sink.refer(x)
    return _function_data(x, sink) if reference is None else reference


def _function_data(x: Any, sink: Sink) -> Any:
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
            return sink.lose(_called(x))
        return {"method": [_data(owner, sink), name]}
    return sink.lose(_called(x))


def _called(x: Any) -> str:
    """Return how errors call what has no import path."""
    code, name = getattr(x, "__code__", None), getattr(x, "__qualname__", None)
    place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code is not None else ""
    if not callable(x) or not isinstance(name, str):
        return describe_value(x)
    return f"{'a lambda' if name.endswith('<lambda>') else f'the function {name}'}{place}"


def _is_text(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in text)


def _hidden(attributes: Sequence[str]) -> bool:
    return any(name.startswith("_") for path in attributes for name in path.split("."))


def _type_data(type_: Type) -> Any:
    match type_:
        case TensorType(shape, dtype):
            return [*shape, dtype]
        case TupleType(items):
            return {"tuple": [_type_data(item) for item in items]}
        case SequenceType(element):
            return {"sequence": _type_data(element)}
        case BroadcastType(element):
            return {"broadcast": _type_data(element)}
    return "object" if isinstance(type_, ObjectType) else None


# -- reading


def from_data(data: Any, source: Source) -> Any:
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


def _many(content: Any, source: Source) -> list[Any]:
    if not isinstance(content, list):
        raise refused(f"{describe_value(content)} in place of a list")
    return [from_data(item, source) for item in content]


def _dict(content: Any, source: Source) -> dict[Any, Any]:
    return {from_data(key, source): from_data(value, source) for key, value in content}


def _number(content: Any, source: Source) -> Any:
    dtype, value = content
    if dtype not in STORED:
        raise refused(f"a number of {dtype!r}")
    return np.dtype(dtype).type(from_data(value, source))


def _partial(content: Any, source: Source) -> Any:
    data, values, words = content
    function, named = from_data(data, source), {name: from_data(value, source) for name, value in words}
    if not takes(function, named):
        raise refused(f"arguments of {data}, which takes no such")
    return partial(function, *_many(values, source), **named)


def _attributes(content: Any, source: Source) -> Any:
    if not isinstance(content, list) or _hidden(content):
        raise refused(f"the attributes {content}")
    return attrgetter(*content)


def _enum(content: Any, source: Source) -> Any:
    path, name = content
    cls = find(path, source.trust)
    if not isinstance(cls, type) or not issubclass(cls, Enum):
        raise refused(f"{path}, which is no enumeration")
    return cls[name]


def _method(content: Any, source: Source) -> Any:
    owner, name = content
    return method_of(from_data(owner, source), name, source.trust)


def _pattern(content: Any, source: Source) -> Any:
    text, flags = content
    if flags & ~FLAGS:
        raise refused(f"a pattern with the flags {flags}")
    return re.compile(from_data(text, source), flags)


def _range(content: Any, source: Source) -> range:
    numbers = range(*_many(content, source))
    if len(numbers) > LONGEST:
        raise refused(f"a range of {len(numbers)} numbers, of {LONGEST} at most")
    return numbers


def _type(content: Any, source: Source) -> Type:
    match content:
        case [*shape, str(dtype)]:
            return TensorType(tuple(shape), dtype)
        case {"tuple": list(items)}:
            return TupleType(tuple(_type(item, source) for item in items))
        case {"sequence": element}:
            return SequenceType(_type(element, source))
        case {"broadcast": element}:
            return BroadcastType(_type(element, source))
        case "object":
            return OBJECT
        case None:
            return VOID
    raise refused(f"the type {content!r}")


READERS: dict[str, Callable[[Any, Source], Any]] = {
    "array": lambda content, source: source.arrays[content],
    "attributes": _attributes,
    "bytes": lambda content, _: bytes.fromhex(content),
    "dict": _dict,
    "enum": _enum,
    "float": lambda content, _: float(content),
    "frozenset": lambda content, source: frozenset(_many(content, source)),
    "function": lambda content, source: find(content, source.trust),
    "int": lambda content, _: int(content, 16),
    "items": lambda content, source: itemgetter(*_many(content, source)),
    "method": _method,
    "number": _number,
    "object": lambda content, source: source.thing(content),
    "partial": _partial,
    "pattern": _pattern,
    "range": _range,
    "set": lambda content, source: set(_many(content, source)),
    "slice": lambda content, source: slice(*_many(content, source)),
    "text": lambda content, _: bytes.fromhex(content).decode("utf-16-le", "surrogatepass"),
    "tuple": lambda content, source: tuple(_many(content, source)),
    "type": _type,
}
