"""Places: a view of a value is elements of a slot at fixed strides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, apply, input_node
from foldbatch.static.op import CALL, UNBATCHED
from foldbatch.static.places import Place
from foldbatch.static.statements import Binding
from foldbatch.types import TensorType
from tests.static.run_kernel import interpret, random_rows, routine_of_graph

ROWS = 3


def elements(place: Place) -> list[list[int]]:
    """Return, row by row, the numbers of a place's elements, by the formula that its docstring states."""
    return [
        [
            r * place.row
            + place.offset
            + sum(i * stride for i, stride in zip(at, place.strides, strict=True))
            for at in itertools.product(*map(range, place.shape))
        ]
        for r in range(ROWS)
    ]


@st.composite
def views(draw: st.DrawFn) -> tuple[Node, Node]:
    """Return an input, and a view of a view of ... it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    x = y = input_node(TensorType(shape, "float64"))
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(["slice", "transpose", "reshape", "broadcast"])):
            case "slice" if y.ndim:
                axis = draw(st.integers(0, y.ndim - 1))
                start = draw(st.integers(0, y.shape[axis] - 1))
                stop = draw(st.integers(start + 1, y.shape[axis]))
                y = y[(*(slice(None),) * axis, slice(start, stop))]
            case "transpose" if y.ndim > 1:
                y = ops.transpose(y, tuple(draw(st.permutations(range(y.ndim)))))
            case "reshape":
                y = ops.reshape(y, (1, y.type.size) if draw(st.booleans()) else (y.type.size,))
            case "broadcast":
                y = apply("broadcast_to", y, shape=(2, *y.shape))
    return x, y


@given(views())
@settings(max_examples=55)
def test_a_place_is_the_elements_of_a_view(pair: tuple[Node, Node]) -> None:
    """Whatever the view is of: of the slot, of the operand, or of a copy where elements change their order."""
    x, y = pair
    graph = Graph((x,), (ops.tanh(y) + 1.0, y))
    rows = random_rows(np.random.default_rng(0), graph, ROWS)
    routine = routine_of_graph(graph)
    copies = [statement for statement in routine.statements if statement.op == "copy"]
    (operand,) = [i for i, slot in enumerate(routine.slots) if slot.binding == Binding("operand", 0)]
    memory = {operand: rows.values[0].reshape(-1)}
    for copy in copies:
        assert copy.write.shape == copy.reads[0].shape
        source, target = elements(copy.reads[0]), elements(copy.write)
        whole = memory.setdefault(
            copy.write.slot, np.full(ROWS * routine.slots[copy.write.slot].type.size, np.nan)
        )
        whole[target] = memory[copy.reads[0].slot][source]
    place = routine.results[1].place
    found = memory[place.slot][elements(place)].reshape(ROWS, *place.shape)
    np.testing.assert_array_equal(found, interpret(graph, rows)[1])


@pytest.mark.parametrize("name", ["reshape", "slice", "transpose", "broadcast_to"])
def test_views_are_no_statements(name: str) -> None:
    """They are places of what they look at."""
    x = input_node(TensorType((2, 3)))
    views = {
        "reshape": lambda: ops.reshape(x, 6),
        "slice": lambda: x[1:],
        "transpose": lambda: ops.transpose(x),
        "broadcast_to": lambda: apply("broadcast_to", x, shape=(4, 2, 3)),
    }
    y = views[name]()
    assert [s.op for s in routine_of_graph(Graph((x,), (ops.exp(y),))).statements] == ["exp"]


def test_what_is_the_same_for_all_rows_has_no_stride_from_row_to_row() -> None:
    """A parameter that is a row of each call is there once."""
    weight = input_node(TensorType((3,)), UNBATCHED)
    (result,) = routine_of_graph(Graph((weight,), (ops.batched(weight),))).results
    assert (result.place.axis, result.place.row, result.place.strides) == (CALL, 0, (1,))
