"""Block: an immutable recipe from one typed value to another.

A block has one method that matters, ``build(builder, value) -> value``, which says what it does
to a symbolic value; types flow from input to output, once. Blocks know no parents and keep no
types, so one block may stand in several places and programs. `Pipe` joins two.

When blocks are composed, the type of what each yields is *inferred* where the type of its input is
known (see `drafts.pattern`), so that ``a >> b`` complains at once where the two do not fit.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, overload

import numpy as np

from foldbatch.blocks import alone
from foldbatch.blocks.builder import Builder
from foldbatch.blocks.building import build
from foldbatch.blocks.drafts import UnknownTypeError, Value, pattern, type_of
from foldbatch.errors import BlockTypeError, BlockUseError, BlockValueError, WalkError
from foldbatch.operators import active_recorder, is_symbolic
from foldbatch.params.parameters import Array, Parameter
from foldbatch.system.closed import Closed
from foldbatch.system.remembering import Bounded
from foldbatch.system.showing import arguments_of, exceeds_message, shown
from foldbatch.types import BackendName, Type, describe_value

# Kinds, for static checkers: the classes of `foldbatch.types` stand for values of such a type.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    In_contra = TypeVarWithDefault("In_contra", contravariant=True, default=Any)
    Out_co = TypeVarWithDefault("Out_co", covariant=True, default=Any)
else:  # defaults are for checkers: `Block` alone is a block of any kinds
    In_contra = TypeVar("In_contra", contravariant=True)
    Out_co = TypeVar("Out_co", covariant=True)
Next = TypeVar("Next")
# what calling or running a block yields: wires in a composition, values in a walk, and numbers of a result
Result: TypeAlias = Any
Settings: TypeAlias = dict[str, Any]  # arguments of a constructor, or a state, by name, as data
Key: TypeAlias = Any  # of an item: a name, a number, or what else a dict may have
BlockLike: TypeAlias = "Mapping[Any, Any] | list[Any] | tuple[Any, ...] | Array | np.generic | Parameter"


class OpenScope(Protocol):
    """A scope in which blocks are wired; see `foldbatch.blocks.composition`."""

    def add(self, block: object, sources: tuple[object, ...]) -> Result:
        """Use a block, which reads sources; return its result as a wire."""

    def wire_of(self, source: object) -> Result:
        """Return the wire that stands for a block in this scope."""


class _Open(threading.local):
    def __init__(self) -> None:
        self.scopes: list[OpenScope] = []


DERIVED = "_inferred", "_called"  # attributes that are computed from a block, and kept with it
opened = _Open()  # the scopes that are open, the innermost last


def _innermost(block: AnyBlock, usage: str) -> OpenScope:
    """Return the innermost open scope; refuse a use of a block, as ``.reads``, outside of any."""
    if not opened.scopes:
        fix = "write `with composition.scope():` around it"
        raise BlockUseError(f"{shown(block)}{usage}", "to be inside a composition's scope", "none open", fix)
    return opened.scopes[-1]


class Block(Closed, Generic[In_contra, Out_co]):
    """A recipe for one example; combine blocks with ``>>`` and the other combinators.

    ``Block[ObjectType, TensorType]`` tells a static checker that it reads an object and yields a
    tensor. Subclasses say how to build in `build`, and keep their constructor's arguments as attributes
    of the same names.
    """

    passes_on = False  # whether the block yields its input unchanged

    def build(self, builder: Builder, value: Value) -> Value:
        """Return the block's result for `value`; raises BlockTypeError where it cannot be used."""
        raise NotImplementedError

    def arguments(self) -> str:
        """Return the constructor's arguments as text, for `repr`, as far as they differ from their defaults.

        They are attributes of the same names; three dots stand where there is none.
        """
        parts: list[str] = []
        for name, parameter in signature_of(type(self)).parameters.items():
            value: Any = getattr(self, name, ...)
            if parameter.kind is parameter.VAR_POSITIONAL and value is not ...:
                parts += map(self.written, value)
            elif parameter.default is parameter.empty and parameter.kind is not parameter.KEYWORD_ONLY:
                parts.append(self.written(value))
            elif (text := self.written(value)) != self.written(parameter.default):
                parts.append(f"{name}={text}")
        return ", ".join(parts)

    def written(self, value: object) -> str:
        """Return an argument as source text."""
        if value is ...:
            return "..."
        return function_name(value) if callable(value) and not isinstance(value, Block) else repr(value)

    @property
    def input_type(self) -> Type | None:
        """The type it reads, where that is known of the block alone; `VOID` where any will do."""
        return None

    @property
    def output_type(self) -> Type | None:
        """The type it yields, where that is known of the block alone.

        Raises:
            BlockTypeError: when the block is ill typed.
        """
        result = infer(self, Builder.scratch(_Joint(None, self)))
        return None if result is None else type_of(result[0])

    @overload
    def __rshift__(self, other: Block[Out_co, Next]) -> Block[In_contra, Next]: ...
    @overload
    def __rshift__(self, other: BlockLike) -> Block[In_contra, Any]: ...
    def __rshift__(self, other: object) -> Any:
        return Pipe(self, other)

    def __rrshift__(self, other: BlockLike) -> Block[Any, Out_co]:
        return Pipe(other, self)

    def __call__(self, *xs: object) -> Result:
        """Apply the block in a plain function that stands for a model: to objects of its example, or values.

        Args:
            xs: what the block is given; several are a tuple.

        Raises:
            WalkError: elsewhere.
            BlockTypeError: when it cannot read what it is given.
        """
        recorder = active_recorder()
        if recorder is None or is_symbolic():
            fix = "block.eval(example) shows what it makes of one example"
            expected = "a call in a plain function given to foldbatch.compile"
            raise WalkError(shown(self), expected, "one elsewhere", fix)
        return recorder.layer(self, xs)

    # an array on the left of >> must leave the operator to us
    __array_ufunc__ = None

    def reads(self, *sources: object) -> Result:
        """Connect the block to its sources, in the ``with`` of a `Composition`; return its result as a wire.

        Args:
            sources: wires that `reads` returned; blocks, each in place of its only wire in this composition;
                arrays, parameters, dicts and lists, which stand for blocks as after ``>>``; or tuples of all
                these. One source is read as it is, several as a tuple, and none as void.

        Raises:
            BlockUseError: outside of a scope.
        """
        return _innermost(self, ".reads").add(self, sources)

    def __getitem__(self, key: object) -> Result:
        return _innermost(self, f"[{key!r}]").wire_of(self)[key]

    __iter__ = None  # Python would count items from 0 for ever

    def eval(self, example: object, backend: BackendName = "auto") -> Result:
        """Return the block's result for one example: nested arrays, lists and tuples.

        With metrics, returns ``(result, metrics)``, metrics by name. The block is built anew, and its ops run
        one by one in NumPy: for one example no kernels are worth making.

        Args:
            example: a Python object that the block reads.
            backend: ``auto`` or ``numpy``, the precision of each tensor; ``reference``, float64. Others make
                kernels of a program, so they are not used, with a warning: ``fb.compile(block, backend)``.

        Raises:
            BlockTypeError: when the block is ill typed.
            ExampleError: when the example does not fit it.
            UnknownNameError: when there is no such backend.

        Warns: `UnusedBackendWarning`, when another backend is named.
        """
        return alone.evaluate(self, example, backend)

    def max_depth(self, example: object) -> int:
        """Return how many levels the example needs, after blocks that run together are joined."""
        return alone.max_depth(self, example)

    def load_parameters(self, path: str | os.PathLike[str]) -> None:
        """Copy the parameters in a file that `Program.save` wrote into those of this block, all or none.

        So a model whose functions have no import path is made by its script and filled from its file.
        Programs of this block compute with the new numbers at once.

        Args:
            path: of the file.

        Raises:
            ReadError: when the file is damaged or was changed, holds something else, or was written by a
                newer version.
            UnknownNameError: when the block has other parameters.
            ParameterError: when one has another shape.
            BlockTypeError: when the block is ill typed.
            OSError: when there is no such file, or it cannot be read.
        """
        alone.load_parameters(self, path)

    def settings(self) -> Settings:
        """Return the arguments that the block was made with, by name; its class makes an equal block of them.

        They are attributes of the arguments' names; blocks that keep them otherwise implement this.
        """
        return settings_of(self)

    def state(self) -> Settings:
        """Return the data that the block got after its construction, for `load_state`."""
        return {}

    def load_state(self, state: Mapping[str, object]) -> None:
        """Take what `state` of an equal block returned; raises BlockTypeError for anything else."""
        if state:
            raise BlockTypeError(repr(self), "no state", ", ".join(state), "only some blocks have one")

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes to pickle and to copy: all but inferred types and cells of walks."""
        return {name: value for name, value in self.__dict__.items() if name not in DERIVED}

    def __repr__(self) -> str:
        return "..." if exceeds_message() else f"{type(self).__name__}({self.arguments()})"


AnyBlock: TypeAlias = Block[Any, Any]


def infer(block: AnyBlock, builder: Builder) -> tuple[Value] | None:
    """Return a block's result as a tuple of one value, or None where its type depends on the input."""
    try:
        type_ = block.input_type
        return None if type_ is None else (build(block, builder, builder.specimen(type_)),)
    except (UnknownTypeError, RecursionError):  # compiling raises the error
        return None


