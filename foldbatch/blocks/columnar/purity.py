"""Purity: which functions of the user are known to return the same whenever they read the same.

Such a function may be called once for all visits at which it reads the same; any other is called at every
visit. Python cannot say so of a function in general. So there is a list of what is known to be pure:

- readers: ``attrgetter`` and ``itemgetter``, ``len`` and a few other builtins, methods of ``str``, and the
  look-ups of a `Vocabulary`;
- functions of ours that are marked as `pure`;
- Python functions whose whole code is on a short list of instructions: they read fields of the argument,
  constants and items, compare, choose, and call what is on this list.

Their code is followed instruction by instruction. What stands on the stack is the argument, an immutable
value (of `ATOMS`, or a tuple of such), or an object that a name stands for, which may only be called. There
are no loops, so code is followed once, from its beginning to its end. An instruction that is not listed, such
as one of a newer Python, makes the function one that is called at every visit. That is slower, never wrong.

The argument may be a node of a tree or an immutable value. Nothing on the list tells a node from another one
but by the fields in `Pure.fields`.
"""

from __future__ import annotations

import dis
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodDescriptorType, MethodType
from typing import Any, TypeVar
from weakref import WeakSet

from foldbatch.trees import Vocabulary

ATOMS = (str, int, float, bool, bytes, type(None))
FIELDS = ("label", "token", "is_leaf", "size")  # of nodes; `len` reads the field "arity"
CLASSES = {id(kind) for kind in (str, int, float, bool, bytes)}  # by identity: equal is not the same
BUILTINS = {id(function) for function in (len, str, int, float, bool, abs, ord, chr)}  # of one argument
METHODS = {  # of str and bytes; they return atoms
    *("capitalize", "casefold", "count", "endswith", "find", "isalnum", "isalpha", "isdecimal", "isdigit"),
    *("islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip", "removeprefix"),
    *("removesuffix", "replace", "rfind", "rstrip", "startswith", "strip", "swapcase", "title", "upper"),
}
LOOKUPS = (Vocabulary.__getitem__, Vocabulary.__contains__)
WHOLE = "the node as a whole"

Marked = TypeVar("Marked", bound=Callable[..., Any])
Watched = tuple[Callable[[], Any], Any]  # reads a part of a function's meaning, and what it read
_marked: WeakSet[Any] = WeakSet()


def pure(function: Marked) -> Marked:
    """Mark a function of ours as pure: of equal immutable arguments it makes equal immutable results."""
    _marked.add(function)
    return function


@dataclass(frozen=True, slots=True)
class Pure:
    """What a pure function reads.

    Attributes:
        fields: of `FIELDS` and ``arity``, what it reads where the argument is a node.
        beyond: what it reads of the argument besides, and only immutable values have; empty if nothing.
        watched: parts of its meaning that somebody may replace.
    """

    fields: frozenset[str]
    beyond: str
    watched: Sequence[Watched]

    @property
    def lasts(self) -> bool:
        """Whether it means what it meant; what it is found to read holds as long."""
        return all(read() is value for read, value in self.watched)


class Impure(Exception):  # noqa: N818 - an answer
    """A function is not known to be pure; `reason` tells why, as in ``it <reason>``, and `place` in which line."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason)
        self.reason, self.place = reason, place

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})" if self.place else self.reason


def pure_of(function: Any) -> Pure:
    """Return what a pure function reads.

    Raises:
        Impure: where it is not known to be pure.

    >>> sorted(pure_of(lambda t: t.label == "NP" or t.is_leaf).fields), pure_of(str.lower).beyond
    (['is_leaf', 'label'], 'the node as a whole')
    >>> import random
    >>> pure_of(lambda t: random.random())
    Traceback (most recent call last):
    foldbatch.blocks.columnar.purity.Impure: reads 'random', a module (<doctest foldbatch...>:1)
    """
    reading = _Reading()
    try:
        result = reading.called(function, [ARGUMENT])
    except RecursionError:
        raise Impure("is made of too many functions within each other") from None
    if result is ARGUMENT:
        reading.beyond = reading.beyond or WHOLE
    elif isinstance(result, _Named):
        raise Impure(f"returns {_described(result.value)}")
    return Pure(frozenset(reading.fields), reading.beyond, tuple(reading.watched))


def is_constant(value: Any) -> bool:
    """Return whether nobody can change an object: it is of `ATOMS`, or a tuple or frozenset of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, value))
    return type(value) in ATOMS


# What stands on the stack: one of these words, a constant, or what a name stands for.
ARGUMENT, VALUE, NULL = "argument", "value", "null"


@dataclass(frozen=True, slots=True, eq=False)
class _Constant:
    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class _Named:
    value: Any


