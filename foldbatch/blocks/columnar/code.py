"""Code: following the code of a function, to find what it reads, and that it does nothing else.

What stands on the stack is the argument, an immutable value (of `ATOMS`, or a tuple of such), or an object
that a name stands for, which may only be called. There are no loops, so code is followed once, from its
beginning to its end. An instruction that is not listed, such as one of a newer Python, makes the function one
that is called at every visit. That is slower, never wrong.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, CodeType, FunctionType
from typing import Any

from foldbatch.trees import Vocabulary

ATOMS = (str, int, float, bool, bytes, type(None))
FIELDS = ("label", "token", "is_leaf", "size")  # of nodes; `len` reads the field "arity"
CLASSES = {id(kind) for kind in (str, int, float, bool, bytes)}  # by identity: equal is not the same
METHODS = {  # of str and bytes; they return atoms
    *("capitalize", "casefold", "count", "endswith", "find", "isalnum", "isalpha", "isdecimal", "isdigit"),
    *("islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip", "removeprefix"),
    *("removesuffix", "replace", "rfind", "rstrip", "startswith", "strip", "swapcase", "title", "upper"),
}
WHOLE = "the node as a whole"

Call = Callable[[Any, "list[Entry]"], Any]  # from an object and arguments to what the call returns
Watched = tuple[Callable[[], Any], Any]  # reads a part of a function's meaning, and what it read


class Impure(Exception):  # noqa: N818 - an answer
    """A function is not known to be pure; ``it <reason>`` tells why, and `place` in which line."""

    def __init__(self, reason: str, place: str = "") -> None:
        super().__init__(reason)
        self.reason, self.place = reason, place

    def __str__(self) -> str:
        return f"{self.reason} ({self.place})" if self.place else self.reason


def is_constant(value: Any) -> bool:
    """Return whether nobody can change an object: it is of `ATOMS`, or a tuple or frozenset of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, value))
    return type(value) in ATOMS