def check(block: AnyBlock) -> None:
    """Refuse a block that is known to be ill typed; combinators call it when they are made."""
    infer(block, Builder.scratch(_Joint(None, block)))


@dataclass(frozen=True, slots=True)
class _Joint:
    """A part of a pipe and the part before it, as errors name them."""

    before: AnyBlock | None
    part: AnyBlock

    def __str__(self) -> str:
        return shown(self.part) if self.before is None else f"{shown(self.before)} >> {shown(self.part)}"


class Pipe(Block[Any, Any]):
    """Blocks one after the other; ``a >> b`` makes one.

    Raises:
        BlockTypeError: when an operand is no block, nor anything that stands for one, or where it
            is known to yield what the next one cannot read.

    >>> print(Pipe().eval("nothing happens"))
    nothing happens
    """

    def __init__(self, *blocks: object) -> None:
        parts = [as_block(block, ">>") for block in blocks]
        self.blocks: tuple[AnyBlock, ...] = tuple(
            member for part in parts for member in (part.blocks if isinstance(part, Pipe) else [part])
        )
        self._check_joints(parts)

    def build(self, builder: Builder, value: Value) -> Value:
        for block in self.blocks:
            value = build(block, builder, value)
        return value

    def _check_joints(self, parts: list[AnyBlock]) -> None:
        """Infer the parts' types one after the other; raise BlockTypeError where two do not fit."""
        builder = Builder.scratch("")
        result: tuple[Value] | None = None
        before: AnyBlock | None = None
        for part in parts:
            builder.root = _Joint(before, part)
            try:
                result = (build(part, builder, result[0]),) if result else infer(part, builder)
            except UnknownTypeError:
                result = None
            before = part.blocks[-1] if isinstance(part, Pipe) and part.blocks else part
        if result and parts[0].input_type is not None and pattern(result[0]) is not None:
            start = pattern(builder.specimen(parts[0].input_type))
            self.__dict__["_inferred"] = {start: result[0]}  # so a pipe that goes on need not begin again

    @property
    def input_type(self) -> Type | None:
        # a block that passes its input on reads the same type as its successor
        return next((b.input_type for b in self.blocks if not b.passes_on), None)

    def __repr__(self) -> str:
        if exceeds_message():
            return "..."
        return " >> ".join(map(repr, self.blocks)) if self.blocks else "Pipe()"


