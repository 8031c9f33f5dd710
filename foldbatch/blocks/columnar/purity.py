"""Purity: which functions of the user are known to return the same whenever they read the same.

Such a function may be called once for all visits at which it reads the same; any other is called at every
visit. Python cannot say so of a function in general. So there is a list of what is known to be pure:

- readers: ``attrgetter`` and ``itemgetter``, ``len`` and a few other builtins, methods of ``str``, and the
  look-ups of a `Vocabulary`;
- functions of ours that are marked as `pure`;
- Python functions whose whole code is on a short list of instructions: they read fields of the argument,
  constants and items, compare, choose, and call what is on this list.

The argument may be a node of a tree or an immutable value. Nothing on the list tells a node from another one
but by the fields in `Pure.fields`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CodeType, FunctionType, MethodDescriptorType, MethodType
from typing import Any, TypeVar
from weakref import WeakSet

from foldbatch.blocks.columnar.code import (
    ARGUMENT,
    METHOD,
    METHODS,
    VALUE,
    Code,
    Entry,
    Impure,
    Named,
    Reads,
    State,
    Watched,
    are_classes,
    described,
    entry_of,
    place_of,
)
from foldbatch.trees import Vocabulary

BUILTINS = {id(function) for function in (len, str, int, float, bool, abs, ord, chr)}  # of one argument
LOOKUPS = (Vocabulary.__getitem__, Vocabulary.__contains__)

Marked = TypeVar("Marked", bound=Callable[..., Any])
_marked: WeakSet[Any] = WeakSet()


def pure(function: Marked) -> Marked:
    """Mark a function of ours as pure: what it makes of equal values is equal and immutable."""
    _marked.add(function)
    return function


@dataclass(frozen=True, slots=True)
class Pure:
    """What a pure function reads.

    Attributes:
        fields: what it reads of a node: ``label``, ``token``, ``is_leaf``, ``arity``, ``size``, or the
            ``node``, all of it.
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


def pure_of(function: Any) -> Pure:
    """Return what a pure function reads.

    Raises:
        Impure: where it is not known to be pure.

    >>> sorted(pure_of(lambda t: t.label == "NP" or t.is_leaf).fields), pure_of(str.lower).beyond
    (['is_leaf', 'label'], 'the node as a whole')
    >>> import random
    >>> pure_of(lambda t: random.random())
    Traceback (most recent call last):
    foldbatch.blocks.columnar.code.Impure: reads 'random', a module (<doctest foldbatch...>:1)
    """
    reads = Reads()
    try:
        result = _Calls(reads).called(function, [ARGUMENT])
    except RecursionError:
        raise Impure("is made of too many functions within each other") from None
    if isinstance(result, Named):
        raise Impure(f"returns {described(result.value)}")
    reads.used(result)
    return Pure(frozenset(reads.fields), reads.beyond, tuple(reads.watched))


@dataclass(slots=True)
class _Calls:
    """Calls of what may be on the list, each within the one before.

    Attributes:
        reads: gets what is read.
        callers: the code around a call, outermost first.
    """

    reads: Reads
    callers: list[CodeType] = field(default_factory=list)

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
            raise Impure(f"gives {described(function)} arguments by name")
        if function is isinstance and len(arguments) == 2 and are_classes(arguments[1]):
            self.reads.used(arguments[0])
        elif function is len and len(arguments) == 1 and arguments[0] is ARGUMENT:
            self.reads.fields.add("arity")
        elif kind in (operator.attrgetter, operator.itemgetter) and len(arguments) == 1:
            for key in function.__reduce__()[1]:
                (self.reads.attribute if kind is operator.attrgetter else self.reads.item)(arguments[0], key)
        elif kind is FunctionType:  # a marked one
            self.reads.watched.append((partial(getattr, function, "__code__"), function.__code__))
            self.reads.used(*(entry for entry in arguments if entry is not ARGUMENT))
            self.reads.fields.add("node")
        elif function is METHOD.value or _is_listed(function, len(arguments)):
            self.reads.used(*arguments)
        else:
            raise Impure(f"uses {described(function)}")
        return VALUE

    def _partial(self, function: Any, arguments: list[Entry]) -> Entry:
        given, keywords = function.args, function.keywords
        for name in ("func", "args", "keywords"):
            self.reads.watched.append((partial(getattr, function, name), getattr(function, name)))
        self.reads.watched.append((partial(len, keywords), len(keywords)))
        self.reads.watched += [(partial(keywords.get, name), value) for name, value in keywords.items()]
        by_name = {name: entry_of(repr(name), value) for name, value in keywords.items()}
        first = [entry_of("an argument", value) for value in given]
        return self.called(function.func, [*first, *arguments], by_name)

    def _python(self, function: FunctionType, arguments: list[Entry], keywords: Mapping[str, Entry]) -> Entry:
        code = function.__code__
        self.reads.watched.append((partial(getattr, function, "__code__"), code))
        self.reads.watched.append((partial(getattr, function, "__defaults__"), function.__defaults__))
        if any(code is caller for caller in self.callers):
            raise Impure("calls itself")
        names = code.co_varnames[: code.co_argcount]
        starred = code.co_flags & (CO_VARARGS | CO_VARKEYWORDS)
        others = code.co_kwonlyargcount or type(function.__defaults__) not in (tuple, type(None))
        if starred or others or code.co_cellvars or code.co_exceptiontable:
            raise Impure("has more than plain arguments and choices", place_of(code))
        defaults = function.__defaults__ or ()
        bound = zip(reversed(names), reversed(defaults), strict=False)
        local = {name: entry_of(repr(name), value) for name, value in bound}
        local |= {**dict(zip(names, arguments, strict=False)), **keywords}
        twice = {*names[: len(arguments)]} & keywords.keys()
        if max(len(arguments), len(defaults)) > len(names) or {*names} != local.keys() or twice:
            raise Impure("does not take the arguments that it is given", place_of(code))
        self.callers.append(code)
        result = Code(self.reads, function, self.called).followed(State([], local))
        self.callers.pop()
        return result


def _is_listed(function: Any, arguments: int) -> bool:
    """Return whether a builtin, or a look-up, is on the list for so many arguments."""
    match function:
        case MethodType(__self__=owner, __func__=inner) if type(function) is MethodType:
            return type(owner) is Vocabulary and any(inner is known for known in LOOKUPS)
        case MethodDescriptorType(__objclass__=kind, __name__=name):
            return kind is str and name in METHODS
    return (
        type(function) is Vocabulary
        or (id(function) in BUILTINS and arguments == 1)
        or any(function is known for known in (min, max))
    )
