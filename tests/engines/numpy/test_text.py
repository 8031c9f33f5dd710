"""Kernels of routines put together by hand: where rows come from, what becomes of results, level by level."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.engines.numpy.kernel import load
from foldbatch.engines.numpy.text import text_of
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.params.parameters import Parameter
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Result, Routine, Slot, Statement
from foldbatch.types import TensorType
from tests.engines.numpy.launching import At, Batch, poisoned

PAIR = TensorType((2,), "float64")
ONE = TensorType((), "float64")
M = ragged()
OFFSETS = Slot(Binding("segments", 0), TensorType((), "int64"), M)


def _slot(kind: str, key: object = 0, type_: TensorType = PAIR, axis: Axis = CALL) -> Slot:
    return Slot(Binding(kind, key), type_, axis)


def _whole(number: int, slot: Slot) -> Place:
    """Return all of a slot."""
    shape = slot.type.shape
    strides = tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape)))
    return Place(number, slot.axis, int(np.prod(shape)) if slot.axis.rank else 0, 0, shape, strides)


def _doubled(
    read: Slot, *written: Slot, result: Binding | None = None, more: tuple[Slot, ...] = ()
) -> Routine:
    """Return a routine that writes twice what it reads, to a slot whose place may be a result."""
    (out,) = written
    slots = (read, out, *more)
    statement = Statement("add", read.axis, (_whole(0, read), _whole(0, read)), _whole(1, out))
    results = () if result is None else (Result(result, _whole(1, out)),)
    segments = {slot.axis: i for i, slot in enumerate(slots) if slot.binding.kind == "segments"}
    return Routine("double", slots, (statement,), results, segments)


DOUBLED = _doubled(_slot("operand"), _slot("kept"))
ARENA = np.arange(12.0).reshape(6, 2)


@pytest.mark.parametrize("levels", [[(0, 4)], [(0, 1), (1, 2), (2, 4)], [(2, 4), (0, 2)]])
@pytest.mark.parametrize(
    ("at", "rows"), [(At(ARENA, 1), [1, 2, 3, 4]), (At(ARENA, index=[5, 0, 3, 3]), [5, 0, 3, 3])]
)
def test_operands_are_a_part_of_an_arena_or_copies_of_its_rows(at: At, rows: list[int], levels):
    """Whatever the levels are, and the order in which they run."""
    kept = poisoned(PAIR, 4)
    Batch({("operand", 0): at, ("kept", 0): At(kept)}).run(DOUBLED, levels)
    assert kept.tolist() == (2 * ARENA[rows]).tolist()


@pytest.mark.parametrize(
    ("at", "rows"),
    [(At(ARENA, 1, width=2), [1, 2, 3, 4]), (At(ARENA, index=[5, 0, 3, 3], width=2), [5, 0, 3, 3])],
)
def test_rows_side_by_side_are_one_row_of_the_kernel(at: At, rows: list[int]):
    kept, both = poisoned(TensorType((2, 2), "float64"), 2), TensorType((2, 2), "float64")
    routine = _doubled(_slot("operand", type_=both), _slot("kept", type_=both))
    Batch({("operand", 0): at, ("kept", 0): At(kept)}).run(routine, [(0, 1), (1, 2)])
    assert kept.reshape(4, 2).tolist() == (2 * ARENA[rows]).tolist()


@pytest.mark.parametrize(
    ("at", "rows"), [(At(ARENA, 1), [1, 2, 3, 4, 5]), (At(ARENA, index=[5, 0, 3, 3, 1]), [5, 0, 3, 3, 1])]
)
def test_rows_of_sequences_are_counted_by_their_offsets(at: At, rows: list[int]):
    """A call may have none."""
    kept = poisoned(PAIR, 5)
    routine = _doubled(_slot("operand", axis=M), _slot("kept", axis=M), more=(OFFSETS,))
    Batch({("operand", 0): at, ("kept", 0): At(kept)}, {}, [[0, 2, 2, 5]]).run(routine, [(0, 2), (2, 3)])
    assert kept.tolist() == (2 * ARENA[rows]).tolist()


def test_each_launch_has_its_own_rows():
    kept = poisoned(PAIR, 4)
    Batch({("operand", 0): At(ARENA, 0), ("kept", 0): At(kept)}).run(DOUBLED, [(0, 1), (1, 3)], [], [(3, 4)])
    assert kept.tolist() == (2 * ARENA[:4]).tolist()


@pytest.mark.parametrize("levels", [[(0, 3)], [(2, 3), (0, 2)]])
@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (At(ARENA, index=[5, 0, 3]), ARENA[[5, 0, 3]]),
        (At(ARENA, 2), ARENA[2:5]),
        (
            At(ARENA, index=[5, 1, 0, 2, 3], copies=[0, 2, 2, 5]),
            [ARENA[5] + ARENA[1], [0, 0], ARENA[[0, 2, 3]].sum(0)],
        ),
    ],
)
def test_cotangents_of_shared_calls_are_summed(at: At, expected, levels):
    kept = poisoned(PAIR, 3)
    routine = _doubled(_slot("cotangent"), _slot("kept"))
    Batch({("cotangent", 0): at, ("kept", 0): At(kept)}).run(routine, levels)
    assert kept.tolist() == (2 * np.array(expected)).tolist()


@pytest.mark.parametrize("levels", [[(0, 3)], [(2, 3), (0, 2)]])
@pytest.mark.parametrize(
    ("first", "index", "copies", "rows"),
    [
        (-1, [5, 0, 3], None, {5: 0, 0: 1, 3: 2}),
        (2, None, None, {2: 0, 3: 1, 4: 2}),
        (-1, [5, 1, 0], [0, 2, 2, 3], {5: 0, 1: 0, 0: 2}),
    ],
)
def test_values_go_to_the_rows_of_their_readers(first, index, copies, rows, levels):
    """Those of shared calls to several, or to none."""
    arena = np.zeros((6, 2))
    routine = _doubled(_slot("feed"), _slot("scratch"), result=Binding("value", 1))
    end = At(arena, first, index, copies=copies)
    Batch({("feed", 0): At(ARENA)}, {("value", 1): end}).run(routine, levels)
    expected = np.zeros((6, 2))
    for row, call in rows.items():
        expected[row] = 2 * ARENA[call]
    assert arena.tolist() == expected.tolist()


ENDS = [
    (1, None, True, lambda arena, values: arena.__setitem__(slice(1, 4), values)),
    (1, None, False, lambda arena, values: arena.__setitem__(slice(1, 4), arena[1:4] + values)),
    (-1, [5, 0, 5], False, lambda arena, values: np.add.at(arena, [5, 0, 5], values)),
]


@pytest.mark.parametrize("levels", [[(0, 3)], [(2, 3), (0, 2)], [(0, 1), (1, 2), (2, 3)]])
@pytest.mark.parametrize(("first", "index", "stores", "expect"), ENDS)
@pytest.mark.parametrize("kind", ["store", "cotangent"])
def test_cotangents_of_operands_are_stored_or_added(kind: str, first, index, stores, expect, levels):
    """By the kernel's statements themselves, or after them."""
    arena, expected = np.ones((6, 2)), np.ones((6, 2))
    end = At(arena, first, index, stores=stores)
    slots = {("feed", 0): At(ARENA)}
    if kind == "store":
        Batch({**slots, ("store", 2): end}).run(_doubled(_slot("feed"), _slot("store", 2)), levels)
    else:
        routine = _doubled(_slot("feed"), _slot("scratch"), result=Binding("cotangent", 2))
        Batch(slots, {("cotangent", 2): end}).run(routine, levels)
    expect(expected, 2 * ARENA[:3])
    np.testing.assert_allclose(arena, expected, rtol=1e-15)


