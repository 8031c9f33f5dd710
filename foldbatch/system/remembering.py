"""Results that are kept: those of an object while it lives, those of a text until there are many others."""

from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType
from typing import Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

K = TypeVar("K")
P = ParamSpec("P")
T = TypeVar("T")


def remembered(make: Callable[Concatenate[K, P], T]) -> Callable[Concatenate[K, P], T]:
    """Return a function that makes the same of an object once, and forgets it with the object.

    The object is known by its identity, so its class has ``eq=False``; the other arguments are hashable. Two
    threads that ask at once may both make it: one of the two is kept.

    >>> class Cell: ...
    >>> made = []
    >>> @remembered
    ... def kernel(cell: Cell, name: str) -> str:
    ...     made.append(name)
    ...     return name.upper()
    >>> cell = Cell()
    >>> kernel(cell, "a"), kernel(cell, "a"), made
    ('A', 'A', ['a'])
    """
    remembered_of: WeakKeyDictionary[K, dict[object, T]] = WeakKeyDictionary()

    @wraps(make)
    def find(of: K, /, *args: P.args, **options: P.kwargs) -> T:
        """Return the value for an object and arguments, made at the first call."""
        entries = remembered_of.get(of)
        if entries is None:
            entries = remembered_of.setdefault(of, {})
        key = args, tuple(options.items())
        if key not in entries:
            entries[key] = make(of, *args, **options)
        return entries[key]

    return find


@lru_cache(maxsize=2048)
def code_of(text: str, filename: str) -> CodeType:
    """Return the code of a text that the package wrote; models that are alike have the same texts."""
    return compile(text, filename, "exec")
