"""When each call runs: plain functions from the trace of a batch to a plan.

A policy gives every call a group, such that calls of one cell and group do not wait for each
other, and puts the groups in order. The fewer groups, the fewer kernel calls.

*Levels* are the simplest way: a call's level is 0 where it needs nothing, else one more than the
highest level that it needs. A level depends on the example alone, so levels are computed once,
when an example is traced, and merging batches keeps them. They are heights, distances from what
needs nothing, of which a batch has as many as its tallest example; distances from the root would
need nearly three times as many on parse trees.

`by_depth` runs level by level, all cells in turn. A classifier at each node of a tree then runs
once per level, though one run at the end would do.

`by_agenda` runs whichever cell has ready calls and the least deep calls on average. Often that
leaves a classifier to the end; but a cell that is called at all heights, on words and on phrases,
spoils the average.

`by_component` looks at the cells first. Those that do not call each other, not even through others,
have no reason to take turns: the strongly connected components of the cell graph run one after the
other, each to its end. Inside a component of one cell nothing beats levels; where several cells do
call each other, calls run as they become ready (`frontier`). Where no component has several cells, this
meets `lower_bound`.

`auto` is `by_component`, but where several cells call each other it weighs: to run calls as they become
ready takes fewer steps than levels, and planning it takes time. Where that would not pay, the component
runs level by level.

Source: Looks et al. 2017 (TensorFlow Fold), section 2, for depth; Neubig, Goldberg and Dyer 2017
(DyNet), section 3, for the agenda; Fegade et al. 2021 (Cortex) and Chen et al. 2023 (ED-Batch)
drain components by other means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import accumulate, pairwise, repeat
from operator import attrgetter
from typing import NamedTuple, TypeAlias

import numpy as np

from foldbatch.errors import UnknownNameError
from foldbatch.planning.integers import drain as drained
from foldbatch.planning.integers import group
from foldbatch.planning.levels import levels_of
from foldbatch.scheduler.components import components
from foldbatch.scheduler.trace import CellSignature, Index, Ints, Trace, lengths_of

Turns: TypeAlias = "list[tuple[int, int]]"


class Episode(NamedTuple):
    """Cells that take turns: when it ends, all their calls have run."""

    cells: tuple[int, ...]  # their numbers
    # (cell, group), in the order in which they run; each group of these cells once, those of one cell in
    # ascending order. A group may be empty.
    turns: Turns


class RunOrder(NamedTuple):
    """When each call runs."""

    groups: tuple[Ints, ...]  # per cell ``[n] int32``: the group of each call
    sizes: tuple[int, ...]  # per cell, how many groups it has
    phases: tuple[Episode, ...]  # in the order in which they run; every cell is in one of them
    # what a policy that chooses has chosen and why, for people; empty of one that does not choose
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Costs:
    """Constants that weigh the time of planning, in microseconds, against that of the steps it saves.

    They are constants, measured once (`benchmarks/NOTES.md`, row "auto"), so that a batch is always planned
    alike: were they timed in each process, the same batch might be planned differently, and its sums rounded
    differently.
    """

    # what one step more takes, forward, backward and while it is planned, besides its calls; of an engine
    step: float
    weight: float = 0.001  # what each number of its cell's parameters adds to that
    plan: float = 60.0  # planning cells that call each other as calls become ready, besides their calls
    number: float = 0.06  # what each number in the trace of their calls adds to that


COMPILED = Costs(step=2.8)  # of an engine whose steps are compiled code


@dataclass(frozen=True, slots=True)
class Policy:
    """A way of scheduling."""

    name: str  # what users call it
    # gives a cell's scope; a call's level depends on calls of cells of the same scope alone
    scope: Callable[[CellSignature], int]
    # makes a plan from the trace of a batch, levels included, the cells, and what steps and planning cost
    plan: Callable[[Trace, Sequence[CellSignature], Costs], RunOrder]
    # its reason where no two cells call each other, if they run level by level then, one after the other
    alone: str | None = None


def levels(
    policy: Policy,
    cells: Sequence[CellSignature],
    calls: Sequence[Ints],
    elements: Sequence[Sequence[Ints]],
    values: int,
) -> tuple[Ints, ...]:
    """Return the levels that a policy plans by, of the calls of one example or of a batch: see `Trace`."""
    cells = tuple(cells)
    return tuple(levels_of(cells, scopes(policy.scope, cells), calls, elements, values))


@lru_cache(256)
def scopes(
    scope: Callable[[CellSignature], int], cells: tuple[CellSignature, ...]
) -> tuple[tuple[int, ...], ...]:
    """Return the cells of each scope in which calls may need others, by number."""
    members: dict[int, list[int]] = {}
    for k, cell in enumerate(cells):
        members.setdefault(scope(cell), []).append(k)
    needing = [
        cells_of_scope
        for cells_of_scope in members.values()
        if len(cells_of_scope) > 1 or cells[cells_of_scope[0]].recursive
    ]
    return tuple(map(tuple, needing))


def by_depth(trace: Trace, cells: Sequence[CellSignature], costs: Costs = COMPILED) -> RunOrder:
    """Plan level by level, whatever the cells are."""
    members = tuple(range(len(cells)))
    groups, turns = level_by_level(strata_of(trace, members), members)
    return RunOrder(tuple(groups), _sizes(members, turns), (Episode(members, turns),))


def _sizes(members: Sequence[int], turns: Turns) -> tuple[int, ...]:
    taken = dict.fromkeys(members, 0)
    for k, _ in turns:
        taken[k] += 1
    return tuple(taken.values())


def by_agenda(trace: Trace, cells: Sequence[CellSignature], costs: Costs = COMPILED) -> RunOrder:
    """Plan by the mean depth of each cell's calls: the least one runs."""
    members = tuple(range(len(cells)))
    if not members:
        return by_depth(trace, cells, costs)
    means = [float(part.mean()) if len(part) else 0.0 for part in trace.levels]
    graph = call_graph(trace, cells, members)
    order = strata_of(trace, members).order
    groups, turns = drain(graph, order, [1 / (1 + mean) for mean in means])
    return RunOrder(tuple(groups), _sizes(members, turns), (Episode(members, turns),))


