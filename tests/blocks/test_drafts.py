"""Drafts of cells: an output has one wire, however often it is asked for."""

from __future__ import annotations

from foldbatch.blocks.drafts import Draft
from foldbatch.static.graph import input_node
from foldbatch.types import TensorType


def test_the_values_of_a_call_follow_each_other():
    draft = Draft("cell", 0, "v1")
    x, y = input_node(TensorType(())), input_node(TensorType(()))
    code_x, wire_x = draft.output(x)
    code_y, wire_y = draft.output(y)
    assert (code_x, code_y) == ("v1", "v1 + 1")
    assert draft.output(x) == (code_x, wire_x)
    assert wire_x is not wire_y
    assert list(draft.outputs) == [x, y]
