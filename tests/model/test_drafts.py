"""Drafts of cells: an output has one wire, however often it is asked for; all that is read is known."""

from __future__ import annotations

from foldbatch.model.drafts import Draft
from foldbatch.model.wires import Flow
from foldbatch.static.graph import input_node
from foldbatch.static.op import ragged
from foldbatch.types import TensorType


def test_the_values_of_a_call_follow_each_other():
    draft = Draft("cell", 0)
    x, y = input_node(TensorType(())), input_node(TensorType(()))
    code_x, wire_x = draft.output(x)
    code_y, wire_y = draft.output(y)
    assert (code_x, code_y) == (0, 1)
    assert draft.output(x) == (code_x, wire_x)
    assert wire_x is not wire_y
    assert list(draft.outputs) == [x, y]


def test_what_a_draft_reads_is_operands_then_elements_of_sequences():
    wires = [Flow() for _ in range(4)]
    nodes = [input_node(TensorType(())) for _ in wires]
    pairs = list(zip(nodes, wires, strict=True))
    draft = Draft("cell", 0, pairs[:1], [(ragged(), pairs[1:3]), (ragged(), pairs[3:])])
    assert draft.reads == wires
