"""Rows are a bijection, and in trees every operand's rows lie side by side."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foldbatch.planning.layout import LAYOUTS, Layout
from foldbatch.planning.merge import merge
from foldbatch.planning.policies import POLICIES
from foldbatch.planning.tables import build
from foldbatch.scheduler.schedule import Schedule
from foldbatch.scheduler.trace import CellSignature, Operand, Trace, element_order
from tests.planning.random_traces import Setting, leveled, settings_of

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
            assert element_order(lengths, order).tolist() == expected


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


def test_rows_with_a_gap_are_listed() -> None:
    """Of the values in the drawing above, the second look reads c again, and the first one b: rows 0 and 2."""
    leaf = CellSignature("leaf", 0, False, (), (0,), 0)
    join = CellSignature("join", 1, False, (Operand(0, (0, 1)),), (1,), 2)
    look = CellSignature("look", 2, False, (Operand(0, (0,)),), (1,), 1)
    schedule = _built((leaf, join, look), [[0], [1], [2]], [[3, 1, 0], [4, 2, 1]], [[5, 2], [6, 1]])
    (looked,) = schedule.cells[2].operands
    assert looked.start is None and looked.rows is not None
    assert looked.rows.tolist() == [0, 2]


def _built(cells: tuple[CellSignature, ...], *calls: list[list[int]]) -> Schedule:
    """Return the schedule of one example's calls, by component, in the consumer layout."""
    none = ((),) * len(cells)
    trace = Trace(
        tuple(np.array(rows, np.int32) for rows in calls), none, (), none, none, 1 + max(max(map(max, calls)))
    )
    policy = POLICIES["by_component"]
    return build(merge([leveled(trace, cells, policy)], cells), cells, policy, LAYOUTS["consumer"], 2)
