"""Sequences whose items are made together, when an item is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar, overload

Item_co = TypeVar("Item_co", covariant=True)


class LateSequence(Sequence[Item_co]):
    """A sequence of known length, whose items a function makes when the first of them is asked for.

    Args:
        size: the number of items.
        make: returns the items; it is called once at the most.

    >>> words = LateSequence(2, lambda: ["a", "b"])
    >>> len(words), list(words), words[:1]
    (2, ['a', 'b'], ['a'])
    """

    def __init__(self, size: int, make: Callable[[], Sequence[Item_co]]) -> None:
        self._size, self._make = size, make
        self._items: Sequence[Item_co] | None = None

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> Item_co: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Item_co]: ...

    def __getitem__(self, place: int | slice) -> Item_co | Sequence[Item_co]:
        if self._items is None:
            self._items = self._make()
        return self._items[place]
