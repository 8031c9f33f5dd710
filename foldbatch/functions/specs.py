"""Specs: the structure of a cell's argument, found at a call; a cell has one signature for each.

A spec tells whether an argument fits (`guard`, as text for the cell's code), which values, data, lists and
objects stand in it (`leaves`, in order), and how to build a nest of its structure (`rebuilt`).
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import FunctionType
from typing import Any, Final, TypeAlias

import numpy as np

from foldbatch.errors import WalkError
from foldbatch.functions.values import Value, value_class
from foldbatch.params.parameters import Parameter
from foldbatch.static.graph import Node
from foldbatch.types import DTYPES, TensorType, describe_value, tensor_written

Nest: TypeAlias = Any  # a dict, a tuple, or an object of a dataclass or a named tuple

Name: TypeAlias = Callable[[Any], str]  # gives an object a name among the globals of a cell's code

# The dtypes that arrays are read as, where these are not their own. NumPy makes float64 of all numbers, and
# models compute in float32; narrow integers fit into wider ones.
_READ = {"float64": "float32", "float16": "float32"}
_READ |= dict.fromkeys(("int8", "int16", "uint8", "uint16"), "int32") | {"uint32": "int64"}
_SCALARS: dict[type, str] = {bool: "bool", int: "int32", float: "float32"}
# classes of numbers, which cannot be written to; NumPy's give the dtype, too
FIXED = frozenset({*_SCALARS, *[np.dtype(code).type for code in np.typecodes["AllInteger"] + "?efd"]})
DEEPEST: Final = 100  # the most levels of a nest: Python reads as many brackets, and some more
EXACT = frozenset({str, bytes, bool, int, type(None)})  # types of which ``==`` tells all values apart


@dataclass(frozen=True)
class ValueSpec:
    """A value of a type."""

    type: TensorType


@dataclass(frozen=True)
class DataSpec:
    """Data of the example: a number or an array."""

    type: TensorType  # what it is read as
    kind: Any = None  # its class; None where an annotation gives the type
    form: tuple[tuple[int, ...], str] | None = None  # of an array, its own shape and dtype

    @property
    def changing(self) -> bool:
        """Whether they may be an array or a list, which the walk may write to later."""
        return self.kind not in FIXED


@dataclass(frozen=True)
class ListSpec:
    """A list; its elements all have one structure, of values alone."""

    element: Spec | None  # their structure; None of a list that is empty
    # whether an annotation gives the structure: then the list may be empty, too. Else an empty one is a
    # structure of its own, so that nothing depends on which came first
    hinted: bool = False

    @property
    def members(self) -> list[tuple[Path, TensorType]]:
        """The values of an element: where each stands, and its type."""
        if self.element is None:
            return []
        return [(path, leaf.type) for path, leaf in leaves(self.element) if isinstance(leaf, ValueSpec)]


@dataclass(frozen=True, eq=False)
class NestSpec:
    """A tuple, dict, named tuple or dataclass; keys of a dict are told apart as `typed` does."""

    kind: type  # its class
    keys: tuple[Any, ...]  # of a dict, its keys; of a dataclass, the names of fields; else numbers
    items: tuple[Spec, ...]  # the structures of its items

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NestSpec) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[Any, ...]:
        return self.kind, typed(self.keys), self.items

    def item(self, number: int) -> str:
        """Return how code gets an item."""
        key = self.keys[number]
        return f".{key}" if dataclasses.is_dataclass(self.kind) else f"[{key!r}]"

    def value_of(self, items: Sequence[object]) -> Nest:
        """Return a nest of this kind with other items."""
        kind: Any = self.kind
        if kind.__new__ is tuple.__new__:  # also of classes that are made of one iterable, as tuples are
            return tuple(items)
        if issubclass(self.kind, dict):  # which may be another to the function than to the walk
            return dict(zip(self.keys, items, strict=True))
        if dataclasses.is_dataclass(self.kind):
            return self.kind(**dict(zip(self.keys, items, strict=True)))
        return self.kind(*items)


@dataclass(frozen=True, eq=False)
class StaticSpec:
    """A value that is the same in all calls of a signature; ``1``, ``1.0`` and ``True`` are three."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticSpec) and typed(self.value) == typed(other.value)

    def __hash__(self) -> int:
        return hash(typed(self.value))


