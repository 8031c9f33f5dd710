"""Dependencies: the variables, attributes, closures and defaults that a user's functions read.

Functions are followed by what they name: a variable of their module, what they close over, and attributes of
objects, classes and modules that they reach by these names. So a model that has changed since a program was
compiled, or since its file was written, is told from one that has not, and by name. What a name does not
lead to, as `getattr` with a computed one, is not seen.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import re
import sys
import sysconfig
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache, lru_cache, partial
from pathlib import PurePath
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final

import numpy as np

from foldbatch.errors import PACKAGE
from foldbatch.functions.modules import MethodCell, Module
from foldbatch.functions.seam import DERIVED, Block
from foldbatch.model.paths import called
from foldbatch.params.parameters import Parameter
from foldbatch.trees.vocabulary import Vocabulary
from foldbatch.types import Type

CODE: Final = "code"  # a function
CONSTANT: Final = "constant"  # what cannot change: numbers, texts, tuples, vocabularies, members of enums
CONTENT: Final = "content"  # what programs write to: lists, dicts, sets, arrays
PART: Final = "part"  # layers, other blocks, parameters, modules and objects of the user's, known by identity
_KINDS = CODE, CONSTANT, CONTENT, PART
ITEMS: Final = 1_000_000  # things in a container; larger ones are not compared
BYTES: Final = 256_000_000  # of an array; the same
# `ITEMS` where programs of one process are compared, and some 100 bytes each
MAX_COMPARED_ITEMS: Final = 10_000
_PLAIN = type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis)
_CONSTANTS = (
    *_PLAIN,
    tuple,
    frozenset,
    enum.Enum,
    Vocabulary,
    Type,
    re.Pattern,
    PurePath,
    np.generic,
    np.dtype,
)
_CONTENTS = list, dict, set, deque, np.ndarray, MappingProxyType, bytearray
# attributes of blocks that lead to functions, besides settings
_IN_BLOCKS = FunctionType, MethodType, partial, Block, Vocabulary, tuple, list, dict
# what methods are called that write to their object
_WRITERS = {"add", "append", "appendleft", "clear", "discard", "extend", "fill", "insert", "pop", "popitem"}
_WRITERS |= {"popleft", "put", "remove", "reverse", "setdefault", "sort", "update"}
_STORES = frozenset({"STORE_GLOBAL", "STORE_ATTR", "STORE_DEREF", "DELETE_GLOBAL", "DELETE_ATTR"})
_ITEMS_STORED = frozenset({"STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE"})


@dataclass(frozen=True, slots=True)
class Dependency:
    """One thing that is read."""

    where: str  # what leads to it, as ``mymodel:net.scale``
    kind: str
    value: Any

    @property
    def shown(self) -> str:
        """The value in a few words."""
        if self.kind == CODE:
            return "a function"
        if self.kind == CONTENT and hasattr(self.value, "__len__"):
            return f"a {type(self.value).__name__} of {len(self.value)}"
        if isinstance(self.value, Vocabulary):
            return f"a Vocabulary of {len(self.value)} words"
        text = repr(self.value)
        return text if len(text) <= 60 else f"{text[:57]}..."


Key = tuple[int, str]  # of the object or the variables that hold it, and the name there


@dataclass(slots=True)
class Dependencies:
    """The things that functions read besides arguments: globals, closures, defaults, attributes."""

    entries: dict[Key, Dependency] = field(default_factory=dict)
    # what keys are of: an identity belongs to one object as long as that lives
    holders: list[object] = field(default_factory=list)

    def by_name(self) -> dict[str, Dependency]:
        """Return the dependencies by the text that leads to each; of two with one text the first."""
        return {dependency.where: dependency for dependency in reversed([*self.entries.values()])}


def dependencies_of(roots: Iterable[tuple[str, object]]) -> Dependencies:
    """Return the dependencies of functions, and of functions that they call.

    `roots` are pairs of a text that leads to a function, and the function. A root may be an object with
    methods, too. Things that the functions write themselves are left out.
    """
    entered = [*roots]
    collector = _Collector({_package_of(root) for _, root in entered})
    for where, root in entered:
        collector.enter(where, root)
    collector.follow()
    return collector.dependencies()


def _package_of(root: object) -> str:
    home = getattr(root, "__module__", None) or type(root).__module__
    return str(home).partition(".")[0]


class _Collector:
    def __init__(self, homes: Collection[str]) -> None:
        self.homes = homes  # the packages that what is followed first belongs to
        self.collected = Dependencies()
        self.names = set[str]()  # of variables and attributes, in all functions
        self.written = set[str]()  # those that functions assign to
        self.changing = set[str]()  # those of functions that write to containers
        self._functions: list[tuple[str, FunctionType]] = []
        self._holders: list[tuple[str, object]] = []
        self._seen: dict[int, object] = {}

    def follow(self) -> None:
        """Read what functions name until nothing new comes."""
        before = -1
        while before != (before := len(self._seen) + len(self.collected.entries) + len(self.names)):
            for where, function in [*self._functions]:
                self._read_function(where, function)
            for where, holder in [*self._holders]:
                self._read_attributes(where, holder)

    def dependencies(self) -> Dependencies:
        """Return the dependencies, without things that the functions write to."""

        def is_left(name: str, dependency: Dependency) -> bool:
            return name not in self.written and not (dependency.kind == CONTENT and name in self.changing)

        kept = {
            key: dependency
            for key, dependency in self.collected.entries.items()
            if is_left(key[1], dependency)
        }
        return Dependencies(kept, self.collected.holders)

    def enter(self, where: str, value: object) -> None:
        """Add the dependencies of a value: a function's code, a container's parts, or an object to watch.

        Each value is entered once; libraries are left out.

        Args:
            where: how the user's code names the value, for messages.
            value: a function, a class, a module, a container, or an object whose attributes functions name.
        """
        cell = getattr(value, "__dict__", {}).get("cell") if isinstance(value, FunctionType) else None
        if cell is not None:
            return self.enter(where, cell.function)
        if id(value) in self._seen:
            return None
        match value:
            case FunctionType():
                if self._is_of_user(value):
                    self._seen[id(value)] = value
                    self._functions.append((where, value))
                    self._name(value.__code__)
            case MethodType():
                self.enter(where, value.__func__)
                self.enter(where.rpartition(".")[0] or f"{where}.__self__", value.__self__)
            case MethodCell():
                self.enter(where, value.function)
            case partial():
                parts = [value.func, *value.args, *value.keywords.values()]
                for number, part in enumerate(parts):
                    self.enter(f"{where}({number})" if number else where, part)
            case enum.Enum():
                pass
            case staticmethod() | classmethod():
                self.enter(where, value.__func__)
            case property():
                self.enter(where, value.fget)
            case ModuleType() if self._has_module(value.__name__):
                self._hold(called(value.__name__) + ":", value)
            case type() if self._has_module(value.__module__):
                self._hold(where, value)
            case Module() | Block():
                self._hold(where, value)
            case list() | tuple() | dict() | set() | frozenset() if len(value) <= MAX_COMPARED_ITEMS:
                self._seen[id(value)] = value
                items = value.items() if isinstance(value, dict) else enumerate(value)
                for key, item in [*items]:  # another thread, or a tracer, may write to it meanwhile
                    if not isinstance(item, _PLAIN):  # the container's digest is of these, and of other data
                        self._add((id(value), repr(key)), f"{where}[{key!r}]", item, (PART, CODE))
            case _ if self._has_module(type(value).__module__):
                self._hold(where, value)
        return None

    def _hold(self, where: str, holder: object) -> None:
        self._seen[id(holder)] = holder
        self._holders.append((where, holder))
        self.collected.holders.append(holder)

    def _name(self, code: CodeType) -> None:
        """Take in the names that code reads and writes, and code within it."""
        self.names |= {*code.co_names}
        stored, items = _stored(code)
        self.written |= stored
        if items or not _WRITERS.isdisjoint(code.co_names):
            self.changing |= {*code.co_names, *code.co_freevars}
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._name(constant)

    def _read_function(self, where: str, function: FunctionType) -> None:
        """Add the globals, closure cells and defaults that a function's code names; `where` leads to it."""
        home = called(str(function.__globals__.get("__name__")))
        for name in _names_in(function.__code__):
            if name in function.__globals__:
                self._add((id(function.__globals__), name), f"{home}:{name}", function.__globals__[name])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # it has none yet
                continue
            self._add((id(cell), name), f"{where}, closure {name}", value)
            self.collected.holders.append(cell)
        code = function.__code__
        positional = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        default_values = dict(zip(positional[::-1], defaults[::-1], strict=False)) | (
            function.__kwdefaults__ or {}
        )
        for name, value in default_values.items():
            self._add((id(function), name), f"{where}, default of {name}", value)

    def _read_attributes(self, where: str, holder: object) -> None:
        """Add the attributes of an object, class or module that some function names; `where` leads to it."""
        attributes = dict(_attributes(holder))
        names = [name for name in attributes if name in self.names and not name.startswith("__")]
        if isinstance(holder, Block):  # whose functions are called by what it is built to
            names = [name for name, x in attributes.items() if isinstance(x, _IN_BLOCKS)]
        kind = holder if isinstance(holder, type) else type(holder)
        inherited = {n: x for base in reversed(kind.__mro__) for n, x in vars(base).items()}
        if not isinstance(holder, ModuleType | Block) and self._has_module(kind.__module__):
            named = {
                name
                for name in self.names & inherited.keys() - attributes.keys()
                if not name.startswith("__")
            }
            for name in [*sorted(named), *({"__call__"} & inherited.keys())]:
                self._add((id(holder), name), self._joined(where, name), inherited[name])
        for name in names:
            of_block = isinstance(holder, Block) and not isinstance(attributes[name], Vocabulary)
            kinds = (CODE,) if of_block else _KINDS  # its other settings do not change
            self._add((id(holder), name), self._joined(where, name), attributes[name], kinds)

    def _is_of_user(self, function: FunctionType) -> bool:
        home = str(function.__globals__.get("__name__"))
        return not is_of_library(home, function.__code__.co_filename, self.homes)

    def _has_module(self, name: str) -> bool:
        module = sys.modules.get(name)
        if module is None:  # of code that was executed as a text
            return True
        return not is_of_library(name, getattr(module, "__file__", None), self.homes)

    @staticmethod
    def _joined(where: str, name: str) -> str:
        return where + name if where.endswith(":") else f"{where}.{name}"

    def _add(self, key: Key, where: str, value: object, kinds: Collection[str] = _KINDS) -> None:
        """Add a thing that is read, if it is of these kinds; enter it for the things that it reads."""
        if key in self.collected.entries:
            return
        kind = kind_of(value)
        if (
            kind is not None
            and kind in kinds
            and not (kind == CODE and not self._is_of_user(_function_of(value)))
        ):
            self.collected.entries[key] = Dependency(where, kind, value)
        if not isinstance(value, _PLAIN):
            self.enter(where, value)


