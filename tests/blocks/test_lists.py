"""Lists of the tracing program: what counts as one, how its elements are held, walked along and added."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.blocks.builder import Builder, packed
from foldbatch.blocks.inference import specimen
from foldbatch.blocks.lists import (
    append,
    each,
    element_type,
    empty_list,
    expect_list,
    expect_sequence,
)
from foldbatch.blocks.tracing import Tuple
from foldbatch.blocks.values import Object, Repeated, Sequence, Terminal, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.static.graph import input_node
from foldbatch.types import OBJECT, VOID, SequenceType, TensorType, TupleType
from tests.blocks.printed import lines

FLOAT, ROW = TensorType(()), TensorType((2,))
PAIR = TupleType((FLOAT, TupleType((ROW, VOID))))
BLOCK = fb.Identity()


@pytest.fixture
def builder():
    return Builder.scratch("root")


def test_objects_and_sequences_are_lists_as_they_are(builder):
    for value, element in ((Object("x"), OBJECT), (specimen(builder, SequenceType(ROW)), ROW)):
        assert expect_list(BLOCK, builder, value) is value
        assert element_type(value) == element
    assert lines(builder) == []


def test_a_tuple_of_one_type_is_made_a_list(builder):
    two = tuple(specimen(builder, PAIR) for _ in range(2))
    found = expect_list(BLOCK, builder, two)
    assert type_of(found) == SequenceType(PAIR)
    codes = [builder.region.values[x][0] for a, (b, _) in two for x in (a, b)]
    assert lines(builder) == ["{} = [({}, {}), ({}, {})]".format(found.expression, *codes)]


def test_a_tuple_of_objects_is_made_an_object(builder):
    found = expect_list(BLOCK, builder, (Object("a"), Object("b")))
    assert isinstance(found, Object)
    assert lines(builder) == [f"{found.expression} = [a, b]"]
    nested = expect_list(BLOCK, builder, ((Object("a"),), (Object("b"),)))
    assert lines(builder)[-1] == f"{nested.expression} = [(a,), (b,)]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "a finite sequence"),
        (input_node(ROW), "a finite sequence"),
        (Repeated(Object("x")), "a finite sequence"),
        ((), "one or more values of one type"),
        ((input_node(ROW), input_node(FLOAT)), "one or more values of one type"),
        ((input_node(ROW), Object("x")), "one or more values of one type"),
    ],
)
def test_anything_else_is_refused(builder, value, expected):
    with pytest.raises(BlockTypeError) as caught:
        expect_list(BLOCK, builder, value)
    assert (caught.value.where, caught.value.expected) == ("root Identity()", expected)


@pytest.mark.parametrize(
    "value",
    [
        Object("x"),
        (Object("x"), Object("y")),
        empty_list("s", OBJECT),
        empty_list("s", TupleType((ROW, OBJECT))),
    ],
)
def test_a_sequence_of_tensors_holds_no_objects(builder, value):
    with pytest.raises(BlockTypeError, match="expected a sequence of tensors"):
        expect_sequence(BLOCK, builder, value)
    assert expect_sequence(BLOCK, builder, empty_list("s", PAIR)).element == PAIR


def test_an_element_is_itself_or_a_flat_tuple():
    slots = [Terminal(name, FLOAT) for name in "abc"]
    assert [packed(slots[:n]) for n in (1, 3, 0)] == ["a", Tuple(("a", "b", "c")), Tuple(())]


def test_a_walk_takes_elements_apart_and_remembers_the_place(builder):
    with each(builder, Object("x", ("['words']",)), ".map") as item:
        assert item.place[0] == "['words']"
        assert item.place[1].startswith("[{i")
        assert builder.path == "root.map"
    with each(builder, empty_list("s", PAIR), ".map") as element:
        assert type_of(element) == PAIR
    assert any(line.endswith("in enumerate(s):") for line in lines(builder))


def test_what_is_added_reaches_who_reads_the_list(builder):
    """Wires lead from every value that is put in to the list's, in the same order of terminals."""
    known = empty_list("s", PAIR)
    first = append(builder, specimen(builder, PAIR), known)
    assert first is known
    again = append(builder, specimen(builder, PAIR), "t")
    assert isinstance(again, Sequence)
    assert (again.expression, again.element, len(again.wires)) == ("t", PAIR, 2)
    assert lines(builder)[-1].startswith("t.append((")
    assert all(wire not in other.wires for wire in known.wires for other in (again,))


def test_objects_are_added_to_objects_and_to_sequences_of_them(builder):
    assert append(builder, Object("a"), "t") == Object("t")
    assert append(builder, (Object("a"), Object("b")), "t") == Object("t")
    assert lines(builder) == ["t.append(a)", "t.append((a, b))"]
    sequence = empty_list("s", OBJECT)
    assert append(builder, Object("a"), sequence) is sequence
