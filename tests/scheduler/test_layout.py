"""Rows are a bijection, and in trees every operand's rows lie side by side."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.scheduler.layout import LAYOUTS, Layout, RowNumbering, element_order, values_read
from foldbatch.scheduler.merge import merge
from foldbatch.scheduler.policies import POLICIES
from foldbatch.scheduler.schedule import Schedule
from foldbatch.scheduler.tables import build
from foldbatch.scheduler.trace import CellSignature, Operand, Trace
from tests.scheduler.random_traces import Setting, leveled, settings_of

layouts: st.SearchStrategy[Layout] = st.sampled_from(list(LAYOUTS.values()))


@given(settings_of(), layouts)
def test_every_value_has_a_row_of_its_own(setting: Setting, layout: Layout) -> None:
    """Within each arena, all rows from 0 on, without a gap."""
    schedule = build(setting.merged, setting.signatures, setting.policy, layout, setting.cells.arenas)
    rows: list[list[int]] = [[] for _ in range(setting.cells.arenas)]
    for k, cell in enumerate(setting.signatures):
        for j, arena in enumerate(cell.outputs):
            rows[arena] += schedule.row_of[setting.merged.trace.calls[k][:, 0] + j].tolist()
    for arena, used in enumerate(rows):
        assert sorted(used) == list(range(schedule.arena_rows[arena]))


@given(settings_of(tree=True))
def test_trees_gather_no_rows_in_the_consumer_layout(setting: Setting) -> None:
    """Each value has one reader and lies where that one looks; nothing is copied or added by index."""
    schedule = build(
        setting.merged, setting.signatures, setting.policy, LAYOUTS["consumer"], setting.cells.arenas
    )
    assert schedule.gathered_rows == 0
    for table, cell in zip(schedule.cells, setting.signatures, strict=True):
        for span, operand in zip(table.operands, cell.operands, strict=True):
            assert span.rows is None
            assert span.first is operand.differentiable


@given(settings_of())
def test_results_of_a_group_lie_side_by_side_in_the_producer_layout(setting: Setting) -> None:
    """As they are made: rank after rank, where an output has an arena to itself."""
    schedule = build(
        setting.merged, setting.signatures, setting.policy, LAYOUTS["producer"], setting.cells.arenas
    )
    arenas = [arena for cell in setting.signatures for arena in cell.outputs]
    for table, cell in zip(schedule.cells, setting.signatures, strict=True):
        for rows, arena in zip(table.outputs, cell.outputs, strict=True):
            if arenas.count(arena) == 1:
                assert np.array_equal(rows, np.arange(len(rows)))


@given(settings_of())
def test_elements_follow_the_ranks_of_their_calls(setting: Setting) -> None:
    """For any order of the calls, each call's elements stay together and in order."""
    trace = setting.merged.trace
    rng = np.random.default_rng(0)
    for k, cell in enumerate(setting.signatures):
        order = rng.permutation(len(trace.calls[k]))
        for s in range(len(cell.sequences)):
            lengths = trace.calls[k][:, 1 + cell.arguments + s]
            starts = np.cumsum(lengths) - lengths
            expected = [
                start + i for start, n in zip(starts[order], lengths[order], strict=True) for i in range(n)
            ]
            assert element_order(trace, setting.signatures, k, s, order).tolist() == expected


def test_columns_of_a_packed_operand_are_read_side_by_side() -> None:
    """Call by call, in the operand's order of columns."""
    cell = CellSignature("join", 0, False, (Operand(0, (2, 0)), Operand(0, (1,))), (0,), 3)
    trace = Trace((np.array([[9, 1, 2, 3], [10, 4, 5, 6]], np.int32),), ((),), (), ((),), ((),), 11)
    order = np.array([1, 0])
    assert values_read(trace, [cell], 0, cell.operands[0], order).tolist() == [
        6,
        4,
        3,
        1,
    ]
    assert values_read(trace, [cell], 0, cell.operands[1], order).tolist() == [5, 2]


def test_a_shared_value_lives_at_its_first_reader() -> None:
    r"""The other readers have an index array.

    a   b   c       the first join reads b and a, the second c and b: rows of b, a, c
     \ / \ / \      look reads a and c
     join join look
    """
    leaf = CellSignature("leaf", 0, False, (), (0,), 0)
    join = CellSignature("join", 1, False, (Operand(0, (0, 1)),), (1,), 2)
    look = CellSignature("look", 2, False, (Operand(0, (0,)),), (1,), 1)
    schedule = _built((leaf, join, look), [[0], [1], [2]], [[3, 1, 0], [4, 2, 1]], [[5, 0], [6, 2]])
    assert schedule.row_of[[0, 1, 2]].tolist() == [1, 0, 2]
    joined, looked = schedule.cells[1].operands[0], schedule.cells[2].operands[0]
    assert joined.rows is not None
    assert joined.rows.tolist() == [0, 1, 2, 0]
    assert joined.repeats
    assert (looked.start, looked.rows) == (1, None)  # by chance side by side


def test_recursive_cells_choose_rows_first() -> None:
    """They run many times, others once; and these run in the order of the rows, if they may."""
    leaf = CellSignature("leaf", 0, False, (), (0,), 0)
    scan = CellSignature("scan", 1, False, (Operand(0, (0,)),), (1,), 1)
    node = CellSignature("node", 2, True, (Operand(0, (0, 1)),), (0,), 2)
    scans = [[2, 0], [3, 1], [5, 4]]
    schedule = _built((leaf, scan, node), [[0], [1], [4]], scans, [[6, 1, 0], [7, 4, 6]])
    assert schedule.row_of[[0, 1, 4, 6]].tolist() == [1, 0, 2, 3]
    assert schedule.cells[2].operands[0].rows is None
    assert schedule.cells[1].operands[0].rows is None
    assert schedule.cells[1].order.tolist() == [1, 0, 2]


def _built(cells: tuple[CellSignature, ...], *calls: list[list[int]]) -> Schedule:
    """Return the schedule of one example's calls, by component, in the consumer layout."""
    none = ((),) * len(cells)
    trace = Trace(
        tuple(np.array(rows, np.int32) for rows in calls), none, (), none, none, 1 + max(max(map(max, calls)))
    )
    policy = POLICIES["by_component"]
    return build(merge([leveled(trace, cells, policy)], cells), cells, policy, LAYOUTS["consumer"], 2)


def test_append_numbers_only_values_without_a_row() -> None:
    """In order, behind the rows that are used."""
    rows = RowNumbering(np.array([-1, 5, -1, -1]), [6, 0])
    rows.append(0, np.array([3, 1, 0]))
    assert rows.of_value.tolist() == [7, 5, -1, 6]
    assert rows.used == [8, 0]
