"""The frontier is what is ready, and the choices choose by what they say."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.scheduler.frontier import (
    CallGraph,
    Choice,
    Frontier,
    GreatestRatio,
    LeastMeanDepth,
    call_graph,
    drain,
)
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.schedule import Index
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from tests.scheduler.random_traces import Setting, settings_of


def _components(setting: Setting) -> list[list[int]]:
    numbers = sorted({cell.component for cell in setting.signatures})
    return [[k for k, cell in enumerate(setting.signatures) if cell.component == n] for n in numbers]


def _needs(graph: CallGraph) -> list[set[int]]:
    """Return all calls that each call waits for, directly or through others."""
    calls = len(graph.waits)
    needs: list[set[int]] = [set() for _ in range(calls)]
    for _ in range(calls):
        for call in range(calls):
            for reader in graph.readers_of(np.array([call])).tolist():
                needs[reader] |= {call} | needs[call]
    return needs


@given(settings_of(examples=2))
def test_the_graph_has_an_edge_for_every_read_of_one_of_its_cells(setting: Setting) -> None:
    """Those of arguments and of sequences; values of other cells are given."""
    trace = setting.merged.trace
    for members in _components(setting):
        graph = call_graph(trace, setting.signatures, members)
        maker = {}
        for k, start in zip(members, graph.starts, strict=False):
            for i, base in enumerate(trace.calls[k][:, 0].tolist()):
                maker |= {base + j: int(start) + i for j in range(len(setting.signatures[k].outputs))}
        edges = []
        for k, start in zip(members, graph.starts, strict=False):
            cell, at = setting.signatures[k], [0] * len(setting.signatures[k].sequences)
            for i, row in enumerate(trace.calls[k].tolist()):
                values = row[1 : 1 + cell.arguments]
                for s, length in enumerate(row[1 + cell.arguments :]):
                    values += trace.elements[k][s][at[s] : at[s] + length].ravel().tolist()
                    at[s] += length
                edges += [(maker[v], int(start) + i) for v in values if v in maker]
        calls = range(len(graph.waits))
        found = [(call, reader) for call in calls for reader in graph.readers_of(np.array([call])).tolist()]
        assert sorted(found) == sorted(edges)
        assert graph.waits.tolist() == [sum(reader == call for _, reader in edges) for call in calls]


@given(settings_of(examples=2), st.randoms(use_true_random=False))
def test_a_frontier_holds_what_waits_only_for_free_calls(setting: Setting, random) -> None:
    """Whichever of the ready calls run, in whatever order."""
    graph = call_graph(setting.merged.trace, setting.signatures, range(len(setting.signatures)))
    needs = _needs(graph)
    free = np.array([random.random() < 0.4 for _ in needs], bool)
    frontier = Frontier(graph, free)
    timed = set(np.flatnonzero(~free).tolist())
    ready, done = set(frontier.first().tolist()), set()
    while True:
        assert ready == {call for call in timed - done if not (needs[call] & timed) - done}
        if not ready:
            break
        some = {call for call in ready if random.random() < 0.6} or {min(ready)}
        done |= some
        ready = (ready - some) | set(frontier.after(np.array(sorted(some))).tolist())
    assert done == timed


@dataclass
class _Watched:
    """A choice that is checked at each turn against what it is said to do."""

    choice: Choice
    graph: CallGraph
    rank: str
    needs: list[set[int]] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    depths: Index = field(default_factory=lambda: np.zeros(0, np.int64))

    def next(self, ready: Index) -> int:
        starts = self.graph.starts
        calls = [set(range(a, b)) for a, b in pairwise(starts)]
        keys = {}
        for place, mine in enumerate(calls):
            left = mine - self.done
            now = sum(not self.needs[call] - self.done for call in left)
            typewise = sum(not (self.needs[call] & mine) - self.done for call in left)
            assert now == ready[place]
            if now:
                mean = np.mean([self.depths[call] for call in mine]) if len(self.depths) else 0.0
                keys[place] = (now / typewise, now) if self.rank == "ratio" else (-mean,)
        place = self.choice.next(ready)
        assert keys[place] == max(keys.values())
        return place

    def ran(self, place: int, calls: Index) -> None:
        assert len(calls)
        self.done |= set(calls.tolist())
        self.choice.ran(place, calls)


@given(settings_of(examples=3))
def test_the_greatest_ratio_of_ready_to_typewise_ready_runs_next(setting: Setting) -> None:
    """Of equals the one with more ready calls; typewise ready are those that wait for none of their cell."""
    trace = setting.merged.trace
    for members in _components(setting):
        graph = call_graph(trace, setting.signatures, members)
        watched = _Watched(GreatestRatio(graph), graph, "ratio", _needs(graph))
        drain(graph, watched)
        assert len(watched.done) == len(graph.waits)


@given(settings_of(examples=3))
def test_the_least_mean_depth_runs_next(setting: Setting) -> None:
    """Of all the calls of a cell, whether they have run or not."""
    trace = setting.under(POLICIES["by_agenda"]).merged.trace
    depths = np.concatenate(trace.levels)
    graph = call_graph(trace, setting.signatures, range(len(setting.signatures)))
    drain(graph, _Watched(LeastMeanDepth(graph, depths), graph, "depth", _needs(graph), set(), depths))


def test_a_chain_through_two_cells_is_drained_without_recursion() -> None:
    """Two thousand calls that take turns: each waits for the one before."""
    n = 2000
    cells = tuple(CellSignature(name, 1, True, (Operand(0, (0,)),), (0,), 1) for name in "ab")
    rows = np.stack([np.arange(1, n + 1), np.arange(n)], 1).astype(np.int32)
    calls, none = (rows[::2], rows[1::2]), ((), ())
    zeros = tuple(np.zeros(len(part), np.int32) for part in calls)
    plan = POLICIES["by_component"].plan(Trace(calls, none, zeros, none, none, n + 1), cells)
    assert plan.phases[0].turns == [(i % 2, i // 2) for i in range(n)]
    assert [groups.tolist() for groups in plan.groups] == [list(range(n // 2))] * 2