# What stands for a block: filled by the modules that define the blocks.
BLOCK_LIKES: list[tuple[tuple[type, ...], Callable[[Any], AnyBlock]]] = []


def as_block(value: object, where: str = "block") -> AnyBlock:
    """Return the block that a value stands for; `where` names the caller in errors.

    A Block stands for itself, an array or a Parameter for FromTensor, a dict, list or tuple for
    Record.
    """
    if isinstance(value, Block):
        return value
    for types, convert in BLOCK_LIKES:
        if isinstance(value, types):
            return convert(value)
    expected = "a block, an array, a Parameter, or a dict, list or tuple of these"
    match value:
        case type():
            actual, fix = f"the class {value.__name__}", f"make an object of it: {value.__name__}(...)"
        case int() | float():
            actual, fix = describe_value(value), "wrap a constant in FromTensor"
        case str():
            actual, fix = describe_value(value), f"to read an item, write GetItem({value!r})"
        case None:
            actual, fix = "None", "Void() is the block that yields nothing"
        case _ if hasattr(value, "resolve_to"):
            actual, fix = "a declaration itself", "call it, as in tree(): that gives a block"
        case _ if hasattr(value, "reads"):
            actual, fix = f"{value!r}, a wire", "inside a scope, write block.reads(wire)"
        case _ if hasattr(value, "value_and_grad"):
            actual, fix = "a compiled program", "give what it was compiled from"
        case _ if callable(value):
            actual = f"the function {getattr(value, '__name__', repr(value))}"
            fix = "wrap it in Function (of tensors) or in InputTransform (of objects)"
            if not hasattr(value, "__name__"):
                actual, fix = f"a {type(value).__name__} that can be called", "give a function that calls it"
        case _ if hasattr(value, "forward"):
            actual, fix = describe_value(value), "let its method be called __call__, not forward"
        case _:
            actual, fix = describe_value(value), "combine blocks only"
    raise BlockTypeError(where, expected, actual, fix)


