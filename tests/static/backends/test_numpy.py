"""Every op as NumPy spells it computes, on many rows at once, what its reference evaluation says of each."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.errors import GraphError, UnknownNameError
from foldbatch.params import SparseRows
from foldbatch.static import ops
from foldbatch.static.backends import AUTO, BACKENDS, Backend, find_backend
from foldbatch.static.backends.numpy import (
    GLOBALS,
    MANY,
    WIDE,
    OutOfRangeError,
    check_range,
    segment_max,
    segment_sum,
    sum_rows,
)
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.kernel import load
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis, Op, Sample, ragged
from foldbatch.static.stages import is_view
from foldbatch.types import TensorType
from tests.static.run_kernel import NUMPY, compile_graph, interpret, random_rows, run_graph

SAMPLES = [(op, sample) for op in OPS.values() for sample in op.samples]
NAMES = [f"{op.name}({', '.join(map(str, sample.types))})" for op, sample in SAMPLES]
TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


def _converted(type_: TensorType, dtype: str) -> TensorType:
    return TensorType(type_.shape, dtype) if type_.is_float else type_


def _applied(op: Op, sample: Sample, dtype: str) -> tuple[tuple[Node, ...], Node]:
    """Return an op's node on inputs like the sample's, with floats of another dtype."""
    axes = sample.axes or tuple(CALL for _ in sample.types)
    inputs = tuple(input_node(_converted(t, dtype), axis) for t, axis in zip(sample.types, axes, strict=True))
    attrs = {key: dtype if str(value).startswith("float") else value for key, value in sample.attrs.items()}
    return inputs, apply(op.name, *inputs, **attrs)


def _below(node: Node) -> int:
    return node.op.bound(tuple(x.type for x in node.inputs), node.attrs)[1] if node.op.bound else 3


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_every_op_has_a_spelling(backend: Backend) -> None:
    """A backend spells all ops there are, and no others."""
    assert set(backend.spellings) == set(OPS)
    assert set(backend.overwrites) <= set(OPS)


@pytest.mark.parametrize("calls", [0, 1, 5])
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("op", "sample"), SAMPLES, ids=NAMES)
@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_an_op_on_all_rows_is_the_op_on_each(
    backend: Backend, op: Op, sample: Sample, dtype: str, calls: int
) -> None:
    """Whatever the dtype and the number of calls, with and without a buffer of the op's own."""
    inputs, y = _applied(op, sample, dtype)
    graph = Graph(inputs, (y,))
    positive = inputs if sample.positive else ()
    rows = random_rows(np.random.default_rng(calls), graph, calls, below=_below(y), positive=positive)
    (expected,) = interpret(graph, rows)
    for kept in ((),) if is_view(y) else ((), (y,)):
        found = run_graph(graph, rows, kept, backend)[0]
        assert found.dtype.name == y.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def _takes(op: Op, sample: Sample, dtype: str) -> bool:
    try:
        _applied(op, sample, dtype)
    except GraphError:
        return False
    return True


EXACT = [
    pytest.param(op, sample, dtype, id=f"{name}-{dtype}")
    for name, (op, sample) in zip(NAMES, SAMPLES, strict=True)
    for dtype in ("int32", "int64", "bool")
    if _takes(op, sample, dtype)
]


@pytest.mark.parametrize(("op", "sample", "dtype"), EXACT)
def test_an_op_that_takes_integers_computes_them_exactly(op: Op, sample: Sample, dtype: str) -> None:
    """Ops whose type rule admits integers or bools yield just what NumPy yields for one row."""
    inputs, y = _applied(op, sample, dtype)
    graph = Graph(inputs, (y,))
    rows = random_rows(np.random.default_rng(0), graph, 5, below=min(_below(y), 2 if dtype == "bool" else 3))
    found, expected = run_graph(graph, rows)[0], interpret(graph, rows)[0]
    np.testing.assert_array_equal(found, expected)
    assert found.dtype.name == y.dtype


BINARY = ["add", "subtract", "multiply", "maximum", "minimum", "less", "where", "concat", "stack", "matmul"]
AXES = [(CALL, CALL), (CALL, UNBATCHED), (UNBATCHED, CALL), (UNBATCHED, UNBATCHED)]


def _pair(name: str, a: Node, b: Node) -> Node:
    match name:
        case "where":
            return ops.where(a < b, a, b)
        case "concat":
            return ops.concat([a, b], 1)
        case "stack":
            return ops.stack([a, b], 1)
        case "matmul":
            return a @ ops.transpose(b)
    return apply(name, a, b)


