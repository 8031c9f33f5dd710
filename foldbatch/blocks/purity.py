"""Purity: which functions of the user return the same whenever they read the same.

Such a function may be called once for all visits at which it reads the same; any other is called at every
visit. Python cannot say so of a function in general. So there is a short list of what is known to be pure:

- ``attrgetter`` and ``itemgetter`` of constants, ``len``, a few types and methods of texts, and the look-ups
  of a `Vocabulary`;
- functions that are marked as `pure`, and a ``partial`` of one whose other arguments are constants;
- functions of one argument whose whole code reads fields and items of it by constants, and compares.

What such code reads is a node of a tree or an immutable value, which run no code of the user. A function is
looked at whenever it is used, as its code may have been replaced.
"""

from __future__ import annotations

import dis
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import CO_VARARGS, CO_VARKEYWORDS
from pathlib import PurePath
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from foldbatch.errors import BlockTypeError
from foldbatch.trees import Tree, Vocabulary
from foldbatch.types import describe_value

ATOMS = (str, int, float, bool, bytes, type(None))
FIELDS = ("label", "token", "is_leaf", "size")  # of nodes
# they make atoms of atoms
TYPES = (str, int, float, bool, str.lower, str.upper, str.casefold, str.strip)
LOOKUPS = (Vocabulary.__getitem__, Vocabulary.__contains__)
LEAF = "is_leaf"  # follows from the number of children

Marked = TypeVar("Marked", bound=Callable[..., Any])
_marked: WeakKeyDictionary[FunctionType, CodeType] = WeakKeyDictionary()


def pure(function: Marked) -> Marked:
    """Mark a Python function as pure: equal arguments give equal, immutable results, and it changes nothing.

    It may then be called once for many visits (``docs/batching.md``). The mark holds for the code that the
    function has now.

    Raises:
        BlockTypeError: when it is no Python function.

    >>> @pure
    ... def length(word):
    ...     return min(len(word), 10)
    """
    if not isinstance(function, FunctionType):
        fix = "mark the function that it calls"
        raise BlockTypeError("pure", "a Python function", describe_value(function), fix)
    _marked[function] = function.__code__
    return function


@dataclass(frozen=True, slots=True)
class Reads:
    """The parts of its argument that a pure function reads."""

    arity: bool = False  # only the number of a node's children
    fixed: bool = False  # whether the function can never get another meaning


def is_constant(value: Any) -> bool:
    """Return whether an object can never change: it is of `ATOMS`, or a tuple or frozenset of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, value))
    return type(value) in ATOMS


def reads_of(function: Any) -> Reads | str:
    """Return the parts that a pure function reads, or why it is not known to be pure: "it <reason>".

    >>> reads_of(lambda t: t.label == "NP").arity, reads_of(lambda t: not t.children).arity
    (False, True)
    >>> reads_of(lambda t: print(t))
    'does more than read its argument and compare, LOAD_GLOBAL (<doctest foldbatch...>:1)'
    """
    kind = type(function)
    if kind is FunctionType:
        if _marked.get(function) is function.__code__:
            return Reads()
        code = function.__code__
        reads = _reads_of_code(code)
        if not isinstance(reads, str):
            return reads
        return f"{reads} ({PurePath(code.co_filename).name}:{code.co_firstlineno})"
    if kind is partial and type(function.func) is FunctionType:
        arguments = (*function.args, *function.keywords.values())
        if _marked.get(function.func) is function.func.__code__ and all(map(is_constant, arguments)):
            return Reads()
    if kind in (operator.attrgetter, operator.itemgetter):
        return _reads_of_getter(function.__reduce__()[1], by_item=kind is operator.itemgetter)
    if function is len:
        return Reads(arity=True, fixed=True)
    if any(function is type_ for type_ in TYPES) or _looks_up(function):
        return Reads(fixed=True)
    return f"is {_described(function)} that is not on the list of what is pure"


def _looks_up(function: Any) -> bool:
    """Whether a function is a vocabulary, or its method that looks a word up."""
    if type(function) is MethodType:
        owner, inner = function.__self__, function.__func__
        return type(owner) is Vocabulary and any(inner is method for method in LOOKUPS)
    return type(function) is Vocabulary


def direct(function: Any) -> Any:
    """Return an equal but faster function: a look-up in a `Vocabulary` becomes one in its dict."""
    if not _looks_up(function):
        return function
    vocabulary: Any = function.__self__ if type(function) is MethodType else function
    tests = type(function) is MethodType and function.__func__ is Vocabulary.__contains__
    return vocabulary._numbers.__contains__ if tests else vocabulary._numbers.__getitem__


def is_fixed(function: Any) -> bool:
    """Return whether a function is pure, and its meaning can never change."""
    reads = reads_of(function)
    return isinstance(reads, Reads) and reads.fixed


def reads_arity(function: Any) -> bool:
    """Return whether a function is pure, and reads only the number of a node's children."""
    reads = reads_of(function)
    return isinstance(reads, Reads) and reads.arity


