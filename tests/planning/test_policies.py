"""Levels keep dependent calls apart, and cost no more groups than they must."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.planning.layout import LAYOUTS, Layout
from foldbatch.planning.policies import ALONE, COMPILED, POLICIES, Costs, Policy, auto, by_component, levels
from foldbatch.planning.tables import build
from foldbatch.scheduler.levels import longest_chains, lower_bound
from foldbatch.scheduler.schedule import verify
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from tests.planning.random_traces import Setting, settings_of

Call = tuple[int, int]


def _reads(trace: Trace, cells: Sequence[CellSignature]) -> dict[Call, set[Call]]:
    """Return the calls whose results each call reads."""
    maker = {
        int(base) + j: (k, i)
        for k, rows in enumerate(trace.calls)
        for i, base in enumerate(rows[:, 0])
        for j in range(len(cells[k].outputs))
    }
    reads: dict[Call, set[Call]] = {}
    for k, cell in enumerate(cells):
        starts = [0] * len(cell.sequences)
        for i, row in enumerate(trace.calls[k].tolist()):
            values = row[1 : 1 + cell.arguments]
            for s, length in enumerate(row[1 + cell.arguments :]):
                part = trace.elements[k][s][starts[s] : starts[s] + length]
                values += part.ravel().tolist()
                starts[s] += length
            reads[k, i] = {maker[value] for value in values}
    return reads


def _before(reads: dict[Call, set[Call]], call: Call) -> set[Call]:
    """Return all calls that a call depends on."""
    found: set[Call] = set()
    stack = [call]
    while stack:
        for other in reads[stack.pop()] - found:
            found.add(other)
            stack.append(other)
    return found


def _groups(setting: Setting) -> int:
    return build(
        setting.merged, setting.signatures, setting.policy, LAYOUTS["consumer"], setting.cells.arenas
    ).groups


def _bound(setting: Setting) -> int:
    trace = setting.merged.trace
    return lower_bound(setting.signatures, trace.calls, trace.elements, trace.values)


@given(settings_of(examples=2))
def test_a_level_is_one_more_than_those_it_needs_in_its_scope(setting: Setting) -> None:
    """And 0 where it needs none, whatever cells of other scopes do."""
    group = [setting.policy.scope(cell) for cell in setting.signatures]
    for trace in setting.traces:
        for (k, i), needed in _reads(trace, setting.signatures).items():
            below = [trace.levels[j][n] for j, n in needed if group[j] == group[k]]
            assert trace.levels[k][i] == max(below, default=-1) + 1


@given(settings_of(examples=2))
def test_calls_of_one_cell_and_level_are_independent(setting: Setting) -> None:
    """Not even by way of other cells."""
    for trace in setting.traces:
        reads = _reads(trace, setting.signatures)
        for k, i in reads:
            for j, n in _before(reads, (k, i)):
                assert j != k or trace.levels[k][i] != trace.levels[k][n]


policies = st.sampled_from(list(POLICIES.values()))
layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


@given(settings_of(), policies)
def test_every_call_runs_once_and_after_what_it_needs(setting: Setting, policy: Policy) -> None:
    """Turn by turn of the plan."""
    setting = setting.under(policy)
    trace, cells = setting.merged.trace, setting.signatures
    plan = policy.plan(trace, cells, COMPILED)
    assert sorted(k for phase in plan.phases for k in phase.cells) == list(range(len(cells)))
    reads = _reads(trace, cells)
    done: set[Call] = set()
    for phase in plan.phases:
        assert {k for k, _ in phase.turns} <= set(phase.cells)
        for k, group in phase.turns:
            calls = {(k, int(i)) for i in np.flatnonzero(plan.groups[k] == group)}
            assert not calls & done
            assert all(reads[call] <= done for call in calls)
            done |= calls
    assert done == reads.keys()


@given(settings_of(), policies, layouts)
def test_every_policy_in_every_layout_makes_a_legal_schedule(setting, policy, layout):
    """Which no schedule with fewer groups than the bound is."""
    setting = setting.under(policy)
    schedule = build(setting.merged, setting.signatures, policy, layout, setting.cells.arenas)
    verify(schedule, tuple(cell.outputs for cell in setting.signatures))
    assert _bound(setting) <= schedule.groups


@given(settings_of())
def test_the_bound_is_the_sum_of_the_longest_chains(setting: Setting) -> None:
    """Cell by cell, counted over all paths, through whatever cells they lead."""
    trace, cells = setting.merged.trace, setting.signatures
    chains = [
        longest_chains(cells, trace.calls, trace.elements, trace.values, range(len(cells)), [k])
        for k in range(len(cells))
    ]
    assert _bound(setting) == sum(
        max((n for own in part.values() for n in own), default=0) for part in chains
    )


@given(settings_of(pairs=False))
def test_by_component_meets_the_bound_where_components_are_single_cells(setting: Setting) -> None:
    """So there no policy uses fewer groups."""
    assert _groups(setting.under(POLICIES["by_component"])) == _bound(setting)


def _costing(step: float, number: float, plan: float = 0) -> Costs:
    return Costs(step, step / 4, plan, number)


@given(settings_of(examples=3))
def test_auto_takes_the_fewest_steps_where_planning_costs_nothing(setting: Setting) -> None:
    """Those of levels within components, or as calls become ready, in each component."""
    setting = setting.under(POLICIES["auto"])
    trace, cells = setting.merged.trace, setting.signatures
    plan, ready = auto(trace, cells, _costing(1, 0)), by_component(trace, cells)
    for phase, other in zip(plan.phases, ready.phases, strict=True):
        strata = {(int(level), k) for k in phase.cells for level in trace.levels[k]}
        assert phase.cells == other.cells
        if len(phase.cells) > 1:
            assert len(phase.turns) == min(len(strata), len(other.turns))


@given(settings_of(examples=3))
def test_auto_runs_level_by_level_where_steps_cost_nothing(setting: Setting) -> None:
    """So two calls of a cell run together if and only if they are of one level."""
    setting = setting.under(POLICIES["auto"])
    trace, cells = setting.merged.trace, setting.signatures
    plan = auto(trace, cells, _costing(0, 1))
    for groups, own in zip(plan.groups, trace.levels, strict=True):
        distinct, numbers = np.unique(own, return_inverse=True)
        assert np.array_equal(groups, numbers) or not any(len(p.cells) > 1 for p in plan.phases)
        assert len(distinct) == len(set(groups.tolist()))


def _zigzag(examples: int) -> tuple[tuple[CellSignature, ...], Trace]:
    """Return calls of two cells that call each other: of each odd example b a b a, of the others a b a b."""
    cells = tuple(CellSignature(name, 1, True, (Operand(0, (0,)),), (0,), 1) for name in "ab")
    rows: tuple[list[list[int]], ...] = ([], [])
    depths: tuple[list[int], ...] = ([], [])
    for i in range(examples):
        for j in range(4):
            rows[(i + j) % 2].append([5 * i + j + 1, 5 * i + j])
            depths[(i + j) % 2].append(j)
    levels = tuple(np.array(part, np.int32) for part in depths)
    none = ((), ())
    return cells, Trace(tuple(np.array(r, np.int32) for r in rows), none, levels, none, none, 5 * examples)


def test_auto_weighs_steps_saved_against_planning_and_says_so() -> None:
    """Eight steps by level, five as calls become ready; at most 8 - 4 are saved, half of them in the mean."""
    cells, trace = _zigzag(6)
    assert trace.size == 24  # of two numbers each: planning takes 48 times its costs
    plan = auto(trace, cells, _costing(24.1, 1))
    assert plan.reason == "2 cells that call each other run as calls become ready: 5 steps, by level 8"
    assert len(plan.phases[0].turns) == 5
    plan = auto(trace, cells, _costing(24, 1))
    assert plan.reason == (
        "2 cells that call each other run level by level: 8 steps; "
        "other orders might save 48 us of steps and take 48 us to find"
    )
    assert len(plan.phases[0].turns) == 8
    heavy = [replace(cell, weights=4) for cell in cells]  # so a step costs twice as much
    assert auto(trace, heavy, _costing(12.1, 1)).reason.endswith("5 steps, by level 8")
    assert "take 49 us" in auto(trace, heavy, _costing(12.1, 1, plan=1)).reason
    cells, trace = _zigzag(1)
    assert auto(trace, cells, _costing(1000, 1)).reason.startswith("2 cells that call each other run level")
    assert auto(trace, (replace(cells[0], component=0), cells[1])).reason == ALONE


def test_auto_runs_level_by_level_where_another_order_takes_as_many_steps() -> None:
    """Each call of two cells reads both of the level below, so that no two levels can share a step."""
    cells = tuple(CellSignature(name, 1, True, (Operand(0, (0, 1)),), (0,), 2) for name in "ab")
    rows = tuple(np.array([[2 * i + k, 2 * i - 2, 2 * i - 1] for i in (1, 2, 3)], np.int32) for k in (0, 1))
    none, levels = ((), ()), (np.arange(3, dtype=np.int32),) * 2
    plan = auto(Trace(rows, none, levels, none, none, 8), cells, _costing(1000, 1))
    assert plan.reason == (
        "2 cells that call each other run level by level: 6 steps; as calls become ready it takes as many"
    )
    assert plan.phases[0].turns == [(k, i) for i in range(3) for k in (0, 1)]


@given(settings_of(examples=1))
def test_longest_chains_are_the_longest_paths(setting: Setting) -> None:
    """Counting only the cells that count."""
    for trace in setting.traces:
        reads = _reads(trace, setting.signatures)
        order = sorted(reads, key=lambda call: trace.calls[call[0]][call[1], 0])
        for counted in range(len(setting.signatures)):
            longest: dict[Call, int] = {}
            for call in order:
                longest[call] = max((longest[other] for other in reads[call]), default=0) + (
                    call[0] == counted
                )
            found = longest_chains(
                setting.signatures,
                trace.calls,
                trace.elements,
                trace.values,
                range(len(trace.calls)),
                [counted],
            )
            assert all(found[k][i] == longest[k, i] for k, i in order)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_long_chain_is_levelled_without_recursion(policy: object) -> None:
    """Fifty thousand calls, each of the one before."""
    n = 50_000
    cell = CellSignature("link", 0, True, (Operand(0, (0,)),), (0,), 1)
    start = CellSignature("start", 0, False, (), (0,), 0)
    numbers = np.arange(n, dtype=np.int32)
    calls = (np.stack([numbers + 1, numbers], 1), np.zeros((1, 1), np.int32))
    (found, _) = levels(policy, (cell, start), calls, ((), ()), n + 1)  # type: ignore[arg-type]
    assert np.array_equal(found - found[0], numbers)
