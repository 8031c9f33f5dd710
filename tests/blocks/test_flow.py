"""Flow: variables hold one value of a type, whoever assigns it; calls pass values in and out."""

from __future__ import annotations

import pytest

from foldbatch.blocks.builder import Builder
from foldbatch.blocks.flow import assign, declare, make_call, make_return, pass_on, read
from foldbatch.blocks.inference import specimen
from foldbatch.blocks.values import Object, Repeated, Terminal, new_wires, type_of
from foldbatch.errors import BlockTypeError
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType
from tests.blocks.printed import lines

FLOAT, ROW = TensorType(()), TensorType((2,))
TYPES = [
    VOID,
    FLOAT,
    OBJECT,
    TupleType((ROW, VOID, OBJECT)),
    SequenceType(TupleType((ROW, FLOAT))),
    BroadcastType(ROW),
]


@pytest.fixture
def builder():
    return Builder.scratch("root")


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_what_is_assigned_is_read_as_the_same_type(builder, type_):
    variables = declare(builder, type_)
    assign(builder, variables, specimen(builder, type_), "")
    assert type_of(read(builder, variables)) == type_


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_what_is_passed_on_is_read_inside_as_the_same_type(builder, type_):
    variables = pass_on(builder, specimen(builder, type_))
    with builder.inside():
        assert type_of(read(builder, variables)) == type_


def test_variables_are_assigned_all_at_once(builder):
    """What one is given may be what another holds."""
    pair = declare(builder, TupleType((FLOAT, OBJECT)))
    a, b = pair.slots
    assign(builder, pair, (specimen(builder, FLOAT), Object(b.expression)), "")
    assert lines(builder)[-1].startswith(f"{a.expression}, {b.expression} = ")


def test_every_assignment_reaches_whoever_reads(builder):
    variables = declare(builder, FLOAT)
    target = variables.slots[0].wires
    sources = [Terminal("a", FLOAT, new_wires(FLOAT)), Terminal("b", FLOAT, new_wires(FLOAT))]
    for slot in sources:
        assign(builder, variables, builder.receive(slot), "")
    assert all(slot.wires.flows_to == [target] for slot in sources)


def test_void_needs_no_line(builder):
    assign(builder, declare(builder, VOID), None, "")
    assert lines(builder) == []


def test_a_tuple_of_objects_may_be_assigned_to_an_object(builder):
    variables = declare(builder, OBJECT)
    assign(builder, variables, (Object("a"), Object("b")), "")
    assert lines(builder) == [f"{variables.slots[0].expression} = (a, b)"]


def test_another_type_is_refused_with_the_callers_words(builder):
    variables = declare(builder, FLOAT)
    with builder.at(".here"), pytest.raises(BlockTypeError) as caught:
        assign(builder, variables, specimen(builder, ROW), "do so", "a float32, as before")
    assert str(caught.value) == "root.here: expected a float32, as before, found float32[2]; do so"
    with pytest.raises(BlockTypeError, match="root: expected float32, found void; do so"):
        assign(builder, variables, None, "do so")


def test_objects_in_variables_remember_their_place(builder):
    found = read(builder, declare(builder, TupleType((OBJECT, FLOAT)), ("['a']",)))
    assert found[0].place == ("['a']",)


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_call_takes_and_yields_values_of_the_functions_types(builder, type_):
    function = builder.declare("key", "twice", type_, TupleType((type_, VOID, type_)))
    with builder.define(function, "twice") as argument:
        make_return(builder, function, (argument, None, argument))
    value = specimen(builder, type_)
    assert type_of(make_call(builder, function, value)) == function.output_type


def test_a_call_connects_arguments_to_parameters_and_results_to_what_is_read(builder):
    function = builder.declare("key", "same", FLOAT, FLOAT)
    with builder.define(function, "same") as argument:
        make_return(builder, function, argument)
    (parameter,), (result,) = function.parameters, function.results
    assert parameter.wires.flows_to == [result.wires]
    given = Terminal("a", FLOAT, new_wires(FLOAT))
    outcome = make_call(builder, function, builder.receive(given))
    assert given.wires.flows_to == [parameter.wires]
    _, wire = builder.region.values[outcome]
    assert result.wires.flows_to == [wire]
    assert lines(builder)[-1].endswith(f", = {function.name}(a, left - 1)")
    assert lines(builder, 1) == ["return (x0,)"]


def test_a_call_of_objects_is_blamed_on_the_first(builder):
    function = builder.declare("key", "f", TupleType((FLOAT, OBJECT)), OBJECT)
    subject = Object("x", ("['a']",))
    outcome = make_call(builder, function, (specimen(builder, FLOAT), subject))
    blame = builder._body[-1].blame
    assert (blame.subject, blame.place) == ("x", subject.place)
    assert outcome.place == ("['a']",)


def test_a_repeated_value_passes_as_what_it_repeats(builder):
    row = specimen(builder, ROW)
    variables = pass_on(builder, Repeated(row))
    assert [slot.type for slot in variables.slots] == [ROW]
    assert type_of(read(builder, variables)) == BroadcastType(ROW)
