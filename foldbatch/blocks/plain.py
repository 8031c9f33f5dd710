"""Blocks as plain data, and back: JSON and arrays, written of any block and read without running code.

A block is the class it is of, the settings it was made with, and what it was given later: the wires of a
composition, the parameters of a layer. It is made again by its constructor, which checks the settings. What
stands in several places is written once and numbered, sources first, so it is one object again. The
definition of a declaration comes last, as it refers to the declaration itself.

Functions are written by their import paths; `paths` says which a file may name. The numbers of parameters are
not part of it: they are stored by full name.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from functools import partial
from operator import attrgetter, itemgetter
from pathlib import Path
from types import EllipsisType
from typing import Any

import msgspec
import numpy as np

from foldbatch import blocks
from foldbatch.blocks.block import AnyBlock, Block, make, settings_of
from foldbatch.blocks.choice import ForwardDeclaration, Reference
from foldbatch.blocks.layers.layer import Layer
from foldbatch.blocks.paths import NO_TRUST, Trust, find, method_of, path_of, takes
from foldbatch.blocks.writer import shown
from foldbatch.errors import FoldbatchError, ModelError
from foldbatch.model.tracer import Written
from foldbatch.params.parameters import Array, Owner, Parameter
from foldbatch.trees.vocabulary import Vocabulary
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

KINDS: dict[str, type] = {name: getattr(blocks, name) for name in blocks.__all__ if name != "Block"}
KINDS |= {"Owner": Owner, "Parameter": Parameter, "Reference": Reference, "Vocabulary": Vocabulary}
NAMES = {cls: name for name, cls in KINDS.items()}


class PlainObject(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A block, or another object that may stand in several places, as a parameter or a vocabulary."""

    kind: str  # its class: a name of `KINDS`, or an import path
    settings: dict[str, Any] = {}  # arguments of its constructor, by name, as data
    state: dict[str, Any] = {}  # for `load_state`, by name, as data


class Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A block as plain data."""

    # all objects that it is made of, sources first, which refer to each other by number; `things` in files
    objects: list[PlainObject] = msgspec.field(name="things")
    definitions: list[tuple[int, int]]  # pairs of a declaration and the block that it stands for, by number
    block: int  # the number of the block itself


def to_plain(
    block: AnyBlock, names: Mapping[str, Parameter], replacements: Mapping[Parameter, Parameter] | None = None
) -> Written:
    """Return a block as plain data; numbers of the parameters in `names` are stored elsewhere.

    Those in `names` may be replacements of the block's.
    """
    writer = _Writer({parameter: name for name, parameter in names.items()}, replacements or {})
    number = writer.number(block)
    definitions = []
    for declaration in writer.declared:  # grows meanwhile
        if declaration.block is not None:
            definitions.append((writer.number(declaration), writer.number(declaration.block)))
    return Written(
        Plain(writer.objects, definitions, number), writer.arrays, list(dict.fromkeys(writer.lost))
    )


def from_plain(
    plain: Plain, arrays: dict[str, Array], trust: Trust = NO_TRUST
) -> tuple[AnyBlock, dict[str, Parameter]]:
    """Return the block that plain data stand for, and its parameters whose numbers are in the arrays.

    Raises:
        ModelError: when the data are those of no block, or a function or class of theirs is not found.
    """
    reader = _BlockReader(arrays, trust)
    for plain_object in plain.objects:
        with _blaming(
            f"object {len(reader.objects)}" + f" ({plain_object.kind})" * (plain_object.kind in KINDS)
        ):
            reader.objects.append(reader.make(plain_object))
    for declaration, definition in plain.definitions:
        with _blaming("the definition of a declaration"):
            _expect(ForwardDeclaration, reader.object_of(declaration)).resolve_to(
                reader.object_of(definition)
            )
    return _expect(Block, reader.object_of(plain.block)), reader.parameters


class Sink:
    """Collects the arrays that data refer to, equal ones once, and the parts that cannot be written."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {*taken}  # names that no array may have
        self.arrays: dict[str, Array] = {}
        self.lost: list[str] = []
        self._names: dict[tuple[Any, ...], str] = {}  # by content

    def refer(self, x: object) -> dict[str, Any] | None:
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
    objects: list[Any] = field(default_factory=list)  # the objects that data refer to by number

    def object_of(self, number: Any) -> Any:
        """Return the object of a number; raise ModelError where there is none."""
        if type(number) is not int or not 0 <= number < len(self.objects):
            raise refused(f"a reference to object {number!r} of {len(self.objects)}")
        return self.objects[number]


# -- writing


@dataclass(slots=True)
class _Begun:
    """An object that is being written: it comes after those that it refers to."""

    obj: Any
    written: PlainObject
    sources: Iterator[Any]