def _attributes(holder: object) -> Iterator[tuple[str, Any]]:
    """Yield the attributes that an object has itself, without running code of its class."""
    skipped = {*DERIVED, "parameters", "owner", "name"} if isinstance(holder, Block) else set()
    yield from ((n, x) for n, x in [*getattr(holder, "__dict__", {}).items()] if n not in skipped)
    for base in type(holder).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            try:
                yield name, object.__getattribute__(holder, name)
            except AttributeError:
                continue


def kind_of(value: object) -> str | None:
    """Return the kind of a thing that is read, or None if it is not compared: loggers, files, generators."""
    match value:
        case FunctionType() | MethodCell():
            return CODE
        case Block() | Parameter() | Module():
            return PART
        case type():
            return None
    if isinstance(value, _CONSTANTS):
        return CONSTANT
    return CONTENT if isinstance(value, _CONTENTS) else None  # of other objects, attributes are read


def _function_of(value: object) -> FunctionType:
    """Return the plain function that a cell, a method or a partial function is made of."""
    while True:
        cell = getattr(value, "__dict__", {}).get("cell")
        if cell is not None:
            value = cell.function
        elif isinstance(value, FunctionType):
            return value
        else:
            value = next(
                (getattr(value, n) for n in ("function", "__func__", "func") if hasattr(value, n)),
                _no_function,
            )


