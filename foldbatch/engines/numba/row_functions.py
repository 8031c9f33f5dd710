"""What a loop over levels calls to move rows: between an arena and rows that lie side by side.

Importing this needs Numba. All arrays have two axes, ``[rows, numbers]``, and no gaps.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from foldbatch.engines.numba.vector_functions import OPTIONS, flat, u8


def _gather(arena: Any, rows: Any, out: Any) -> None:
    a, o, width = flat(arena), flat(out), u8(out.shape[1])
    for i in range(u8(rows.shape[0])):
        start = u8(rows[i]) * width
        for j in range(width):
            o[i * width + j] = a[start + j]


def _scatter(values: Any, rows: Any, arena: Any) -> None:
    v, a, width = flat(values), flat(arena), u8(values.shape[1])
    for i in range(u8(rows.shape[0])):
        start = u8(rows[i]) * width
        for j in range(width):
            a[start + j] = v[i * width + j]


def _add_at(values: Any, rows: Any, arena: Any) -> None:
    v, a, width = flat(values), flat(arena), u8(values.shape[1])
    for i in range(u8(rows.shape[0])):  # rows may repeat: in the order of the batch
        start = u8(rows[i]) * width
        for j in range(width):
            a[start + j] += v[i * width + j]


def _keep(values: Any, out: Any) -> None:
    v, o = flat(values), flat(out)
    for i in range(u8(out.shape[0]) * u8(out.shape[1])):
        o[i] = v[i]


def _add(values: Any, out: Any) -> None:
    v, o = flat(values), flat(out)
    for i in range(u8(out.shape[0]) * u8(out.shape[1])):
        o[i] += v[i]


_MOVES = {"gather": _gather, "scatter": _scatter, "add_at": _add_at, "keep": _keep, "add": _add}
FUNCTIONS: dict[str, Any] = {name: njit(**OPTIONS)(function) for name, function in _MOVES.items()}