# What stands on the stack: one of these words, a constant, or what a name stands for.
ARGUMENT, VALUE, NULL = "argument", "value", "null"


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value that is known."""

    value: Any


@dataclass(frozen=True, slots=True, eq=False)
class Named:
    """An object that a name stands for."""

    value: Any


METHOD = Named(object())  # a method of an atom

Entry = Any  # of the stack


@dataclass(slots=True)
class State:
    """The stack and the local variables before an instruction."""

    stack: list[Entry]
    names: dict[str, Entry]

    def copy(self) -> State:
        return State([*self.stack], {**self.names})


def is_value(entry: Entry) -> bool:
    """Return whether an entry is an immutable value."""
    return entry is VALUE or isinstance(entry, Constant)


@dataclass(slots=True)
class Reads:
    """What is found while code is followed.

    Attributes:
        fields: of `FIELDS` and ``arity``, what is read where the argument is a node.
        beyond: what is read of the argument besides, and only immutable values have; empty if nothing.
        watched: parts of the meaning that somebody may replace.
    """

    fields: set[str] = field(default_factory=set)
    beyond: str = ""
    watched: list[Watched] = field(default_factory=list)

    def merged(self, one: State, other: State | None) -> State:
        """Return what holds whichever of two ways was gone."""
        if other is None:
            return one
        stack = [self.either(a, b) for a, b in zip(one.stack, other.stack, strict=True)]
        both = one.names.keys() & other.names.keys()
        return State(stack, {name: self.either(one.names[name], other.names[name]) for name in both})

    def either(self, a: Entry, b: Entry) -> Entry:
        """Return what stands for one of two entries."""
        if a is b or (isinstance(a, Named) and isinstance(b, Named) and a.value is b.value):
            return a
        self.used(a, b)
        return VALUE

    def used(self, *entries: Entry) -> None:
        """Note that a value is made of others."""
        for entry in entries:
            if entry is ARGUMENT:
                self.beyond = self.beyond or WHOLE
            elif not is_value(entry):
                raise Impure(f"computes with {described(getattr(entry, 'value', entry))}")

    def attribute(self, entry: Entry, name: str) -> Entry:
        if entry is not ARGUMENT or name not in FIELDS:
            raise Impure(f"reads {name}" if entry is ARGUMENT else f"reads the attribute {name!r}")
        self.fields.add(name)
        return VALUE

    def item(self, entry: Entry, key: Any) -> Entry:
        """Return the item of an entry, by a key that is known."""
        if not is_constant(key):
            raise Impure(f"reads an item by {described(key)}")
        if entry is not ARGUMENT:
            self.used(entry)
        elif type(key) is str and key in FIELDS:
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
class Code:
    """A function's code, as it is followed."""

    reads: Reads
    function: FunctionType
    call: Call
    result: Entry | None = None

    def followed(self, state: State | None) -> Entry:
        """Return what the function returns, given its arguments among the local variables."""
        code = self.function.__code__
        waiting: dict[int, State] = {}  # by the instruction that is jumped to
        line: int | None = code.co_firstlineno
        try:
            for instruction in dis.get_instructions(code):
                if instruction.offset in waiting:
                    state = self.reads.merged(waiting.pop(instruction.offset), state)
                if instruction.positions is not None:
                    line = instruction.positions.lineno or line
                if state is not None:
                    state = self._step(instruction, state, waiting)
        except Impure as impure:
            impure.place = impure.place or place_of(code, line)
            raise
        except (IndexError, KeyError, ValueError):  # a Python whose code means something else
            raise Impure("has code that is not known", place_of(code, line)) from None
        if waiting or self.result is None:
            raise Impure("never returns", place_of(code, line))
        return self.result

    def _step(  # noqa: PLR0915 - a case an instruction
        self, instruction: dis.Instruction, state: State, waiting: dict[int, State]
    ) -> State | None:
        """Return the state behind an instruction; None where the next one is not reached from it."""
        stack, names, reads = state.stack, state.names, self.reads
        number, value = instruction.arg or 0, instruction.argval
        match instruction.opname:
            case name if name in NOTHING:
                pass
            case name if name in LOADS:
                stack += [names[one] for one in (value if isinstance(value, tuple) else (value,))]
            case "STORE_FAST":
                names[value] = stack.pop()
            case "LOAD_CONST":
                stack.append(entry_of("a constant", value))
            case "LOAD_SMALL_INT":
                stack.append(Constant(number))
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
                stack.append(reads.attribute(stack.pop(), value))
            case "LOAD_ATTR" | "LOAD_METHOD":
                reads.used(stack.pop())
                if value not in METHODS:
                    raise Impure(f"calls the method {value!r}")
                stack += [METHOD, NULL]
            case "CALL":
                arguments = [stack.pop() for _ in range(number)][::-1]
                (called,) = [entry for entry in (stack.pop(), stack.pop()) if entry is not NULL]
                if not isinstance(called, Named):
                    raise Impure("calls its argument, or a value")
                stack.append(self.call(called.value, arguments))
            case "BINARY_SUBSCR":
                self._subscript(stack)
            case "BINARY_OP" if instruction.argrepr == "[]":
                self._subscript(stack)
            case "BINARY_OP" | "COMPARE_OP":
                reads.used(stack.pop(), stack.pop())
                stack.append(VALUE)
            case "IS_OP":  # equal values may be told apart by it, but for those that there is one of
                both = [stack.pop(), stack.pop()]
                reads.used(*both)
                if not any(isinstance(e, Constant) and type(e.value) in (bool, type(None)) for e in both):
                    raise Impure("compares by 'is'")
                stack.append(VALUE)
            case "CONTAINS_OP":
                where, what = stack.pop(), stack.pop()
                reads.used(what, *(() if _is_vocabulary(where) else (where,)))
                stack.append(VALUE)
            case "UNARY_NOT" | "TO_BOOL":
                self._tested(stack.pop())
                stack.append(VALUE)
            case "UNARY_NEGATIVE":
                reads.used(stack.pop())
                stack.append(VALUE)
            case "BUILD_TUPLE":
                parts = [stack.pop() for _ in range(number)][::-1]
                if parts and all(map(are_classes, parts)):  # for `isinstance`
                    stack.append(Named(tuple(part.value for part in parts)))
                else:
                    reads.used(*parts)
                    stack.append(VALUE)
            case name if name in POP_JUMPS:
                self._tested(stack.pop())
                self._jump(instruction, state, waiting)
            case name if name in KEEPING_JUMPS:
                self._tested(stack[-1])
                self._jump(instruction, state, waiting)
                stack.pop()
            case "JUMP_FORWARD":
                self._jump(instruction, state, waiting)
                return None
            case "RETURN_VALUE":
                self._returned(stack.pop())
                return None
            case "RETURN_CONST":
                self._returned(entry_of("a constant", value))
                return None
            case name:
                raise Impure(f"does what is not on the list of what is pure, {name}")
        return state

    def _global(self, name: str) -> Entry:
        function: Any = self.function  # checkers of types disagree on its builtins
        spaces = [function.__globals__, function.__builtins__]
        if not all(type(space) is dict for space in spaces):
            raise Impure("has globals that are no dict")
        return self._watched(name, partial(_look_up, spaces, name))

    def _free(self, name: str) -> Entry:
        cells = dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=True))
        return self._watched(name, partial(_content, cells[name]))

    def _watched(self, name: str, read: Callable[[], Any]) -> Entry:
        value = read()
        self.reads.watched.append((read, value))
        return entry_of(repr(name), value)

    def _subscript(self, stack: list[Entry]) -> None:
        key, entry = stack.pop(), stack.pop()
        if isinstance(key, Constant):
            stack.append(
                self.call(entry.value, [key]) if _is_vocabulary(entry) else self.reads.item(entry, key.value)
            )
        else:
            self.reads.used(key, *(() if _is_vocabulary(entry) else (entry,)))
            stack.append(VALUE)

    def _tested(self, entry: Entry) -> None:
        """Note that it is asked whether an entry is true: a node always is."""
        if entry is not ARGUMENT:
            self.reads.used(entry)

    def _returned(self, entry: Entry) -> None:
        self.result = entry if self.result is None else self.reads.either(self.result, entry)

    def _jump(self, instruction: dis.Instruction, state: State, waiting: dict[int, State]) -> None:
        target = instruction.argval
        if target <= instruction.offset:
            raise Impure("jumps back")
        waiting[target] = self.reads.merged(state.copy(), waiting.get(target))


def entry_of(name: str, value: Any) -> Entry:
    """Return what stands for an object that a function finds."""
    if is_constant(value):
        return Constant(value)
    if callable(value):
        return Named(value)
    raise Impure(f"reads {name}, {described(value)}")


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


def are_classes(entry: Entry) -> bool:
    """Return whether an entry is one of `CLASSES`, or a tuple of such."""
    if not isinstance(entry, Named):
        return False
    kinds = entry.value if type(entry.value) is tuple else (entry.value,)
    return all(id(kind) in CLASSES for kind in kinds)


def _is_vocabulary(entry: Entry) -> bool:
    return isinstance(entry, Named) and type(entry.value) is Vocabulary


def described(value: Any) -> str:
    """Return what an object is, without asking it."""
    if type(value) in (FunctionType, BuiltinFunctionType):  # another object may do something when it is asked
        return f"the function {value.__name__!r}"
    return f"a {type(value).__name__}"


def place_of(code: CodeType, line: int | None = None) -> str:
    """Return the file and line of code, the first one by default."""
    return f"{PurePath(code.co_filename).name}:{line or code.co_firstlineno}"
