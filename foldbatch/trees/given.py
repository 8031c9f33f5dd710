"""What examples are given as: records in Arrow arrays, or any objects."""

from __future__ import annotations

from typing import Any

from foldbatch.errors import ExampleTypeError
from foldbatch.trees.records import Records
from foldbatch.types import describe_value


def is_arrow(x: object) -> bool:
    """Return whether an object is one of pyarrow's, which need not be installed.

    >>> is_arrow([1])
    False
    """
    return type(x).__module__.partition(".")[0] == "pyarrow"


def records_of(examples: Any) -> Records | None:
    """Return the records in an Arrow array, chunked array, table or record batch; None of anything else.

    Raises:
        ExampleTypeError: when it is a DataFrame of pandas, whose items are names of columns.

    >>> records_of([1, 2]) is None
    True
    """
    if isinstance(examples, Records):
        return examples
    if hasattr(examples, "iterrows"):
        fix = "its items are names of columns; give examples.to_dict('records')"
        raise ExampleTypeError("examples", "an iterable of examples", describe_value(examples), fix)
    if not is_arrow(examples):
        return None
    from foldbatch.trees.arrow import read_arrow  # noqa: PLC0415 - it needs pyarrow

    return read_arrow(examples)