def typed(value: object) -> object:
    """Return a key of a value that belongs to a cell: it tells apart what ``==`` does not.

    So do types, signs of zeros, and what stands in tuples, sets, dataclasses and the like; a NaN is itself.
    Lists are as they are now. Of other objects, ``==`` says which are alike.

    >>> typed(1) == typed(True), typed((0.0,)) == typed((-0.0,)), typed([1]) == typed((1,))
    (False, False, False)
    """
    kind = type(value)
    if kind in EXACT:
        return kind, value
    match value:
        case float():
            return kind, float.hex(value)
        case complex() | np.generic():
            return kind, repr(value)
        case tuple() | list():
            return kind, tuple(map(typed, value))
        case np.ndarray():
            return kind, value.dtype.str, value.shape, value.tobytes()
        case slice():
            return kind, typed((value.start, value.stop, value.step))
        case set() | frozenset():
            return kind, frozenset(map(typed, value))
    equal: object = kind.__eq__
    if dataclasses.is_dataclass(value) and equal is not object.__eq__ and not isinstance(value, type):
        parts = [getattr(value, field.name) for field in dataclasses.fields(value) if field.compare]
        return kind, value, typed(parts)
    return kind, value


@dataclass(frozen=True)
class ObjectSpec:
    """An object that no tensor can be made of: it can be the label of a metric."""


Spec: TypeAlias = ValueSpec | DataSpec | ListSpec | NestSpec | StaticSpec | ObjectSpec
Path: TypeAlias = str  # of a part of an argument, as code behind the argument's name
ARGUMENT: Final = (
    "given_"  # the prefix of names of arguments in cells' code, which has names of its own besides
)


def guard(spec: Spec, code: str, name: Name) -> Iterator[str]:
    """Yield conditions, as text, that hold where the value of some code has a structure."""
    match spec:
        case ValueSpec(type_):
            yield f"type({code}) is {name(value_class(type_))}"
        case DataSpec(_, None):
            yield f"not isinstance({code}, {name(Value)})"
            yield f"{code} is not None"
        case DataSpec(_, class_, form):
            yield f"type({code}) is {name(class_)}"
            if form is not None:
                yield f"{name(form_of)}({code}) == {name(form)}"
        case ListSpec(element, hinted):
            yield f"type({code}) is list"
            if element is None:
                yield f"not {code}"
            else:  # elements after the first are checked when the batch is noted
                first = " and ".join(guard(element, f"{code}[0]", name))
                yield f"(not {code} or {first})" if hinted else f"{code} and {first}"
        case NestSpec(kind, keys, items):
            yield f"type({code}) is {name(kind)}"
            if issubclass(kind, tuple):
                yield f"len({code}) == {len(items)}"
            elif issubclass(kind, dict):
                yield equality(keys, f"tuple({code})", name)
            for number, item in enumerate(items):
                yield from guard(item, code + spec.item(number), name)
        case StaticSpec(None):
            yield f"{code} is None"
        case StaticSpec(value):
            yield f"type({code}) is {name(type(value))}"
            if type(value) is tuple:
                yield f"len({code}) == {len(value)}"
                for number, item in enumerate(value):
                    yield from guard(StaticSpec(item), f"{code}[{number}]", name)
            else:
                yield equality(value, code, name)
        case ObjectSpec():
            yield f"{name(is_object)}({code})"


def equality(value: object, code: str, name: Name) -> str:
    """Return a condition, as text: that a value of the same type is this one, see `typed`."""
    if type(value) in EXACT or (type(value) is tuple and {*map(type, value)} <= {str}):
        return f"{code} == {name(value)}"
    if type(value) is float:
        return f"{code}.hex() == {value.hex()!r}"
    return f"{name(typed)}({code}) == {name(typed(value))}"


def guarded(specs: Mapping[str, Spec], name: Name) -> tuple[list[str], list[str], list[str], dict[Path, str]]:
    """Return the code that checks arguments: conditions, statements that name items of nests, theirs, names.

    The names are those of the items, by path. A tuple is unpacked, which checks its length, too, by a
    ValueError, in less time than `len` takes.
    """
    outer, opening, inner, named = list[str](), list[str](), list[str](), dict[Path, str]()
    for argument, spec in specs.items():
        conditions = [*guard(spec, ARGUMENT + argument, name)]
        if isinstance(spec, NestSpec):
            conditions = conditions[: 1 + issubclass(spec.kind, dict)]  # its class, and its keys
            paths = [argument + spec.item(i) for i in range(len(spec.items))]
            names = [f"item_{argument}_{i}" for i in range(len(paths))]
            named |= zip(paths, names, strict=True)
            if issubclass(spec.kind, tuple):
                opening.append(f"[{', '.join(names)}] = {ARGUMENT}{argument}")
            else:
                opening += [f"{x} = {ARGUMENT}{path}" for x, path in zip(names, paths, strict=True)]
            inner += [
                x for item, code in zip(spec.items, names, strict=True) for x in guard(item, code, name)
            ]
        outer += conditions
    return outer, opening, inner, named


