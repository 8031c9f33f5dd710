"""The components of a model's cells: cells that call each other, directly or through others."""

from __future__ import annotations

from functools import lru_cache

from foldbatch.scheduler.trace import CellSignature


@lru_cache(256)
def components(cells: tuple[CellSignature, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the cells of each component, in the order in which components run.

    >>> a, b, c = (CellSignature(name, i, True, (), (0,), 1) for name, i in (("a", 1), ("b", 0), ("c", 1)))
    >>> components((a, b, c))
    ((1,), (0, 2))
    """
    members: dict[int, list[int]] = {}
    for k, cell in enumerate(cells):
        members.setdefault(cell.component, []).append(k)
    return tuple([tuple(members[component]) for component in sorted(members)])


@lru_cache(256)
def is_recursion(cells: tuple[CellSignature, ...], members: tuple[int, ...]) -> bool:
    """Return whether some cells are one component, and call themselves."""
    return len({cells[k].component for k in members}) == 1 and any(cells[k].recursive for k in members)


@lru_cache(256)
def priority(cells: tuple[CellSignature, ...]) -> tuple[int, ...]:
    """Return the cells in the order in which they choose rows: recursive ones first."""
    return tuple(sorted(range(len(cells)), key=lambda k: (not cells[k].recursive, cells[k].component)))
