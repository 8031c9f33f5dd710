"""Launches of several kernels in one call: in order, each with its levels, until an id is out of range."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.launch import FIELDS, LaunchTable
from foldbatch.engines.llvm.instructions import encode
from foldbatch.engines.ranges import OutOfRangeError
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding, Result, Routine, Slot, Statement
from foldbatch.types import TensorType

pytestmark = pytest.mark.llvm
ONE = TensorType((), "float64")
ID = TensorType((), "int64")
M = ragged()


@pytest.fixture(autouse=True)
def _needs_llvm() -> None:
    pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def all_of(number: int, axis: Any = CALL) -> Place:
    return Place(number, axis, int(axis is not UNBATCHED), 0, (), ())


# kept buffer 1 is kept buffer 0 times itself; kept buffer 0 is kept buffer 1 and itself
SQUARE = Routine(
    "square",
    (Slot(Binding("kept", 0), ONE, CALL), Slot(Binding("kept", 1), ONE, CALL)),
    (Statement("multiply", CALL, (all_of(0), all_of(0)), all_of(1)),),
    (),
)
ADD = Routine(
    "add",
    (
        Slot(Binding("kept", 0), ONE, CALL),
        Slot(Binding("kept", 1), ONE, CALL),
        Slot(Binding("scratch", 0), ONE, CALL),
    ),
    (
        Statement("add", CALL, (all_of(0), all_of(1)), all_of(2)),
        Statement("copy", CALL, (all_of(2),), all_of(0)),
    ),
    (),
)
CHECK = Routine(
    "check",
    (Slot(Binding("feed", 0), ID, CALL), Slot(Binding("kept", 0), ONE, CALL)),
    (
        Statement("check_range", CALL, (all_of(0),), attrs={"size": 5}),
        Statement("negative", CALL, (all_of(1),), all_of(1)),
    ),
    (),
)


def fields(*bases: int) -> list[int]:
    return [number for base in bases for number in (base, 0, -1, 1, -1, 0, -1)]


def table_of(
    launches: list[list[int]], bounds: list[tuple[int, int]], index: Any = (), heights: int = 9
) -> LaunchTable:
    width = max(map(len, launches), default=3)
    rows = np.array([launch + [-1] * (width - len(launch)) for launch in launches], np.int64).reshape(
        -1, width
    )
    return LaunchTable(
        rows, np.array(bounds, np.int64).reshape(-1, 2), np.array(index, np.int64), np.full(4, heights)
    )


def addresses(*arrays: Any) -> Any:
    return np.array([array.ctypes.data for array in arrays], np.int64)


def walker(*routines: Routine) -> Any:
    from foldbatch.engines.llvm.walker import Walker  # noqa: PLC0415 - it needs llvmlite

    return Walker([encode(routine) for routine in routines])


def test_launches_run_in_order_each_with_its_levels() -> None:
    x, y, spare = np.array([2.0, 3, 5]), np.zeros(3), np.zeros(3)
    launches = [
        [0, 0, 2, *fields(0, 1)],
        [1, 1, 2, *fields(0, 1, 2)],
        [0, 2, 4, *fields(0, 1)],
        [1, 4, 4, *fields(0, 1, 2)],
    ]
    bounds = [(0, 2), (2, 3), (1, 3), (0, 1)]
    walker(SQUARE, ADD).run(table_of(launches, bounds), addresses(x, y, spare))
    assert x.tolist() == [2, 3, 30]
    assert y.tolist() == [4, 9, 900]


def test_a_table_may_be_empty() -> None:
    walker(SQUARE).run(table_of([], []), addresses(np.zeros(1)))
    walker().run(table_of([], []), np.zeros(0, np.int64))


def test_nothing_runs_after_an_id_out_of_range() -> None:
    ids, x, y = np.array([0, 4, 2, 7, 5]), np.ones(5), np.ones(5)
    launches = [[0, 0, 2, *fields(0, 1)], [0, 2, 4, *fields(0, 1)], [1, 0, 1, *fields(1, 2)]]
    with pytest.raises(OutOfRangeError) as caught:
        walker(CHECK, SQUARE).run(table_of(launches, [(0, 1), (1, 2), (2, 5), (0, 2)]), addresses(ids, x, y))
    assert (caught.value.launch, caught.value.rank, caught.value.id, caught.value.size) == (1, 3, 7, 5)
    assert x.tolist() == [-1, -1, 1, 1, 1]
    assert y.tolist() == [1] * 5


def test_rows_along_several_ragged_axes() -> None:
    other = ragged()
    slots = (
        Slot(Binding("feed", 0), ONE, M),
        Slot(Binding("feed", 1), ONE, other),
        Slot(Binding("segments", 0), ID, M),
        Slot(Binding("segments", 1), ID, other),
        Slot(Binding("kept", 0), ONE, M),
        Slot(Binding("kept", 1), ONE, other),
    )
    statements = (
        Statement("negative", M, (all_of(0, M),), all_of(4, M)),
        Statement("square", other, (all_of(1, other),), all_of(5, other)),
    )
    routine = Routine("both", slots, statements, (), {M: 2, other: 3})
    x, y, a, b = np.arange(5.0), np.arange(3.0), np.zeros(5), np.zeros(3)
    row = [0, 0, 2, *fields(0, 1), -1, -1, 0, 1, -1, 0, -1, -1, -1, 4, 1, -1, 0, -1, *fields(2, 3)]
    table = table_of([row], [(1, 2), (2, 3)], [0, 1, 4, 5, 0, 2, 2, 3])
    walker(routine).run(table, addresses(x, y, a, b))
    assert a.tolist() == [0, -1, -2, -3, -4]
    assert b.tolist() == [0, 0, 4]


def test_threads_share_a_walker() -> None:
    """Each with memory of its own."""
    run = walker(SQUARE, ADD).run

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).normal(size=50)
        y, spare, right = np.zeros(50), np.zeros(50), x + x * x
        bounds = [(i, i + 1) for i in range(50)]
        launches = [[0, 0, 50, *fields(0, 1)], [1, 0, 50, *fields(0, 1, 2)]]
        run(table_of(launches, bounds), addresses(x, y, spare))
        return bool((x == right).all())

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_values_of_one_kernel_are_read_by_another() -> None:
    """Through an arena whose rows an index tells."""
    write = Routine(
        "write",
        (Slot(Binding("feed", 0), ONE, CALL),),
        (),
        (Result(Binding("value", 0), all_of(0)),),
    )
    read = Routine(
        "read",
        (Slot(Binding("operand", 0), ONE, CALL), Slot(Binding("kept", 0), ONE, CALL)),
        (Statement("negative", CALL, (all_of(0),), all_of(1)),),
        (),
    )
    x, arena, spare, out = np.array([1.0, 2, 3]), np.zeros(4), np.zeros(3), np.zeros(3)
    rows = [
        [0, 0, 1, *fields(0), 1, -1, 0, 1, -1, 0, -1],
        [1, 0, 1, 1, -1, 3, 1, -1, 0, 2, *fields(3)],
    ]
    assert len(rows[0]) == 3 + 2 * FIELDS
    walker(write, read).run(table_of(rows, [(0, 3)], [2, 0, 1, 1, 2, 2]), addresses(x, arena, spare, out))
    assert arena.tolist() == [2, 3, 1, 0]
    assert out.tolist() == [-3, -1, -1]
