"""No two cells of a program are called alike, and names say what the user called things."""

from __future__ import annotations

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.names import CellName, Origin, name_cell, tell_apart

VECTOR = fb.Vector(2)


def names(block: fb.Block) -> list[str]:
    return [cell.name for cell in fb.compile(block, "numpy").model.cells]


def attend(x):
    return x * 2


def embed(x):
    return ops.tanh(x)


def score(x):
    return ops.sum(x)


def test_a_function_names_its_cell() -> None:
    """By the name of the def; a lambda has none."""
    assert names(VECTOR >> fb.Function(attend)) == ["model.attend"]
    assert names(VECTOR >> fb.Function(embed) >> fb.Function(attend)) == ["model.embed+attend"]
    assert names(VECTOR >> fb.Function(lambda x: x * 2)) == ["model"]
    three = fb.Function(embed) >> fb.Function(attend) >> fb.Function(score)
    assert names(fb.Map(VECTOR >> three)) == ["model.map.embed+...+score"]


def test_two_maps_are_told_apart() -> None:
    """By functions or layers, and where these do not differ, by numbers."""
    assert names(fb.Map(VECTOR >> fb.Function(embed)) >> fb.Map(fb.Function(attend))) == [
        "model.map.embed",
        "model.map.attend",
    ]
    assert names(fb.Map(VECTOR >> fb.Linear(2, name="a")) >> fb.Map(fb.Linear(2, name="b"))) == [
        "model.map.a",
        "model.map.b",
    ]
    halve = fb.Function(lambda x: x / 2)
    assert names(fb.Map(VECTOR >> halve) >> fb.Map(halve)) == ["model.map#1", "model.map#2"]


def sequence_model() -> fb.Block:
    """Two recurrent layers and an attention in one composition."""
    model = fb.Composition("s2s")
    with model.scope():
        words = fb.Map(VECTOR).reads(model.input)
        first = fb.RNN(fb.LSTMCell(3, name="encoder"), fb.Zeros((3, 3))).reads(words)
        second = fb.RNN(fb.LSTMCell(3, name="decoder"), fb.Zeros((3, 3))).reads(first[0])
        model.output.reads(fb.Function(attend).reads(second[1][0]))
    return model


def test_a_composition_is_named_also_where_its_work_is_drafted_outside() -> None:
    assert names(sequence_model() >> fb.Function(score) >> fb.Loss()) == [
        "model.s2s.map",
        "model.s2s",  # the first states
        "model.s2s.cell.encoder",
        "model.s2s.cell.decoder",
        "model.attend+score",
    ]
    assert names(sequence_model())[-1] == "model.s2s.attend"


def test_declarations_of_one_name_are_numbered() -> None:
    """In errors too, which name paths."""

    def recursion() -> fb.Block:
        one = fb.ForwardDeclaration(output_type=[2], name="tree")
        both = fb.Record((one(), one())) >> fb.Function(lambda a, b: a + b)
        one.resolve_to(fb.OneOf(lambda x: isinstance(x[0], tuple), {True: both, False: VECTOR}))
        return one()

    assert names(fb.AllOf(recursion(), recursion())) == [
        "tree.case(True)",
        "tree.case(False)",
        "tree#2.case(True)",
        "tree#2.case(False)",
    ]


def test_names_do_not_depend_on_what_was_compiled_before() -> None:
    block = sequence_model()
    first = names(block)
    names(fb.Map(VECTOR >> fb.Function(attend)))
    assert names(block) == first == names(sequence_model())


def test_a_name_is_where_all_tensors_come_from() -> None:
    """Tensors of another function of the program say nothing; a cell without tensors is where it stands."""
    inner, outer = Origin(("model", "[0]", ".map")), Origin(("model", "[0]"))
    stranger = Origin(("tree", ".case(1)"), "grow")
    assert name_cell([inner, outer, stranger], ["model", "[1]"]).short == "model[0]"
    assert name_cell([], ["model", "[1]"]) == CellName("model[1]", "model[1]")


def test_numbers_leave_given_names_alone() -> None:
    alike = CellName("a", "a")
    assert tell_apart([alike, CellName("a#1", "a#1"), alike]) == ["a#2", "a#1", "a#3"]