def test_cotangents_of_sequences_are_stored_by_their_offsets():
    arena = np.zeros((6, 2))
    routine = _doubled(_slot("kept", axis=M), _slot("store", axis=M), more=(OFFSETS,))
    slots = {("kept", 0): At(ARENA), ("store", 0): At(arena, 1, stores=True)}
    Batch(slots, {}, [[0, 2, 2, 5]]).run(routine, [(2, 3), (0, 2)])
    assert arena.tolist() == [[0, 0], *(2 * ARENA[:5]).tolist()]


def test_cotangents_to_the_same_rows_are_added_by_operand():
    """Whether a statement writes them where they are added from, or they are results."""
    arena = np.zeros((1, 1))
    one = TensorType((1,), "float64")
    slots = (_slot("feed", 0, one), _slot("store", 1, one), _slot("feed", 1, one))
    copy = Statement("copy", CALL, (_whole(2, slots[2]),), _whole(1, slots[1]))
    results = (
        Result(Binding("cotangent", 0), _whole(0, slots[0])),
        Result(Binding("cotangent", 2), _whole(0, slots[0])),
    )
    big, small = np.full((1, 1), 2.0**53), np.full((1, 1), 1.0)
    ends = {("cotangent", number): At(arena, 0) for number in (0, 2)}
    batch = Batch({("feed", 0): At(small), ("feed", 1): At(big), ("store", 1): At(arena, 0)}, ends)
    batch.run(Routine("add", slots, (copy,), results), [(0, 1)])
    assert arena.item() == (1.0 + 2.0**53) + 1.0  # not 2**53 + 2


