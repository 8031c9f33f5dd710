"""The exporter: from a program to a graph, tables and results."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx", reason="needs ONNX: pip install 'foldbatch[onnx]'")

from foldbatch.errors import ExampleError
from foldbatch.exporting.exporter import Exporter


def test_the_vocabulary_is_at_hand(program_of):
    assert [list(words) for words in Exporter(program_of("tree_lstm")).vocabularies()] == [
        ["<unk>", "good", "film", "bad"]
    ]


def test_an_example_that_does_not_fit_is_refused(program_of):
    with pytest.raises(ExampleError, match="example 0"):
        Exporter(program_of("tree_lstm")).tables([5])


def test_the_program_itself_stays_as_it_was(program_of, forest):
    program = program_of("tree_lstm")
    before = program.run(forest)
    Exporter(program).proto()
    assert all((a == b).all() for a, b in zip(before, program.run(forest), strict=True))
