"""The interface: which tables cells take, and which models are refused."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install 'foldbatch[onnx]'")

import foldbatch as fb
from foldbatch.errors import ModelError
from foldbatch.exporting.exporter import Exporter
from foldbatch.static import ops


def test_random_numbers_are_refused_with_the_cell_that_draws_them():
    noise = fb.Vector(2) >> fb.Function(lambda x: x + ops.random((2,)))
    with pytest.raises(
        ModelError, match=r"expected ops that ONNX has, found random in model.* \(it draws random numbers\)"
    ):
        Exporter(fb.compile(noise, "numpy"))


def test_dropout_is_not_exported(program_of):
    assert "random" not in {x.op_type.lower() for x in Exporter(program_of("tree_lstm")).proto().graph.node}


def test_cells_that_read_nothing_run_once_and_take_no_table(program_of):
    cells = {cell.number: cell for cell in Exporter(program_of("child_sum")).interface.cells}
    once = [cell for cell in cells.values() if cell.once]
    assert once and all(not cell.feeds and not cell.operands for cell in once)


def test_only_a_metric_out_of_order_takes_a_table(program_of):
    assert Exporter(program_of("tree_lstm")).interface.ordered == set()
