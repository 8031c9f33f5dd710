"""Values while building: their types, terminals and wires."""

import pytest

from foldbatch.blocks.values import Broadcast, Object, Sequence, feed, leaves, new_wires, run_time_terminals, type_of
from foldbatch.blocks.wires import Wire
from foldbatch.static.graph import input_node
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType, Type

X = input_node(TensorType((2,)))
LIST = Sequence("t1", TupleType((TensorType((2,)), OBJECT)), (Wire(), None))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (None, VOID),
        (X, TensorType((2,))),
        (Object("t"), OBJECT),
        (LIST, SequenceType(LIST.element)),
        (Broadcast(X), BroadcastType(X.type)),
        ((X, (None,)), TupleType((X.type, TupleType((VOID,))))),
    ],
)
def test_every_value_has_a_type(value: object, type_: Type) -> None:
    """One kind of value per kind of type."""
    assert type_of(value) == type_


def test_leaves_are_the_terminals_in_order() -> None:
    """Void has none; a broadcast has those of what it repeats."""
    thing = Object("t")
    assert list(leaves((X, (None, thing), Broadcast(X), LIST))) == [X, thing, X, LIST]
    types = run_time_terminals(TupleType((X.type, VOID, BroadcastType(OBJECT), SequenceType(OBJECT))))
    assert types == [X.type, OBJECT, SequenceType(OBJECT)]


def test_wires_follow_the_type_and_are_connected_one_to_one() -> None:
    """A tensor has one, a sequence one for each tensor of an element, an object none."""
    assert new_wires(OBJECT) is None
    assert isinstance(new_wires(X.type), Wire)
    a, b = new_wires(SequenceType(LIST.element)), new_wires(SequenceType(LIST.element))
    feed(a, b)
    assert a[0].flows_to == [b[0]]
    assert a[1] is None
