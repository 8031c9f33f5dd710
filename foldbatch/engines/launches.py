"""From a schedule to the launch tables of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound, Key
from foldbatch.engines.facts import facts_of
from foldbatch.engines.launch import HEAD, Ints, LaunchTable
from foldbatch.params import Parameter
from foldbatch.scheduler.schedule import Schedule

# The backward stage that corresponds to a forward one: what ran last must be undone first.
MIRROR = {"before": "after", "step": "step", "after": "before"}


class StepRun(NamedTuple):
    """Steps of the same stages of one cell that follow each other: the first, and the one after the last."""

    cell: int
    stages: tuple[str, ...]
    first: int
    last: int


class Launch(NamedTuple):
    """A kernel on some levels: the first, and the one after the last."""

    kernel: int
    first: int
    last: int


class Directions(NamedTuple):
    """What a batch runs: the launch tables forward, and while training backward.

    `yields` says how many levels yield a gradient of each parameter; `numbers`, ``[*] int64``, are the
    batch's facts and then what is fixed, of which `rows_of` makes launches.
    """

    forward: LaunchTable
    backward: LaunchTable | None
    yields: Mapping[Parameter, int]
    numbers: Ints


def launch_tables(bound: Bound, schedule: Schedule) -> Directions:
    """Return what a batch launches."""
    steps = schedule.steps
    bounds = np.array([step[2:] for step in steps], np.int64).reshape(-1, 2)
    groups: list[StepRun] = []
    for (cell, stages), group in groupby(steps, key=itemgetter(0, 1)):
        first = groups[-1].last if groups else 0
        groups.append(StepRun(cell, stages, first, first + sum(1 for _ in group)))
    forward = _launches(bound, groups, "forward")
    backward: list[Launch] = []
    if bound.training:
        count = len(steps)
        mirrored = (
            StepRun(
                cell,
                stages if len(stages) == len(MIRROR) else tuple([MIRROR[stage] for stage in stages]),
                count - last,
                count - first,
            )
            for cell, stages, first, last in reversed(groups)
        )
        backward = _launches(bound, mirrored, "backward")
    yields = dict.fromkeys(bound.summed, 0)
    for kernel, first, last in backward:
        for parameter in bound.gradients[kernel]:
            yields[parameter] += last - first
    facts, index = facts_of(schedule, _widest(schedule, groups, bounds))
    facts += [int(levels == 1) for levels in yields.values()]  # then it is stored, and not summed
    values = np.array(facts, np.int64)
    heights = _heights(bound, values)
    numbers = np.concatenate([values, bound.fixed])
    tables = [LaunchTable(rows_of(bound, numbers, forward), bounds, index, heights)]
    if bound.training:
        mirror = np.ascontiguousarray(bounds[::-1])
        tables.append(LaunchTable(rows_of(bound, numbers, backward), mirror, index, heights))
    return Directions(tables[0], tables[1] if bound.training else None, yields, numbers)


def _launches(bound: Bound, groups: Iterable[StepRun], direction: str) -> list[Launch]:
    """Return the launches of one direction.

    Steps of one stage are one launch. Of several stages, a step goes through all before the next step does.
    """
    launches = []
    for cell, stages, first, last in groups:
        numbers = [bound.numbers.get(Key(cell, direction, stage)) for stage in stages]
        kernels = [number for number in numbers if number is not None]
        if len(stages) == 1:
            launches += [Launch(kernel, first, last) for kernel in kernels]
        else:
            launches += [
                Launch(kernel, level, level + 1) for level in range(first, last) for kernel in kernels
            ]
    return launches


def _widest(schedule: Schedule, groups: Sequence[StepRun], bounds: Ints) -> dict[int, tuple[int, ...]]:
    """Return, per cell, the calls of its widest step, and for each sequence the elements of the widest."""
    widest = {k: (0,) * (1 + len(table.segments)) for k, table in enumerate(schedule.cells)}
    for cell, stages, first, last in groups:
        if "step" in stages:
            starts, stops = bounds[first:last, 0], bounds[first:last, 1]
            sizes = [int((stops - starts).max())]
            sizes += [
                int((segments[stops] - segments[starts]).max()) for segments in schedule.cells[cell].segments
            ]
            widest[cell] = tuple(map(max, widest[cell], sizes))
    return widest


def _heights(bound: Bound, facts: Ints) -> Ints:
    """Return how many rows each buffer must have: ``[buffers]``."""
    heights = np.zeros(len(bound.types), np.int64)
    buffers, extents, gates, widths = bound.uses
    np.maximum.at(heights, buffers, facts[extents] * facts[gates] * widths)
    return heights


def rows_of(bound: Bound, numbers: Ints, launches: Sequence[Launch]) -> Ints:
    """Return the rows of a launch table; ``numbers: [*]`` are a batch's facts, then what is fixed."""
    heads = np.array(launches, np.int64).reshape(-1, HEAD)
    rows: Ints = numbers.take(bound.places.take(heads[:, 0], axis=0))
    rows[:, :HEAD] = heads
    return rows
