"""Functions of tensors that NumPy has compute what NumPy's do; batch functions, along sequences."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import ExampleError, GraphError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.autodiff import vjp
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node
from foldbatch.static.op import CALL, UNBATCHED, ragged
from foldbatch.types import TensorType
from tests.backends import BACKENDS, TESTED
from tests.static.ops.beside_numpy import CUBE, X, Y, check, run
from tests.static.run_kernel import Rows, run_graph
from tests.strategies import Draw


def test_reshape_is_numpys() -> None:
    for shape in [6, -1, (6,), (3, 2), [3, -1], (-1, 1, 2), (1, 2, 3), (np.int64(2), 3)]:
        check(lambda x: ops.reshape(x, shape), lambda x: np.reshape(x, shape), X)


def test_reshape_of_nothing_is_numpys() -> None:
    check(lambda x: ops.reshape(x, (3, -1)), lambda x: np.reshape(x, (3, -1)), np.zeros((0, 2)))


def test_transpose_is_numpys() -> None:
    for axes in [None, *itertools.permutations(range(3)), (-1, 0, 1)]:
        check(lambda x: ops.transpose(x, axes), lambda x: np.transpose(x, axes), CUBE)


def test_the_transpose_of_a_vector_or_scalar_is_itself() -> None:
    check(lambda x: x.T, np.transpose, X[0])
    check(ops.transpose, np.transpose, X[0, 0])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_expand_dims_and_squeeze_are_numpys(axis: int) -> None:
    check(lambda x: ops.expand_dims(x, axis), lambda x: np.expand_dims(x, axis), X)
    check(lambda x: ops.squeeze(x, axis), lambda x: np.squeeze(x, axis), np.expand_dims(X, axis))


@pytest.mark.parametrize("shape", [(2, 3), (4, 2, 3), [1, 2, 3]])
def test_broadcast_to_is_numpys(shape: Any) -> None:
    check(lambda x: ops.broadcast_to(x, shape), lambda x: np.broadcast_to(x, shape), X)
    check(lambda x: ops.broadcast_to(x, shape), lambda x: np.broadcast_to(x, shape), X[:, :1])


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_concat_stack_and_split_are_numpys(axis: int) -> None:
    check(lambda a, b: ops.concat([a, b, a], axis), lambda a, b: np.concatenate([a, b, a], axis), X, Y)
    check(lambda a, b: ops.stack([a, b], axis), lambda a, b: np.stack([a, b], axis), X, Y)
    check(lambda a: ops.concat([a], axis), lambda a: a, X)
    found = run(lambda a: ops.split(a, a.shape[axis], axis), X)
    for part, expected in zip(found, np.split(X, X.shape[axis], axis), strict=True):
        np.testing.assert_array_equal(part, expected)


ROWS = fb.Map(fb.Vector(2))
TABLE = fb.Record((fb.Tensor([3, 2]), fb.Tensor([2], "int32")))


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_of_what_a_call_computes(backend):
    block = TABLE >> fb.Function(lambda x, ids: ops.gather(x * 2, ids))
    table = [[1, 2], [np.inf, 4], [5, 6]]  # what is not chosen does no harm
    assert fb.compile(block, backend).run([(table, [2, 0])])[0].tolist() == [[10, 12], [2, 4]]
    with pytest.raises(ExampleError, match=r"at example 1 \[1\]: expected int32\[2\] from 0 to 2, found"):
        fb.compile(block, backend).run([(table, [0, 1]), (table, [3, -1])])
    computed = TABLE >> fb.Function(lambda x, ids: ops.gather(x, ids + 1))
    with pytest.raises(ExampleError, match="at example 1: expected ids from 0 to 2, found 3"):
        fb.compile(computed, backend).run([(table, [0, 1]), (table, [0, 2])])


@pytest.mark.parametrize("backend", BACKENDS)
def test_elements_of_a_sequence(backend):
    chosen = fb.Function(lambda x, i: ops.gather(x, i))
    block = fb.AllOf(fb.GetItem(0) >> ROWS, fb.GetItem(1) >> fb.Scalar("int32")) >> chosen
    examples = [([[1, 2], [3, 4], [5, np.inf]], 1), ([[7, 8]], 0)]
    assert [x.tolist() for x in fb.compile(block, backend).run(examples)] == [[3, 4], [7, 8]]
    for rows, wrong, text in (
        ([[1, 2], [3, 4]], 2, "expected ids from 0 to 1, as the list has 2 elements, found 2;"),
        ([[1, 2]], -1, "expected ids from 0 to 0, as the list has 1 element, found -1;"),
        ([[1, 2]], 2**30, "expected ids from 0 to 0, as the list has 1 element, found 536870912 or more;"),
        ([], 3, "expected a list of at least one element, found an empty list, and id 3;"),
    ):
        if backend == "reference":  # which knows the example alone
            text = "expected the number of an element of the list, found "
        with pytest.raises(ExampleError, match=f"at example 1: {text}"):
            fb.compile(block, backend).run([examples[1], (rows, wrong)])


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=4), min_size=1, max_size=3))
@settings(max_examples=5)
def test_the_greatest_of_a_sequence_and_its_gradient(lists):
    w = fb.Parameter([], init=2.0, name="w")
    pointer = fb.Function(lambda x: ops.gather(w * x, ops.segment_argmax(x)))
    block = fb.Map(fb.Scalar()) >> pointer >> fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0)
    for backend in BACKENDS:
        program = fb.compile(block, backend)
        assert [float(x) for x in program.run(lists)] == [2 * max(x) for x in lists]
        assert float(program.value_and_grad(lists)[1]["w"]) == sum(map(max, lists))


def _gradient(y: Node, x: Node, value: Any) -> Any:
    (g,) = vjp([y], [constant(np.ones(y.shape))], [x])
    assert g is not None
    return evaluate(Graph((x,), (g,)), [value])[0]


def test_at_a_tie_the_gradient_of_max_goes_to_the_first() -> None:
    x = input_node(TensorType((4,), "float64"))
    assert _gradient(ops.max(x), x, [1.0, 7.0, 7.0, 3.0]).tolist() == [0, 1, 0, 0]


def test_large_numbers_neither_overflow_nor_warn() -> None:
    x, label = input_node(TensorType((3,), "float64")), input_node(TensorType((), "int32"))
    outputs = (ops.softmax(x), ops.logsumexp(x), ops.cross_entropy(x, label))
    with np.errstate(all="raise", under="ignore"):
        probability, total, loss = evaluate(Graph((x, label), outputs), [[1e4, 0.0, 1e4], np.int32(1)])
    np.testing.assert_allclose(probability, [0.5, 0, 0.5])
    np.testing.assert_allclose([total, loss], [1e4 + np.log(2), 1e4 + np.log(2)])


def test_the_gradient_of_cross_entropy_is_softmax_less_the_label() -> None:
    """At logits where log(softmax) would be -inf, it is still finite."""
    x = input_node(TensorType((3,), "float64"))
    found = _gradient(ops.cross_entropy(x, constant(1)), x, [1e4, 0.0, -1e4])
    np.testing.assert_allclose(found, [1, -1, 0])


def test_a_sum_over_no_elements_is_zero_and_a_maximum_of_none_is_refused() -> None:
    x = input_node(TensorType((2, 0), "float64"))
    assert evaluate(Graph((x,), (ops.sum(x, 1),)), [np.zeros((2, 0))])[0].tolist() == [0, 0]
    for name in ("max", "argmax", "softmax", "logsumexp"):
        with pytest.raises(GraphError, match=f"ops.{name}: expected at least one element"):
            apply(name, x, axis=1)
        assert apply(name, x, axis=0).type.size == 0


def test_booleans_are_not_summed_by_accident() -> None:
    x = input_node(TensorType((3,)))
    with pytest.raises(GraphError, match="expected numbers, found bool"):
        ops.sum(x > 0)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_one_hot_has_the_dtype_asked_for(dtype: str) -> None:
    ids = input_node(TensorType((2,), "int64"))
    y = ops.one_hot(ids, 3, dtype)
    assert y.type == TensorType((2, 3), dtype)
    assert evaluate(Graph((ids,), (y,)), [np.array([2, 0])])[0].tolist() == [[0, 0, 1], [1, 0, 0]]


EXTENT = {"i": 2, "j": 3, "k": 4, "l": 1, "m": 2}
CASES = [
    "i,i->", "i,j->ij", "ij,jk->ik", "ij,kj->ki", "i,ijk,j->k", "ij->ji", "ij->", "ijk->k", "ij,ij->i",
    "ij,ij->ij", "ijk,jk->i", "i,j,k->", "ij,jk,km->im", "ij,jk", "ji", "l,li->i",
]  # fmt: skip


def agree(subscripts: str, axes: list[object], dtype: str = "float64") -> None:
    spec = subscripts.split("->", maxsplit=1)[0].split(",")
    shapes = [tuple(EXTENT[x] for x in letters) for letters in spec]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in shapes]
    nodes = [input_node(TensorType(s, dtype), axis) for s, axis in zip(shapes, axes, strict=True)]
    result = ops.einsum(subscripts, *nodes)
    (found,) = evaluate(Graph(tuple(nodes), (result,)), values)
    np.testing.assert_allclose(found, np.einsum(subscripts, *values), rtol=1e-12, atol=1e-12)
    assert result.shape == np.einsum(subscripts, *values).shape


@pytest.mark.parametrize(
    "batched", [(CALL, CALL, CALL), (UNBATCHED, CALL, UNBATCHED), (CALL, UNBATCHED, CALL)]
)
def test_it_means_what_numpys_does(batched):
    for subscripts in CASES:
        agree(subscripts, list(batched[: subscripts.split("->")[0].count(",") + 1]))


@st.composite
def contractions(draw: Draw) -> str:
    spec = [
        "".join(draw(st.permutations("ijkm"))[: draw(st.integers(0, 3))])
        for _ in range(draw(st.integers(1, 3)))
    ]
    letters = sorted(set("".join(spec)))
    right = draw(st.permutations(letters))[: draw(st.integers(0, len(letters)))]
    return f"{','.join(spec)}->{''.join(right)}"


@settings(max_examples=40, deadline=None)
@given(contractions(), st.lists(st.sampled_from([CALL, UNBATCHED]), min_size=3, max_size=3))
def test_random_contractions_mean_what_numpys_do(subscripts, axes):
    agree(subscripts, axes[: subscripts.split("->")[0].count(",") + 1])


def test_a_weight_makes_one_product_for_the_whole_batch():
    x, weight = input_node(TensorType((3,))), fb.Parameter([3, 3, 4])
    first = ops.einsum("ijk,i->jk", weight, x)
    assert [node.op.name for node in Graph((x,), (first,)).nodes if node.op.name in ("linear", "matmul")] == [
        "linear"
    ]


ODD = np.array([[2.0, np.nan, 1, 2], [np.inf, 1, -np.inf, 1], [np.nan, np.nan, 0, -0.0]])
WHOLE = np.array([[3, 1, 3, 2]], "int32")


@pytest.mark.parametrize("axis", [-1, 0])
def test_sorting_is_numpys(axis):
    for x in [CUBE, ODD, WHOLE, np.zeros((2, 1))]:
        np.testing.assert_array_equal(
            run(lambda x: ops.argsort(x, axis), x), np.argsort(x, axis, kind="stable")
        )
        np.testing.assert_array_equal(run(lambda x: ops.sort(x, axis), x), np.sort(x, axis))


@pytest.mark.parametrize("x", [CUBE, ODD[:2], WHOLE])
def test_the_greatest_are_the_last_of_the_sorted(x):
    values, indices = run(lambda x: ops.topk(x, 2), x)
    np.testing.assert_array_equal(values, np.sort(x, -1)[..., ::-1][..., :2])
    np.testing.assert_array_equal(values, np.take_along_axis(x, indices, -1))
    first, second = run(lambda x: ops.topk(x, 2), np.array([1.0, 1, 1]))[1]
    assert (first, second) == (0, 1)


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_running_sums_are_numpys(axis):
    np.testing.assert_allclose(run(lambda x: ops.cumsum(x, axis), CUBE), np.cumsum(CUBE, axis), rtol=1e-13)
    late = np.array([1, 2, np.inf, 3])
    np.testing.assert_array_equal(run(np.cumsum, late), np.cumsum(late))  # it spoils no sum before it


@pytest.mark.parametrize("axis", [None, 0, (1, 2)])
def test_norms_are_numpys(axis):
    wanted = np.sqrt(np.sum(CUBE**2, axis))
    np.testing.assert_allclose(run(lambda x: ops.norm(x, axis), CUBE), wanted, rtol=1e-13)


@pytest.mark.parametrize("backend", ["reference", TESTED])
def test_gradients_go_where_elements_went(backend):
    weight = fb.Parameter([4], init=[2.0, -1, 5, 0], name="w")

    def loss(x):
        values, _ = ops.topk(weight, 2)
        ordered = ops.sort(weight) * np.array([1, 10, 100, 1000], "float32")
        running = np.cumsum(weight)
        return ordered.sum() + (values * np.array([7, 9], "float32")).sum() + running.sum() + ops.norm(x)

    program = fb.compile(fb.Vector(2) >> fb.Function(loss) >> fb.Loss(), backend)
    value, gradients = program.value_and_grad([[0, 0]])
    assert value == -1 + 0 + 200 + 5000 + 35 + 18 + 15
    np.testing.assert_array_equal(gradients["w"], [100 + 9 + 4, 1 + 3, 1000 + 7 + 2, 10 + 1])
    (found,) = program.vjp([[0.0, 0.0]], inputs=True).inputs.values()
    np.testing.assert_array_equal(found.values, [[0, 0]])  # of a norm that is 0


ELEMENTS = ragged()
PAIRS = input_node(TensorType((2,), "float64"), ELEMENTS)


def _run(y: Node, x: Node, sequences: list[Any]) -> list[Any]:
    """Return what the kernel yields per call or element, which must be what the interpreter yields."""
    lengths = np.array([len(s) for s in sequences])
    values = np.concatenate([np.asarray(s, x.dtype).reshape(-1, *x.shape) for s in sequences])
    (found,) = run_graph(Graph((x,), (y,)), Rows(len(sequences), (values,), {x.axis: lengths}))
    each = [evaluate(Graph((x,), (y,)), [[np.asarray(v, x.dtype) for v in s]])[0] for s in sequences]
    expected = each if y.axis is CALL else [v for sequence in each for v in sequence]
    np.testing.assert_allclose(found, np.array(expected).reshape(found.shape), rtol=1e-14)
    return found.tolist()  # type: ignore[no-any-return]


def test_of_equal_elements_the_first_is_the_maximum_and_takes_the_gradient() -> None:
    """As of ops.max: one subgradient, the same in every batch."""
    sequences = [[[7, 1], [7, 2], [3, 2]], [], [[0, 0], [0, 0]], []]
    first = [[1, 0], [0, 1], [0, 0], [1, 1], [0, 0]]
    assert _run(apply("segment_is_max", PAIRS), PAIRS, sequences) == [[bool(v) for v in row] for row in first]
    (g,) = vjp([apply("segment_max", PAIRS)], [constant(np.ones(2))], [PAIRS])
    assert g is not None
    assert _run(g, PAIRS, sequences) == first


def test_a_nan_is_greatest() -> None:
    """As to NumPy; the gradient shows it too."""
    x = input_node(TensorType((), "float64"), ELEMENTS)
    sequences = [[1.0, np.nan, 2.0, np.nan], [3.0, 2.0]]
    found = _run(apply("segment_max", x), x, sequences)
    assert np.isnan(found[0])
    assert found[1] == 3
    assert _run(apply("segment_is_max", x), x, sequences) == [False, True, False, False, True, False]


@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "softmax"])
def test_only_elements_of_a_sequence_are_reduced(name: str) -> None:
    function: Callable[[Node], Node] = getattr(ops, f"segment_{name}")
    with pytest.raises(GraphError, match=r"ops.segment_\w+: expected a tensor of a sequence's elements"):
        function(input_node(TensorType((3,))))


def test_batched_gives_a_row_per_call_once() -> None:
    parameter = Parameter(TensorType((3,)))
    x = ops.batched(parameter)
    assert (x.op.name, x.axis) == ("batch", CALL)
    assert ops.batched(x) is x
