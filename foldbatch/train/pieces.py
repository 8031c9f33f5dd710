"""Pieces of what is read row by row: row groups of Parquet, files of a data set, or a source as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import isroutine
from typing import Any, TypeAlias

from foldbatch.errors import ExampleTypeError
from foldbatch.model.columns import kept
from foldbatch.trees.given import AT_ONCE, Rows, rows_of
from foldbatch.trees.tree import Tree, TreeNode
from foldbatch.types import describe_value

Examples: TypeAlias = Iterable[Any] | Callable[[], Any]  # what can be read, or a function that opens it
ITEMS_AT_ONCE = 256  # rows of a source of the user's that are read at a time
WHERE = "stream"


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Consecutive rows of a source, which can be read without those before them."""

    # opens the piece, and yields its rows in their order, some at a time
    read: Callable[[], Iterator[Sequence[Any]]]
    rows: int | None = None  # how many it has; None where only reading tells
    file: str = ""  # that it is of
    before: int = 0  # rows of the file that are before it


def is_stream(source: object) -> bool:
    """Whether a source is read row by row without being asked: it can be opened again, and holds no rows.

    >>> is_stream([1, 2]), is_stream(iter([1, 2])), is_stream(lambda: iter([1, 2]))
    (False, False, True)
    """
    kind: Any = type(source)
    if kind is list or kind is tuple or isinstance(source, type | Tree | TreeNode | str | bytes):
        return False
    if opens(source):
        return True
    if library(kind) == "pyarrow":
        return any(hasattr(source, name) for name in ("get_fragments", "scan_batches", "read_row_groups"))
    if not hasattr(kind, "__iter__") or hasattr(kind, "__next__") or hasattr(kind, "__arrow_c_stream__"):
        return False
    if hasattr(source, "collate_fn") and hasattr(source, "dataset"):  # a loader: of batches, or of rows
        return getattr(source, "batch_size", 1) is None and getattr(source, "batch_sampler", None) is None
    if any(library(base) == "torch" and base.__name__ == "IterableDataset" for base in kind.__mro__):
        return True  # its base class has `__getitem__`, which raises
    return not hasattr(kind, "__len__") and not hasattr(kind, "__getitem__")


def pieces_of(source: Any) -> list[Piece]:
    """Return the pieces of a source that can be opened again and again, in the order of its rows.

    Args:
        source: a data set, a scanner or a file of Parquet of Arrow, anything else that can be iterated again,
            or a function that returns one of these or an iterator.

    Raises:
        ExampleTypeError: when it can be iterated once only, or not at all.
    """
    former: list[object] = []
    if library(type(source)) == "pyarrow":
        if hasattr(source, "get_fragments"):
            return _of_data_set(source)
        if hasattr(source, "read_row_groups"):
            return _of_parquet(source)
        if hasattr(source, "scan_batches"):
            return [Piece(lambda: _in_chunks(source, former))]
    if opens(source):
        return [Piece(lambda: _in_chunks(source(), former))]
    table = rows_of(source)  # also refuses loaders of batches
    if hasattr(type(table), "__next__"):
        fix = "give the function that makes it"
        actual = f"{describe_value(source)}, which can be read once"
        raise ExampleTypeError(WHERE, "what can be read again in each epoch", actual, fix)
    if not isinstance(table, Iterable) or isinstance(table, Tree | TreeNode | str | bytes | dict):
        fix = "give a data set of Arrow, an iterable, or a function that opens one"
        raise ExampleTypeError(WHERE, "rows", describe_value(source), fix)
    return [
        Piece(
            lambda: _in_chunks(table, former), len(table) if isinstance(table, list | tuple | Rows) else None
        )
    ]


def library(kind: type) -> str:
    """Return the name of the package that a class is of."""
    return str(kind.__module__).partition(".")[0]  # classes that are made at run time may have None


def opens(source: object) -> bool:
    """Whether a source is a function, which opens what is read."""
    return isroutine(source) or isinstance(source, partial)