def _no_function() -> None: ...


@lru_cache(4096)
def _stored(code: CodeType) -> tuple[frozenset[str], bool]:
    """Return the names that code assigns to, and whether it assigns to items of containers."""
    instructions = [*dis.get_instructions(code)]
    names = [str(x.argval) for x in instructions if x.opname in _STORES]
    return frozenset(names), any(x.opname in _ITEMS_STORED for x in instructions)


@lru_cache(4096)
def _names_in(code: CodeType) -> tuple[str, ...]:
    """Return the names in code, and in functions within it."""
    inner = [name for x in code.co_consts if isinstance(x, CodeType) for name in _names_in(x)]
    return tuple(dict.fromkeys([*code.co_names, *inner]))


@cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple({paths["stdlib"], paths["platstdlib"]})


def is_of_library(name: str, file: str | None, homes: Collection[str]) -> bool:
    """Return whether a module is foldbatch, of Python itself, or installed and in none of the `homes`."""
    if file is None:
        return name != "__main__"
    if file.startswith(("<foldbatch", "<frozen", "<__array_function__", PACKAGE)):
        return True
    if "site-packages" in file or "dist-packages" in file:
        return name.partition(".")[0] not in homes
    return file.startswith(_libraries())


# -- comparing in one process


def fingerprint(dependency: Dependency) -> Any:
    """Return a value that `_is_one` finds equal later, in this process, as long as the thing is the same.

    A function is told by its code, and by the variables and defaults that it holds: another one may have
    equal code.
    """
    if dependency.kind == CODE:
        function = _function_of(dependency.value)
        has_defaults = bool(function.__defaults__ or function.__kwdefaults__)
        return digest_of(dependency), tuple(function.__closure__ or ()), function if has_defaults else None
    return dependency.value if dependency.kind == PART else _present(dependency.value)