@pytest.mark.parametrize(("stores", "expected"), [(True, [5.0, 7]), (False, [13.0, 17])])
def test_gradients_are_stored_or_added_up(stores: bool, expected: list[float]):
    """Over levels: what is stored is that of the last one."""
    gradient = np.ones((1, 2))
    slots = (_slot("feed"), _slot("scratch", axis=UNBATCHED))
    total = Statement("sum_batch", CALL, (_whole(0, slots[0]),), _whole(1, slots[1]))
    parameter = Parameter(PAIR, np.zeros(2), "w")
    result = Result(Binding("gradient", parameter), _whole(1, slots[1]))
    ends = {("gradient", parameter): At(gradient, stores=stores)}
    levels = [(2, 4), (0, 2)] if not stores else [(1, 3)]
    rows = np.array([[1.0, 2], [2, 3], [3, 4], [6, 7]])
    Batch({("feed", 0): At(rows)}, ends).run(Routine("sum", slots, (total,), (result,)), levels)
    assert gradient.tolist() == [expected]


@pytest.mark.parametrize("kind", ["loss", "metric", "feed"])
def test_losses_metrics_and_gradients_of_data_lie_by_rank(kind: str):
    buffer = poisoned(PAIR, 3)
    routine = _doubled(_slot("feed"), _slot("scratch"), result=Binding(kind, 0))
    Batch({("feed", 0): At(ARENA)}, {(kind, 0): At(buffer)}).run(routine, [(2, 3), (0, 2)])
    assert buffer.tolist() == (2 * ARENA[:3]).tolist()


def test_statements_read_parameters_constants_and_what_is_kept_for_the_batch():
    """And broadcast data of examples, which may not be written."""
    slots = (
        _slot("feed"),
        _slot("parameter", Parameter(PAIR, np.array([10.0, 20]), "w"), axis=UNBATCHED),
        _slot("constant", np.array(3.0), ONE, UNBATCHED),
        _slot("kept", 0, axis=UNBATCHED),
        _slot("kept", 1),
    )
    reads = tuple(_whole(i, slot) for i, slot in enumerate(slots[:4]))
    routine = Routine("add", slots, (Statement("add", CALL, reads, _whole(4, slots[4])),), ())
    kept, data = poisoned(PAIR, 3), np.broadcast_to([1.0, 2], (3, 2))
    places = {("feed", 0): At(data), ("kept", 0): At(np.full((1, 2), 0.5)), ("kept", 1): At(kept)}
    Batch(places).run(routine, [(0, 2), (2, 3)])
    assert kept.tolist() == [[14.5, 25.5]] * 3


def test_parts_of_a_concatenation_may_stand_where_they_belong():
    """A part that is read may begin anywhere."""
    whole = _slot("kept", type_=TensorType((6,), "float64"))
    slots = (_slot("feed"), whole)
    part, last = Place(1, CALL, 6, 0, (2,), (1,)), Place(1, CALL, 6, 4, (2,), (1,))
    feed = _whole(0, slots[0])
    statements = (
        Statement("negative", CALL, (feed,), part),
        Statement("square", CALL, (feed,), last),
        Statement("copy", CALL, (feed,), Place(1, CALL, 6, 2, (2,), (1,))),
    )
    kept = poisoned(whole.type, 3)
    Batch({("feed", 0): At(ARENA), ("kept", 0): At(kept)}).run(
        Routine("join", slots, statements, ()), [(0, 3)]
    )
    rows = ARENA[:3]
    assert kept.tolist() == np.concatenate([-rows, rows, rows**2], axis=1).tolist()