_METHOD = _Named(object())  # a method of an atom

Entry = Any  # of the stack


@dataclass(slots=True)
class _State:
    """The stack and the local variables before an instruction."""

    stack: list[Entry]
    names: dict[str, Entry]

    def copy(self) -> _State:
        return _State([*self.stack], {**self.names})

    def merged(self, other: _State | None) -> _State:
        """Return what holds whichever of two ways was gone."""
        if other is None:
            return self
        stack = [_either(a, b) for a, b in zip(self.stack, other.stack, strict=True)]
        both = self.names.keys() & other.names.keys()
        return _State(stack, {name: _either(self.names[name], other.names[name]) for name in both})


def _either(a: Entry, b: Entry) -> Entry:
    if a is b or (isinstance(a, _Named) and isinstance(b, _Named) and a.value is b.value):
        return a
    if _is_value(a) and _is_value(b):
        return VALUE
    raise Impure("chooses between its argument and something else")


def _is_value(entry: Entry) -> bool:
    return entry is VALUE or isinstance(entry, _Constant)


@dataclass(slots=True)
class _Reading:
    """What is found about a function while its code is followed."""

    fields: set[str] = field(default_factory=set)
    beyond: str = ""
    watched: list[Watched] = field(default_factory=list)
    callers: list[CodeType] = field(default_factory=list)

    # -- calls

    def called(self, function: Any, arguments: list[Entry], keywords: Mapping[str, Entry] = {}) -> Entry:
        """Return what a call of a function returns: the argument or a value.

        Raises:
            Impure: where the function is not known to be pure.
        """
        kind = type(function)
        if kind is partial:
            return self._partial(function, arguments)
        if kind is FunctionType and function not in _marked:
            return self._python(function, arguments, keywords)
        if keywords:
            raise Impure(f"gives {_described(function)} arguments by name")
        if function is isinstance and len(arguments) == 2 and _are_classes(arguments[1]):
            self._used(arguments[0])
        elif function is len and len(arguments) == 1 and arguments[0] is ARGUMENT:
            self.fields.add("arity")
        elif kind in (operator.attrgetter, operator.itemgetter) and len(arguments) == 1:
            for key in function.__reduce__()[1]:
                (self._attribute if kind is operator.attrgetter else self._item)(arguments[0], key)
        elif kind is FunctionType:  # a marked one
            self.watched.append((partial(getattr, function, "__code__"), function.__code__))
            self._used(*arguments)
        elif (id(function) in BUILTINS and len(arguments) == 1) or function is min or function is max:
            self._used(*arguments)
        elif kind is Vocabulary or (kind is MethodType and _is_look_up(function)):
            self._used(*arguments)
        elif function is _METHOD.value or (kind is MethodDescriptorType and _is_method(function)):
            self._used(*arguments)
        else:
            raise Impure(f"uses {_described(function)}")
        return VALUE

    def _partial(self, function: Any, arguments: list[Entry]) -> Entry:
        given, keywords = function.args, function.keywords
        for name in ("func", "args", "keywords"):
            self.watched.append((partial(getattr, function, name), getattr(function, name)))
        self.watched.append((partial(len, keywords), len(keywords)))
        self.watched += [(partial(keywords.get, name), value) for name, value in keywords.items()]
        by_name = {name: _entry(repr(name), value) for name, value in keywords.items()}
        first = [_entry("an argument", value) for value in given]
        return self.called(function.func, [*first, *arguments], by_name)

    def _python(self, function: FunctionType, arguments: list[Entry], keywords: Mapping[str, Entry]) -> Entry:
        code = function.__code__
        self.watched.append((partial(getattr, function, "__code__"), code))
        self.watched.append((partial(getattr, function, "__defaults__"), function.__defaults__))
        if any(code is caller for caller in self.callers):
            raise Impure("calls itself")
        names = code.co_varnames[: code.co_argcount]
        starred = code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
        if starred or code.co_kwonlyargcount or code.co_cellvars or code.co_exceptiontable:
            raise Impure("has more than plain arguments and choices", _place(code))
        defaults = function.__defaults__ or ()
        bound = dict(zip(names[len(names) - len(defaults) :], defaults, strict=True))
        local = {name: _entry(repr(name), value) for name, value in bound.items()}
        local |= {**dict(zip(names, arguments, strict=False)), **keywords}
        positional = {*names[: len(arguments)]}
        if len(arguments) > len(names) or {*names} != local.keys() or positional & keywords.keys():
            raise Impure("does not take the arguments that it is given", _place(code))
        self.callers.append(code)
        result = _Code(self, function).followed(_State([], local))
        self.callers.pop()
        return result

    # -- what is done with entries

    def _used(self, *entries: Entry) -> None:
        """Note that a value is made of others."""
        for entry in entries:
            if entry is ARGUMENT:
                self.beyond = self.beyond or WHOLE
            elif not _is_value(entry):
                raise Impure(f"computes with {_described(getattr(entry, 'value', entry))}")

    def _attribute(self, entry: Entry, name: str) -> Entry:
        if entry is not ARGUMENT or name not in FIELDS:
            raise Impure(f"reads {name}" if entry is ARGUMENT else f"reads the attribute {name!r}")
        self.fields.add(name)
        return VALUE

    def _item(self, entry: Entry, key: Any) -> Entry:
        """Return the item of an entry, by a key that is known."""
        if not is_constant(key):
            raise Impure(f"reads an item by {_described(key)}")
        if entry is not ARGUMENT:
            self._used(entry)
        elif type(key) is str and key in ("label", "token"):
            self.fields.add(key)
        else:
            self.beyond = self.beyond or f"the item {key!r}"
        return VALUE


