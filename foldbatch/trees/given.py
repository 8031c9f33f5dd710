"""The forms of a collection of examples: rows of a table, such as a DataFrame, or any objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, TypeAlias

from foldbatch.errors import ExampleTypeError, install
from foldbatch.types import describe_value

AT_ONCE = 1024  # rows that loops make at a time


Table: TypeAlias = Any  # an object of another library that holds rows
Row: TypeAlias = Any  # an example that it holds


class Rows(Sequence[Row]):
    """Rows of a table, made Python objects when they are asked for."""

    def __iter__(self) -> Iterator[Row]:
        for start in range(0, len(self), AT_ONCE):
            yield from self[start : start + AT_ONCE]

    def taken(self, indices: Sequence[int]) -> list[Row]:
        """Return some rows by their indices."""
        return [self[i] for i in indices]


@dataclass(frozen=True, slots=True, eq=False)
class ArrowRows(Rows):
    """Rows of an Arrow array."""

    array: Table

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int | slice) -> Row:
        part = self.array[index]
        return part.to_pylist() if isinstance(index, slice) else part.as_py()

    def taken(self, indices: Sequence[int]) -> list[Row]:
        """Return some rows by their indices."""
        try:
            return self.array.take(indices).to_pylist()  # type: ignore[no-any-return]
        except NotImplementedError:  # of views of strings and a few more types
            return [self[i] for i in indices]


@dataclass(frozen=True, slots=True, eq=False)
class FrameRows(Rows):
    """Rows of a DataFrame of pandas or polars, as dicts by column."""

    frame: Table

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, index: int | slice) -> Row:
        if isinstance(index, slice):
            return self._dicts(index)
        place = range(len(self))[index]
        return self._dicts(slice(place, place + 1))[0]

    def taken(self, indices: Sequence[int]) -> list[Row]:
        """Return some rows by their indices."""
        return self._dicts(indices) if indices else []

    def _dicts(self, rows: slice | Sequence[int]) -> Any:
        if hasattr(self.frame, "to_dicts"):
            return self.frame[rows].to_dicts()
        return self.frame.iloc[rows].to_dict("records")


@dataclass(frozen=True, slots=True, eq=False)
class DataSetRows(Rows):
    """Rows of a data set of Hugging Face, as dicts by column; one by one they take twice the time."""

    data_set: Table

    def __len__(self) -> int:
        return len(self.data_set)

    def __getitem__(self, index: int | slice) -> Row:
        return self._dicts(index) if isinstance(index, slice) else self.data_set[index]

    def taken(self, indices: Sequence[int]) -> list[Row]:
        """Return some rows by their indices."""
        return self._dicts(list(indices)) if len(indices) else []

    def _dicts(self, rows: slice | list[int]) -> list[Row]:
        columns = self.data_set[rows]
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


@dataclass(frozen=True, slots=True, eq=False)
class ColumnRows(Rows):
    """Values of a single column of a table."""

    values: list[Row]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int | slice) -> Row:
        return self.values[index]


def rows_of(examples: Table) -> Any:
    """Return the rows of a table; what is none as it is.

    Tables are DataFrames of pandas and polars, LazyFrames, tables, batches, arrays, data sets and files of
    Parquet of Arrow, and whatever speaks Arrow's protocol ``__arrow_c_stream__``, for which pyarrow must be
    installed. A Series of pandas is the list of its values. Items of data sets of Hugging Face are rows
    already; they are dicts whatever format was set.

    Raises:
        ExampleTypeError: when two columns have one name, when it is a single row, or a loader of batches.
    """
    kind = type(examples)
    if kind is list or kind is tuple:
        return examples
    if hasattr(kind, "collect_schema") and hasattr(kind, "collect"):  # a LazyFrame
        examples = examples.collect()
        kind = type(examples)
    if hasattr(kind, "iterrows") or (hasattr(kind, "to_dicts") and not hasattr(kind, "fetchall")):
        _check_columns(examples, list(examples.columns))
        return FrameRows(examples)
    if hasattr(kind, "iloc"):
        return _of_series(examples)
    if hasattr(examples, "collate_fn") and hasattr(examples, "dataset"):
        return _of_loader(examples)
    library = str(kind.__module__).partition(".")[0]  # classes that are made at run time have None
    if library == "datasets":
        return _of_data_set(examples)
    if library == "pyarrow":
        return _of_arrow(examples)
    if hasattr(kind, "__arrow_c_stream__"):
        return _of_stream(examples)
    return examples


def _of_arrow(examples: Table) -> object:
    """Return the rows of a table or an array of Arrow."""
    array = examples
    if hasattr(array, "to_struct_array"):  # of two columns of one name no dict can be made
        _check_columns(examples, list(array.column_names))
        array = array.to_struct_array()
    elif hasattr(array, "read_all"):
        return _of_arrow(array.read_all())
    elif hasattr(array, "to_table"):  # a data set, or what scans one
        return _of_arrow(array.to_table())
    elif hasattr(array, "read_row_groups"):  # a file of Parquet
        return _of_arrow(array.read())
    if hasattr(array, "num_chunks"):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if hasattr(array, "to_pylist"):
        return ArrowRows(array)
    fix = "for a single example, pass array.slice(i, 1)"
    raise ExampleTypeError("examples", "a table or an array of Arrow", describe_value(examples), fix)


def _of_data_set(examples: Table) -> object:
    """Return a data set of Hugging Face such that its items are dicts, not tables of one row.

    Of one that is held and makes objects of Python, the rows are read many at a time.
    """
    form = getattr(examples, "format", None) or {"type": getattr(examples, "_formatting", None)}
    name = getattr(form["type"], "format_type", form["type"])
    if name in ("arrow", "pandas", "polars"):
        examples, name = examples.with_format(None), None
    is_held = hasattr(type(examples), "__len__") and bool(getattr(examples, "column_names", None))
    return DataSetRows(examples) if name is None and is_held else examples


def _of_stream(examples: object) -> object:
    """Return the rows of what speaks Arrow's protocol: a table, or a single column."""
    if hasattr(examples, "to_list"):
        return ColumnRows(list(examples.to_list()))
    if not find_spec("pyarrow"):
        fix = f"{install('arrow')}, or give a list of dicts"
        actual = f"{describe_value(examples)}, which is read by pyarrow"
        raise ExampleTypeError("examples", "a table that can be read", actual, fix)
    from foldbatch.trees.arrow import from_stream  # noqa: PLC0415 - it is needed for such tables alone

    return _of_arrow(from_stream(examples))


