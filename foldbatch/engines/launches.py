"""From a schedule to the launch tables of a batch, in whole columns: a batch may have thousands of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from foldbatch.engines.bindings import Bound
from foldbatch.engines.facts import facts_of
from foldbatch.engines.launch import HEAD, Ints, LaunchTable
from foldbatch.params.parameters import Parameter
from foldbatch.scheduler.schedule import ALL, Schedule, Step

# The backward stage that corresponds to a forward one: what ran last must be undone first.
MIRROR = {"before": "after", "step": "step", "after": "before"}
WHOLE = len(
    ALL
)  # the code of a step that goes through all stages; one of a single stage has its place in ALL
CODES: dict[tuple[str, ...], int] = {**{(stage,): code for code, stage in enumerate(ALL)}, ALL: WHOLE}
MIRRORED = np.array([ALL.index(MIRROR[stage]) for stage in ALL] + [WHOLE])
CHOSEN = np.eye(WHOLE + 1, WHOLE, dtype=bool)  # the stages of each code
CHOSEN[WHOLE] = True
GROUPS = ALL.index("step"), WHOLE  # the codes of steps that run one group of calls


class StepRuns(NamedTuple):
    """Runs of steps that one launch a kernel serves: steps of one stage of a cell that follow each other.

    A step of all stages is a run of its own. Shapes: each ``[runs]``: the cell, the code of the stages
    (see `CODES`), the first step, and the one after the last.
    """

    cells: Ints
    codes: Ints
    first: Ints
    last: Ints


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
    cells, codes, bounds = _columns(schedule.steps)
    runs = _runs(cells, codes)
    forward = _launches(bound.stages["forward"], runs)
    yields = dict.fromkeys(bound.summed, 0)
    if bound.training:
        backward = _launches(bound.stages["backward"], _mirrored(runs, len(cells)))
        levels = np.zeros(len(bound.routines), np.int64)
        np.add.at(levels, backward[:, 0], backward[:, 2] - backward[:, 1])
        for kernel in np.flatnonzero(levels).tolist():
            for parameter in bound.gradients[kernel]:
                yields[parameter] += int(levels[kernel])
    facts, index = facts_of(schedule, _widest(schedule, cells, codes, bounds))
    facts += [int(count == 1) for count in yields.values()]  # then it is stored, and not summed
    values = np.array(facts, np.int64)
    heights = _heights(bound, values)
    numbers = np.concatenate([values, bound.fixed])
    tables = [LaunchTable(rows_of(bound, numbers, forward), bounds, index, heights)]
    if bound.training:
        mirror = np.ascontiguousarray(bounds[::-1])
        tables.append(LaunchTable(rows_of(bound, numbers, backward), mirror, index, heights))
    return Directions(tables[0], tables[1] if bound.training else None, yields, numbers)


def _columns(steps: Sequence[Step]) -> tuple[Ints, Ints, Ints]:
    """Return the cell of each step, the code of its stages, and its calls: ``[n]``, ``[n]``, ``[n, 2]``."""
    if not steps:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 2), np.int64)
    cells, stages, first, last = zip(*steps, strict=True)
    numbers = np.array([cells, [CODES[some] for some in stages], first, last], np.int64)
    return numbers[0], numbers[1], numbers[2:].T.copy()


def _runs(cells: Ints, codes: Ints) -> StepRuns:
    """Return the runs of steps; ``cells: [n]``, ``codes: [n]``."""
    kinds = cells * (WHOLE + 1) + codes
    begins = codes == WHOLE
    begins[1:] |= kinds[1:] != kinds[:-1]
    begins[:1] = True
    first = begins.nonzero()[0]
    last = np.empty_like(first)
    last[:-1] = first[1:]
    last[-1:] = len(cells)
    return StepRuns(cells.take(first), codes.take(first), first, last)


def _mirrored(runs: StepRuns, steps: int) -> StepRuns:
    """Return the runs backward, of so many steps: all in reverse, and stages as `MIRROR` says."""
    codes = MIRRORED[runs.codes[::-1]]
    return StepRuns(runs.cells[::-1], codes, steps - runs.last[::-1], steps - runs.first[::-1])


def _launches(kernels: Ints, runs: StepRuns) -> Ints:
    """Return the launches of one direction: ``[launches, HEAD]``; ``kernels: [cells, stages]``.

    A run of one stage is one launch. Of several stages, a step goes through all before the next step does.
    """
    candidates = kernels.take(runs.cells, axis=0)
    places = (CHOSEN.take(runs.codes, axis=0) & (candidates >= 0)).ravel().nonzero()[0]
    run = places // WHOLE
    launches = np.empty((len(places), HEAD), np.int64)
    launches[:, 0] = candidates.ravel().take(places)
    launches[:, 1], launches[:, 2] = runs.first.take(run), runs.last.take(run)
    return launches


def _widest(schedule: Schedule, cells: Ints, codes: Ints, bounds: Ints) -> dict[int, tuple[int, ...]]:
    """Return, per cell, the calls of its widest step, and for each sequence the elements of the widest.

    Shapes: ``cells: [n]``, ``codes: [n]``, ``bounds: [n, 2]``, as from `_columns`.
    """
    groups = ((codes == GROUPS[0]) | (codes == GROUPS[1])).nonzero()[0]
    cells, (first, last) = cells.take(groups), bounds.take(groups, axis=0).T
    calls = np.zeros(len(schedule.cells), np.int64)
    np.maximum.at(calls, cells, last - first)
    widest = {}
    for k, table in enumerate(schedule.cells):
        elements = []
        if table.segments:
            own = np.flatnonzero(cells == k)
            starts, stops = first[own], last[own]
            elements = [int((part[stops] - part[starts]).max(initial=0)) for part in table.segments]
        widest[k] = (int(calls[k]), *elements)
    return widest


def _heights(bound: Bound, facts: Ints) -> Ints:
    """Return how many rows each buffer must have: ``[buffers]``."""
    heights = np.zeros(len(bound.types), np.int64)
    buffers, extents, gates, widths = bound.uses
    np.maximum.at(heights, buffers, facts[extents] * facts[gates] * widths)
    return heights


def rows_of(bound: Bound, numbers: Ints, launches: Ints | Sequence[Launch]) -> Ints:
    """Return the rows of a launch table; ``numbers: [*]`` are a batch's facts, then what is fixed."""
    heads = np.asarray(launches, np.int64).reshape(-1, HEAD)
    rows: Ints = numbers.take(bound.places.take(heads[:, 0], axis=0))
    rows[:, :HEAD] = heads
    return rows
