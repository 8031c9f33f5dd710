"""Every op as kernels compute it, on many rows at once, is what its reference evaluation says of each.

Kernels of all tests are compiled at once. Where FOLDBATCH_BACKEND is cuda-on-cpu there are more: both kinds of
floats for each sample of an op, all whole numbers, more axes.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pytest

from foldbatch.engines.cuda.kernels import ALONE, ON_ALL_ROWS, PIECES, RoutineCut
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, is_view
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis, Op, Sample, ragged
from foldbatch.types import TensorType
from tests.engines.cuda.emulated import needs_compiler
from tests.engines.cuda.walking import FUSED, MANY, TARGETS, by_cuda, prepare, use  # noqa: F401 - a fixture
from tests.engines.numpy import test_spelling as spelled
from tests.engines.numpy.test_spelling import (  # noqa: F401 - the same tests
    test_labels_or_logits_may_be_the_same_for_all_rows,
    test_many_axes_that_do_not_follow_each_other,
    test_products_of_nothing_are_zero,
    test_products_over_axes_that_do_not_follow_each_other,
    test_segments_may_be_empty,
    test_sigmoid_and_softmax_do_not_overflow,
)
from tests.engines.viewed import ON_VIEWS, PAIR, views
from tests.static.run_kernel import interpret, random_rows, routine_of_graph, run_graph

pytestmark = needs_compiler
# With and without a buffer of the op's own; by default each sample of an op is computed in one of these ways.
WAYS = [("float32", False), ("float64", True), ("float32", True), ("float64", False)]
TOLERANCE = spelled.TOLERANCE
EXACT = spelled.EXACT
EXACT = EXACT if MANY else EXACT[::2]
AXES = [*spelled.AXES, (CALL, None), (None, None)] if MANY else [(CALL, UNBATCHED), (CALL, None)]
SEEN = TARGETS if MANY else {"fused": FUSED}
Kept = Collection[Node]


def applied(op: Op, sample: Sample, dtype: str, *, kept: bool) -> tuple[Graph, Kept, Any]:
    inputs, y = spelled._applied(op, sample, dtype)
    return Graph(inputs, (y,)), (y,) if kept and not is_view(y) else (), inputs if sample.positive else ()


CASES = {
    (op.name, number, dtype, kept): applied(op, sample, dtype, kept=kept)
    for op in OPS.values()
    for number, sample in enumerate(op.samples)
    for dtype, kept in (WAYS if MANY else WAYS[number % 2 :][:1])
}
EXACT_CASES = [applied(op, sample, dtype, kept=False)[0] for op, sample, dtype in EXACT]
X, Y = input_node(PAIR), input_node(PAIR)
VIEWED = {
    name: Graph((X, Y), tuple(function(a, b) for a, b in zip(views(X), reversed(views(Y)), strict=True)))
    for name, function in ON_VIEWS.items()
}


MEET = [(name, ends) for name in spelled.BINARY for ends in AXES]


def meeting(name: str, ends: tuple[Axis | None, Axis | None]) -> Graph:
    """Return an op of operands along two axes; None is that of the elements of sequences."""
    elements = ragged()
    a, b = (input_node(TensorType((2, 3), "float64"), elements if axis is None else axis) for axis in ends)
    return Graph((a, b), (spelled._pair(name, a, b),))


@pytest.fixture(scope="module", autouse=True)
def _together() -> None:
    graphs = [(graph, kept) for graph, kept, _ in CASES.values()]
    graphs += [(graph, ()) for graph in [*EXACT_CASES, *(meeting(*case) for case in MEET)]]
    prepare(graphs)
    prepare([(graph, ()) for graph in VIEWED.values()], SEEN.values())


def test_every_op_has_a_text() -> None:
    """But views, which are places, and what is made of copies; bodies are rendered."""
    others = {op.name for op in OPS.values() if op.view or op.copies is not None or op.body}
    assert {*PIECES, *ALONE, *ON_ALL_ROWS} - {"check_range", "copy", "zero"} == set(OPS) - others


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.samples])
def test_an_op_on_all_rows_is_the_op_on_each(name: str) -> None:
    """Whatever the dtype and the number of calls."""
    for (op, _, dtype, _), (graph, kept, positive) in CASES.items():
        if op != name:
            continue
        (y,) = graph.outputs
        for calls in (0, 1, 5):
            rng = np.random.default_rng(calls)
            rows = random_rows(rng, graph, calls, below=spelled._below(y), positive=positive)
            (expected,) = interpret(graph, rows)
            found = run_graph(graph, rows, kept)[0]
            assert found.dtype.name == y.dtype
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("name", dict.fromkeys(op.name for op, *_ in EXACT))
def test_an_op_that_takes_integers_computes_them_exactly(name: str) -> None:
    for (op, _, dtype), graph in zip(EXACT, EXACT_CASES, strict=True):
        if op.name != name:
            continue
        (y,) = graph.outputs
        below = min(spelled._below(y), 2 if dtype == "bool" else 3)
        rows = random_rows(np.random.default_rng(0), graph, 5, below=below)
        found, expected = run_graph(graph, rows)[0], interpret(graph, rows)[0]
        np.testing.assert_array_equal(found, expected)
        assert found.dtype.name == y.dtype


@pytest.mark.parametrize("target", SEEN)
@pytest.mark.parametrize("name", VIEWED)
def test_operands_may_lie_anyhow(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Transposed, with gaps between rows, or broadcast; op by op and in fused loops."""
    use(monkeypatch, TARGETS[target])
    graph = VIEWED[name]
    rows = random_rows(np.random.default_rng(0), graph, 3)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", spelled.BINARY)