@pytest.mark.parametrize("ends", [*AXES, (CALL, None), (None, UNBATCHED), (None, None)], ids=str)
@pytest.mark.parametrize("name", BINARY)
def test_operands_along_different_axes_meet(name: str, ends: tuple[Axis | None, Axis | None]) -> None:
    """An unbatched operand serves all rows, a call's row all elements of its sequence."""
    elements = ragged()
    a, b = (input_node(TensorType((2, 3), "float64"), elements if axis is None else axis) for axis in ends)
    graph = Graph((a, b), (_pair(name, a, b),))
    rows = random_rows(np.random.default_rng(1), graph, 4)
    np.testing.assert_allclose(run_graph(graph, rows)[0], interpret(graph, rows)[0], rtol=1e-13)


@pytest.mark.parametrize("ends", AXES, ids=str)
def test_labels_or_logits_may_be_the_same_for_all_rows(ends: tuple[Axis, Axis]) -> None:
    """A cross-entropy of a learned prior, or against one class."""
    logits, label = input_node(TensorType((2, 3)), ends[0]), input_node(TensorType((2,), "int32"), ends[1])
    graph = Graph((logits, label), (ops.cross_entropy(logits, label),))
    rows = random_rows(np.random.default_rng(1), graph, 4, below=3)
    np.testing.assert_allclose(run_graph(graph, rows)[0], interpret(graph, rows)[0], rtol=1e-6)


