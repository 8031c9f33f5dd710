"""Values while building: their types, their terminals, their wires."""

from __future__ import annotations

import pytest

from foldbatch.blocks.values import (
    Object,
    Repeated,
    Sequence,
    feed,
    leaves,
    new_wires,
    run_time_terminals,
    type_of,
)
from foldbatch.model.wires import Flow
from foldbatch.static.graph import input_node
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType

V = TensorType((2,))
X = input_node(V)
S = Sequence("s", TupleType((V, OBJECT)), (Flow(), None))


@pytest.mark.parametrize(
    ("value", "type_", "parts"),
    [
        (None, VOID, []),
        (X, V, [X]),
        (Object("x"), OBJECT, [Object("x")]),
        (S, SequenceType(TupleType((V, OBJECT))), [S]),
        (Repeated((X, None)), BroadcastType(TupleType((V, VOID))), [X]),
        ((), TupleType(()), []),
        (
            (X, (None, S), Object("x")),
            TupleType((V, TupleType((VOID, SequenceType(S.element))), OBJECT)),
            [X, S, Object("x")],
        ),
    ],
)
def test_a_value_has_a_type_and_terminals(value, type_, parts):
    assert type_of(value) == type_
    assert list(leaves(value)) == parts
    assert len(run_time_terminals(type_)) == len(parts)


def test_a_broadcast_passes_as_what_it_repeats():
    assert run_time_terminals(TupleType((BroadcastType(TupleType((V, VOID, OBJECT))), V))) == [V, OBJECT, V]


def test_tensors_have_wires_and_sequences_one_for_each_tensor_of_an_element():
    assert isinstance(new_wires(V), Flow)
    assert new_wires(OBJECT) is None
    element = TupleType((V, OBJECT, BroadcastType(TupleType((V, V))), SequenceType(V), VOID))
    wires = new_wires(SequenceType(element))
    assert [type(w) for w in wires] == [Flow, type(None), Flow, Flow, tuple]


def test_feeding_connects_wire_by_wire():
    type_ = SequenceType(TupleType((V, OBJECT, SequenceType(V))))
    source, target = new_wires(type_), new_wires(type_)
    feed(source, target)
    assert source[0].flows_to == [target[0]]
    assert source[2][0].flows_to == [target[2][0]]
    feed(None, None)