LOADS = {
    *("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW", "LOAD_FAST_LOAD_FAST"),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW",
}
NOTHING = {"RESUME", "NOP", "CACHE", "PRECALL", "COPY_FREE_VARS", "EXTENDED_ARG", "NOT_TAKEN"}
POP_JUMPS = {
    f"POP_JUMP_{way}IF_{what}" for way in ("", "FORWARD_") for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
}
KEEPING_JUMPS = {"JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"}
ATTRIBUTE_CALLS = sys.version_info >= (3, 12)  # LOAD_ATTR and LOAD_METHOD are one instruction


@dataclass(slots=True)
class _Code:
    """A function's code, as it is followed."""

    reading: _Reading
    function: FunctionType
    result: Entry | None = None

    def followed(self, state: _State | None) -> Entry:
        """Return what the function returns, given its arguments among the local variables."""
        code = self.function.__code__
        waiting: dict[int, _State] = {}  # by the instruction that is jumped to
        line: int | None = code.co_firstlineno
        try:
            for instruction in dis.get_instructions(code):
                if instruction.offset in waiting:
                    state = waiting.pop(instruction.offset).merged(state)
                if instruction.positions is not None:
                    line = instruction.positions.lineno or line
                if state is not None:
                    state = self._step(instruction, state, waiting)
        except Impure as impure:
            impure.place = impure.place or _place(code, line)
            raise
        except (IndexError, KeyError, ValueError):  # a Python whose code means something else
            raise Impure("has code that is not known", _place(code, line)) from None
        if waiting or self.result is None:
            raise Impure("never returns", _place(code, line))
        return self.result

    def _step(self, instruction: dis.Instruction, state: _State, waiting: dict[int, _State]) -> _State | None:
        """Return the state behind an instruction; None where the next one is not reached from it."""
        stack, names, reading = state.stack, state.names, self.reading
        number, value = instruction.arg or 0, instruction.argval
        match instruction.opname:
            case name if name in NOTHING:
                pass
            case name if name in LOADS:
                stack += [names[one] for one in (value if isinstance(value, tuple) else (value,))]
            case "STORE_FAST":
                names[value] = stack.pop()
            case "LOAD_CONST":
                stack.append(_entry("a constant", value))
            case "LOAD_SMALL_INT":
                stack.append(_Constant(number))
            case "LOAD_GLOBAL":
                stack += [NULL] * (number & 1) + [self._global(value)]
            case "LOAD_DEREF":
                stack.append(self._free(value))
            case "PUSH_NULL":
                stack.append(NULL)
            case "POP_TOP":
                stack.pop()
            case "COPY":
                stack.append(stack[-number])
            case "SWAP":
                stack[-1], stack[-number] = stack[-number], stack[-1]
            case "LOAD_ATTR" if not (ATTRIBUTE_CALLS and number & 1):
                stack.append(reading._attribute(stack.pop(), value))
            case "LOAD_ATTR" | "LOAD_METHOD":
                reading._used(stack.pop())
                if value not in METHODS:
                    raise Impure(f"calls the method {value!r}")
                stack += [_METHOD, NULL]
            case "CALL":
                arguments = [stack.pop() for _ in range(number)][::-1]
                (called,) = [entry for entry in (stack.pop(), stack.pop()) if entry is not NULL]
                if not isinstance(called, _Named):
                    raise Impure("calls its argument, or a value")
                stack.append(reading.called(called.value, arguments))
            case "BINARY_SUBSCR":
                self._subscript(stack)
            case "BINARY_OP" if instruction.argrepr == "[]":
                self._subscript(stack)
            case "BINARY_OP" | "COMPARE_OP":
                reading._used(stack.pop(), stack.pop())
                stack.append(VALUE)
            case "IS_OP":  # equal values may be told apart by it, but for those that there is one of
                both = [stack.pop(), stack.pop()]
                reading._used(*both)
                if not any(isinstance(e, _Constant) and type(e.value) in (bool, type(None)) for e in both):
                    raise Impure("compares by 'is'")
                stack.append(VALUE)
            case "CONTAINS_OP":
                where, what = stack.pop(), stack.pop()
                reading._used(what, *(() if _is_vocabulary(where) else (where,)))
                stack.append(VALUE)
            case "UNARY_NOT" | "TO_BOOL":
                self._tested(stack.pop())
                stack.append(VALUE)
            case "UNARY_NEGATIVE":
                reading._used(stack.pop())
                stack.append(VALUE)
            case "BUILD_TUPLE":
                parts = [stack.pop() for _ in range(number)][::-1]
                if parts and all(map(_are_classes, parts)):  # for `isinstance`
                    stack.append(_Named(tuple(part.value for part in parts)))
                else:
                    reading._used(*parts)
                    stack.append(VALUE)
            case name if name in POP_JUMPS:
                self._tested(stack.pop())
                _jump(instruction, state, waiting)
            case name if name in KEEPING_JUMPS:
                self._tested(stack[-1])
                _jump(instruction, state, waiting)
                stack.pop()
            case "JUMP_FORWARD":
                _jump(instruction, state, waiting)
                return None
            case "RETURN_VALUE":
                self._returned(stack.pop())
                return None
            case "RETURN_CONST":
                self._returned(_entry("a constant", value))
                return None
            case name:
                raise Impure(f"does what is not on the list of what is pure, {name}")
        return state

    def _global(self, name: str) -> Entry:
        spaces = [self.function.__globals__, self.function.__builtins__]  # type: ignore[attr-defined]
        if not all(type(space) is dict for space in spaces):
            raise Impure("has globals that are no dict")
        return self._watched(name, partial(_look_up, spaces, name))

    def _free(self, name: str) -> Entry:
        cells = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        return self._watched(name, partial(_content, cells[name]))

    def _watched(self, name: str, read: Callable[[], Any]) -> Entry:
        value = read()
        self.reading.watched.append((read, value))
        return _entry(repr(name), value)

    def _subscript(self, stack: list[Entry]) -> None:
        key, entry = stack.pop(), stack.pop()
        if isinstance(key, _Constant):
            stack.append(
                self.reading.called(entry.value, [key])
                if _is_vocabulary(entry)
                else self.reading._item(entry, key.value)
            )
        else:
            self.reading._used(key, *(() if _is_vocabulary(entry) else (entry,)))
            stack.append(VALUE)

    def _tested(self, entry: Entry) -> None:
        """Note that it is asked whether an entry is true: a node always is."""
        if entry is not ARGUMENT:
            self.reading._used(entry)

    def _returned(self, entry: Entry) -> None:
        self.result = entry if self.result is None else _either(self.result, entry)


