"""The walk runs each launch once, in order, on the levels and the row that the table has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foldbatch.engines.launch import LaunchTable
from foldbatch.engines.numpy.walk import run
from foldbatch.engines.ranges import OutOfRangeError


def _table(launches: list[list[int]]) -> LaunchTable:
    bounds = np.array([[0, 2], [2, 3], [0, 4]])
    return LaunchTable(np.array(launches).reshape(-1, 5), bounds, np.arange(3), np.zeros(1, np.int64))


def test_kernels_are_told_their_levels_their_row_the_index_and_the_buffers() -> None:
    ran: list[Any] = []

    def kernel(number: int) -> Any:
        def function(bounds: Any, row: Any, index: Any, buffers: Any) -> None:
            ran.append((number, bounds.tolist(), list(row), index.tolist(), buffers))

        return function

    buffers = [np.zeros(1)]
    run(_table([[1, 0, 2, 7, 8], [0, 2, 3, 9, -1]]), [kernel(0), kernel(1)], buffers)
    assert ran == [
        (1, [[0, 2], [2, 3]], [1, 0, 2, 7, 8], [0, 1, 2], buffers),
        (0, [[0, 4]], [0, 2, 3, 9, -1], [0, 1, 2], buffers),
    ]


def test_a_table_without_launches_runs_nothing() -> None:
    run(_table([]), [], [])


def test_an_id_out_of_range_ends_the_walk_and_is_told_by_its_launch() -> None:
    ran: list[int] = []

    def good(bounds: Any, row: Any, index: Any, buffers: Any) -> None:
        ran.append(0)

    def bad(bounds: Any, row: Any, index: Any, buffers: Any) -> None:
        raise OutOfRangeError(3, 9, 5)

    with pytest.raises(OutOfRangeError) as error:
        run(_table([[0, 0, 1, 0, 0], [1, 1, 2, 0, 0], [0, 2, 3, 0, 0]]), [good, bad], [])
    assert (error.value.launch, error.value.rank, error.value.id) == (1, 3, 9)
    assert ran == [0]
