"""From a stage to statements: what is read and written where, once each, and nothing that is not needed."""

from __future__ import annotations

from textwrap import dedent

import numpy as np

from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, parameter_node
from foldbatch.static.op import CALL, UNBATCHED, Axis, ragged
from foldbatch.static.routines import ON_SEQUENCES, SEGMENTS, Stage, Target, routine_of
from foldbatch.static.statements import Binding, Routine
from foldbatch.types import TensorType
from tests.engines.interpret import FUSED
from tests.static.routine_text import text
from tests.static.run_kernel import TARGET, interpret, random_rows, routine_of_graph, run_graph

V = TensorType((3,))


def stage(
    given: dict[Node, Binding],
    results: list[tuple[tuple[str, object], Node]],
    kept: dict[Node, int] | None = None,
    computed: tuple[Node, ...] = (),
    checked: tuple[Node, ...] = (),
    axes: tuple[Axis, ...] = (),
) -> Stage:
    return Stage("kernel", tuple(results), kept or {}, given, frozenset(computed), frozenset(checked), axes)


def routine(given: dict[Node, Binding], *results: Node, target: Target = TARGET, **more: object) -> Routine:
    """Return the routine of a stage whose results are values."""
    values = [(("value", i), node) for i, node in enumerate(results)]
    return routine_of(stage(given, values, **more), target)  # type: ignore[arg-type]


def _is(found: Routine, expected: str) -> None:
    assert text(found) == dedent(expected).lstrip()


def test_statements_are_ops_over_whole_rows() -> None:
    """Slots say what a value is: an operand, data, a cotangent, a parameter, a constant, scratch."""
    x, f, g = input_node(V), input_node(V), input_node(V)
    w = Parameter([3, 3], 1.0)
    given = {x: Binding("operand", 4), f: Binding("feed", 0), g: Binding("cotangent", 2)}
    found = routine(given, (x @ w) * g + (f - constant([1.0, 2.0, 3.0])))
    _is(
        found,
        """
        s0 = linear(x4, p0)
        s0 = multiply(s0, g2)
        s1 = subtract(f0, c0)
        s0 = add(s0, s1)
        value s0
        """,
    )
    assert sorted(slot.binding.kind for slot in found.slots) == sorted(
        ["operand", "feed", "cotangent", "parameter", "constant", "scratch", "scratch"]
    )
    assert {s.axis for s in found.statements} == {CALL}


def test_views_are_places() -> None:
    """They are no statements and need no memory, be they results."""
    x = input_node(TensorType((4,)))
    found = routine({x: Binding("operand", 0)}, ops.reshape(x[1:3], (2, 1)), x)
    _is(
        found,
        """
        value x0[1: (2, 1) by (1, 1)]
        value x0
        """,
    )


def test_a_view_whose_elements_lie_in_another_order_is_copied() -> None:
    """Into scratch, place for place, once however often it is read."""
    x = input_node(TensorType((2, 3)))
    turned = ops.reshape(ops.transpose(x), 6)
    found = routine({x: Binding("operand", 0)}, ops.exp(turned), ops.tanh(turned))
    _is(
        found,
        """
        s0[0: (3, 2) by (2, 1)] = copy(x0[0: (3, 2) by (1, 3)])
        s1 = exp(s0)
        s0 = tanh(s0)
        value s1
        value s0
        """,
    )


def test_kept_values_have_slots_of_their_own() -> None:
    """And are no results unless they are asked for."""
    x = input_node(V)
    y = ops.exp(x)
    found = routine({x: Binding("operand", 0)}, ops.tanh(y), kept={y: 7})
    _is(
        found,
        """
        k7 = exp(x0)
        s0 = tanh(k7)
        value s0
        """,
    )


