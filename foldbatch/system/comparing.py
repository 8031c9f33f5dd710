"""Comparing what users' code reads at two times: by identity, and where that differs, by contents."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

COMPARED_LEVELS: Final = 50  # levels of nests that are compared


def means_same(first: Any, second: Any, levels: int = COMPARED_LEVELS) -> bool:
    """Return whether two things mean the same to code that reads them.

    Containers, arrays, dataclasses and functions are compared by what they hold, a function by its code and
    its closure, and everything else by identity or as Python compares it.

    >>> means_same([1, np.ones(2)], [1, np.ones(2)])
    True
    >>> means_same([1], [True]), means_same(lambda: 1, lambda: 2)
    (False, False)
    """
    if first is second:
        return True
    if type(first) is not type(second) or not levels:
        return False
    below = levels - 1
    match first:
        case dict():
            keys = [*first], [*second]
            values = [*first.values()], [*second.values()]
            return means_same(*keys, below) and means_same(*values, below)
        case list() | tuple():
            pairs = zip(first, second, strict=False)
            return len(first) == len(second) and all(means_same(a, b, below) for a, b in pairs)
        case np.ndarray() | np.generic():
            alike = first.dtype == second.dtype and first.shape == second.shape
            return bool(alike and first.tobytes() == second.tobytes())
        case float():
            return bool(first.hex() == second.hex())
        case FunctionType():
            return first.__code__ == second.__code__ and means_same(
                _contents_of(first), _contents_of(second), below
            )
        case MethodType():
            return first.__func__ is second.__func__ and first.__self__ is second.__self__
        case partial():
            return means_same(
                [first.func, first.args, first.keywords], [second.func, second.args, second.keywords], below
            )
    if is_dataclass(first):
        names = [field.name for field in fields(first)]
        return means_same([getattr(first, n) for n in names], [getattr(second, n) for n in names], below)
    try:
        return bool(first == second)
    except Exception:  # noqa: BLE001 - what cannot be compared is not the same
        return False


def _contents_of(function: FunctionType) -> list[object]:
    """Return the values that a function holds besides its code: its closure and its defaults."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # it has none yet
            cells.append(...)
    return [cells, function.__defaults__, function.__kwdefaults__]