def keyed(blocks: object, where: str) -> tuple[list[tuple[Key, AnyBlock]], bool]:
    """Return pairs of key and block, and whether the caller wrote the keys; else they are 0, 1, ...

    `blocks` is a dict, pairs of key and block, or a tuple or list of blocks.

    Raises:
        BlockTypeError: when it is none of these.
        BlockValueError: when a key stands twice.
    """
    if isinstance(blocks, Mapping):
        items, has_keys = list(blocks.items()), True
    elif isinstance(blocks, Iterable) and not isinstance(blocks, str | bytes | Block | np.ndarray):
        parts = list(blocks)
        has_keys = bool(parts) and all(isinstance(p, tuple) and len(p) == 2 and _is_key(p[0]) for p in parts)
        items = parts if has_keys else list(enumerate(parts))
    else:
        fix = (
            "put a comma behind a single one"
            if isinstance(blocks, Block)
            else "for example {'left': Scalar()}"
        )
        actual = repr(blocks) if isinstance(blocks, Block) else describe_value(blocks)
        raise BlockTypeError(where, "a dict, pairs, or a tuple or list of blocks", actual, fix)
    seen: set[Key] = set()
    for key, _ in items:
        if _hashable(key) in seen:
            raise BlockValueError(where, "every key once", f"{key!r} twice", "drop or rename one")
        seen.add(_hashable(key))
    return [(key, as_block(block, f"{where}[{key!r}]")) for key, block in items], has_keys


def _is_key(value: Key) -> bool:
    """Whether the first of two is a key rather than another block."""
    if isinstance(value, tuple):
        return all(map(_is_key, value))
    return isinstance(value, Hashable | slice) and not isinstance(value, Block | Parameter)


def _hashable(key: object) -> Key:
    return ("slice", key.start, key.stop, key.step) if isinstance(key, slice) else key


def named(name: object, where: str) -> str:
    """Return a name; refuse one that is not a string, or is empty."""
    if not isinstance(name, str) or not name:
        raise BlockTypeError(where, "a string as name", describe_value(name), "leave it out for a default")
    return name


def function_name(fn: Callable[..., object]) -> str:
    """Return the name of a user's function in `repr` and in errors.

    >>> function_name(len), function_name(lambda x: x)
    ('len', '<lambda>')
    """
    name = getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__name__


PLAIN = (bool, int, float, str)
SIGNATURES: dict[type, inspect.Signature] = Bounded(1024)  # of constructors, which take long to find out


# -- settings: constructor's arguments, kept as attributes of the same names


def signature_of(cls: type) -> inspect.Signature:
    """Return the signature of a constructor."""
    signature = SIGNATURES.get(cls)
    if signature is None:
        signature = SIGNATURES[cls] = arguments_of(cls)
    return signature


def settings_of(obj: object) -> Settings:
    """Return the constructor's arguments of an object, by name, but for those that are the default.

    They are attributes of the arguments' names, as in scikit-learn.
    """
    settings = {}
    for name, parameter in signature_of(type(obj)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD or not hasattr(obj, name):
            fix = f"write self.{name} = {name} in its constructor, or give the class a method settings()"
            expected = f"its argument {name} as an attribute of this name"
            raise BlockTypeError(type(obj).__name__, expected, "none", fix)
        value = getattr(obj, name)
        if not _is_default(value, parameter.default):
            settings[name] = value
    return settings


def make(cls: type, settings: Mapping[str, object]) -> Any:
    """Return an object of a class, made with settings; the inverse of `settings_of`."""
    signature = signature_of(cls)
    unknown = settings.keys() - signature.parameters.keys()
    if unknown:
        raise TypeError(f"{cls.__name__} has no argument {', '.join(sorted(unknown))}")
    bound = inspect.BoundArguments(signature, OrderedDict(settings))
    return cls(*bound.args, **bound.kwargs)


def _is_default(value: object, default: object) -> bool:
    """Whether an argument equals its default, as far as plain values can be compared."""
    return value is default or (
        type(value) is type(default) and isinstance(value, PLAIN) and value == default
    )
