"""Places of one shape are visited as few runs of elements as their strides allow."""

from __future__ import annotations

import pytest

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

from foldbatch.engines.llvm.visits import visited
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.places import Place, aligned
from foldbatch.static.statements import Statement, axis_of


def place(shape, strides, row=0, axis=CALL):
    return Place(0, axis, row, 0, shape, strides)


def test_rows_side_by_side_are_one_run():
    (part, whole), *more = visited([place((2, 3), (3, 1), 6), place((2, 3), (3, 1), 6)])
    assert (whole, part.extents[-1], more) == (True, 6, [])
    (part, whole), *_ = visited([place((2, 3), (3, 1), 6), place((2, 3), (3, 1), 10)])
    assert not whole


def test_an_operand_is_repeated_where_it_broadcasts():
    assert aligned(place((3,), (1,)), (2, 3)) == place((2, 3), (0, 1))
    assert aligned(place((2, 1), (1, 1)), (2, 3)) == place((2, 3), (1, 0))


def test_a_statement_runs_along_the_widest_axis():
    alone = place((3,), (1,), axis=UNBATCHED)
    statement = Statement("add", UNBATCHED, (alone, place((3,), (1,))), alone)
    assert axis_of(statement, [alone]) is UNBATCHED
    assert axis_of(statement, [alone, place((3,), (1,))]) is CALL
