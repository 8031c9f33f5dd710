"""Results that are kept: those of an object while it lives, others until there are many newer ones."""

from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType
from typing import Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

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


class Bounded(dict[K, T]):
    """A dict of at most `size` entries: beyond them, a new entry takes the place of the oldest.

    It serves for what can be found again by other means, and reads as fast as any dict.

    >>> squares = Bounded[int, int](2)
    >>> for number in (3, 4, 5):
    ...     squares[number] = number * number
    >>> squares
    {4: 16, 5: 25}
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __setitem__(self, key: K, value: T) -> None:
        super().__setitem__(key, value)
        if len(self) > self.size:
            for oldest in [*self][: -self.size]:
                self.pop(oldest, None)  # another thread may have taken it out


class Shared(Generic[K, T]):
    """Objects by key, of which there is one each: the newest `size`, and all others that are in use anywhere.

    So an object that has given way to newer ones is found again as long as it is in use.

    >>> class Cell: ...
    >>> cells = Shared[str, Cell](1)
    >>> cell = cells["a"] = Cell()
    >>> cells["b"] = Cell()
    >>> cells.get("a") is cell, [*cells.newest], cells.get("b")
    (True, ['a'], None)
    """

    def __init__(self, size: int) -> None:
        self.newest = Bounded[K, T](size)
        self._alive: WeakValueDictionary[K, T] = WeakValueDictionary()

    def get(self, key: K) -> T | None:
        """Return the object of a key, which is among the newest then; None if there is none."""
        value = self.newest.get(key)
        if value is None:
            value = self._alive.get(key)
            if value is not None:
                self.newest[key] = value
        return value

    def __setitem__(self, key: K, value: T) -> None:
        self._alive[key] = value
        self.newest[key] = value


@lru_cache(maxsize=2048)
def code_of(text: str, filename: str) -> CodeType:
    """Return the code of a text that the package wrote; models that are alike have the same texts."""
    return compile(text, filename, "exec")
