"""Routines as text: every kind of statement, place and result."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

import foldbatch as fb
from foldbatch.params.parameters import Owner, Parameter
from foldbatch.static import ops
from foldbatch.static.cell import Cell, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.graph import Node, input_node, parameter_node
from foldbatch.static.op import CALL, ragged
from foldbatch.static.places import Place
from foldbatch.static.routine_printer import print_routine, print_statements, slot_names
from foldbatch.static.routines import Target, routine_of
from foldbatch.static.statements import Binding, Routine, Slot, Statement
from foldbatch.types import TensorType
from tests.programs import BlockProgram, programs

V = TensorType((3,))
LOOPS = Target(frozenset(("tanh", "exp")), frozenset(("float32",)))


def cell_of(operands: tuple[Node, ...], *outputs: Node, feeds: tuple[Node, ...] = ()) -> Cell:
    """Return a cell without recursion or gradients."""
    return stage_cell(CellGraph("c", operands, feeds, outputs), Ends())


def routine_in(cell: Cell, target: Target) -> Routine:
    """Return the only routine of a cell."""
    (stage,) = cell.training.forward.values()
    return routine_of(stage, target)


def lines_of(cell: Cell, target: Target) -> list[str]:
    """Return the statements of the only routine of a cell as text, without their targets."""
    return [line.split(" = ", 1)[-1] for line in print_statements(routine_in(cell, target))]


def test_places_are_slots_shapes_parts_transposes_or_formulas() -> None:
    x, m = input_node(TensorType((2, 6))), input_node(TensorType((4,)))
    w = parameter_node(Parameter(TensorType((3, 4)), name="w"))
    cell = cell_of(
        (x, m),
        ops.exp(ops.reshape(x, (4, 3))),
        ops.exp(x[1]),
        ops.exp(x[0, 2:]),
        ops.exp(ops.reshape(m, (2, 2))),
        ops.exp(m[1:]),
        ops.exp(ops.reshape(m[2:], (2, 1))),
        ops.exp(ops.transpose(x, (1, 0))[1:3]),
        m @ w.T,
    )
    assert lines_of(cell, Target())[:-1] == [
        "exp(x0 as [4,3])",
        "exp(x0 as [12][6:12])",
        "exp(x0 as [12][2:6])",
        "exp(x1 as [2,2])",
        "exp(x1[1:4])",
        "exp(x1[2:4] as [2,1])",
        "exp(x0 at 1 + i + 6j as [2,2])",
        "linear(x1, w.T)",
    ]


def test_results_are_listed_in_words_and_parameters_have_the_names_they_are_given() -> None:
    weight = Parameter(V, name="weight", owner=Owner("scale"))
    x = input_node(V)
    ends = Ends(active_operands=frozenset((0,)))
    cell = stage_cell(CellGraph("c", (x,), (), (x,), (ops.sum(ops.tanh(x * weight)),)), ends)
    forward, backward = (
        routine_of(stages["before"], Target()) for stages in (cell.training.forward, cell.training.backward)
    )
    assert print_statements(forward)[-1] == "return (output 0: x0, loss 0: s1)"
    assert print_statements(backward)[-1].startswith("return (gradient of scale.weight: s")
    assert "d0 = " in print_routine(backward)
    assert print_statements(backward, {weight: "w"})[-1].startswith("return (gradient of w: s")
    assert "x0, w)" in print_routine(forward, {weight: "w"})


def test_a_loop_has_a_line_for_each_operation_below_what_it_runs_over() -> None:
    """Operations that only the loop reads are numbered; those with rows of their own are written to these."""
    x, y = input_node(TensorType((2, 3))), input_node(V)
    h = ops.tanh(x * y)
    cell = cell_of((x, y), ops.exp(h) + 0.5, h)
    assert print_routine(routine_in(cell, LOOPS)) == (
        "forward_before(x0: N float32[2,3], x1: N float32[3], s0: N float32[2,3], s1: N float32[2,3])\n"
        "loop along N\n"
        "  over [2,3]\n"
        "    v0 = multiply(x0, x1 at j as [2,3])\n"
        "    s0 = v1 = tanh(v0)\n"
        "    v2 = exp(v1)\n"
        "    s1 = add(v2, 0.5)\n"
        "return (output 0: s1, output 1: s0)"
    )


def test_parts_that_stand_where_they_belong_are_not_copied() -> None:
    x = input_node(V)
    assert lines_of(cell_of((x,), ops.concat([ops.exp(x), x])), Target())[:-1] == ["exp(x0)", "copy(x0)"]


def test_ops_on_sequences_read_where_each_begins_and_ids_are_checked() -> None:
    elements = ragged("M")
    e, ids = input_node(V, elements), input_node(TensorType((), "int32"), elements)
    table = Parameter(TensorType((9, 3)), name="table")
    rows = ops.gather(table, ids + 1)
    text = print_routine(routine_in(cell_of((e, ids), ops.segment_sum(rows * e)), Target()))
    header, *lines = text.splitlines()
    assert "x0: M float32[3]" in header
    assert "offsets0: M int64" in header
    assert "check_range(s0, offsets0, size=9)" in lines
    assert lines[-2:] == ["s3 = segment_sum(s2, offsets0)", "return (output 0: s3)"]


def test_a_copy_says_where_its_elements_come_from() -> None:
    x = input_node(TensorType((2, 3)))
    cell = cell_of((x,), ops.exp(ops.reshape(ops.transpose(x, (1, 0)), 6)))
    assert print_statements(routine_in(cell, Target()))[:2] == [
        "s0 as [3,2] = copy(x0.T)",
        "s1 = exp(s0)",
    ]


def test_no_two_slots_are_called_alike_and_constants_are_written_out() -> None:
    slots = [
        Slot(Binding("parameter", Parameter(V, name="w")), V, CALL),
        Slot(Binding("parameter", Parameter(V, name="w")), V, CALL),
        Slot(Binding("constant", np.array([1.0, 2.0])), TensorType((2,)), CALL),
        Slot(Binding("scratch", 0), V, CALL),
        Slot(Binding("scratch", 0), TensorType(()), CALL),
        Slot(Binding("kept", 3), V, CALL),
        Slot(Binding("cotangent", 1), V, CALL),
        Slot(Binding("feed", 2), V, CALL),
        Slot(Binding("store", 1), V, CALL),
    ]
    routine = Routine("r", tuple(slots), (), ())
    assert slot_names(routine) == ["w", "w_1", "[1.0, 2.0]", "s0", "s1", "k3", "g1", "f2", "d1"]


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs())
def test_other_places_are_written_otherwise(problem: BlockProgram) -> None:
    """Within a routine, two places of one text are elements of one slot, in the same order."""
    for cell in fb.compile(problem.block, backend="numpy").model.cells:
        for stage in (*cell.training.forward.values(), *cell.training.backward.values()):
            routine = routine_of(stage, Target())
            known: dict[str, object] = {}
            for place in places_of(routine):
                copy = Statement("copy", CALL, (place,))
                (line, _) = print_statements(Routine("r", routine.slots, (copy,), ()))
                strides = tuple(
                    stride for extent, stride in zip(place.shape, place.strides, strict=True) if extent != 1
                )
                where = slot_names(routine)[place.slot], place.offset, place.shape, strides
                assert known.setdefault(line, where) == where


def places_of(routine: Routine) -> list[Place]:
    """Return all places with elements that a routine reads and writes."""
    places = [place for s in routine.statements for place in (*s.reads, s.write)]
    return [place for place in places if place is not None and 0 not in place.shape]
