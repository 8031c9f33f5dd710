"""Levels keep dependent calls apart, and cost no more groups than they must."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given

from foldbatch.errors import UnknownNameError
from foldbatch.scheduler.layout import by_consumer
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES, find_policy, levels, longest_chains, lower_bound
from foldbatch.scheduler.tables import build
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from tests.scheduler.random_traces import Setting, leveled, settings_of

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
    return build(setting.merged, setting.signatures, setting.policy, by_consumer, setting.cells.arenas).groups


def _bound(setting: Setting) -> int:
    trace = setting.merged.trace
    return lower_bound(setting.signatures, trace.calls, trace.elements, trace.values)


@given(settings_of(examples=2))
def test_a_level_is_one_more_than_those_it_needs_in_its_group(setting: Setting) -> None:
    """And 0 where it needs none: whatever other groups do is done before."""
    group = [setting.policy.group(cell) for cell in setting.signatures]
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


@given(settings_of())
def test_no_schedule_uses_fewer_groups_than_the_bound(setting: Setting) -> None:
    """Whatever the policy."""
    for policy in POLICIES.values():
        assert _bound(setting) <= _groups(setting.under(policy))


@given(settings_of(pairs=False))
def test_by_component_meets_the_bound_where_components_are_single_cells(setting: Setting) -> None:
    """So there it never uses more groups than by_depth."""
    by_component = _groups(setting.under(POLICIES["by_component"]))
    assert by_component == _bound(setting)
    assert by_component <= _groups(setting.under(POLICIES["by_depth"]))


def test_cells_that_call_each_other_may_cost_by_component_a_group_more() -> None:
    r"""Cells a and b, which call each other, and x, which belongs to neither but delays one of them.

    start -> x -> a     by_depth:     start | x b | a a      4 groups: start, x, b, a
         `-> b -> a     by_component: start | x | a b | a    5 groups, so nobody promises fewer
    """
    start = CellSignature("start", 0, False, (), (0,), 0)
    x = CellSignature("x", 1, False, (Operand(0, (0,)),), (0,), 1)
    a, b = (CellSignature(name, 2, True, (Operand(0, (0,)),), (0,), 1) for name in "ab")
    cells = (start, x, a, b)
    calls = ([[0]], [[1, 0]], [[3, 1], [4, 2]], [[2, 0]])
    trace = Trace(tuple(np.array(rows, np.int32) for rows in calls), ((),) * 4, (), ((),) * 4, ((),) * 4, 5)
    groups = {}
    for name, policy in POLICIES.items():
        merged = merge([leveled(trace, cells, policy)], cells)
        groups[name] = build(merged, cells, policy, by_consumer, 1).groups
    assert groups == {"by_component": 5, "by_depth": 4}


@given(settings_of(examples=1))
def test_longest_chains_are_the_longest_paths(setting: Setting) -> None:
    """Counting only the cells that count."""
    for trace in setting.traces:
        reads = _reads(trace, setting.signatures)
        order = sorted(reads, key=lambda call: trace.calls[call[0]][call[1], 0])
        for counted in range(len(setting.signatures)):
            counts = [k == counted for k in range(len(setting.signatures))]
            longest: dict[Call, int] = {}
            for call in order:
                longest[call] = max((longest[other] for other in reads[call]), default=0) + (
                    call[0] == counted
                )
            found = longest_chains(setting.signatures, trace.calls, trace.elements, trace.values, counts)
            assert found == [longest[call] for call in order]


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


def test_policies_are_found_by_name() -> None:
    """An unknown one names those there are."""
    assert find_policy("by_depth") is POLICIES["by_depth"]
    with pytest.raises(
        UnknownNameError, match="policy: expected one of by_component, by_depth, found 'by_luck'"
    ):
        find_policy("by_luck")
