"""What examples are given as: rows of Arrow data, or any objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foldbatch.errors import ExampleTypeError
from foldbatch.types import describe_value


@dataclass(frozen=True, slots=True, eq=False)
class Rows(Sequence[Any]):
    """Rows of an Arrow array, made Python objects when they are asked for."""

    array: Any

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: int | slice) -> Any:
        part = self.array[index]
        return part.to_pylist() if isinstance(index, slice) else part.as_py()


def rows_of(examples: Any) -> Any:
    """Return the rows of an Arrow array, chunked array, table or record batch; anything else as it is.

    Raises:
        ExampleTypeError: when it is a DataFrame of pandas, whose items are names of columns, or something of
            Arrow that has no rows.
    """
    if hasattr(examples, "iterrows"):
        fix = "its items are names of columns; give examples.to_dict('records')"
        raise ExampleTypeError("examples", "an iterable of examples", describe_value(examples), fix)
    if type(examples).__module__.partition(".")[0] != "pyarrow":
        return examples
    array = examples
    if hasattr(array, "to_struct_array"):  # of two columns of one name no dict can be made
        array = array.to_struct_array() if len({*array.column_names}) == array.num_columns else None
    if hasattr(array, "num_chunks"):
        array = array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()
    if hasattr(array, "to_pylist"):
        return Rows(array)
    fix = "for a single example, pass array.slice(i, 1); rename columns of one name"
    expected = "an Arrow array, or a table whose columns have different names"
    raise ExampleTypeError("examples", expected, describe_value(examples), fix)


def chosen(examples: Sequence[Any], indices: Iterable[int]) -> list[Any]:
    """Return some examples by their indices."""
    if isinstance(examples, Rows):
        try:
            return examples.array.take(list(indices)).to_pylist()  # type: ignore[no-any-return]
        except NotImplementedError:  # of views of strings and a few more types
            pass
    return [examples[i] for i in indices]
