"""The lists to which the calls of a cell are appended, by walks and by tracing programs of blocks alike."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal, TypeAlias, cast

from foldbatch.model.columns import column
from foldbatch.model.drafts import Feed

# `array` is what compiled functions append to; a list of Python takes less time where there are none.
Integers: TypeAlias = "array[int] | list[int]"
Kind: TypeAlias = Literal["R", "E", "F", "L"]  # rows, elements, data, labels


@dataclass(slots=True)
class CallLists:
    """The calls of one cell, one after the other."""

    rows: Integers  # of each call its number, those of its operands, and the lengths of its lists
    elements: list[Integers]  # per sequence argument, the numbers of its elements
    feeds: list[list[object]]  # per feed, the data that were read
    labels: list[list[object]]  # per metric, its labels
    # the functions that append to them, by their names among the globals of a walk's cells
    bound: dict[str, Callable[[Any], None]] = field(default_factory=dict)
    all: tuple[Any, ...] = ()  # rows, elements, feeds and labels in one tuple

    def __post_init__(self) -> None:
        self.all = self.rows, *self.elements, *self.feeds, *self.labels

    @property
    def counted(self) -> list[Integers]:
        """The lists of integers."""
        return [self.rows, *self.elements]

    def appender(self, kind: Kind, number: int = 0) -> Callable[[Any], None]:
        """Return the function that appends to a list: the integers of a row or of elements, a datum or label.

        Args:
            kind: the kind of the list.
            number: its number among those of its kind.
        """
        if kind == "R":
            return self.rows.extend
        if kind == "E":
            return self.elements[number].extend
        return (self.feeds if kind == "F" else self.labels)[number].append

    def clear(self) -> None:
        """Empty all lists."""
        for items in self.all:
            del items[:]


def numbers_of(data: list[object]) -> list[int]:
    """Return the data of a feed that notes value numbers, those of visits of metrics, as what they are."""
    return cast("list[int]", data)


def call_lists(sequences: int, feeds: int, labels: int, *, compiled: bool = True) -> CallLists:
    """Return empty lists for a cell, given the numbers of its sequence arguments, feeds and metrics' labels.

    Where nothing is `compiled`, integers are in lists of Python.

    >>> lists = call_lists(1, 1, 0)
    >>> lists.appender("R")([4, 0, 2])
    >>> lists.appender("F")("a word")
    >>> lists.rows.tolist(), lists.elements[0].tolist(), lists.feeds
    ([4, 0, 2], [], [['a word']])
    """
    integers: Callable[[], Integers] = partial(array, "q") if compiled else list
    elements = [integers() for _ in range(sequences)]
    return CallLists(integers(), elements, [[] for _ in range(feeds)], [[] for _ in range(labels)])


def flattening(extend: Callable[[Any], None], width: int) -> Callable[[Any], None]:
    """Return a function that appends elements, single numbers or tuples, number by number.

    Args:
        extend: appends numbers.
        width: how many numbers of an element the cell reads.

    >>> numbers = []
    >>> flattening(numbers.extend, 2)([(1, 2), (3, 4)])
    >>> flattening(numbers.extend, 1)([5, 6])
    >>> flattening(numbers.extend, 1)([(7,)])  # one number is left of each tuple
    >>> numbers
    [1, 2, 3, 4, 5, 6, 7]
    """
    if width != 1:
        return lambda elements: extend(chain.from_iterable(elements))
    return lambda elements: extend(
        chain.from_iterable(elements) if elements and isinstance(elements[0], tuple) else elements
    )


def checking(feed: Feed, bound: int | None, items: list[object]) -> Callable[[object], None]:
    """Return a function that appends a datum of a feed to a list, and checks it before.

    Where data need not be checked one by one, columns of them are checked at the end, in less time.

    Args:
        feed: the feed.
        bound: ids must be below this.
        items: the list.

    Returns:
        The function; it raises `BadDataError` when the feed cannot read the datum, which is not appended.
    """

    def check(item: object) -> None:
        """Check and append a datum."""
        column([item], feed.type, bound, feed.declared)
        items.append(item)

    return check
