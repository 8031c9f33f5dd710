"""The text of kernels."""

from __future__ import annotations

from textwrap import dedent

import numpy as np

from foldbatch.params import Parameter
from foldbatch.static import ops
from foldbatch.static.codegen import Argument, emit
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, ragged
from foldbatch.types import TensorType
from tests.static.run_kernel import NUMPY, interpret, random_rows, run_graph

V = TensorType((3,))


def _emitted(
    inputs: dict[Node, Argument], *results: Node, kept: dict[Node, Argument] | None = None
) -> tuple[str, list[str]]:
    kept = kept or {}
    text = emit("kernel", Graph(tuple(inputs), (*results, *kept)), results, inputs, kept, (), NUMPY)
    return text.source, [argument.kind for argument in text.arguments]


def _is(found: str, expected: str) -> None:
    assert found == dedent(expected).lstrip()


def test_a_kernel_is_one_function_over_whole_rows() -> None:
    """Names say what a value is: an operand, data, a cotangent, a parameter, a constant, scratch."""
    x, f, g = input_node(V), input_node(V), input_node(V)
    w = Parameter([3, 3], 1.0)
    given = {x: Argument("operand", 4), f: Argument("feed", 0), g: Argument("cotangent", 2)}
    source, kinds = _emitted(given, (x @ w) * g + (f - constant([1.0, 2.0, 3.0])))
    _is(
        source,
        """
        def kernel(x4, f0, g2, p0, n, s0, s1):
            np.matmul(x4, p0, out=s0)
            np.multiply(s0, g2, out=s0)
            np.subtract(f0, c0, out=s1)
            np.add(s0, s1, out=s0)
            return (s0,)
        """,
    )
    assert kinds == ["operand", "feed", "cotangent", "parameter", "rows", "scratch", "scratch"]


def test_views_are_not_stored() -> None:
    """They are expressions of the array they look at."""
    x = input_node(TensorType((4,)))
    source, _ = _emitted({x: Argument("operand", 0)}, ops.reshape(x[1:3], (2, 1)), x)
    _is(
        source,
        """
        def kernel(x0, n):
            v0 = x0[:, 1:3]
            v1 = v0.reshape((n, 2, 1))
            return (v1, x0)
        """,
    )


def test_kept_values_have_the_buffers_they_are_given() -> None:
    """And are no results unless they are asked for."""
    x = input_node(V)
    y = ops.exp(x)
    source, kinds = _emitted({x: Argument("operand", 0)}, ops.tanh(y), kept={y: Argument("kept", 7)})
    _is(
        source,
        """
        def kernel(x0, n, k7, s0):
            np.exp(x0, out=k7)
            np.tanh(k7, out=s0)
            return (s0,)
        """,
    )
    assert kinds == ["operand", "rows", "kept", "scratch"]


def test_sequences_bring_their_owners_starts_and_counts() -> None:
    """Each once, however often it is used."""
    axis = ragged()
    e, x = input_node(V, axis), input_node(V)
    spread = apply("repeat", x, axis=axis)
    total = ops.segment_sum(e * spread)
    source, kinds = _emitted(
        {e: Argument("operand", 0), x: Argument("operand", 1)}, ops.segment_sum(e) - total
    )
    _is(
        source,
        """
        def kernel(x0, x1, m0, s0, owner0, n, s1, starts0, counts0, s2):
            np.take(x1, owner0, axis=0, out=s0, mode='clip')
            np.multiply(x0, s0, out=s0)
            segment_sum(s0, starts0, counts0, s1)
            segment_sum(x0, starts0, counts0, s2)
            np.subtract(s2, s1, out=s2)
            return (s2,)
        """,
    )
    assert sorted(kinds) == sorted(
        ["operand"] * 2 + ["scratch"] * 3 + ["rows"] * 2 + ["owner", "starts", "counts"]
    )


def test_indices_already_checked_are_not_checked_again() -> None:
    """Data is checked when it is traced, in Python; only computed indices are checked in kernels."""
    table, ids = constant([[1.0], [2.0]]), input_node(TensorType((), "int32"))
    graph = Graph((ids,), (ops.gather(table, ids),))
    given = {ids: Argument("feed", 0)}
    careful = emit("kernel", graph, graph.outputs, given, {}, (), NUMPY)
    trusting = emit("kernel", graph, graph.outputs, given, {}, (ids,), NUMPY)
    assert "check_range(f0, 2)" in careful.source
    assert "check_range" not in trusting.source


def test_what_a_sparse_result_reads_lasts_until_it_is_read() -> None:
    """It has no buffer itself, but its operands have."""
    a, b, ids = input_node(V), input_node(V), input_node(TensorType((), "int32"))
    values = [ops.exp(a), ops.exp(b)]
    results = [apply("sum_rows", x, ids, size=4) for x in values]
    graph = Graph((a, b, ids), tuple(results))
    rows = random_rows(np.random.default_rng(0), graph, 5, below=4)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_calls_count_the_passes_over_rows() -> None:
    """Views are none."""
    x = input_node(V)
    graph = Graph((x,), (ops.exp(x)[:2] + x[1:],))
    assert emit("kernel", graph, graph.outputs, {x: Argument("operand", 0)}, {}, (), NUMPY).calls == 2


def test_a_parameter_and_a_constant_are_passed_once() -> None:
    """However often they are read, and each parameter by itself."""
    x, a, b = input_node(V), Parameter([3], 1.0, "a"), Parameter([3], 2.0, "b")
    graph = Graph((x,), (x * a * b * a + 1.0 + (x + 1.0),))
    text = emit("kernel", graph, graph.outputs, {x: Argument("operand", 0)}, {}, (), NUMPY)
    assert [argument.key for argument in text.arguments if argument.kind == "parameter"] == [a, b]
    assert len(text.constants) == 1


def test_the_text_does_not_depend_on_what_was_built_before() -> None:
    """Two graphs built alike have one text, so that compiling again is no surprise."""

    def build() -> str:
        x, y = input_node(V), input_node(V)
        graph = Graph((x, y), (ops.tanh(x @ Parameter([3, 3], 1.0)) + y, ops.exp(y)))
        return emit(
            "kernel",
            graph,
            graph.outputs,
            {x: Argument("operand", 0), y: Argument("operand", 1)},
            {},
            (),
            NUMPY,
        ).source

    first = build()
    assert input_node(V).axis is CALL
    assert build() == first
