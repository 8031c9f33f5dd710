"""Why nodes run when they do, in words that follow from what they read and who reads them."""

from __future__ import annotations

from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import input_node
from foldbatch.static.routines import Target
from foldbatch.types import TensorType
from foldbatch.views.naming import name_nodes
from foldbatch.views.parts import parts_of
from foldbatch.views.reasons import Placed, place
from tests.views.explained import textbook, tree_node

V = TensorType((3,))


def placed_in(cell: Cell) -> list[Placed]:
    """Return the nodes of what trains a cell, whatever engine runs it."""
    return list(place(cell, parts_of(cell.training, Target()), name_nodes(cell, [], {})))


def reasons(cell: Cell, direction: str) -> dict[str, tuple[str, str]]:
    """Return stage and reason by the op's name; of several nodes with one op, of the last."""
    return {
        p.expression.split("(")[0]: (p.stage, p.reason) for p in placed_in(cell) if p.direction == direction
    }


def test_forward_the_recursion_decides():
    found = reasons(tree_node(), "forward")
    assert found["tanh"] == ("step", "reads recursive x0; needed by recursive output 0")
    assert found["square"] == ("after", "reads recursive x0; needed by nothing recursive")


def test_what_waits_for_nobody_comes_before():
    """Data times a weight: one of the two products."""
    cell = tree_node()
    placed = placed_in(cell)
    products = [(p.stage, p.reason) for p in placed if p.expression.startswith("linear(f0")]
    assert products == [("before", "reads nothing recursive")]


def test_backward_cotangents_take_the_place_of_operands():
    found = reasons(tree_node(), "backward")
    assert found["linear"] == ("step", "reads recursive g0; needed by recursive cotangent of x0")
    assert found["sum_outer"] == ("after", "reads recursive g0; needed by nothing recursive")
    assert found["subtract"] == ("step", "made where it is read, to store nothing")
    assert found["reshape"][0] == "after"


def test_views_are_made_anew():
    """The children's rows as one, which the step multiplies by a weight, and after it the weight's gradient."""
    cell = tree_node()
    placed = [p for p in placed_in(cell) if p.expression.startswith("reshape(x0")]
    reasons_of = {(p.direction, p.stage): p.reason for p in placed}
    assert reasons_of["forward", "step"] == "reads recursive x0; needed by recursive output 0"
    assert reasons_of["backward", "after"] == "view, made anew where it is read"


def test_without_recursion_all_is_done_at_once():
    assert set(reasons(textbook(), "forward").values()) == {("before", "reads nothing recursive")}
    assert reasons(textbook(), "backward") == {}


def test_several_ends_are_listed_in_order():
    a, b = input_node(V), input_node(V)
    s = a + b
    both = frozenset((0, 1))
    cell = stage_cell(CellGraph("c", (a, b), (), (ops.exp(s), ops.tanh(s))), Ends(both, both))
    found = reasons(cell, "forward")
    assert found["add"][1] == "reads recursive x0, x1; needed by recursive outputs 0, 1"
    assert found["tanh"][1] == "reads recursive x0, x1; needed by recursive output 1"


def test_cotangents_of_what_is_not_recursive_wait_for_nobody():
    """Of two outputs only the first returns as an operand; the second's cotangent is there at once."""
    a = input_node(V)
    ends = Ends(*(frozenset(some) for some in ((0,), (0,), (0,), (0, 1))))
    cell = stage_cell(CellGraph("c", (a,), (), (ops.exp(a), ops.sin(a))), ends)
    placed = [p for p in placed_in(cell) if p.direction == "backward"]
    by_cotangent = {g: p for p in placed for g in ("g0", "g1") if g in p.expression}
    assert "reads recursive g0" in by_cotangent["g0"].reason
    assert "reads recursive" not in by_cotangent["g1"].reason


def test_the_tenth_operand_comes_after_the_second():
    xs = tuple(input_node(V) for _ in range(11))
    every, first = frozenset(range(11)), frozenset((0,))
    cell = stage_cell(CellGraph("c", xs, (), (ops.add(*xs),)), Ends(every, first))
    listed = ", ".join(f"x{i}" for i in range(11))
    assert reasons(cell, "forward")["add"][1] == f"reads recursive {listed}; needed by recursive output 0"
