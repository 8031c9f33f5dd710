"""Purity: whether a function of the user may be called once where the ordinary way calls it at many visits.

That needs two things. Called twice with equal arguments, it returns the same; and nobody can tell how often
it was called. Python cannot say so of a function in general. Here its bytecode is read, and it is accepted
only if whatever it can reach is immutable, or a dict that it only reads, or a function accepted itself.
"""

from __future__ import annotations

import builtins
import dis
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import BuiltinMethodType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from foldbatch.trees import TreeNode, Vocabulary

ATOMS = (str, int, float, bool, bytes, type(None))
CLASSES = (str, int, float, bool, bytes, list, tuple, set, frozenset, TreeNode)
BUILTINS = {
    *(abs, all, any, chr, divmod, enumerate, filter, isinstance, len, map, max, min, ord, pow, range, repr),
    *(reversed, round, sorted, sum, zip),
}
TRUSTED = "foldbatch.blocks.categorical"  # its functions look objects up in tables that are never changed
READERS = ("get", "__getitem__")  # methods of dicts that change nothing
CHANGES = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "IMPORT_NAME", "LOAD_BUILD_CLASS")
FORMATS = ("format", "format_map")  # methods that read attributes named in a string
ITEM_CHANGES = ("STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE")
MUTATORS = {"append", "clear", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update"}

Binding = tuple[Mapping[str, Any] | CellType, str, Any]  # where a function looks a name up, and what it finds


def why_impure(function: Callable[..., Any], bindings: list[Binding] | None = None) -> str:
    """Return what keeps a function from being called once for many visits; empty if nothing does.

    Args:
        function: the function.
        bindings: gets what the function looks up by name; see `rebound`.

    >>> why_impure(lambda t: t.label == "NP"), why_impure(str.lower)
    ('', '')
    >>> import random
    >>> why_impure(lambda t: random.random())
    "it reads 'random', which is a module"
    """
    try:
        _check(function, [] if bindings is None else bindings, [])
    except _Impure as impure:
        return str(impure)
    return ""


def rebound(bindings: list[Binding]) -> bool:
    """Return whether a name stands for another object now, unless that is as harmless as the one before."""
    for space, name, before in bindings:
        now = _look_up(space, name)
        if now is not before and not (_is_constant(now) and _is_constant(before)):
            return True
    return False


class _Impure(Exception):  # noqa: N818 - an answer
    pass


def _check(function: Any, bindings: list[Binding], callers: list[Any]) -> None:
    match function:
        case _ if any(function is caller for caller in callers):
            pass  # it calls itself
        case operator.attrgetter() | operator.itemgetter():
            pass
        case Vocabulary() if type(function) is Vocabulary:  # a class of the user's may do more
            pass
        case partial(func=inner, args=args, keywords=keywords):
            for value in (*args, *keywords.values()):
                _check_value("an argument", value, bindings, callers)
            _check(inner, bindings, callers)
        case MethodType(__self__=owner) if type(owner) is Vocabulary:
            pass
        case FunctionType(__module__=module) if module == TRUSTED:
            pass
        case FunctionType():
            _check_code(function, bindings, [*callers, function])
        case _ if _is_builtin(function):
            pass
        case BuiltinMethodType(__self__=owner) if type(owner) is dict and function.__name__ in READERS:
            pass
        case BuiltinMethodType(__self__=owner) if type(owner) in ATOMS:
            pass
        case _:
            raise _Impure(f"it is a {type(function).__name__}")


def _is_builtin(function: Any) -> bool:
    try:
        return function in BUILTINS or function in CLASSES or getattr(function, "__objclass__", None) in ATOMS
    except TypeError:  # not hashable
        return False


def _check_code(function: FunctionType, bindings: list[Binding], callers: list[Any]) -> None:
    for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if not _is_constant(value):
            raise _Impure("an argument's default may change")
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    reads_dict = False
    attributes = set()
    changes = False
    for instruction in _instructions(function.__code__):
        name, operation = instruction.argval, instruction.opname
        if operation in CHANGES or (operation == "STORE_DEREF" and name in cells):
            raise _Impure("it changes or imports something")
        changes |= operation in ITEM_CHANGES
        if operation in ("LOAD_ATTR", "LOAD_METHOD"):
            if name.startswith("_") or name in FORMATS:
                raise _Impure(f"it reads the attribute {name!r}")
            attributes.add(name)
        space: Any = function.__globals__ if operation in ("LOAD_GLOBAL", "LOAD_NAME") else cells.get(name)
        if operation in ("LOAD_GLOBAL", "LOAD_NAME") or (operation in DEREFS and name in cells):
            value = _look_up(space, name)
            bindings.append((space, name, value))
            reads_dict |= type(value) is dict
            _check_value(repr(name), value, bindings, callers)
    if reads_dict and (changes or attributes & MUTATORS):
        raise _Impure("it may change a dict")


DEREFS = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE")


def _instructions(code: CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from _instructions(value)


def _look_up(space: Any, name: str) -> Any:
    if isinstance(space, CellType):
        try:
            return space.cell_contents
        except ValueError:  # it has not been assigned
            return NotImplemented
    return space[name] if name in space else getattr(builtins, name, None)


def _check_value(name: str, value: Any, bindings: list[Binding], callers: list[Any]) -> None:
    """Refuse what a function reads by name, unless it is constant, a dict of constants, or pure itself."""
    if _is_constant(value) or value is math:
        return
    if type(value) is dict and all(map(_is_constant, value.values())):
        return
    if isinstance(value, ModuleType) or not callable(value):
        raise _Impure(f"it reads {name}, which is a {type(value).__name__}")
    try:
        _check(value, bindings, callers)
    except _Impure as impure:
        raise _Impure(f"it uses {name}: {impure}") from None


def _is_constant(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_constant, value))
    return type(value) in (*ATOMS, re.Pattern, Vocabulary)
