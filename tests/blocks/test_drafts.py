"""A cell in the making hands out one wire and one number per output."""

from foldbatch.blocks.drafts import Draft
from foldbatch.static.graph import input_node
from foldbatch.types import TensorType


def test_outputs_are_numbered_from_the_call_s_first_value() -> None:
    """Asked for again, an output stays where it was."""
    draft = Draft("model", 0, "v3")
    a, b = input_node(TensorType((2,))), input_node(TensorType((2,)))
    code_a, wire_a = draft.output(a)
    code_b, wire_b = draft.output(b)
    assert (code_a, code_b) == ("v3", "v3 + 1")
    assert draft.output(a) == (code_a, wire_a)
    assert wire_a is not wire_b
