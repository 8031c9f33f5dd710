"""Calls run as they become ready, each turn those of the cell that is said to be best."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.scheduler.arithmetic import NUMPY
from foldbatch.scheduler.policies import POLICIES, CallGraph, call_graph, drain, strata_of
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
            for reader in graph.readers[graph.ends[call] : graph.ends[call + 1]].tolist():
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
        ends = graph.ends.tolist()
        found = [
            (call, reader) for call in calls for reader in graph.readers[ends[call] : ends[call + 1]].tolist()
        ]
        assert sorted(found) == sorted(edges)
        assert graph.waits.tolist() == [sum(reader == call for _, reader in edges) for call in calls]


def _check_turns(setting: Setting, members: Sequence[int], preference: list[float]) -> None:
    """Check, turn by turn, that all ready calls of the best cell run, of equals the earlier one's."""
    trace = setting.merged.trace
    graph = call_graph(trace, setting.signatures, members)
    order = strata_of(trace, members, NUMPY).order
    groups, turns = drain(graph, order, preference)
    needs, places = _needs(graph), graph.places().tolist()
    weights = [len(path) ** 2 for path in map(partial(_longest, graph), range(len(needs)))]
    group = np.concatenate([np.zeros(0, np.int32), *groups]).tolist()
    left = set(range(len(needs)))
    for cell, number in turns:
        scores = {}
        for place in range(len(graph.cells)):
            own = [call for call in left if places[call] == place]
            ready = [call for call in own if not needs[call] & left]
            weight = Fraction(sum(weights[call] for call in ready))
            share = weight * weight / max(1, sum(weights[call] for call in own))
            if ready:
                scores[place] = (preference[place] if preference else share), -place, ready
        place = graph.cells.index(cell)
        assert scores[place] == max(scores.values())
        ready = scores[place][2]
        assert {group[call] for call in ready} == {number}
        left -= set(ready)
    assert not left


def _longest(graph: CallGraph, call: int) -> list[int]:
    """Return the calls on the longest path that a call begins."""
    readers = graph.readers[graph.ends[call] : graph.ends[call + 1]].tolist()
    return [call, *max((_longest(graph, reader) for reader in readers), key=len, default=[])]


@given(settings_of(examples=2))
@settings(max_examples=20)
def test_the_cell_runs_whose_ready_calls_weigh_most_of_what_is_left(setting: Setting) -> None:
    for members in _components(setting):
        _check_turns(setting, members, [])


@given(settings_of(examples=2), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_a_preference_decides_where_there_is_one(setting: Setting, random) -> None:
    members = range(len(setting.signatures))
    _check_turns(setting, members, [random.choice([0.0, 0.5, 1.0]) for _ in members])


@given(settings_of(examples=3))
@settings(max_examples=20)
def test_by_agenda_prefers_the_least_mean_depth(setting: Setting) -> None:
    """Of all the calls of a cell, whether they have run or not."""
    setting = setting.under(POLICIES["by_agenda"])
    trace, cells = setting.merged.trace, setting.signatures
    graph = call_graph(trace, cells, range(len(cells)))
    means = [np.mean(part) if len(part) else 0.0 for part in trace.levels]
    order = strata_of(trace, range(len(cells)), NUMPY).order
    turns = drain(graph, order, [1 / (1 + mean) for mean in means])[1]
    assert POLICIES["by_agenda"].plan(trace, cells, NUMPY).phases[0].turns == turns