def reads_children(function: Any) -> bool:
    """Return whether a function only returns the children of a node.

    >>> reads_children(lambda t: t.children), reads_children(list), reads_children(lambda t: t.children[0])
    (True, True, False)
    """
    if type(function) is operator.attrgetter:
        return bool(function.__reduce__()[1] == (CHILDREN,))
    if type(function) is FunctionType:
        return _is_of_children(function.__code__)
    return function is list or function is tuple


@lru_cache(1000)
def _is_of_children(code: CodeType) -> bool:
    """Whether code only returns its argument's children."""
    if not _has_one_argument(code):
        return False
    steps = [
        (instruction.opname, instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname not in NO_EFFECT
    ]
    return steps[0][0] in LOADS and steps[1:] == [("LOAD_ATTR", CHILDREN), ("RETURN_VALUE", None)]


@lru_cache(100)
def of_arity(arity: int) -> Tree:
    """Return a tree whose root has a number of children."""
    return Tree([arity] * arity + [-1])


def _described(value: Any) -> str:
    """Return an object's class for errors; its methods are not called, as they may have effects."""
    return f"a {type(value).__name__}"


def _reads_of_getter(keys: tuple[Any, ...], *, by_item: bool) -> Reads | str:
    for key in keys:
        if not (by_item and is_constant(key)) and not (type(key) is str and key in FIELDS):
            return f"reads {key}" if type(key) is str else f"reads an item by {_described(key)}"
    return Reads(arity=all(type(key) is str and key == LEAF for key in keys), fixed=True)


NO_EFFECT = {"RESUME", "NOP", "CACHE", "EXTENDED_ARG", "TO_BOOL"}
LOADS = {"LOAD_FAST", "LOAD_FAST_BORROW"}
CONSTANTS = {"LOAD_CONST", "LOAD_SMALL_INT"}
SINGLE = (bool, type(None))
# kinds of values on the stack, besides tuples of a constant; children may only be tested for being there
ARGUMENT, VALUE, CHILDREN = "argument", "value", "children"


def _has_one_argument(code: CodeType) -> bool:
    arguments = code.co_argcount + code.co_kwonlyargcount
    return (arguments, code.co_nlocals) == (1, 1) and not code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)


@lru_cache(1000)
def _reads_of_code(code: CodeType) -> Reads | str:
    """Follow code that has no jumps, and so is run from its beginning to its end."""
    if not _has_one_argument(code):
        return "has more than one argument, or other variables"
    arity, stack = True, list[Any]()  # whether only the number of children is read
    for instruction in dis.get_instructions(code):
        name, value = instruction.opname, instruction.argval
        if name in NO_EFFECT:
            continue
        if name in LOADS:
            stack.append(ARGUMENT)
        elif name in CONSTANTS and is_constant(value):
            stack.append((value,))
        elif name == "LOAD_ATTR" and stack[-1] is ARGUMENT and value in FIELDS:
            arity &= value == LEAF
            stack[-1] = VALUE
        elif name == "LOAD_ATTR" and stack[-1] is ARGUMENT and value == CHILDREN:
            stack[-1] = CHILDREN
        elif name == "LOAD_ATTR":
            return f"reads {value}"
        elif name != "UNARY_NOT" and CHILDREN in stack:
            return f"reads {CHILDREN}"
        elif name in ("RETURN_VALUE", "RETURN_CONST"):
            return Reads(arity and not (stack and stack[-1] is ARGUMENT))
        elif name == "UNARY_NOT":
            arity &= stack[-1] is not ARGUMENT
            stack[-1] = VALUE
        elif name == "BINARY_SUBSCR" or (name == "BINARY_OP" and instruction.argrepr == "[]"):
            key, read = stack.pop(), stack.pop()
            if not isinstance(key, tuple):
                return "reads an item by what is no constant"
            arity &= read is not ARGUMENT or (type(key[0]) is str and key[0] == LEAF)
            stack.append(VALUE)
        elif name in ("COMPARE_OP", "CONTAINS_OP", "IS_OP"):
            operands = [stack.pop(), stack.pop()]
            # it may tell equal values apart, except for values of which there is one object
            if name == "IS_OP" and not any(type(x) is tuple and type(x[0]) in SINGLE for x in operands):
                return "compares by 'is'"
            arity &= ARGUMENT not in operands
            stack.append(VALUE)
        else:
            return f"does more than read its argument and compare, {name}"
    return "never returns"