def by_component(trace: Trace, cells: Sequence[CellSignature], costs: Costs = COMPILED) -> RunOrder:
    """Plan one component of the cell graph after the other; where cells call each other, as calls get ready.

    Two cells that take turns, the first one being given value 0:
    """

    def as_ready(members: tuple[int, ...]) -> tuple[list[Ints], Turns, str]:
        order = strata_of(trace, members).order
        return *drain(call_graph(trace, cells, members), order), ""

    return _by_component(trace, cells, as_ready, "")


def auto(trace: Trace, cells: Sequence[CellSignature], costs: Costs = COMPILED) -> RunOrder:
    """Plan as `by_component` does where that saves more than it costs, else level by level.

    What it costs is told by `Costs`, so the same batch is always planned alike.
    """
    return _by_component(trace, cells, partial(_cheaper, trace, cells, costs), ALONE)


def _cheaper(
    trace: Trace, cells: Sequence[CellSignature], costs: Costs, members: tuple[int, ...]
) -> tuple[list[Ints], Turns, str]:
    """Plan a component of several cells in the cheaper way; see `_by_component`."""
    strata = strata_of(trace, members)
    levels, present = len(strata.places), sum(size > 0 for size in strata.sizes)
    if present < 2:
        return *level_by_level(strata, members), ""
    numbers = sum(trace.calls[k].size + sum(part.size for part in trace.elements[k]) for k in members)
    weights = sum(cells[k].weights for k in members) / len(members)
    # any schedule has a step for each cell, and one for each call of the longest path
    most_steps = levels - max(strata.height, present)
    saved = SAVED * most_steps * (costs.step + weights * costs.weight)
    taken = costs.plan + numbers * costs.number
    subject = f"{present} cells that call each other run"
    why = f"other orders might save {saved:.0f} us of steps and take {taken:.0f} us to find"
    if saved > taken:
        graph = call_graph(trace, cells, members)
        groups, turns = drain(graph, strata.order)
        if len(turns) < levels:
            return groups, turns, f"{subject} as calls become ready: {len(turns)} steps, by level {levels}"
        why = "as calls become ready it takes as many"
    groups, turns = level_by_level(strata, members)
    return groups, turns, f"{subject} level by level: {levels} steps; {why}"


