"""Arrow: arrays of pyarrow as records; the extra ``arrow``."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foldbatch.trees.records import Records


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
    return Records(partial(_objects, data), np.arange(len(data)))


def _objects(array: Any, rows: NDArray[Any]) -> list[Any]:
    if len(rows) and len(rows) == rows[-1] - rows[0] + 1 and (np.diff(rows) == 1).all():
        return array.slice(int(rows[0]), len(rows)).to_pylist()  # type: ignore[no-any-return]
    try:
        return array.take(pa.array(rows)).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowNotImplementedError:  # of views of strings and a few more types
        return [array[row].as_py() for row in rows.tolist()]
