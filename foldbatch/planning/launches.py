"""From a schedule to the launches of a model's routines: `table_loops.write_launches` writes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from foldbatch.planning import table_loops
from foldbatch.planning.compiled import loops
from foldbatch.planning.facts import flat_of
from foldbatch.scheduler.schedule import Index, Schedule


class LaunchConstants(NamedTuple):
    """The inputs of `table_loops.write_launches` that are the same for all batches of a model."""

    table: Index  # the header `table_loops.Routines` with its tables
    base: int  # integers of output memory that any batch takes, besides its facts and levels
    width: int  # integers of a launch
    training: bool  # whether there is a backward direction


@dataclass(frozen=True, slots=True)
class Launches:
    """The launches of a batch, see `foldbatch.engines.launch.LaunchTable`."""

    forward: Index  # ``[launches, width] int64``
    backward: Index  # of inference none
    bounds: Index  # ``[levels, 2] int64``
    mirrored: Index  # the same for the backward direction
    index: Index  # ``[*] int64``: all index arrays
    heights: Index  # ``[buffers] int64``
    yields: Index  # ``[parameters] int64``: how many levels yield a gradient of each parameter
    numbers: Index  # ``[*] int64``: facts, a flag for each parameter, constants


def launch_constants(
    stages: Index,
    gradients: Sequence[Sequence[int]],
    parameters: int,
    uses: Index,
    places: Index,
    fixed: Index,
    buffers: int,
    *,
    training: bool,
) -> LaunchConstants:
    """Return the constants of a model's routines.

    Args:
        stages: ``[2, cells, stages]``: the kernel of each stage of each cell, -1 where there is none, forward
            and then backward.
        gradients: of each kernel, the numbers of the parameters whose gradients it yields.
        parameters: how many there are.
        uses: ``[4, uses]``: kernels' needs for rows of buffers, see `foldbatch.engines.bindings.Bound`.
        places: ``[kernels, width]``: where each number of a launch stands, see there.
        fixed: ``[*]``: the numbers of launches that no batch changes.
        buffers: how many there are.
        training: whether there is a backward direction.
    """
    yielding = np.cumsum([0, *map(len, gradients)])
    yielded = np.array([number for numbers in gradients for number in numbers], np.int64)
    width = places.shape[1]
    tables = [stages.ravel(), yielding, yielded, uses.ravel(), places.ravel(), fixed]
    starts = accumulate(map(len, tables[:-1]), initial=table_loops.Routines.size)
    counts = stages.shape[1], parameters, uses.shape[1], buffers, len(fixed), width
    table = np.concatenate([np.array([*counts, training, *starts], np.int64), *tables])
    base = table_loops.Launches.size + len(fixed) + 2 * parameters + buffers
    return LaunchConstants(table, base, width, training)


def launches_of(constants: LaunchConstants, schedule: Schedule) -> Launches:
    """Return the launches of a batch, given its schedule."""
    flat = flat_of(schedule)
    header, width = flat.header, constants.width
    directions = 1 + constants.training
    levels = header[table_loops.Tables.steps]
    facts = header[table_loops.Tables.zeros] - header[table_loops.Tables.facts_at]
    memory = np.empty(constants.base + facts + 2 * levels * directions, np.int64)
    launches = np.empty(levels * directions * table_loops.STAGES * width, np.int64)  # an upper bound
    loops().write_launches(constants.table, flat.memory, memory, launches)
    ahead, back, numbers, yields, heights, bounds, mirror = memory[: table_loops.Launches.size].tolist()
    rows = launches[: width * (ahead + back)].copy().reshape(-1, width)
    first = header[table_loops.Tables.index]
    return Launches(
        rows[:ahead],
        rows[ahead:],
        memory[bounds:mirror].reshape(-1, 2),
        memory[mirror:].reshape(-1, 2),
        flat.memory[first : first + header[table_loops.Tables.index_end]],
        memory[heights:bounds],
        memory[yields:heights],
        memory[numbers:yields],
    )
