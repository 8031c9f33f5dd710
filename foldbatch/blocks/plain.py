"""Blocks as plain data, and back: JSON and arrays, written of any block and read without running code.

A block is the class it is of, the settings it was made with, and what it was given later: the wires of a
composition, the parameters of a layer. It is made again by its constructor, which checks the settings. What
stands in several places is written once and numbered, sources first, so it is one object again. The
definition of a declaration comes last, as it refers to the declaration itself.

Functions are written by their import paths; `paths` says which a file may name. The numbers of parameters are
not part of it: they are stored by full name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, is_dataclass
from typing import Any

import msgspec

from foldbatch import blocks
from foldbatch.blocks.block import AnyBlock, Block, Settings, make, settings_of
from foldbatch.blocks.choice import ForwardDeclaration, Reference
from foldbatch.blocks.layers.layer import Layer
from foldbatch.errors import FoldbatchError, ModelError
from foldbatch.model.data import Sink, Source, from_data, refused, to_data
from foldbatch.model.paths import NO_TRUST, Trust, find, path_of
from foldbatch.model.tracer import Written
from foldbatch.params.parameters import Array, Owner, Parameter
from foldbatch.system.showing import shown
from foldbatch.trees.vocabulary import Vocabulary

KINDS: dict[str, type] = {name: getattr(blocks, name) for name in blocks.__all__ if name != "Block"}
KINDS |= {"Owner": Owner, "Parameter": Parameter, "Reference": Reference, "Vocabulary": Vocabulary}
NAMES = {cls: name for name, cls in KINDS.items()}


class PlainObject(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A block, or another object that may stand in several places, as a parameter or a vocabulary."""

    kind: str  # its class: a name of `KINDS`, or an import path
    settings: Settings = {}  # arguments of its constructor, by name, as data
    state: Settings = {}  # for `load_state`, by name, as data


class Plain(msgspec.Struct, forbid_unknown_fields=True, tag_field="form", tag="block"):
    """A block as plain data."""

    objects: list[PlainObject]  # that it is made of, sources first; they refer to each other by number
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


# -- writing


@dataclass(slots=True)
class _Begun:
    """An object that is being written: it comes after those that it refers to."""

    obj: Any
    written: PlainObject
    sources: Iterator[object]


class _Writer(Sink):
    def __init__(self, names: Mapping[Parameter, str], replacements: Mapping[Parameter, Parameter]) -> None:
        super().__init__(names.values())
        replaced = {layers: names[p] for layers, p in replacements.items() if p in names}
        self.names = {**names, **replaced}
        self.replacements = replacements
        self.objects: list[PlainObject] = []
        self.declared: list[ForwardDeclaration] = []
        # by id, each with the object itself, so that no other one can get this id
        self.references: dict[int, tuple[object, dict[str, object]]] = {}
        # the object that is being written, and the objects that it refers to
        self.current: object = None
        self.sources: list[object] = []

    def number(self, root: object) -> int:
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

    def _begin(self, obj: object) -> _Begun:
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

    def _content(self, obj: object) -> tuple[Settings, Settings]:
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

    def _reference(self, obj: object) -> Settings:
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


def _check_names(obj: object) -> None:
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


def _expect(cls: type, obj: object) -> Any:
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
