"""Tables of other libraries as those of pyarrow, which importing this module needs."""

from typing import Any

import pyarrow as pa


def from_stream(source: object) -> Any:
    """Return the table, or the column, that an object offers by Arrow's protocol.

    >>> from_stream(pa.table({"a": [1, 2]})).num_rows, from_stream(pa.chunked_array([[1, 2]])).to_pylist()
    (2, [1, 2])
    """
    try:
        return pa.table(source)
    except (pa.ArrowInvalid, TypeError):  # it is a column
        return pa.chunked_array(source)