def form_of(array: Any) -> tuple[tuple[int, ...], str]:
    """Return the shape of an array or of a tensor of PyTorch, and the name of its dtype."""
    return tuple(array.shape), _spelt(array.dtype)


Hint: TypeAlias = Any  # what an annotation says: a type, a tuple or a list of such, or None


def row_type(hint: Hint) -> TensorType | None:
    """Return the type of the elements of a list, or of an array's rows, by an annotation; else None."""
    is_list = isinstance(hint, list) and len(hint) == 1 and isinstance(hint[0], TensorType)
    return hint[0] if is_list else None


def forms_in(specs: Mapping[str, Spec]) -> dict[Path, tuple[tuple[int, ...], str]]:
    """Return shape and dtype of each array in a structure of arguments, by its path from the argument on."""
    parts = [(name + path, leaf) for name, spec in specs.items() for path, leaf in leaves(spec)]
    return {path: leaf.form for path, leaf in parts if isinstance(leaf, DataSpec) and leaf.form is not None}


def without_forms(spec: Spec) -> Spec:
    """Return a structure with neither shapes nor dtypes of arrays: one for series of all lengths."""
    match spec:
        case DataSpec(_, class_, form) if form is not None:
            return DataSpec(TensorType(()), class_)
        case NestSpec(kind, keys, items):
            return NestSpec(kind, keys, tuple(map(without_forms, items)))
    return spec