def test_views_are_made_again_where_the_number_of_rows_changes():
    """A level has the rows that it has, whatever the one before had."""
    slots = (_slot("feed"), _slot("scratch"), _slot("kept", type_=TensorType((1, 2), "float64")))
    tall = Place(1, CALL, 2, 0, (1, 2), (2, 1))
    statements = (
        Statement("add", CALL, (_whole(0, slots[0]), _whole(0, slots[0])), _whole(1, slots[1])),
        Statement("copy", CALL, (tall,), _whole(2, slots[2])),
    )
    kept = poisoned(slots[2].type, 6)
    routine = Routine("view", slots, statements, ())
    levels = [(0, 1), (1, 2), (2, 5), (5, 6)]
    Batch({("feed", 0): At(ARENA), ("kept", 0): At(kept)}).run(routine, levels)
    assert kept.reshape(6, 2).tolist() == (2 * ARENA).tolist()


@pytest.mark.parametrize(("ids", "rank"), [([0, 1, 3, 0], 2), ([0, 0, 0, -1], 3)])
def test_an_id_out_of_range_stops_the_walk(ids: list[int], rank: int):
    """It is told by the launch and the call's rank; what ran before has run."""
    slots = (_slot("feed", type_=TensorType((), "int32")), _slot("kept", type_=TensorType((), "int32")))
    places = tuple(_whole(i, slot) for i, slot in enumerate(slots))
    check = Statement("check_range", CALL, places[:1], None, {"size": 3})
    routine = Routine("check", slots, (check, Statement("copy", CALL, places[:1], places[1])), ())
    kept = np.full(4, 7, np.int32)
    with pytest.raises(OutOfRangeError) as error:
        Batch({("feed", 0): At(np.array(ids, np.int32)), ("kept", 0): At(kept)}).run(
            routine, [(0, 1)], [(1, 2), (2, 4)]
        )
    assert (error.value.launch, error.value.rank, error.value.id, error.value.size) == (1, rank, ids[rank], 3)
    assert kept.tolist() == [*ids[:2], 7, 7]


@pytest.mark.parametrize(("axis", "rank"), [(M, 3), (UNBATCHED, 2)])
def test_an_id_of_a_sequence_or_of_all_rows_is_that_of_a_call(axis: Axis, rank: int):
    """Of the call whose sequence has it, or of the first of the level."""
    ids = _slot("kept", type_=TensorType((), "int64"), axis=axis)
    reads = (_whole(0, ids),) + ((Place(1, M, 1, 0, (), ()),) if axis is M else ())
    check = Statement("check_range", CALL, reads, None, {"size": 3})
    slots, segments = ((ids, OFFSETS), {M: 1}) if axis is M else ((ids,), {})
    with pytest.raises(OutOfRangeError) as error:
        Batch({("kept", 0): At(np.array([5, 0, 0, 1, 9]))}, {}, [[0, 1, 1, 3, 5]]).run(
            Routine("check", slots, (check,), (), segments), [(2, 4)]
        )
    assert error.value.rank == rank


TEXT = """\
def double(bounds, row, index, buffers):
    x0_all, x0_at, x0_spare = located(row[3:10], index, buffers, (2,))
    s0_all = buffers[row[10]]
    y0_all, y0_at, _ = located(row[17:24], index, buffers, (2,))
    y0_copies = index[row[21]:] if row[21] >= 0 else None
    n_before = -1
    for start, stop in bounds.tolist():
        n = stop - start
        if n != n_before:
            n_before = n
            x0_copy = x0_spare[:n]
            s0 = s0_all[:n]
        x0 = x0_all[start:stop] if x0_at is None else x0_all.take(x0_at[start:stop], 0, x0_copy, 'clip')
        np.add(x0, x0, out=s0)
        if y0_at is None:
            y0_all[start:stop] = s0
        elif y0_copies is None:
            put_rows(s0, y0_all, y0_at[start:stop])
        else:
            spread(s0, y0_all, y0_at, y0_copies[start:stop + 1])
"""


def test_the_text_of_a_kernel():
    """Lines that hold for a launch stand before the levels, those for a number of rows are not repeated."""
    routine = _doubled(_slot("operand"), _slot("scratch"), result=Binding("value", 0))
    assert text_of(routine) == TEXT
    assert load(routine, "pair").source == TEXT
