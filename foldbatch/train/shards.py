"""Shards: the part of a source that one of several ranks reads, so that no rank reads all of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Final

from foldbatch.train.pieces import Piece, library, opens
from foldbatch.trees.given import ArrowRows

RANK: Final = ("rank", "ranks")  # arguments by which a function says that it opens a shard
# classes of Hugging Face that read files, and those that change each row by itself: of a shard they yield the
# rows that they yield of these files in the whole
FILES: Final = frozenset({"ArrowExamplesIterable", "ExamplesIterable"})
ROW_BY_ROW: Final[Mapping[str, Mapping[str, object]]] = MappingProxyType(
    {
        "MappedExamplesIterable": {"with_indices": False, "batched": False},
        "FilteredExamplesIterable": {"with_indices": False, "batched": False},
        "FormattedExamplesIterable": {},
        "RebatchedArrowExamplesIterable": {},
        "SelectColumnsIterable": {},
        "TypedExamplesIterable": {},
    }
)


def bounds(total: int, rank: int, ranks: int, size: int) -> tuple[int, int]:
    """Return where a rank's part of so many rows begins and ends, in proportion to its share of a batch.

    So all ranks come to the end of their parts with the same batch, and an epoch has as many batches as that
    of one process.

    >>> [bounds(100, rank, 3, 8) for rank in range(3)]
    [(0, 25), (25, 62), (62, 100)]
    """
    start, stop = (total * (size * place // ranks) // size for place in (rank, rank + 1))
    return start, stop


def share(size: int, rank: int, ranks: int) -> int:
    """Return how many rows of a batch are a rank's.

    >>> [share(8, rank, 3) for rank in range(3)]
    [2, 3, 3]
    """
    return size * (rank + 1) // ranks - size * rank // ranks


def takes_rank(source: object) -> bool:
    """Whether a source is a function that opens the part of a rank: its arguments are `rank` and `ranks`.

    >>> takes_rank(lambda rank, ranks: iter(range(rank, 10, ranks))), takes_rank(lambda: iter([1]))
    (True, False)
    """
    if not opens(source):
        return False
    function: Any = source
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # of some functions written in C
        return False
    return all(name in parameters for name in RANK)


def opener(source: Any, rank: int, ranks: int) -> Callable[[], object]:
    """Return a function without arguments that opens the part of a rank."""
    return partial(source, **dict(zip(RANK, (rank, ranks), strict=True)))


def cut(pieces: Sequence[Piece], start: int, stop: int) -> tuple[list[Piece], list[int]]:
    """Return the pieces that have rows from `start` to `stop`, cut to these, and their first rows' numbers.

    Args:
        pieces: of a source, whose numbers of rows are known.
        start: the number of the first row.
        stop: the number of the row after the last one.
    """
    cuts, numbers = [], []
    firsts = accumulate((piece.rows or 0 for piece in pieces), initial=0)
    for piece, first in zip(pieces, firsts, strict=False):
        rows = piece.rows or 0
        begin, end = max(start - first, 0), min(stop - first, rows)
        if begin >= end:
            continue
        read = piece.read if end - begin == rows else partial(_between, piece, begin, end)
        cuts.append(replace(piece, read=read, rows=end - begin, before=piece.before + begin))
        numbers.append(first + begin)
    return cuts, numbers


def _between(piece: Piece, start: int, stop: int) -> Iterator[Sequence[object]]:
    """Yield the rows of a piece between two numbers, as far as there are such rows."""
    number = 0
    for rows in piece.read():
        if number + len(rows) > start:
            within = slice(max(start - number, 0), stop - number)
            yield ArrowRows(rows.array[within]) if isinstance(rows, ArrowRows) else rows[within]
        number += len(rows)
        if number >= stop:
            return


def shard_of_library(source: object, rank: int, ranks: int) -> object:
    """Return the part of a rank as the source's own library cuts it; None where it may be none.

    That is a data set of Hugging Face that streams, of as many files as there are ranks at least. Its `shard`
    after `take`, `skip`, numbers of rows or batches yields other rows than are in the whole, so these are
    looked for by names of classes, and what is not known is left whole.
    """
    if library(type(source)) != "datasets" or not hasattr(source, "shard"):
        return None
    if getattr(source, "num_shards", 0) < ranks or getattr(source, "_distributed", source) is not None:
        return None
    reader = getattr(source, "_ex_iterable", None)
    while (kind := type(reader).__name__) in ROW_BY_ROW:
        settings = ROW_BY_ROW[kind]
        if any(getattr(reader, name, None) != value for name, value in settings.items()):
            return None
        reader = getattr(reader, "ex_iterable", None)
    return source.shard(num_shards=ranks, index=rank) if kind in FILES else None
