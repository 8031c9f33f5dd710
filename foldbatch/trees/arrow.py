"""Arrow: arrays of pyarrow as records, read where they lie; the extra ``arrow``."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from foldbatch.trees.records import ColumnStore, Records

VALUE_BYTES = 8  # about the size of a value


def read_arrow(data: Any) -> Records | None:
    """Return records in Arrow data, equal to ``data.to_pylist()``; None of what is no sequence.

    >>> records = read_arrow(pa.array([{"id": 1}, {"id": None}, {"id": 3}]).slice(1))
    >>> len(records), list(records)
    (2, [{'id': None}, {'id': 3}])
    """
    if isinstance(data, pa.Table | pa.RecordBatch):
        if len(set(data.schema.names)) < len(data.schema.names):
            return None  # no dict has two items of one key
        data = data.to_struct_array()
    if isinstance(data, pa.ChunkedArray):
        data = data.combine_chunks() if data.num_chunks != 1 else data.chunk(0)
    if isinstance(data, pa.ChunkedArray):  # it is too large for one array
        return None
    if not isinstance(data, pa.Array):
        return None
    try:
        size = data.nbytes
    except pa.ArrowTypeError:  # before pyarrow 24, of views of strings
        size = data.get_total_buffer_size()
    weight = size / VALUE_BYTES / max(len(data), 1)
    return Records(cache(partial(_store, data)), partial(_objects, data), np.arange(len(data)), weight)


def _store(array: Any) -> ColumnStore:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return ColumnStore(len(array), partial(_objects, array), absent=_absent(array))
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if len(set(names)) == len(names):
            parts = {name: _store(part) for name, part in zip(names, array.flatten(), strict=True)}
            return ColumnStore(len(array), partial(_objects, array), absent=_absent(array), fields=parts)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        ends = array.offsets.to_numpy(zero_copy_only=False)
        starts, lengths = ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64)
        return _lists(array, starts, lengths, array.values)
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        starts = (np.arange(len(array)) + array.offset) * width
        return _lists(array, starts, np.full(len(array), width), array.values)
    return _leaf(array)


def _lists(array: Any, starts: NDArray[Any], lengths: NDArray[Any], values: Any) -> ColumnStore:
    """Return the column of lists; what lies before and behind them is cut off."""
    first = int(starts[0]) if len(starts) else 0
    end = int(starts[-1] + lengths[-1]) if len(starts) else 0
    items = _store(values.slice(first, end - first))
    bounds = starts - first, lengths
    return ColumnStore(
        len(array), partial(_objects, array), absent=_absent(array), bounds=bounds, items=items
    )


def _leaf(array: Any) -> ColumnStore:
    kind, absent = array.type, _absent(array)
    numbers: NDArray[Any] | None = None
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
        filled = array if absent is None else pc.fill_null(array, pa.scalar(0).cast(kind))
        numbers = filled.to_numpy(zero_copy_only=False)
        if kind == pa.uint64() and len(numbers) and numbers.max() > np.iinfo(np.int64).max:
            numbers = None  # NumPy reads such Python ints in several ways
    encode = None
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind):
        encode = partial(_encoded, array)
    elif pa.types.is_boolean(kind) and absent is None and numbers is not None:
        codes = numbers.view(np.int8).astype(np.int64)
        return ColumnStore(
            len(array), partial(_objects, array), lambda: (codes, (False, True)), numbers=numbers
        )
    elif pa.types.is_dictionary(kind) and not pa.types.is_nested(kind.value_type):  # lists are never shared
        encode = partial(_encoded, array)
    return ColumnStore(len(array), partial(_objects, array), encode, absent, numbers=numbers)


def _objects(array: Any, rows: NDArray[Any]) -> list[Any]:
    if len(rows) and len(rows) == rows[-1] - rows[0] + 1 and (np.diff(rows) == 1).all():
        return array.slice(int(rows[0]), len(rows)).to_pylist()  # type: ignore[no-any-return]
    try:
        return array.take(pa.array(rows)).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowNotImplementedError:  # of views of strings and a few more types
        return [array[row].as_py() for row in rows.tolist()]


def _encoded(array: Any) -> tuple[NDArray[Any], Sequence[Any]]:
    """Return numbers of rows' objects, and the objects: one for all that are equal."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    objects = array.dictionary.to_pylist()
    codes = pc.fill_null(array.indices.cast(pa.int64()), len(objects)).to_numpy(zero_copy_only=False)
    return codes, [*objects, None]


def _absent(array: Any) -> NDArray[Any] | None:
    if not array.null_count and not pa.types.is_dictionary(array.type):
        return None
    absent = array.is_null().to_numpy(zero_copy_only=False)  # of a dictionary, its values that are None, too
    return absent if absent.any() else None