@pytest.mark.parametrize(
    "shapes", [((3,), (3, 0)), ((0,), (0, 3)), ((2, 0), (0, 3)), ((2, 3), (3, 0)), ((0, 3), (3, 2))]
)
def test_products_of_nothing_are_zero(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Extents of 0 are legal, in a product and in the gradient of its weight."""
    x, w = input_node(TensorType(shapes[0])), constant(np.ones(shapes[1], "float32"))
    g = input_node(TensorType((*shapes[0][:-1], shapes[1][1])))
    graph = Graph((x, g), (x @ w, apply("sum_outer", x, g)))
    rows = random_rows(np.random.default_rng(1), graph, 4)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lengths", [[0, 0, 0], [0, 2, 0], [1, 1, 1], [3, 0, 2]])
def test_segments_may_be_empty(lengths: list[int]) -> None:
    """Sums over no elements are zero; repeats for no elements are none."""
    elements = ragged()
    x, y = input_node(TensorType((2,)), elements), input_node(TensorType((2,)))
    graph = Graph(
        (x, y), (ops.segment_sum(ops.exp(x)), apply("repeat", y, axis=elements), ops.segment_sum(x * y))
    )
    rows = random_rows(np.random.default_rng(0), graph, 3, lengths=lengths)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_segment_sum_fills_the_whole_buffer() -> None:
    """Whatever stood in it."""
    for lengths in ([0, 0], [2, 0], [0, 3], [1, 2]):
        counts = np.array(lengths)
        out = np.full((2, 2), np.nan)
        segment_sum(np.ones((sum(lengths), 2)), np.cumsum(counts) - counts, counts, out)
        assert out.tolist() == [[n, n] for n in lengths]


@pytest.mark.parametrize("ids", [[0, 2, 5], [3], [], [0, 2, 2], [2, 0, 5]])
def test_rows_that_ascend_are_not_sorted_but_copied(ids: list[int]) -> None:
    """What is returned does not change with the kernel's buffer, in any order."""
    values = np.arange(2.0 * len(ids)).reshape(len(ids), 2)
    found = sum_rows(values, np.array(ids, np.int32), 6)
    expected = np.zeros((6, 2))
    np.add.at(expected, np.array(ids, np.int64), values)
    values[...] = np.nan
    np.testing.assert_array_equal(found.dense(), expected)
    assert found.rows.dtype == np.int64
    assert found.rows.tolist() == sorted(set(ids))


def test_sum_rows_keeps_the_rows_that_occur() -> None:
    """Ascending, each once, summed in the order of the batch."""
    values = np.arange(12, dtype="float32").reshape(3, 2, 2)
    found = sum_rows(values, np.array([[4, 1], [1, 1], [0, 4]], np.int32), 6)
    assert found.rows.tolist() == [0, 1, 4]
    assert found.values.tolist() == [[8, 9], [12, 15], [10, 12]]
    assert (found.shape, found.rows.dtype, found.values.dtype) == ((6, 2), np.int64, np.float32)
    none = sum_rows(np.zeros((0, 2), "float32"), np.zeros(0, np.int64), 6)
    assert none.dense().tolist() == np.zeros((6, 2)).tolist()


def test_a_table_gradient_stays_sparse_where_it_is_a_result() -> None:
    """And becomes an array where the kernel itself reads it."""
    g, ids = input_node(TensorType((2,))), input_node(TensorType((), "int32"))
    rows = apply("sum_rows", g, ids, size=5)
    for output, sparse in ((rows, True), (rows * 2, False)):
        graph = Graph((g, ids), (output,))
        kernel = load("test", compile_graph(graph), (("gradient", 0),), NUMPY)
        batch = random_rows(np.random.default_rng(0), graph, 3, below=5)
        scratch = [np.full((5, 2), np.nan, "float32") for a in kernel.arguments if a.kind == "scratch"]
        (found,) = kernel.function(*batch.values, *scratch)
        assert isinstance(found, SparseRows) is sparse


@pytest.mark.parametrize(
    ("ids", "row", "found"), [([0, 1, 3, -1], 2, 3), ([0, -1, 9], 1, -1), ([[0, 1], [2, 3]], 1, 3)]
)
def test_check_range_names_the_first_bad_row(ids: object, row: int, found: int) -> None:
    """Negative ids are out of range too: NumPy would count them from the end."""
    with pytest.raises(OutOfRangeError) as error:
        check_range(np.array(ids), 3)
    assert (error.value.row, error.value.found, error.value.size) == (row, found, 3)


def test_check_range_lets_pass_what_is_in_range() -> None:
    """None at all included."""
    check_range(np.array([0, 2]), 3)
    check_range(np.zeros(0, int), 0)


@pytest.mark.parametrize("op", ["gather", "one_hot", "cross_entropy"])
def test_a_kernel_checks_computed_indices(op: str) -> None:
    """An index that no tracing checked is checked when the kernel runs."""
    ids = input_node(TensorType((), "int32"))
    later = ids + 1
    table = constant(np.eye(3, dtype="float32"))
    node = {
        "gather": lambda: ops.gather(table, later),
        "one_hot": lambda: ops.one_hot(later, 3),
        "cross_entropy": lambda: ops.cross_entropy(table[0], later),
    }[op]()
    graph = Graph((ids,), (node,))
    rows = random_rows(np.random.default_rng(0), graph, 3, below=2)
    run_graph(graph, rows)
    rows.values[0][1] = 2
    with pytest.raises(OutOfRangeError):
        run_graph(graph, rows)


def test_sigmoid_and_softmax_do_not_overflow() -> None:
    """Nor do the losses, far out on both sides."""
    x = input_node(TensorType((2,)))
    graph = Graph((x,), (ops.sigmoid(x), ops.softmax(x), ops.logsumexp(x), ops.softplus(x)))
    rows = random_rows(np.random.default_rng(0), graph, 1)
    rows.values[0][:] = [[-1e4, 1e4]]
    with np.errstate(over="raise", invalid="raise"):
        sigmoid, softmax, logsumexp, softplus = run_graph(graph, rows)
    assert sigmoid.tolist() == softmax.tolist() == [[0, 1]]
    assert logsumexp.tolist() == [1e4]
    assert softplus.tolist() == [[0, 1e4]]


@pytest.mark.parametrize("width", [(), (MANY,), (2, WIDE)], ids=str)
@pytest.mark.parametrize("runs", [0, 1, MANY - 1, MANY, 3 * MANY])
def test_runs_are_reduced_one_by_one_and_together_alike(runs: int, width: tuple[int, ...]) -> None:
    """Few or many runs, narrow or wide rows, some of them empty: the ways differ, the result does not."""
    rng = np.random.default_rng(runs)
    counts = rng.integers(0, 6, runs)
    starts = np.cumsum(counts) - counts
    x = rng.normal(size=(int(counts.sum()), *width))
    sums, tops = np.full((2, runs, *width), np.nan)
    segment_sum(x, starts, counts, sums)
    segment_max(x, starts, counts, tops)
    for i, (start, count) in enumerate(zip(starts, counts, strict=True)):
        part = x[start : start + count]
        np.testing.assert_allclose(sums[i], part.sum(axis=0), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(tops[i], part.max(axis=0) if count else np.zeros(width))


@pytest.mark.parametrize("count", [0, 5, 400])
def test_rows_of_a_table_are_summed_by_id(count: int) -> None:
    rng = np.random.default_rng(count)
    ids, values = rng.integers(0, 90, count), rng.normal(size=(count, 40))
    dense = np.zeros((90, 40))
    np.add.at(dense, ids, values)
    found = sum_rows(values, ids, 90)
    assert found.rows.tolist() == sorted(set(ids.tolist()))
    np.testing.assert_allclose(found.dense(), dense, rtol=1e-12, atol=1e-12)


def test_backends_are_found_by_name() -> None:
    """``auto`` is the first of those tried; an unknown name lists what there is."""
    assert find_backend("numpy").name == "numpy"
    assert find_backend("auto").name in AUTO
    assert GLOBALS["np"] is np
    with pytest.raises(UnknownNameError, match=r"backend: expected one of auto, .*numpy.*found 'nunpy'"):
        find_backend("nunpy")