def test_operands_along_different_axes_meet(name: str) -> None:
    """An unbatched operand serves all rows, a call's row all elements of its sequence."""
    for op, ends in MEET:
        if op == name:
            graph = meeting(op, ends)
            rows = random_rows(np.random.default_rng(1), graph, 4)
            found, expected = run_graph(graph, rows)[0], interpret(graph, rows)[0]
            np.testing.assert_allclose(found, expected, rtol=1e-13, err_msg=str(ends))


def test_sums_over_no_rows_are_zero() -> None:
    """Of floats and of whole numbers, over calls and over elements; of rows by id too."""
    x, ids = input_node(TensorType((3,))), input_node(TensorType((), "int32"))
    n = input_node(TensorType((3,), "int32"))
    e = input_node(TensorType((3,), "bool"), ragged())
    table = apply("sum_rows", x, ids, size=4)
    outputs = apply("sum_batch", x), apply("sum_batch", n), apply("sum_batch", e), table
    graph = Graph((x, ids, n, e), outputs)
    rows = random_rows(np.random.default_rng(0), graph, 0)
    assert [np.count_nonzero(found) for found in run_graph(graph, rows)] == [0] * 4
    rows = random_rows(np.random.default_rng(0), graph, 5)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_indices_that_are_computed_are_checked() -> None:
    """The error tells the call, also where ids are of elements of sequences."""
    ids, elements = input_node(TensorType((), "int32")), input_node(TensorType((2,), "int64"), ragged())
    table = constant(np.eye(3, dtype="float32"))
    graph = Graph((ids, elements), (ops.gather(table, ids + 1), ops.one_hot(elements * 2, 3)))
    rows = random_rows(np.random.default_rng(0), graph, 3, below=2, lengths=[1, 0, 2])
    run_graph(graph, rows)
    for values, at, id_, rank in [(0, (1,), 2, 1), (0, (2,), -2, 2), (1, (1, 1), 2, 2), (1, (0, 0), -1, 0)]:
        before = rows.values[values][at]
        rows.values[values][at] = id_
        with pytest.raises(OutOfRangeError) as error:
            run_graph(graph, rows)
        assert (error.value.rank, error.value.size) == (rank, 3)
        assert error.value.id == (id_ + 1 if values == 0 else id_ * 2)
        rows.values[values][at] = before


def test_a_part_says_what_it_reads_and_writes() -> None:
    """And, where it looks at all rows, that it stands alone."""
    x = input_node(TensorType((40, 60)))
    graph = Graph((x,), (apply("sum_batch", ops.softmax(ops.tanh(x) * 2.0, 1)),))
    routine = routine_of_graph(graph, (), FUSED)
    parts = RoutineCut(routine, {}, {}).cut()
    assert [part.all_rows for part in parts] == [False, False, True, False]
    loop, softmax, summed, result = parts
    assert loop.writes == softmax.reads
    assert summed.reads == softmax.writes
    assert (loop.elements, softmax.elements, summed.elements) == (2400, 40, 2400)
    assert (result.reads, result.when) == (summed.writes, ())