def _of_data_set(source: Any) -> list[Piece]:
    """Return the row groups of a data set of Arrow, or its files where these have none."""
    try:
        fragments = list(source.get_fragments())
    except ValueError:  # of a data set with a filter, how many rows are left is not known
        return [Piece(lambda: _of_batches(source.to_batches(batch_size=AT_ONCE, **READ_AHEAD)))]
    pieces = []
    for fragment in fragments:
        file, before = str(getattr(fragment, "path", "")), 0
        is_file = not hasattr(fragment, "split_by_row_group")
        for part in [fragment] if is_file else fragment.split_by_row_group():
            rows = part.count_rows() if is_file else sum(group.num_rows for group in part.row_groups)
            pieces.append(Piece(partial(_scanned, part, source.schema, file), rows, file, before))
            before += rows
    return pieces


# of other files, and batches of one: Arrow's defaults are for tables that are held
READ_AHEAD = {"fragment_readahead": 1, "batch_readahead": 4}


def _scanned(fragment: Any, schema: Any, file: str) -> Iterator[Sequence[object]]:
    batches = fragment.to_batches(schema=schema, batch_size=AT_ONCE, **READ_AHEAD)
    return _of_batches(batches, file)


def _of_parquet(file: Any) -> list[Piece]:
    """Return the row groups of a file of Parquet."""
    counts = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
    return [
        Piece(
            lambda number=number: _of_batches(file.iter_batches(AT_ONCE, row_groups=[number])),  # type: ignore[misc]
            rows,
            before=sum(counts[:number]),
        )
        for number, rows in enumerate(counts)
    ]


def _of_batches(batches: Iterable[Any], file: str = "") -> Iterator[Sequence[object]]:
    """Yield the rows of Arrow's batches; errors of reading them have a note that names the file."""
    count = 0
    try:
        for batch in batches:
            yield rows_of(batch)
            count += len(batch)
    except (OSError, ValueError) as error:  # those of Arrow are these
        error.add_note(f"{file or WHERE}, after {count:,} rows")
        raise


def _in_chunks(opened: Any, former: list[object]) -> Iterator[Sequence[object]]:
    """Yield the rows of what was opened, some at a time.

    Args:
        opened: what yields them.
        former: has the iterator of the reading before, and is given this one.

    Raises:
        ExampleTypeError: when both are the same one.
    """
    if library(type(opened)) == "pyarrow":
        if hasattr(opened, "scan_batches"):
            yield from _of_batches(opened.to_batches())
            return
        if hasattr(opened, "read_next_batch"):
            _refuse_former(opened, former)
            yield from _of_batches(opened)
            return
        if hasattr(opened, "get_fragments") or hasattr(opened, "read_row_groups"):
            for piece in pieces_of(opened):
                yield from piece.read()
            return
    table = rows_of(opened)
    if isinstance(table, Rows):
        yield from (table[start : start + AT_ONCE] for start in range(0, len(table), AT_ONCE))
        return
    if not isinstance(table, Iterable):
        fix = "return an iterable of rows, such as a generator"
        raise ExampleTypeError(WHERE, "a function that opens rows", f"one of {describe_value(opened)}", fix)
    iterator = iter(table)
    _refuse_former(iterator, former)
    count, chunk = 0, []
    try:
        # a list may be yielded again with other items
        for item in iterator if isinstance(table, list | tuple) else map(kept, iterator):
            chunk.append(item)
            count += 1
            if len(chunk) == ITEMS_AT_ONCE:
                yield chunk
                chunk = []
    except Exception as error:
        error.add_note(f"{WHERE}, after {count:,} rows")
        raise
    if chunk:
        yield chunk


def _refuse_former(iterator: object, former: list[object]) -> None:
    if any(iterator is item for item in former):
        fix = "open them anew each time, as a generator function does"
        actual = f"{describe_value(iterator)} that was read before"
        raise ExampleTypeError(WHERE, "an iterator from the first row on", actual, fix)
    former[:] = [iterator]