def test_ops_on_sequences_read_the_offsets() -> None:
    """There is one slot of them for an axis, however many ops read it; the ops run along calls."""
    axis = ragged()
    e, x = input_node(V, axis), input_node(V)
    spread = apply("repeat", x, axis=axis)
    total = ops.segment_sum(e * spread)
    given = {e: Binding("operand", 0), x: Binding("operand", 1)}
    found = routine(given, ops.segment_sum(e) - total, axes=(ragged(), axis))
    _is(
        found,
        """
        s0 = repeat(x1, offsets1)
        s0 = multiply(x0, s0)
        s1 = segment_sum(s0, offsets1)
        s2 = segment_sum(x0, offsets1)
        s2 = subtract(s2, s1)
        value s2
        """,
    )
    (number,) = [i for i, slot in enumerate(found.slots) if slot.binding.kind == "segments"]
    assert found.segments == {axis: number}
    assert found.slots[number].binding == Binding("segments", 1)  # the second axis of the cell
    assert found.slots[number].type == SEGMENTS
    for s in found.statements:
        assert s.axis is (CALL if s.op in ON_SEQUENCES or s.op == "subtract" else axis)


def test_ids_known_to_be_in_range_are_not_checked() -> None:
    """Data is checked when it is traced, in Python; only computed ids are checked by kernels."""
    table, ids = constant([[1.0], [2.0]]), input_node(TensorType((), "int32"))
    given = {ids: Binding("feed", 0)}
    careful = routine(given, ops.gather(table, ids))
    trusting = routine(given, ops.gather(table, ids), checked=(ids,))
    assert [s.op for s in careful.statements] == ["check_range", "gather"]
    check = careful.statements[0]
    assert (check.attrs, check.write, check.axis) == ({"size": 2}, None, CALL)
    assert [s.op for s in trusting.statements] == ["gather"]


def test_parts_of_a_concatenation_that_stand_in_place_are_not_read() -> None:
    """The others are copied to where they start."""
    a, b = input_node(V), input_node(V)
    found = routine(
        {a: Binding("operand", 0), b: Binding("operand", 1)}, ops.concat([ops.exp(a), b, ops.tanh(b)])
    )
    _is(
        found,
        """
        s0[0: (3,) by (1,)] = exp(x0)
        s0[6: (3,) by (1,)] = tanh(x1)
        s0[3: (3,) by (1,)] = copy(x1)
        value s0
        """,
    )
    assert found.statements[0].write.row == 9  # a part's rows have gaps


def test_cotangents_of_operands_are_computed_where_they_belong() -> None:
    """Unless they are passed on as they came, or are two results at once, or are left for others."""
    g = input_node(V)
    y, z = ops.exp(g), ops.tanh(g)
    given = {g: Binding("cotangent", 0)}

    def kinds(results: list[tuple[tuple[str, object], Node]], **more: object) -> list[str]:
        nodes = tuple(node for _, node in results if node is not g)
        found = routine_of(stage(given, results, computed=nodes, **more), TARGET)  # type: ignore[arg-type]
        slots = [f"{s.binding.kind} {s.binding.key}" for s in found.slots if s.binding.kind == "store"]
        return slots + [f"{r.binding.kind} {r.binding.key}" for r in found.results]

    assert kinds([(("cotangent", 3), y), (("cotangent", 1), z)]) == ["store 3", "store 1"]
    assert kinds([(("cotangent", 0), g)]) == ["cotangent 0"]
    assert kinds([(("cotangent", 0), y), (("cotangent", 1), y)]) == ["cotangent 0", "cotangent 1"]
    assert kinds([(("cotangent", 0), y), (("gradient", None), z)]) == ["store 0", "gradient None"]