def _jump(instruction: dis.Instruction, state: _State, waiting: dict[int, _State]) -> None:
    target = instruction.argval
    if target <= instruction.offset:
        raise Impure("jumps back")
    waiting[target] = state.copy().merged(waiting.get(target))


def _entry(name: str, value: Any) -> Entry:
    """Return what stands for an object that a function finds."""
    if is_constant(value):
        return _Constant(value)
    if callable(value):
        return _Named(value)
    raise Impure(f"reads {name}, {_described(value)}")


def _look_up(spaces: Sequence[Mapping[str, Any]], name: str) -> Any:
    return next((space[name] for space in spaces if name in space), _UNSET)


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it has not been assigned
        return _UNSET


class _Unset:
    """What stands for a variable that has no object."""


_UNSET = _Unset()


def _are_classes(entry: Entry) -> bool:
    if not isinstance(entry, _Named):
        return False
    kinds = entry.value if type(entry.value) is tuple else (entry.value,)
    return all(id(kind) in CLASSES for kind in kinds)


def _is_look_up(method: MethodType) -> bool:
    return type(method.__self__) is Vocabulary and any(method.__func__ is known for known in LOOKUPS)


def _is_method(method: MethodDescriptorType) -> bool:
    return method.__objclass__ is str and method.__name__ in METHODS


def _is_vocabulary(entry: Entry) -> bool:
    return isinstance(entry, _Named) and type(entry.value) is Vocabulary


def _described(value: Any) -> str:
    if type(value) in (FunctionType, BuiltinFunctionType):  # another object may do something when it is asked
        return f"the function {value.__name__!r}"
    return f"a {type(value).__name__}"


def _place(code: CodeType, line: int | None = None) -> str:
    return f"{PurePath(code.co_filename).name}:{line or code.co_firstlineno}"