@lru_cache(100)
def _spelt(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")  # which takes NumPy 2 us


def read_as(array: object) -> str:
    """Return the dtype that an array is read as, where nothing else is said."""
    _, dtype = form_of(array)
    return _READ.get(dtype, dtype)


def is_array(x: object) -> bool:
    """Whether an object is an array, of NumPy or another library, and neither a value nor a node."""
    return isinstance(x, np.ndarray | np.generic) or (
        hasattr(x, "shape") and hasattr(x, "dtype") and not isinstance(x, Value | Node)
    )


def is_object(x: object) -> bool:
    """Whether no tensor can be made of an object."""
    return not (
        x is None
        or isinstance(x, Value | list | tuple | dict | bool | int | float)
        or is_array(x)
        or is_nest(x)
    )


def is_nest(x: object) -> bool:
    """Whether an object is a tuple, dict or dataclass."""
    return isinstance(x, tuple | dict) or (dataclasses.is_dataclass(x) and not isinstance(x, type))


def too_deep(where: str) -> WalkError:
    """Return the error of a nest that has no end, or too many levels."""
    actual = "one that holds itself, or has more"
    return WalkError(
        where, f"a nest of {DEEPEST} levels at most", actual, "make it flat, as a list of its parts"
    )


def spec_of(x: object, where: str, hint: object = None, levels: int = DEEPEST) -> Spec:
    """Return the structure of an argument; `hint` is the type of its annotation, see `hint_of`."""
    if not levels:
        raise too_deep(where)
    if isinstance(hint, TensorType) and not isinstance(x, Value) and x is not None:
        return DataSpec(hint)
    match x:
        case Value():
            if isinstance(hint, TensorType) and x.type != hint:
                fix = fix_for_types(hint, x.type, "mend the annotation, or the value")
                raise WalkError(where, f"{hint}, as annotated", str(x.type), fix)
            return ValueSpec(x.type)
        case None:
            return StaticSpec(None)
        case bool() | int() | float() if not isinstance(x, np.generic):  # of a class of the user's, too
            dtype = next(dtype for kind, dtype in _SCALARS.items() if isinstance(x, kind))
            return DataSpec(TensorType((), dtype), type(x))
        case list():
            element = hint[0] if isinstance(hint, list) and hint else None
            return _list_of(x, where, element, levels - 1)
    if is_nest(x):
        keys, items = opened(x)
        if not all(map(_is_written, keys)):
            fix = "give a tuple, or a dict of texts"
            raise WalkError(where, "keys that are texts or numbers", describe_value(x), fix)
        hints = hint if isinstance(hint, tuple) and len(hint) == len(items) else [None] * len(items)
        parts = [
            spec_of(item, where, item_hint, levels - 1) for item, item_hint in zip(items, hints, strict=True)
        ]
        return NestSpec(type(x), keys, tuple(parts))
    if is_array(x):
        shape, dtype = form_of(x)
        read = read_as(x)
        if read not in DTYPES:
            raise WalkError(where, "numbers", f"an array of {dtype}", "convert it first")
        return DataSpec(TensorType(shape, read), type(x), None if type(x) in FIXED else (shape, dtype))
    if isinstance(x, Iterator):  # its values would never be read
        raise WalkError(where, "a list of values", describe_value(x), "make a list of it: [f(x) for x in xs]")
    return ObjectSpec()


def _is_written(key: object) -> bool:
    """Whether code can have a key of a dict as a text."""
    if type(key) is tuple:
        return all(map(_is_written, key))
    return type(key) in EXACT or (type(key) is float and math.isfinite(key))


def static_spec(value: object, where: str) -> StaticSpec:
    """Return the structure of a static argument."""
    try:
        hash(value)
    except TypeError:
        fix = "a keyword-only argument is the same in all calls of one cell: give a number, a str or a tuple"
        raise WalkError(where, "a static argument that can be hashed", describe_value(value), fix) from None
    if isinstance(value, Value):
        raise WalkError(where, "a static argument", repr(value), "let it stand before the * in the function")
    return StaticSpec(value)


def refuse_text(spec: Spec, value: object, where: str) -> None:
    """Refuse classes and functions, which belong to a cell."""
    if isinstance(spec, ObjectSpec) and isinstance(value, type | FunctionType):
        name, _, argument = where[:-1].partition("(")
        fix = f"make it a keyword-only argument: def {name}(..., *, {argument})"
        raise WalkError(where, "values, numbers or arrays", describe_value(value), fix)


def opened(x: Nest, where: str = "walk") -> tuple[tuple[Any, ...], list[object]]:
    """Return the keys and items of a nest.

    Raises:
        WalkError: when a field of a dataclass has no value.
    """
    if isinstance(x, dict):
        return tuple(x), list(x.values())
    if isinstance(x, tuple):
        return tuple(range(len(x))), list(x)
    keys = tuple(field.name for field in dataclasses.fields(x))
    try:
        return keys, [getattr(x, key) for key in keys]
    except AttributeError as error:
        fix = "assign it, for example in __post_init__"
        raise WalkError(where, "a dataclass whose fields have values", str(error), fix) from error


def with_values(x: object, value_of: Callable[[Parameter], object], levels: int = DEEPEST) -> object:
    """Return an argument with values in the place of parameters: itself, where it holds none."""
    if not levels:
        raise too_deep("an argument of a cell")
    if isinstance(x, Parameter):
        return value_of(x)
    if not (isinstance(x, list) or is_nest(x)):
        return x
    keys, items = ((), x) if isinstance(x, list) else opened(x)
    parts = [with_values(item, value_of, levels - 1) for item in items]
    if all(part is item for part, item in zip(parts, items, strict=True)):
        return x
    return parts if isinstance(x, list) else NestSpec(type(x), keys, ()).value_of(parts)


def _list_of(items: list[object], where: str, hint: object, levels: int) -> ListSpec:
    """Return the structure of a list argument, whose elements are alike; `where` names it in errors.

    An empty list has the element type of its annotation, if any.
    """
    if not items:
        return ListSpec(None) if hint is None else ListSpec(_hinted(hint), hinted=True)
    first = spec_of(items[0], f"{where}[0]", hint, levels)
    for number, item in enumerate(items):
        spec = spec_of(item, f"{where}[{number}]", hint, levels)
        for path, leaf in leaves(spec):
            if not isinstance(leaf, ValueSpec):
                fix = "make values of them: [embed(x) for x in words]; fb.tensor(numbers) for one vector"
                actual = described(leaf) if path else describe_value(item)
                if isinstance(hint, TensorType) and isinstance(item, tuple) and len(item) == 1:
                    fix = "annotate it as list[tuple[...]]: to Python, list[(...,)] is list[...]"
                raise WalkError(f"{where}[{number}]{path}", "a value, or a tuple of values", actual, fix)
        if spec != first:
            fix = fix_for_types(
                described(first), described(spec), "elements of a list have one shape and dtype each"
            )
            expected = f"{described(first)}, as the first one"
            raise WalkError(f"{where}[{number}]", expected, described(spec), fix)
    if hint is not None and first != (annotated := _hinted(hint)):
        fix = fix_for_types(described(annotated), described(first), "mend either")
        raise WalkError(f"{where}[0]", f"{described(annotated)}, as annotated", described(first), fix)
    return ListSpec(first, hinted=hint is not None)


_DTYPES = re.compile(r"\b(?:bool|u?int\d+|float\d+)\b")


def fix_for_types(expected: object, actual: object, otherwise: str) -> str:
    """Return how to mend that a type is not the expected one: by a dtype, where all else is alike.

    >>> fix_for_types("int32", "float32", "")
    "fb.tensor(x, 'float32') reads ints as floats, ops.cast(value, 'float32') converts what was computed"
    >>> fix_for_types("int32", "float32[2]", "give one shape")
    'give one shape'
    """
    texts = str(expected), str(actual)
    plain = {_DTYPES.sub("", text) for text in texts}
    floats = [dtype for text in texts for dtype in _DTYPES.findall(text) if dtype.startswith("float")]
    if len(plain) > 1 or not floats or texts[0] == texts[1]:
        return otherwise
    dtype = "float64" if "float64" in floats else floats[0]
    return (
        f"fb.tensor(x, {dtype!r}) reads ints as floats, ops.cast(value, {dtype!r}) converts what was computed"
    )


def _hinted(hint: Any) -> Spec:
    if isinstance(hint, tuple):
        return NestSpec(tuple, tuple(range(len(hint))), tuple(map(_hinted, hint)))
    return ValueSpec(hint)


def described(spec: Spec) -> str:
    """Return the structure of an argument in words for errors: ``float32[8]``, ``[int32[], ...]``."""
    match spec:
        case ValueSpec(type_) | DataSpec(type_):
            return str(type_)
        case ListSpec(element):
            return f"[{described(element)}, ...]" if element else "[]"
        case NestSpec(kind, keys, items) if kind is not tuple:
            named = [f"{key}: {described(item)}" for key, item in zip(keys, items, strict=True)]
            return f"{kind.__name__}({', '.join(named)})"
        case NestSpec(_, _, items):
            return f"({', '.join(map(described, items))})"
        case StaticSpec(value):
            return repr(value)
    return "object"


def leaves(spec: Spec, path: Path = "") -> Iterator[tuple[Path, Spec]]:
    """Yield the parts of a structure that are no nests, each with its path."""
    if isinstance(spec, NestSpec):
        for number, item in enumerate(spec.items):
            yield from leaves(item, path + spec.item(number))
    else:
        yield path, spec


def rebuilt(spec: Spec, parts: Iterator[object]) -> object:
    """Return a nest of an argument's structure, with the next of these parts at each of its leaves."""
    if isinstance(spec, NestSpec):
        return spec.value_of([rebuilt(item, parts) for item in spec.items])
    part = next(parts)
    return spec.value if isinstance(spec, StaticSpec) else part


def hint_of(annotation: object, names: Mapping[str, object]) -> Hint:
    """Return the type that an annotation gives: a type, a tuple of types, a list of one type, or None.

    Annotations are ``"float32[8]"``, a `TensorType`, ``list[...]``, ``tuple[...]``; `names` has the values of
    names in texts.
    """
    if isinstance(annotation, str):
        if (written := tensor_written(annotation)) is not None:
            return written
        try:
            value = eval(annotation, dict(names))  # noqa: S307 - the text is the user's own code
        except Exception:  # noqa: BLE001 - an annotation may be anything
            return None
        return None if value == annotation else hint_of(value, names)
    if isinstance(annotation, int):
        return TensorType((annotation,))
    origin: Any = getattr(annotation, "__origin__", None)
    arguments: Any = getattr(annotation, "__args__", ())
    if isinstance(annotation, TensorType):
        return annotation
    if origin is list:  # list[(a, b)] has two arguments
        inner = hint_of(arguments[0] if len(arguments) == 1 else arguments, names)
        return None if inner is None else [inner]
    if origin is tuple:
        annotation = arguments
    if isinstance(annotation, tuple) and annotation:
        inner = tuple(hint_of(argument, names) for argument in annotation)
        return None if None in inner else inner
    return None
