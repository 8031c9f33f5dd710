"""Blocks as plain data, and back: what JSON and arrays hold, written of any block, read without running code.

A block is the class it is of, the settings it was made with, and what it was given later: the wires of a
composition, the parameters of a layer. It is made again by its constructor, which checks the settings. What
stands in several places is written once and numbered, sources first, so it is one object again. The
definition of a declaration comes last, as it refers to the declaration itself.

Functions are written by their import paths; `paths` says which a file may name. The numbers of parameters are
not part of it: they are stored by full name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import msgspec
import numpy as np

from foldbatch import blocks
from foldbatch.blocks.block import AnyBlock, Block
from foldbatch.blocks.data import from_data, refused, to_data
from foldbatch.blocks.forward import ForwardDeclaration, Reference
from foldbatch.blocks.layers.layer import Layer
from foldbatch.blocks.paths import NOBODY, Trust, find, path_of
from foldbatch.blocks.settings import make, settings_of
from foldbatch.blocks.writer import shown
from foldbatch.errors import FoldbatchError, ModelError
from foldbatch.model.tracer import Written
from foldbatch.params.parameters import Array, Owner, Parameter
from foldbatch.trees.vocabulary import Vocabulary

KINDS: dict[str, type] = {name: getattr(blocks, name) for name in blocks.__all__ if name != "Block"}
KINDS |= {"Owner": Owner, "Parameter": Parameter, "Reference": Reference, "Vocabulary": Vocabulary}
NAMES = {cls: name for name, cls in KINDS.items()}


class Thing(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A block, or another object that may stand in several places: a parameter, a vocabulary, a declaration.

    Attributes:
        kind: its class: a name of `KINDS`, or an import path.
        settings: what it is made with, by name, as data.
        state: what it is given then.
    """

    kind: str
    settings: dict[str, Any] = {}
    state: dict[str, Any] = {}


class Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A block as plain data.

    Attributes:
        things: all that it is made of, sources first; they refer to each other by number.
        definitions: pairs of a declaration and the block that it stands for, by number.
        block: the number of the block itself.
    """

    things: list[Thing]
    definitions: list[tuple[int, int]]
    block: int


def to_plain(block: AnyBlock, names: Mapping[str, Parameter]) -> Written:
    """Return a block as plain data.

    Args:
        block: the block.
        names: the parameters whose numbers are stored elsewhere, by full name.

    >>> from foldbatch.blocks import Vector, Linear
    >>> written = to_plain(Vector(3) >> Linear(2, "tanh"), {})
    >>> for thing in written.plain.things:
    ...     print(thing.kind, thing.settings)
    Vector {'size': 3}
    Linear {'size': 2, 'activation': 'tanh'}
    Pipe {'blocks': {'tuple': [{'object': 0}, {'object': 1}]}}
    >>> from_plain(written.plain, {})[0]
    Vector(3, 'float32') >> Linear(2, activation='tanh')
    """
    writer = _Writer({parameter: name for name, parameter in names.items()})
    number = writer.number(block)
    definitions = []
    for declaration in writer.declared:  # grows meanwhile
        if declaration.block is not None:
            definitions.append((writer.number(declaration), writer.number(declaration.block)))
    return Written(Plain(writer.things, definitions, number), writer.arrays, list(dict.fromkeys(writer.lost)))


def from_plain(
    plain: Plain, arrays: dict[str, Array], trust: Trust = NOBODY
) -> tuple[AnyBlock, dict[str, Parameter]]:
    """Return the block that plain data stand for, and by name its parameters whose numbers are in the arrays.

    Args:
        plain: the data.
        arrays: those that they name.
        trust: which functions and classes they may name besides those of foldbatch.

    Raises:
        ModelError: when the data are those of no block, or a function or class of theirs is not found.
    """
    reader = _BlockReader(arrays, trust)
    for thing in plain.things:
        with _blaming(f"object {len(reader.things)}" + f" ({thing.kind})" * (thing.kind in KINDS)):
            reader.things.append(reader.make(thing))
    for declaration, definition in plain.definitions:
        with _blaming("the definition of a declaration"):
            _expect(ForwardDeclaration, reader.thing(declaration)).resolve_to(reader.thing(definition))
    return _expect(Block, reader.thing(plain.block)), reader.parameters


# -- writing


@dataclass(slots=True)
class _Begun:
    """A thing that is being written: it comes after those that it refers to."""

    thing: Any
    written: Thing
    sources: Iterator[Any]


@dataclass(slots=True)
class _Writer:
    names: Mapping[Parameter, str]
    things: list[Thing] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    declared: list[ForwardDeclaration] = field(default_factory=list)
    # by id, each with the object itself, so that no other one can get this id
    references: dict[int, tuple[Any, dict[str, Any]]] = field(default_factory=dict)
    constants: dict[tuple[Any, ...], str] = field(default_factory=dict)  # names by content
    # what is being written, and the things that it refers to
    current: Any = None
    sources: list[Any] = field(default_factory=list)

    def number(self, root: Any) -> int:
        """Write a thing, and before it all that it refers to, however deep; return its number."""
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
                done = stack.pop()
                self._reference(done.thing)["object"] = len(self.things)
                self.things.append(done.written)
        number: int = self._reference(root)["object"]
        return number

    def _begin(self, thing: Any) -> _Begun:
        self.current, self.sources = thing, []
        settings, state = self._content(thing)
        kind = NAMES.get(type(thing)) or path_of(type(thing))
        if kind is None:
            self.lose(f"the class {type(thing).__qualname__}")
        data = [{name: to_data(value, self) for name, value in part.items()} for part in (settings, state)]
        if isinstance(thing, ForwardDeclaration):
            self.declared.append(thing)
        return _Begun(thing, Thing(kind or "", *data), iter(self.sources))

    def _content(self, thing: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the settings and the state of a thing."""
        match thing:
            case Parameter():
                settings = settings_of(thing)
                if not thing.given:
                    del settings["name"]
                if thing not in self.names:
                    return settings, {}
                settings.pop("init", None)  # it is drawn
                return settings, {"array": self.names[thing]}
            case Layer():
                drawn = {name: p for name, p in thing.parameters.items() if p in self.names}
                return thing.settings(), {"parameters": drawn} if drawn else {}
            case Block():
                return thing.settings(), thing.state()
            case ForwardDeclaration():
                return thing.settings(), {}
        return settings_of(thing), {}

    def _reference(self, thing: Any) -> dict[str, Any]:
        """Return the data that stand for a thing; its number is filled in when the thing has been written."""
        return self.references.setdefault(id(thing), (thing, {"object": None}))[1]

    def refer(self, x: object) -> dict[str, Any] | None:
        """Return data that refer to a thing, or None where a value is none."""
        data = is_dataclass(x) and not isinstance(x, type)
        if not (type(x) in NAMES or isinstance(x, Block) or data):
            return None
        self.sources.append(x)
        return self._reference(x)

    def constant(self, array: Array) -> str:
        """Store an array, equal ones once; return its name."""
        native = np.require(array, array.dtype.newbyteorder("="), "C")
        key = native.dtype.name, native.shape, hashlib.blake2b(native.data if native.size else b"").digest()
        if key not in self.constants:
            name, taken = f"constant {len(self.constants)}", set(self.names.values())
            while name in taken:
                name += "'"
            self.constants[key] = name
            self.arrays[name] = native
        return self.constants[key]

    def lose(self, what: str) -> None:
        """Note that something of the thing that is being written cannot be."""
        self.lost.append(f"{what} of {shown(self.current)}")