def _present(value: object, levels: int = 5) -> object:
    """Return a digest of data; of a container of other things, what it holds; else the thing itself."""
    data_digest = digest(value, MAX_COMPARED_ITEMS, 100 * MAX_COMPARED_ITEMS)
    if (
        data_digest is None
        and isinstance(value, list | tuple | dict)
        and len(value) <= MAX_COMPARED_ITEMS
        and levels
    ):
        parts = [part for pair in [*value.items()] for part in pair] if isinstance(value, dict) else [*value]
        return tuple([_present(part, levels - 1) for part in parts])
    return value if data_digest is None else data_digest


def _is_one(first: object, second: object) -> bool:
    """Return whether two fingerprints are of one thing, or of equal data; things are compared by identity."""
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(_is_one, first, second))
    return first is second or (
        isinstance(first, str | int) and type(first) is type(second) and first == second
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The dependencies of functions at one time, to be compared with later ones."""

    roots: tuple[tuple[str, object], ...]  # these functions
    dependencies: Dependencies
    fingerprints: dict[Key, object]

    def replaced(self) -> list[tuple[str, object]]:
        """Return the things that stand where others stood, each with the name that leads there."""
        now = dependencies_of(self.roots)
        return [(self.dependencies.entries[key].where, now.entries[key].value) for key in self.moved(now)]

    def moved(self, now: Dependencies) -> list[Key]:
        """Return where other things are read now, of those that were read at both times."""
        before = self.fingerprints
        return [
            key
            for key, dependency in now.entries.items()
            if key in before and not _is_one(before[key], fingerprint(dependency))
        ]

    def changed(self, now: Dependencies) -> list[str]:
        """Return the names that lead to other things now."""
        return [self.dependencies.entries[key].where for key in self.moved(now)]


def snapshot(roots: Iterable[tuple[str, object]]) -> Snapshot:
    """Return the present dependencies of functions; arguments are those of `dependencies_of`."""
    entered = tuple(roots)
    present = dependencies_of(entered)
    return Snapshot(
        entered, present, {key: fingerprint(dependency) for key, dependency in present.entries.items()}
    )


# -- comparing with a file


def digest(value: object, items: int = ITEMS, size: int = BYTES) -> str | None:
    """Return a text that tells data from others, in every process and on every version of Python.

    None stands for what cannot be told so: what holds objects of other classes than those of data, more than
    so many items, or an array of more bytes than `size`.

    >>> digest({"a": [1, 2.0]}) == digest({"a": [1, 2.0]}), digest((1,)) == digest((True,)), digest(object())
    (True, False, None)
    """
    writer = hashlib.sha256()
    try:
        _write(value, writer.update, _Room(items, size))
    except _NoDataError:
        return None
    return writer.hexdigest()[:32]


class _NoDataError(Exception):
    pass


@dataclass(slots=True)
class _Room:
    items: int
    size: int
    levels: int = 50

    def take(self, items: int, size: int) -> None:
        self.items -= items
        self.size -= size
        if self.items < 0 or self.size < 0 or self.levels < 0:
            raise _NoDataError


def _write(value: object, update: Callable[[bytes], None], room: _Room) -> None:
    """Hash a value: pass bytes that tell it from any other value to `update`.

    Objects that are no data, and values that exceed `room`, raise `_NoDataError`.
    """
    room.take(1, 0)
    kind = type(value)
    update(f"{kind.__module__}.{kind.__qualname__}:".encode())
    match value:
        case enum.Enum():
            update(f"{value.name};{digest(value.value)};".encode())
        case float() | complex() | np.generic():
            update(f"{np.asarray(value).dtype.str}{value!r};".encode())
        case None | bool() | int() | range() | slice() | PurePath() | np.dtype():
            update(f"{value!r};".encode())
        case _ if isinstance(value, Type):
            update(f"{value!r};".encode())
        case str():
            update(f"{len(value)}:{value};".encode(errors="surrogatepass"))
        case bytes() | bytearray():
            update(b"%d:" % len(value) + bytes(value))
        case re.Pattern():
            _write((value.pattern, value.flags), update, room)
        case Vocabulary():
            _write((value.unknown, value.words), update, room)
        case np.ndarray() if not value.dtype.hasobject:
            room.take(0, value.nbytes)
            update(f"{value.dtype.str}{value.shape};".encode())
            update(np.ascontiguousarray(value).tobytes())
        case list() | tuple() | deque():
            _write_all(value, update, room)
        case set() | frozenset():
            update("".join(sorted([_inner(item, room) for item in [*value]])).encode())
        case dict() | MappingProxyType() if kind in (dict, OrderedDict, defaultdict, MappingProxyType):
            _write_all([*value.keys()], update, room)
            _write_all([*value.values()], update, room)
        case _ if is_dataclass(value) and not isinstance(value, type):
            _write_all([getattr(value, attribute.name, None) for attribute in fields(value)], update, room)
        case _ if value is Ellipsis:
            update(b"...")
        case _:
            raise _NoDataError


def _write_all(values: Any, update: Callable[[bytes], None], room: _Room) -> None:
    """Write the length and the items of a sequence to a digest."""
    present = [*values]  # another thread, or a tracer, may write to it meanwhile
    update(f"{len(present)}:".encode())
    room.levels -= 1
    for value in present:
        _write(value, update, room)
    room.levels += 1


def _inner(value: object, room: _Room) -> str:
    writer = hashlib.sha256()
    _write(value, writer.update, room)
    return writer.hexdigest()


def digest_of(dependency: Dependency) -> str | None:
    """Return a text that tells what is read from anything else, or None where nothing does.

    Of functions it is for one version of Python: neither comments nor lines nor docstrings count.
    """
    if dependency.kind == PART:
        return None
    if dependency.kind == CODE:
        return hashlib.sha256(repr(_code_digest(dependency.value)).encode()).hexdigest()[:32]
    return digest(dependency.value)


def _code_digest(value: object) -> object:
    function = _function_of(value)
    return _plain_code(function.__code__, function.__doc__)


def _plain_code(code: CodeType, doc: str | None = None) -> object:
    """Return a function's code as data that neither its lines nor its docstring change, to be hashed."""
    constants = [
        _plain_code(x) if isinstance(x, CodeType) else digest(x) or repr(type(x))
        for place, x in enumerate(code.co_consts)
        if not (place == 0 and isinstance(x, str) and x == doc)
    ]
    names = code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
    return code.co_code.hex(), constants, names, code.co_argcount, code.co_kwonlyargcount, code.co_flags


def python_version() -> str:
    """Return a text that is the same for all Pythons that have the same code for a function."""
    return f"{sys.implementation.cache_tag}{'-O' * sys.flags.optimize}"


def covers(entries: Iterable[str], where: str) -> bool:
    """Return whether names, or modules, stand for what a name leads to.

    >>> covers(["models"], "models:net.scale"), covers(["models:net"], "models:network")
    (True, False)
    """
    return any(where == x or where.startswith((f"{x}:", f"{x}.", f"{x}[", f"{x},")) for x in entries)