class _Writer(Sink):
    def __init__(self, names: Mapping[Parameter, str], replacements: Mapping[Parameter, Parameter]) -> None:
        super().__init__(names.values())
        replaced = {layers: names[p] for layers, p in replacements.items() if p in names}
        self.names = {**names, **replaced}
        self.replacements = replacements
        self.objects: list[PlainObject] = []
        self.declared: list[ForwardDeclaration] = []
        # by id, each with the object itself, so that no other one can get this id
        self.references: dict[int, tuple[Any, dict[str, Any]]] = {}
        # the object that is being written, and the objects that it refers to
        self.current: Any = None
        self.sources: list[Any] = []

    def number(self, root: Any) -> int:
        """Write an object after all objects that it refers to, however deep; return its number."""
        stack = [] if self._reference(root)["object"] is not None else [self._begin(root)]
        begun = {id(root)}
        while stack:
            for source in stack[-1].sources:
                if self._reference(source)["object"] is not None:
                    continue
                if id(source) in begun:
                    self.lose(f"a {type(source).__name__} that contains itself")
                    continue
                begun.add(id(source))
                stack.append(self._begin(source))
                break
            else:
                begun_object = stack.pop()
                self._reference(begun_object.obj)["object"] = len(self.objects)
                self.objects.append(begun_object.written)
        number: int = self._reference(root)["object"]
        return number

    def _begin(self, obj: Any) -> _Begun:
        """Write an object's settings and state as data; note the objects that these refer to."""
        self.current, self.sources = obj, []
        settings, state = self._content(obj)
        kind = NAMES.get(type(obj)) or path_of(type(obj))
        if kind is None:
            self.lose(f"the class {type(obj).__qualname__}")
        data = [{name: to_data(value, self) for name, value in part.items()} for part in (settings, state)]
        if isinstance(obj, ForwardDeclaration):
            self.declared.append(obj)
        return _Begun(obj, PlainObject(kind or "", *data), iter(self.sources))

    def _content(self, obj: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings and the state of an object; drawn parameters are left to the file's arrays."""
        match obj:
            case Parameter():
                settings = settings_of(self.replacements.get(obj, obj))
                if not obj.given:
                    del settings["name"]
                if obj not in self.names:
                    return settings, {}
                settings.pop("init", None)  # it is drawn
                return settings, {"array": self.names[obj]}
            case Layer():
                drawn = {name: p for name, p in obj.parameters.items() if p in self.names}
                return obj.settings(), {"parameters": drawn} if drawn else {}
            case Block():
                return obj.settings(), obj.state()
            case ForwardDeclaration():
                return obj.settings(), {}
        return settings_of(obj), {}

    def _reference(self, obj: Any) -> dict[str, Any]:
        """Return the data that refer to an object; its number is filled in when the object is written."""
        return self.references.setdefault(id(obj), (obj, {"object": None}))[1]

    def refer(self, x: object) -> dict[str, Any] | None:
        data = is_dataclass(x) and not isinstance(x, type)
        if not (type(x) in NAMES or isinstance(x, Block) or data):
            return None
        self.sources.append(x)
        return self._reference(x)

    def lose(self, name: str) -> None:
        super().lose(f"{name} of {shown(self.current)}")


# -- reading


@dataclass(slots=True)
class _BlockReader(Source):
    parameters: dict[str, Parameter] = field(default_factory=dict)

    def make(self, plain: PlainObject) -> Any:
        """Return an object that a file describes: call its class with its settings, and load its state.

        Raises:
            ModelError: when the class is not trusted, or settings or state do not fit it.
        """
        cls = KINDS[plain.kind] if plain.kind in KINDS else _class(plain.kind, self.trust)
        settings, state = (
            {name: from_data(value, self) for name, value in part.items()}
            for part in (plain.settings, plain.state)
        )
        obj = make(cls, settings)
        _check_names(obj)
        if isinstance(obj, Parameter) and state:
            name = state["array"]
            if name in self.parameters:
                raise refused(f"two parameters {name!r}")
            obj.assign(self.arrays[name], name)
            self.parameters[name] = obj
        elif isinstance(obj, Block):
            obj.load_state(state)
        elif state:
            raise refused(f"a state of {cls.__name__}")
        return obj


def _check_names(obj: Any) -> None:
    """Refuse settings of wrong types that the constructors of parameters and owners do not check."""
    match obj:
        case Owner():
            kinds: list[tuple[Any, Any]] = [(obj.name, str), (obj.given, bool)]
        case Parameter():
            kinds = [(obj.name, str), (obj.trainable, bool), (obj.owner, Owner | None)]
        case _:
            return
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise refused(f"a {type(obj).__name__} of wrong settings")


def _class(kind: str, trust: Trust) -> type:
    """Return the class of an import path; refuse any that is neither a block nor a dataclass."""
    if ":" not in kind:
        fix = "install the foldbatch that wrote the file"
        raise ModelError(repr(kind), "a class that this foldbatch has", "an unknown one", fix)
    cls = find(kind, trust)
    if not isinstance(cls, type) or not (issubclass(cls, Block) or is_dataclass(cls)):
        raise refused(f"{kind}, which is no class of blocks")
    return cls


def _expect(cls: type, obj: Any) -> Any:
    """Return an object, refusing one of another class."""
    if not isinstance(obj, cls):
        raise refused(f"a {type(obj).__name__} in place of a {cls.__name__}")
    return obj


@contextmanager
def _blaming(where: str) -> Iterator[None]:
    """Turn any exception in the ``with`` into a `ModelError`, as data of a file have the wrong form.

    Args:
        where: the part of the file, for the error.
    """
    try:
        yield
    except FoldbatchError as error:
        actual = " ".join(error.found.split())  # an array has lines
        raise ModelError(f"{where}: {error.where}", error.expected, actual, error.fix) from error
    except Exception as error:
        actual = " ".join(f"data that raise {type(error).__name__}: {error}".split())
        fix = "save the model anew"
        raise ModelError(where, "data of a block that foldbatch wrote", actual, fix) from error


STORED = {"bool", "float16", "float32", "float64"} | {
    f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)
}
CONTAINERS: dict[Any, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
INTS = 2**63  # more is no number of JSON's to every reader
MAX_RANGE = 10**6  # numbers of a range, which constructors make lists of
FLAGS = re.ASCII | re.IGNORECASE | re.MULTILINE | re.DOTALL | re.UNICODE | re.VERBOSE  # of patterns


# -- values as plain data: a kind that JSON lacks is a dict of one key, its name, ``{"tuple": [1, 2]}``.
# Reading calls no function of the user, and finds only those that `paths` lists or the reader trusts.


def refused(actual: str) -> ModelError:
    """Return the error of data that `to_data` does not write."""
    return ModelError("data", "data of a block that foldbatch wrote", actual, "save the model anew")


# -- writing


def to_data(x: Any, sink: Sink) -> Any:
    """Return a value as data; `sink` notes parts for which that is not possible."""
    try:
        return _data(x, sink)
    except RecursionError:
        return sink.lose("data that contain themselves, or are nested too deep")


def _data(x: Any, sink: Sink) -> Any:
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


def _function_data(x: Any, sink: Sink) -> Any:
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


def _name_for_errors(x: Any) -> str:
    """Return how errors name an object that cannot be saved, as it has no import path: its name and line."""
    code, name = getattr(x, "__code__", None), getattr(x, "__qualname__", None)
    place = f" ({Path(code.co_filename).name}:{code.co_firstlineno})" if code is not None else ""
    if not callable(x) or not isinstance(name, str):
        return describe_value(x)
    return f"{'a lambda' if name.endswith('<lambda>') else f'the function {name}'}{place}"


def _hidden(attributes: Sequence[str]) -> bool:
    return any(name.startswith("_") for path in attributes for name in path.split("."))


def _type_data(type_: Type, sink: Sink) -> Any:
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


def _list(content: Any, source: Source) -> list[Any]:
    """Return the values of a list of data, refusing any other content."""
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
    """Return the `functools.partial` that a file describes by function, arguments and keyword arguments."""
    data, values, words = content
    function, named = from_data(data, source), {name: from_data(value, source) for name, value in words}
    if not takes(function, named):
        raise refused(f"arguments of {data}, which takes no such")
    return partial(function, *_list(values, source), **named)


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
    numbers = range(*_list(content, source))
    if len(numbers) > MAX_RANGE:
        raise refused(f"a range of {len(numbers)} numbers, of {MAX_RANGE} at most")
    return numbers


def _type(content: Any, source: Source) -> Type:
    """Return the type that data stand for; the inverse of `_type_data`."""
    match content:
        case [*shape, str(dtype)]:
            return TensorType(tuple(shape), dtype)
        case {"tuple": list(items)}:
            return TupleType(tuple(_type(item, source) for item in items))
        case {"nest": [path, list(keys), list(items)]} if len(keys) == len(items):
            kind = dict if path is None else find(path, source.trust)
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


def refuse_other_fields(kind: Any, names: tuple[Any, ...]) -> None:
    """Refuse a dataclass or a named tuple that had other fields when the file was written."""
    present = tuple([field.name for field in fields(kind)]) if is_dataclass(kind) else kind._fields
    if present != names:
        fix = "restore the class that the file was saved with, or train anew"
        raise ModelError(kind.__qualname__, f"the fields {names}", f"{present}", fix)


READERS: dict[str, Callable[[Any, Source], Any]] = {
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
