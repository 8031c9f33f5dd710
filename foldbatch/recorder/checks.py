"""The check of data that calls have read: of both doors, it finds the first datum that its cell cannot read.

Data are only collected while examples are noted. Each column of them is checked as a whole when it becomes an
array; this check runs where a column was refused, to name the example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from foldbatch.model.columns import BadDataError, column
from foldbatch.model.drafts import Feed


class NotedData(NamedTuple):
    """The data of a feed, and the calls that have read them."""

    feed: Feed
    bound: int | None  # ids must be below this
    items: Sequence[object]  # the data, in the order of calls
    calls: Sequence[int]  # per datum a number that grows with the calls: that of its call, or of its example


class BadDatum(NamedTuple):
    """A datum that its cell cannot read."""

    call: int  # its number in `NotedData.calls`
    where: str  # the name of the feed
    error: BadDataError


def first_bad(noted: Iterable[NotedData]) -> BadDatum | None:
    """Return the first datum that its cell cannot read, in the order of calls; None where each can be read.

    >>> from foldbatch.types import TensorType
    >>> ids = Feed(TensorType((), "int32"), "words", "")
    >>> first = first_bad([NotedData(ids, 5, [4, 5, 6], calls=[0, 2, 7])])
    >>> first.call, first.where, first.error.expected, first.error.found
    (2, 'words', 'int32 from 0 to 4', 'int 5')
    """
    first: BadDatum | None = None
    for feed, bound, items, calls in noted:
        try:
            column([*items], feed.type, bound, feed.declared)
            continue
        except BadDataError:
            pass
        for call, item in zip(calls, items, strict=True):
            if first is not None and call >= first.call:
                break
            try:
                column([item], feed.type, bound, feed.declared)
            except BadDataError as error:
                first = BadDatum(call, feed.where, error)
                break
    return first
