"""Records: examples that lie in columns, such as Arrow arrays, made Python objects when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Records(Sequence[Any]):
    """Examples that lie in columns."""

    # returns the Python objects of some rows, given the rows' numbers
    make: Callable[[NDArray[Any]], list[Any]]
    rows: NDArray[Any]  # ``[len]``: the rows that hold these examples

    def __repr__(self) -> str:
        return f"Records({len(self)} examples)"

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Records: ...

    def __getitem__(self, index: int | slice) -> Any:
        """Return an example as a Python object, or several as records."""
        if isinstance(index, slice):
            return replace(self, rows=self.rows[index])
        return self.make(self.rows[[index]])[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects())

    def objects(self) -> list[Any]:
        """Return the examples as Python objects."""
        return self.make(self.rows)


def chosen(examples: Sequence[Any], indices: Sequence[int]) -> Sequence[Any]:
    """Return some examples by their indices, records as records.

    >>> chosen("abc", [2, 0])
    ['c', 'a']
    """
    if type(examples) is Records:
        return replace(examples, rows=examples.rows[np.asarray(indices, np.int64)])
    return [examples[i] for i in indices]
