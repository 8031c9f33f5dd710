"""Tables: the rows of a batch, by hand."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install 'foldbatch[onnx]'")

from foldbatch.exporting.exporter import Exporter


def test_words_come_first_then_phrases_by_height(program_of, forest):
    tables = Exporter(program_of("tree_lstm")).tables(forest)
    inputs = {name: table.tolist() for name, table in tables.inputs.items()}
    assert inputs["cell0.feed0"] == [1, 2, 2, 0, 3, 2, 0, 1, 2]  # good film, film, a bad film or good film
    # phrases: good film (9), bad film (10), good film (11), a ... film (12), or ... film (13), the whole (14)
    assert inputs["cell1.operand0"] == [[0, 1], [4, 5], [7, 8], [3, 10], [6, 11], [12, 13]]
    assert inputs["cell1.operand0"] == inputs["cell1.operand1"]
    assert inputs["cell1.starts"] == [0, 3, 5, 6]
    assert inputs["cell2.operand0"] == [0, 1, 9, 2, 3, 4, 5, 10, 12, 6, 7, 8, 11, 13, 14]
    assert inputs["results.rows"] == [0, 1, 2]
    assert tables.examples["node"].tolist() == [0] * 3 + [1] + [2] * 11


def test_elements_are_cut_level_by_level(program_of, forest):
    inputs = Exporter(program_of("child_sum")).tables(forest[2:]).inputs
    cell = next(name.split(".")[0] for name in inputs if name.endswith(".owner0"))
    assert inputs[f"{cell}.owner0"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert inputs[f"{cell}.starts"].tolist() == [0, 2, 4, 5]
    assert inputs[f"{cell}.begins0"].tolist() == [0, 4, 8, 10]


def test_a_batch_of_none(program_of):
    assert all(
        not len(table) or name.endswith("starts")
        for name, table in Exporter(program_of("rntn")).tables([]).inputs.items()
    )