# -- reading


@dataclass(slots=True)
class _BlockReader:
    arrays: dict[str, Array]
    trust: Trust
    things: list[Any] = field(default_factory=list)
    parameters: dict[str, Parameter] = field(default_factory=dict)

    def thing(self, number: Any) -> Any:
        """Return the thing of a number."""
        if type(number) is not int or not 0 <= number < len(self.things):
            raise refused(f"a reference to object {number!r} of {len(self.things)}")
        return self.things[number]

    def make(self, plain: Thing) -> Any:
        """Make a thing."""
        cls = KINDS[plain.kind] if plain.kind in KINDS else _class(plain.kind, self.trust)
        settings, state = (
            {name: from_data(value, self) for name, value in part.items()}
            for part in (plain.settings, plain.state)
        )
        thing = make(cls, settings)
        _check_names(thing)
        if isinstance(thing, Parameter) and state:
            name = state["array"]
            if name in self.parameters:
                raise refused(f"two parameters {name!r}")
            thing.assign(self.arrays[name], name)
            self.parameters[name] = thing
        elif isinstance(thing, Block):
            thing.load_state(state)
        elif state:
            raise refused(f"a state of {cls.__name__}")
        return thing


def _check_names(thing: Any) -> None:
    """Refuse what the constructors of parameters and their owners leave to their callers."""
    match thing:
        case Owner():
            kinds: list[tuple[Any, Any]] = [(thing.name, str), (thing.given, bool)]
        case Parameter():
            kinds = [(thing.name, str), (thing.trainable, bool), (thing.owner, Owner | None)]
        case _:
            return
    if not all(isinstance(value, kind) for value, kind in kinds):
        raise refused(f"a {type(thing).__name__} of wrong settings")


def _class(kind: str, trust: Trust) -> type:
    if ":" not in kind:
        fix = "install the foldbatch that wrote the file"
        raise ModelError(repr(kind), "a class that this foldbatch has", "an unknown one", fix)
    cls = find(kind, trust)
    if not isinstance(cls, type) or not (issubclass(cls, Block) or is_dataclass(cls)):
        raise refused(f"{kind}, which is no class of blocks")
    return cls


def _expect(cls: type, thing: Any) -> Any:
    if not isinstance(thing, cls):
        raise refused(f"a {type(thing).__name__} in place of a {cls.__name__}")
    return thing


@contextmanager
def _blaming(where: str) -> Iterator[None]:
    """Turn whatever data of the wrong form raise into an error of the data."""
    try:
        yield
    except FoldbatchError as error:
        found = " ".join(error.found.split())  # an array has lines
        raise ModelError(f"{where}: {error.where}", error.expected, found, error.fix) from error
    except Exception as error:
        found = " ".join(f"data that raise {type(error).__name__}: {error}".split())
        raise ModelError(
            where, "data of a block that foldbatch wrote", found, "save the model anew"
        ) from error
