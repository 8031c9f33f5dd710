"""Rounds of walks that decide, each planned by one compiled call: `round_loops.planned`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from foldbatch.engines.bindings import Bound
from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.llvm import round_loops, table_loops
from foldbatch.engines.llvm.compiling import compiled_function
from foldbatch.engines.llvm.round_loops import ARENAS, IMPORTS, NOTED, NUMBERS, SECTIONS
from foldbatch.engines.llvm.tables import launch_numbers, plan_numbers
from foldbatch.scheduler.layout import Layout
from foldbatch.scheduler.policies import Policy
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.sharing import nothing

SIGNATURE = " ".join(["i8[]"] * 10 + ["i4[]"] * 2 + ["i8[]"] * 6)
LARGE = 4096  # numbers noted or made from which a round is planned as any batch


# `round_loops.planned` compiled, when it is first called
COMPILED = partial(compiled_function, round_loops.planned, SIGNATURE, round_loops, table_loops)


class RoundPlanner:
    """Plans the rounds of a phase of a model, given its routines, and what returns the loops."""

    def __init__(self, bound: Bound, planned: Callable[[], Callable[..., int]] = COMPILED) -> None:
        self._bound, self._planned, self._arrays = bound, planned, list[Any]()
        self._width = bound.places.shape[1]

    def plan(self, policy: Policy, layout: Layout, flat: Index, told: Sequence[int], *learnt: Index) -> Any:
        """Return what runs a round until the next one is planned; None where it is large, new or wrong.

        It returns a function of a cell's number, which gives its calls by rank; the launches; where values of
        import cells lie, and how many each has; the rows that are kept, and how many of each arena.

        It is given the program's policy and layout, all that was noted, what is told of it, and what
        `round_loops.planned` knows.
        """
        length, total, imports, arenas = told[NOTED], told[NUMBERS], told[IMPORTS], told[ARENAS]
        arrays = self._arrays or self._room(layout, imports + told[SECTIONS] + arenas + 1)
        memory, _, rows, _, batch, tables, _, numbers, launches = arrays
        if batch is None or policy.alone is None or max(length, total) > LARGE:
            return None
        if self._planned()(flat, np.array(told, np.int64), *learnt, *arrays) < 0:
            return None
        ahead, _, _, _, heights, bounds, mirror = numbers[: table_loops.TOLD_OF_LAUNCHES].tolist()
        table = LaunchTable(
            launches[: self._width * ahead].reshape(-1, self._width),
            numbers[bounds:mirror].reshape(-1, 2),
            tables[tables[table_loops.INDEX] :],
            numbers[heights:bounds],
        )

        def order(cell: int) -> Index:
            first = tables[tables[table_loops.CELLS_AT] + cell * table_loops.CELL + table_loops.FIRST]
            ranks: Index = tables[tables[table_loops.RANKS] + first :][: rows[1 + cell]]
            return ranks

        counts, end = memory[:imports].tolist(), imports + told[SECTIONS] + 1 + length + total
        kept = memory[end + sum(counts) :]
        return order, table, memory[end:], counts, kept[arenas:], kept[:arenas].tolist()

    def _room(self, layout: Layout, more: int) -> list[Any]:
        """Return other arguments of `round_loops.planned`, from the memory on, as large as they will be."""
        cells, (bound, size, width) = self._bound.model.signatures, launch_numbers(self._bound)
        none, arenas = ((),) * len(cells), len(self._bound.model.arenas)
        fixed, batch = plan_numbers(cells, arenas, layout, nothing, none)
        steps = (1 + self._bound.training) * (LARGE + table_loops.STAGES * len(cells))
        of_call = fixed.value + max(fixed.calls) + fixed.ragged
        size += int(fixed.numbers[table_loops.FACTS]) + 2 * steps
        memory, tables = (np.empty(n, np.int64) for n in (more + 7 * LARGE, fixed.more + 2 * LARGE * of_call))
        made, rows = np.empty(LARGE, np.int32), np.empty(more + 4 * LARGE, np.int32)
        launches = bound, np.empty(size, np.int64), np.empty(steps * table_loops.STAGES * width, np.int64)
        self._arrays += (memory, made, rows, fixed.numbers, batch, tables, *launches)
        return self._arrays
