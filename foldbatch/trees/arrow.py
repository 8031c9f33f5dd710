"""Tables of other libraries as those of pyarrow, which importing this module needs."""

import os
from collections.abc import Iterator, Sequence
from glob import glob, has_magic
from typing import Any

import pyarrow as pa
from pyarrow import dataset

from foldbatch.errors import ReadError


def from_stream(source: object) -> object:
    """Return the table, or the column, that an object offers by Arrow's protocol.

    >>> from_stream(pa.table({"a": [1, 2]})).num_rows, from_stream(pa.chunked_array([[1, 2]])).to_pylist()
    (2, [1, 2])
    """
    try:
        return pa.table(source)
    except (pa.ArrowInvalid, TypeError):  # it is a column
        return pa.chunked_array(source)


def concatenated(arrays: Sequence[object]) -> object:
    """Return the rows of arrays of one type as an array.

    >>> concatenated([pa.array([1]), pa.array([2])]).to_pylist()
    [1, 2]
    """
    return pa.concat_arrays(arrays)


def parquet_files(path: str | os.PathLike[str]) -> Any:
    """Return the data set of a file of Parquet, of those in a folder, or of those that a pattern names.

    Raises:
        ReadError: when there is no such file, or one is none of Parquet.
    """
    name = os.fspath(path)
    listed = sorted(glob(name)) if has_magic(name) and not os.path.exists(name) else [name]  # noqa: PTH110, PTH207
    fix = "name a file, a folder, or a pattern in quotes, such as 'folder/*.parquet'"
    if not listed:
        raise ReadError(name, "files of Parquet", "none", fix)
    try:
        source = listed[0] if len(listed) == 1 else listed
        files = dataset.dataset(source, format=dataset.ParquetFileFormat())
        columns = files.schema.names
    except (OSError, ValueError) as error:  # those of Arrow are these
        raise ReadError(name, "files of Parquet", str(error).splitlines()[0], fix) from None
    if not files.files:
        raise ReadError(name, "files of Parquet", "none", fix)
    if len(set(columns)) < len(columns):
        raise ReadError(name, "columns of different names", "two of one name", "rename one")
    return files


def parquet_samples(path: str | os.PathLike[str], key: str) -> Iterator[tuple[object, Any]]:
    """Yield the records of files of Parquet without their label, and the label at a key.

    Raises:
        ReadError: as `parquet_files`, and when there is no such column.
    """
    files = parquet_files(path)
    check_column(files, os.fspath(path), key)
    for batch in files.to_batches(batch_size=1024, batch_readahead=4, fragment_readahead=1):
        for record in batch.to_pylist():
            label = record.pop(key)
            yield record, label


def parquet_records(path: str | os.PathLike[str]) -> Iterator[tuple[dict[str, object], str]]:
    """Yield the rows of files of Parquet as records, each with its file and its number there.

    Raises:
        ReadError: as `parquet_files`, and when a file is damaged.
    """
    for fragment in parquet_files(path).get_fragments():
        number = 0
        try:
            for batch in fragment.to_batches(batch_size=1024, batch_readahead=4, fragment_readahead=1):
                for record in batch.to_pylist():
                    yield record, f"{fragment.path}, row {number}"
                    number += 1
        except (OSError, ValueError) as error:  # those of Arrow are these
            where, actual = f"{fragment.path}, row {number}", str(error).splitlines()[0]
            raise ReadError(where, "a whole file of Parquet", actual, "write it again") from None


def check_column(files: Any, where: str, key: str) -> None:
    """Refuse a data set without a column."""
    names = files.schema.names
    if key not in names:
        fix = "set data.label to the column of the label; an unknown label is null"
        raise ReadError(where, f"a column {key!r}", f"the columns {', '.join(names)}", fix)
