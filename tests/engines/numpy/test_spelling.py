"""Every op as NumPy spells it computes, on many rows at once, what its reference evaluation says of each."""

import itertools

import numpy as np
import pytest

from foldbatch.engines.launch import OutOfRangeError
from foldbatch.engines.numpy.spelling import OVERWRITES, SPELLINGS
from foldbatch.errors import GraphError
from foldbatch.static import ops
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, is_view
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis, Op, Sample, ragged
from foldbatch.types import TensorType
from tests.static.run_kernel import interpret, random_rows, run_graph

SAMPLES = [(op, sample) for op in OPS.values() for sample in op.samples]
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


def test_every_op_has_a_spelling() -> None:
    """But views, which are places, and what is made of copies."""
    others = {op.name for op in OPS.values() if op.view or op.copies is not None}
    assert set(SPELLINGS) - {"copy", "zero"} == set(OPS) - others
    assert set(OVERWRITES) <= set(OPS)


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.samples])
def test_an_op_on_all_rows_is_the_op_on_each(name: str) -> None:
    """Whatever the dtype and the number of calls, with and without a buffer of the op's own."""
    op = OPS[name]
    for sample, dtype, calls in itertools.product(op.samples, TOLERANCE, (0, 1, 5)):
        inputs, y = _applied(op, sample, dtype)
        graph = Graph(inputs, (y,))
        positive = inputs if sample.positive else ()
        rows = random_rows(np.random.default_rng(calls), graph, calls, below=_below(y), positive=positive)
        (expected,) = interpret(graph, rows)
        for kept in ((),) if is_view(y) else ((), (y,)):
            found = run_graph(graph, rows, kept)[0]
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
    (op, sample, dtype)
    for op, sample in SAMPLES
    for dtype in ("int32", "int64", "bool")
    if _takes(op, sample, dtype)
]


@pytest.mark.parametrize("name", dict.fromkeys(op.name for op, *_ in EXACT))
def test_an_op_that_takes_integers_computes_them_exactly(name: str) -> None:
    """Ops whose type rule admits integers or bools yield just what NumPy yields for one row."""
    for op, sample, dtype in EXACT:
        if op.name != name:
            continue
        inputs, y = _applied(op, sample, dtype)
        graph = Graph(inputs, (y,))
        below = min(_below(y), 2 if dtype == "bool" else 3)
        rows = random_rows(np.random.default_rng(0), graph, 5, below=below)
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


@pytest.mark.parametrize("name", BINARY)
def test_operands_along_different_axes_meet(name: str) -> None:
    """An unbatched operand serves all rows, a call's row all elements of its sequence."""
    elements = ragged()
    for ends in (*AXES, (CALL, None), (None, UNBATCHED), (None, None)):
        a, b = (input_node(TensorType((2, 3), "float64"), elements if end is None else end) for end in ends)
        graph = Graph((a, b), (_pair(name, a, b),))
        rows = random_rows(np.random.default_rng(1), graph, 4)
        found, expected = run_graph(graph, rows)[0], interpret(graph, rows)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-13, err_msg=str(ends))


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
    g, ids = input_node(TensorType((*shapes[0][:-1], shapes[1][1]))), input_node(TensorType((), "int32"))
    by_ids = apply("linear_by", x, ops.stack([w, w], 0), ids), apply("sum_outer_by", x, g, ids, size=2)
    graph = Graph((x, g, ids), (x @ w, apply("sum_outer", x, g), *by_ids))
    for calls in (0, 4):
        rows = random_rows(np.random.default_rng(1), graph, calls, below=2)
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


@pytest.mark.parametrize("op", ["gather", "linear_by", "sum_outer_by", "one_hot", "cross_entropy"])
def test_a_kernel_checks_computed_indices(op: str) -> None:
    """An index that no tracing checked is checked when the kernel runs."""
    ids = input_node(TensorType((), "int32"))
    later = ids + 1
    table = constant(np.eye(3, dtype="float32"))
    node = {
        "gather": lambda: ops.gather(table, later),
        "linear_by": lambda: apply(
            "linear_by", ops.one_hot(later, 4), constant(np.ones((3, 4, 2), "f4")), later
        ),
        "sum_outer_by": lambda: apply("sum_outer_by", *[ops.one_hot(later, 4)] * 2, later, size=3),
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


def test_many_axes_that_do_not_follow_each_other() -> None:
    x = input_node(TensorType((2, 3, 2, 3, 2), "float64"))
    y = ops.transpose(x, (4, 2, 0, 3, 1))
    outputs = ops.exp(y), ops.sum(y, (0, 2, 4)), ops.softmax(y, 1), ops.logsumexp(y, 4)
    graph = Graph((x,), (*outputs, apply("sum_batch", y)))
    rows = random_rows(np.random.default_rng(0), graph, 2)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_products_over_axes_that_do_not_follow_each_other() -> None:
    """As a library multiplies them."""
    large = input_node(TensorType((2, 3, 70), "float64")), input_node(TensorType((3, 2, 20), "float64"))
    weight = constant(np.random.default_rng(1).normal(size=(70, 20)))
    x, g = large
    turned = ops.transpose(x, (1, 0, 2))
    outer = apply("sum_outer", turned, g), apply("sum_outer", x[:, 1:], x[:, :2])
    graph = Graph((x, g), (turned @ weight, x[:, 1:] @ weight, *outer, x[:, 0] @ ops.transpose(x)[:, :, 1]))
    rows = random_rows(np.random.default_rng(0), graph, 4)
    for found, expected in zip(run_graph(graph, rows), interpret(graph, rows), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
