"""From a schedule to launch tables, in NumPy: an oracle of `foldbatch.planning.launches`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter

import numpy as np

from foldbatch.engines.bindings import Bound, Directions, Launch, rows_of
from foldbatch.engines.launch import Ints, LaunchTable
from foldbatch.planning.facts import facts_of, widest_steps
from foldbatch.scheduler.schedule import ALL, Schedule, Step

# The backward stage that corresponds to a forward one: what ran last must be undone first.
MIRROR = {"before": "after", "step": "step", "after": "before"}


def launch_tables(bound: Bound, schedule: Schedule) -> Directions:
    """Return the launch tables of a scheduled batch."""
    steps, yields = schedule.steps, dict.fromkeys(bound.summed, 0)
    bounds = np.array([step[2:] for step in steps], np.int64).reshape(-1, 2)
    runs = _runs(steps)
    forward, backward = _launches(bound.stages["forward"], runs), list[Launch]()
    if bound.training:
        back = [_mirrored(step, len(steps)) for step in reversed(runs)]
        backward = _launches(bound.stages["backward"], back)
    for kernel, first, last in backward:
        for parameter in bound.gradients[kernel]:
            yields[parameter] += last - first
    facts, index = facts_of(schedule, list(widest_steps(schedule)))
    facts += [int(count == 1) for count in yields.values()]  # then it is stored, and not summed
    values = np.array(facts, np.int64)
    heights = _heights(bound, values)
    numbers = np.concatenate([values, bound.fixed])
    table = LaunchTable(rows_of(bound, numbers, forward), bounds, index, heights)
    if not bound.training:
        return Directions(table, None, yields, numbers)
    mirror = np.ascontiguousarray(bounds[::-1])
    back_table = LaunchTable(rows_of(bound, numbers, backward), mirror, index, heights)
    return Directions(table, back_table, yields, numbers)


def _runs(steps: Sequence[Step]) -> list[Step]:
    """Return the runs of steps that one launch a kernel serves: its first step, and the one after the last.

    Steps of one stage of a cell that follow each other are one; a step of all stages is a run of its own.
    """
    runs, first = list[Step](), 0
    for (cell, stages), alike in groupby(steps, itemgetter(0, 1)):
        last = first + len(list(alike))
        length = 1 if stages == ALL else last - first
        runs += [Step(cell, stages, number, number + length) for number in range(first, last, length)]
        first = last
    return runs


def _mirrored(run: Step, steps: int) -> Step:
    """Return a run backward, of so many steps; of several stages, all are gone through in the same order."""
    stages = run.stages if run.stages == ALL else (MIRROR[run.stages[0]],)
    return Step(run.cell, stages, steps - run.stop, steps - run.start)


def _launches(stages: Ints, runs: Sequence[Step]) -> list[Launch]:
    """Return the launches of one direction; ``stages: [cells, stages]``.

    A run of one stage is one launch. Of several stages, a step goes through all before the next step does.
    """
    kernels = [dict(zip(ALL, cell_kernels, strict=True)) for cell_kernels in stages.tolist()]
    return [
        Launch(kernels[cell][stage], first, last)
        for cell, names, first, last in runs
        for stage in names
        if kernels[cell][stage] >= 0
    ]


def _heights(bound: Bound, facts: Ints) -> Ints:
    """Return how many rows each buffer must have: ``[buffers]``."""
    heights = np.zeros(len(bound.types), np.int64)
    buffers, extents, gates, widths = bound.uses
    np.maximum.at(heights, buffers, facts[extents] * facts[gates] * widths)
    return heights