def _of_series(examples: Table) -> object:
    """Return the values of a column of pandas; refuse a single row, whose labels are names."""
    labels = list(examples.index)
    if labels and all(isinstance(label, str) for label in labels):
        fix = "write [row] for one row, column.tolist() for a column"
        actual = f"{describe_value(examples)} with names: one row"
        raise ExampleTypeError("examples", "an iterable of examples", actual, fix)
    return ColumnRows(examples.tolist())


def _of_loader(examples: object) -> object:
    if getattr(examples, "batch_size", None) is None and getattr(examples, "batch_sampler", None) is None:
        return examples  # its items are examples
    fix = "give its data set, loader.dataset, and a Trainer its batch_size"
    actual = f"{describe_value(examples)}, whose items are batches"
    raise ExampleTypeError("examples", "an iterable of examples", actual, fix)


def _check_columns(examples: object, names: list[object]) -> None:
    if len(set(names)) < len(names):
        actual = f"{describe_value(examples)} with two columns of one name"
        raise ExampleTypeError("examples", "a table whose columns have different names", actual, "rename one")


def chosen(examples: Sequence[object], indices: Iterable[int]) -> list[Row]:
    """Return some examples by their indices."""
    return examples.taken(list(indices)) if isinstance(examples, Rows) else [examples[i] for i in indices]
