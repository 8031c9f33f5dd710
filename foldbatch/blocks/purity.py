"""Purity: which functions of the user return the same whenever they read the same, and change nothing.

Of any other, the arrays that it returns are copied, as it may write to them again, and the Trainer looks
whether it changes the examples that it reads. Python cannot say so of a function. So there is a short list of
what is known to be pure: ``attrgetter`` and ``itemgetter``, ``len``, a few types and methods of texts, the
look-ups of a `Vocabulary`, and functions that are marked as `pure`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from foldbatch.errors import BlockTypeError
from foldbatch.trees import Vocabulary
from foldbatch.types import describe_value

ATOMS = (str, int, float, bool, bytes, type(None))
GETTERS = operator.attrgetter, operator.itemgetter
# they make atoms of atoms
TYPES = (str, int, float, bool, str.lower, str.upper, str.casefold, str.strip, len)
LOOKUPS = (Vocabulary.__getitem__, Vocabulary.__contains__)

Marked = TypeVar("Marked", bound=Callable[..., Any])
_marked: WeakKeyDictionary[FunctionType, CodeType] = WeakKeyDictionary()


def pure(function: Marked) -> Marked:
    """Mark a Python function as pure: equal arguments give equal, immutable results, and it changes nothing.

    Then arrays that it returns are not copied, and no example is read twice on its account. The mark holds
    for the code that the function has now.

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


def is_constant(value: Any) -> bool:
    """Return whether an object can never change: it is of `ATOMS`, or a tuple or frozenset of such."""
    if type(value) in (tuple, frozenset):
        return all(map(is_constant, value))
    return type(value) in ATOMS


def is_pure(function: object) -> bool:
    """Return whether a function is known to be pure.

    >>> is_pure(len), is_pure(print), is_pure(pure(lambda x: x + 1)), is_pure(lambda x: x + 1)
    (True, False, True, False)
    """
    if type(function) is FunctionType:
        return _marked.get(function) is function.__code__
    if type(function) is partial:
        arguments = (*function.args, *function.keywords.values())
        return type(function.func) is FunctionType and is_pure(function.func) and is_constant(arguments)
    return type(function) in GETTERS or any(function is type_ for type_ in TYPES) or _looks_up(function)


def _looks_up(function: object) -> bool:
    """Whether a function is a vocabulary, or its method that looks a word up."""
    if type(function) is MethodType:
        owner, inner = function.__self__, function.__func__
        return type(owner) is Vocabulary and any(inner is method for method in LOOKUPS)
    return type(function) is Vocabulary


def direct(function: object) -> object:
    """Return an equal but faster function: a look-up in a `Vocabulary` becomes one in its dict."""
    if not _looks_up(function):
        return function
    vocabulary: Any = function.__self__ if type(function) is MethodType else function
    tests = type(function) is MethodType and function.__func__ is Vocabulary.__contains__
    return vocabulary._numbers.__contains__ if tests else vocabulary._numbers.__getitem__