def test_the_sum_of_rows_that_others_read_is_a_statement() -> None:
    """What it reads lasts until then."""
    a, b, ids = input_node(V), input_node(V), input_node(TensorType((), "int32"))
    values = [ops.exp(a), ops.exp(b)]
    graph = Graph((a, b, ids), tuple(apply("sum_rows", x, ids, size=4) * 2.0 for x in values))
    rows = random_rows(np.random.default_rng(0), graph, 5, below=4)
    for fused in (False, True):
        for found, expected in zip(run_graph(graph, rows, fused=fused), interpret(graph, rows), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_routine_does_not_depend_on_what_was_built_before() -> None:
    """Two graphs built alike have one text, so that compiling again is no surprise."""

    def build(target: Target) -> str:
        x, y = input_node(V), input_node(V)
        results = (ops.tanh(x @ Parameter([3, 3], 1.0)) + y, ops.exp(y))
        return text(routine({x: Binding("operand", 0), y: Binding("operand", 1)}, *results, target=target))

    for target in (TARGET, FUSED):
        first = build(target)
        assert input_node(V).axis is CALL
        assert build(target) == first


# -- targets


def test_a_target_says_what_loops_may_hold() -> None:
    x = input_node(V)
    narrow = Target(frozenset({"tanh"}), frozenset({"float32"}))
    assert narrow.takes(ops.tanh(x))
    assert narrow.takes(x * x)
    assert not narrow.takes(ops.exp(x))
    assert not narrow.takes(ops.max(x))
    assert not narrow.takes(ops.tanh(input_node(TensorType((3,), "float64"))))
    assert not narrow.takes(ops.tanh(input_node(TensorType((0,)))))


def test_the_buffers_of_a_loop_are_its_slots() -> None:
    """In order, those that it writes said to be; constants of one number are none."""
    x, w = input_node(TensorType((2, 3))), Parameter([3], 1.0)
    wide = x @ Parameter([3, 3], 1.0)
    y = ops.tanh(wide + w) * 2.0
    found = routine({x: Binding("operand", 0)}, y, ops.sigmoid(y)[0] + x[1], target=FUSED)
    (loop,) = [s for s in found.statements if s.op == "loop"]
    assert len(loop.slots) == len(loop.loop.buffers) == len(set(loop.slots))
    kinds = [found.slots[number].binding.kind for number in loop.slots]
    assert {"scratch", "parameter", "operand"} == set(kinds)
    for number, buffer in zip(loop.slots, loop.loop.buffers, strict=True):
        assert buffer.dtype == found.slots[number].type.dtype
    written = {p.buffer for sweep in loop.loop.sweeps for _, p in sweep.stores}
    assert written == {i for i, buffer in enumerate(loop.loop.buffers) if buffer.written}
    assert all(kinds[i] == "scratch" for i in written)
    assert loop.loop.batched
    assert (loop.reads, loop.write) == ((), None)


def test_what_a_later_sweep_alone_reads_takes_one_row() -> None:
    x = input_node(TensorType((6,)))
    gates = x + constant(np.ones(6, "float32"))
    y = ops.sigmoid(gates[:3]) * ops.tanh(gates[3:])
    found = routine({x: Binding("operand", 0)}, y, target=FUSED)
    (loop,) = [s for s in found.statements if s.op == "loop"]
    (passing,) = [
        found.slots[i]
        for i in loop.slots
        if found.slots[i].type.shape == (6,) and found.slots[i].binding.kind == "scratch"
    ]
    assert passing.axis is UNBATCHED
    stores = [p for sweep in loop.loop.sweeps for _, p in sweep.stores]
    assert [p.row for p in stores] == [0, 3]


def test_the_graph_of_a_stage_is_cut_at_what_it_is_given() -> None:
    """What others have computed is an input; what is given and not needed is none."""
    x, other = input_node(V), input_node(V)
    early = ops.exp(x)
    late = ops.tanh(early)
    found = stage(
        {x: Binding("operand", 0), early: Binding("kept", 0), other: Binding("feed", 0)},
        [(("value", 0), late)],
    )
    assert found.graph.inputs == (early,)
    assert list(found.graph.nodes) == [late]
    kept = stage({x: Binding("operand", 0), early: Binding("kept", 0)}, [], kept={early: 0})
    assert kept.graph.outputs == (early,)
    assert list(kept.graph.nodes) == [early]


def test_a_part_of_what_is_the_same_for_all_rows_is_one_row_for_all() -> None:
    """A section of an unbatched concatenation, given a row for each call, is read at one place."""
    a, b = (parameter_node(Parameter(TensorType((3,)), 0.5, name)) for name in "ab")
    part = ops.tanh(a)
    whole = ops.concat([part, ops.tanh(b)])
    graph = Graph((), (ops.batched(part), ops.batched(ops.sum(whole * whole))))
    routine = routine_of_graph(graph)
    rows = {result.place.row for result in routine.results}
    assert rows == {0}