def _by_component(
    trace: Trace,
    cells: Sequence[CellSignature],
    plan_component: Callable[[tuple[int, ...]], tuple[list[Ints], Turns, str]],
    alone: str,
) -> RunOrder:
    """Plan one component after the other, that of one cell by its levels.

    `plan_component` plans a component of several cells: it returns the group of each call per cell, the
    turns, and the choice with its reason, if there was one; `alone` is the reason where there was none.
    """
    groups, sizes = list(trace.levels), [0] * len(cells)
    phases, reasons = [], []
    for members in components(tuple(cells)):
        if len(members) == 1:
            (k,) = members
            # without recursion they need nothing of their scope, and all have level 0
            cell_levels = trace.levels[k]
            sizes[k] = (
                int(cell_levels.max(initial=-1)) + 1 if cells[k].recursive else min(1, len(cell_levels))
            )
            turns = list(zip(repeat(k), range(sizes[k]), strict=False))
        else:
            groups_of_members, turns, reason = plan_component(members)
            for k, group, size in zip(members, groups_of_members, _sizes(members, turns), strict=True):
                groups[k], sizes[k] = group, size
            reasons += [reason] * bool(reason)
        phases.append(Episode(members, turns))
    return RunOrder(tuple(groups), tuple(sizes), tuple(phases), "; ".join(reasons) or alone)


ALONE = "no two cells call each other, so each runs level by level, which takes the fewest steps"
SAVED = 0.5  # of the steps that might be saved at most, the share that is saved in the mean

POLICIES = {
    "auto": Policy("auto", attrgetter("component"), auto, ALONE),
    "by_component": Policy("by_component", attrgetter("component"), by_component, ""),
    "by_agenda": Policy("by_agenda", lambda _: 0, by_agenda),
    "by_depth": Policy("by_depth", lambda _: 0, by_depth),
}


def find_policy(name: str) -> Policy:
    """Return a policy by name."""
    if name not in POLICIES:
        raise UnknownNameError("policy", f"one of {', '.join(POLICIES)}", repr(name))
    return POLICIES[name]


@dataclass(frozen=True, slots=True)
class CallGraph:
    """The calls of some cells and the readers of their results; results of other cells count as given."""

    cells: tuple[int, ...]  # the cells' numbers; below, *place* is a cell's place in this list
    # ``[cells + 1] int64``: the number of each cell's first call; calls are numbered cell by cell
    starts: Index
    waits: Index  # ``[calls] int64``: how many results of these calls each call reads
    ends: Index  # ``[calls + 1] int64``: where each call's readers begin in `readers` (compressed rows)
    readers: Index  # ``[reads] int64``: the calls that read a call's results, once for every read

    def places(self) -> Index:
        """Return the place of each call's cell: ``[calls] int64``."""
        return np.repeat(np.arange(len(self.cells)), np.diff(self.starts))

    def split(self, figures: Ints) -> list[Ints]:
        """Cut an array with one entry per call, ``[calls]``, into one array per cell."""
        return [figures[start:stop] for start, stop in pairwise(self.starts.tolist())]


def call_graph(trace: Trace, signatures: Sequence[CellSignature], cells: Sequence[int]) -> CallGraph:
    """Return the graph of the calls of some cells: an edge from each call to every reader of its results."""
    members = tuple([signatures[k] for k in cells])
    outputs, arguments, alike = _columns(members)
    rows = [trace.calls[k] for k in cells]
    counts = np.array(list(map(len, rows)), np.int64)
    starts = np.zeros(len(cells) + 1, np.int64)
    np.cumsum(counts, out=starts[1:])
    calls = np.arange(starts[-1])
    joined = np.concatenate(rows) if alike else None
    bases = np.concatenate([part[:, 0] for part in rows]) if joined is None else joined[:, 0]
    maker = np.full(trace.values, -1, np.int32)
    for output in range(int(outputs.max())):
        callers = calls if (outputs > output).all() else np.flatnonzero(np.repeat(outputs > output, counts))
        maker[bases[callers] + output] = callers
    if joined is not None:
        values, readers = [joined[:, 1:].ravel()], [np.repeat(calls, joined.shape[1] - 1)]
    else:
        values = [part[:, 1 : 1 + cell.arguments].ravel() for cell, part in zip(members, rows, strict=True)]
        readers = [np.repeat(calls, np.repeat(arguments, counts))]
    for place, (k, cell) in enumerate(zip(cells, members, strict=True)):
        for s, width in enumerate(cell.sequences):
            cell_calls = calls[starts[place] : starts[place + 1]]
            values.append(trace.elements[k][s].ravel())
            readers.append(np.repeat(cell_calls, lengths_of(trace, signatures, k, s) * width))
    source, reader = maker.take(np.concatenate(values)), np.concatenate(readers)
    inside = np.flatnonzero(source >= 0)
    source, reader = source.take(inside), reader.take(inside)
    order, _ = group(source)
    ends = np.zeros(len(calls) + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=len(calls)), out=ends[1:])
    waits = np.bincount(reader, minlength=len(calls))
    return CallGraph(tuple(cells), starts, waits, ends, reader.take(order))


