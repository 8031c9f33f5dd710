"""Comparing what users' code reads at two times: by identity, and where that differs, by contents."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

DEEPEST: Final = 50  # levels of nests that are compared


def same(first: Any, second: Any, levels: int = DEEPEST) -> bool:
    """Return whether two things mean the same to code that reads them.

    Containers, arrays, dataclasses and functions are compared by what they hold, a function by its code and
    its closure, and everything else by identity or as Python compares it.

    >>> same([1, np.ones(2)], [1, np.ones(2)]), same([1], [True]), same(lambda: 1, lambda: 2)
    (True, False, False)
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
            return same(*keys, below) and same(*values, below)
        case list() | tuple():
            pairs = zip(first, second, strict=False)
            return len(first) == len(second) and all(same(a, b, below) for a, b in pairs)
        case np.ndarray() | np.generic():
            alike = first.dtype == second.dtype and first.shape == second.shape
            return bool(alike and first.tobytes() == second.tobytes())
        case float():
            return bool(first.hex() == second.hex())
        case FunctionType():
            return first.__code__ == second.__code__ and same(_held(first), _held(second), below)
        case MethodType():
            return first.__func__ is second.__func__ and first.__self__ is second.__self__
        case partial():
            return same(
                [first.func, first.args, first.keywords], [second.func, second.args, second.keywords], below
            )
    if is_dataclass(first):
        names = [field.name for field in fields(first)]
        return same([getattr(first, n) for n in names], [getattr(second, n) for n in names], below)
    try:
        return bool(first == second)
    except Exception:  # noqa: BLE001 - what cannot be compared is not the same
        return False


def _held(function: FunctionType) -> list[Any]:
    """Return what a function holds besides its code: what it closes over, and its defaults."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(cell.cell_contents)
        except ValueError:  # it has none yet
            cells.append(...)
    return [cells, function.__defaults__, function.__kwdefaults__]