@lru_cache(256)
def _columns(cells: tuple[CellSignature, ...]) -> tuple[Index, Index, bool]:
    """Return how many outputs and single arguments each cell has, and whether calls of all have like rows.

    Shapes: both ``[cells]``.
    """
    outputs = np.array([len(cell.outputs) for cell in cells], np.int64)
    arguments = np.array([cell.arguments for cell in cells], np.int64)
    alike = not any(cell.sequences for cell in cells) and len(set(arguments.tolist())) == 1
    return outputs, arguments, alike


def drain(
    graph: CallGraph, order: Index, preference: Sequence[float] = ()
) -> tuple[list[Ints], list[tuple[int, int]]]:
    """Run all calls, in every turn all ready ones of the cell that is chosen.

    Args:
        graph: the calls.
        order: ``[calls] int64``: the calls, each after those that it reads.
        preference: of each cell, 0 or more: the greatest one runs, of equals the earlier cell; by default
            what ready calls weigh decides, see `turns.drain`.

    Returns:
        Per cell of the graph ``[n] int32``: the turn of the cell in which each call runs, from 0 on.
        And all turns in order, each a pair: the cell's number and the number of the cell's turn.
    """
    figures = np.array(preference, np.float64)
    groups, places = drained(
        graph.places(), order, graph.ends, graph.readers, graph.waits, len(graph.cells), figures
    )
    assert (groups >= 0).all(), "a call waits for itself"
    numbers = numbered(places)
    return graph.split(groups), turns_of(graph.cells, places, numbers)


def numbered(places: Index) -> Index:
    """Number the turns of each cell from 0 on: ``[turns]``; ``places: [turns]``.

    >>> numbered(np.array([1, 0, 1]))
    array([0, 0, 1])
    """
    order, starts = group(places.astype(np.int32))
    numbers = np.empty(len(places), np.int64)
    numbers[order] = np.arange(len(places)) - np.repeat(starts[:-1], np.diff(starts))
    return numbers


def turns_of(cells: Sequence[int], places: Index, numbers: Index) -> list[tuple[int, int]]:
    """Return turns as pairs of cell and number; shapes: both ``[turns]``."""
    return list(zip(map(cells.__getitem__, places.tolist()), numbers.tolist(), strict=True))


_NONE = np.zeros(0, np.int64)


class Strata(NamedTuple):
    """The calls of some cells by level, and in each level by cell."""

    sizes: list[int]  # how many calls each cell has
    height: int  # how many levels there are
    places: Index  # ``[strata]``: the place of each stratum's cell among the cells
    order: Index  # ``[calls]``: the calls, stratum by stratum; they are numbered cell by cell
    bounds: Index  # ``[strata + 1]``: where each stratum begins, and the end


def strata_of(trace: Trace, cells: Sequence[int]) -> Strata:
    """Return the calls of some cells sorted by level, and in each level by cell.

    Args:
        trace: the trace of a batch, with levels.
        cells: the cells.
    """
    levels = [trace.levels[k] for k in cells]
    sizes, width = list(map(len, levels)), len(cells)
    joined = np.concatenate([np.zeros(0, np.int32), *levels])
    if not len(joined):
        return Strata(sizes, 0, _NONE, _NONE, np.zeros(1, np.int64))
    height = int(joined.max()) + 1
    keys = joined if width * height < 2**31 else joined.astype(np.int64)
    keys = keys * width + np.repeat(np.arange(width, dtype=keys.dtype), sizes)
    order, bounds = group(keys)
    return Strata(sizes, height, keys.take(order.take(bounds[:-1])) % width, order, bounds)


def level_by_level(strata: Strata, cells: Sequence[int]) -> tuple[list[Ints], list[tuple[int, int]]]:
    """Plan some cells level by level, in each level the cells in turn.

    Returns the groups, per cell ``[n] int32``, and the turns; no group is empty.
    """
    numbers = numbered(strata.places)
    groups = np.empty(len(strata.order), np.int32)
    groups[strata.order] = np.repeat(numbers, np.diff(strata.bounds))
    ends = accumulate(strata.sizes, initial=0)
    return [groups[a:b] for a, b in pairwise(ends)], turns_of(cells, strata.places, numbers)
