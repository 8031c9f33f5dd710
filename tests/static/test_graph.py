"""Graphs: interned, evaluated, verified, printed, and made a cell."""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import foldbatch as fb
from foldbatch.errors import GraphError, UnknownNameError
from foldbatch.params.parameters import Parameter
from foldbatch.static import ops
from foldbatch.static.autodiff import jvp, vjp
from foldbatch.static.cell import cotangents, stage_cell
from foldbatch.static.cellgraph import CellGraph, Ends
from foldbatch.static.evaluate import evaluate
from foldbatch.static.graph import Graph, Node, apply, constant, input_node, parameter_node, reachable, verify
from foldbatch.static.op import CALL, OPS, UNBATCHED, Axis, ragged
from foldbatch.static.printer import print_graph
from foldbatch.static.routines import Stage, routine_of
from foldbatch.types import TensorType
from tests.static.derivatives import sampled
from tests.static.run_kernel import TARGET
from tests.strategies import Problem, problems

VECTOR = TensorType((3,))
DEEP = 3_000

NAMES = {
    "np": np,
    "math": math,
    "ops": ops,
    "apply": apply,
    "s": input_node(TensorType(())),
    "x": input_node(VECTOR),
    "n": input_node(TensorType((4,))),
    "m": input_node(TensorType((2, 3))),
    "f": input_node(TensorType((3,), "float64")),
    "i": input_node(TensorType((3,), "int32")),
    "b": input_node(TensorType((3,), "bool")),
    "w": input_node(TensorType((3, 2)), UNBATCHED),
    "t": input_node(TensorType((4, 3, 5)), UNBATCHED),
    "k": input_node(TensorType((), "int32")),
    "e": input_node(VECTOR, ragged()),
    "d": input_node(VECTOR, ragged()),
}
MISUSES = (Path(__file__).parent / "misuses.txt").read_text().splitlines()


def test_a_misuse_says_what_is_wrong_and_what_to_do() -> None:
    """misuses.txt holds an expression of `NAMES` and the error it raises, by turns."""
    for expression, message in list(zip(MISUSES[::2], MISUSES[1::2], strict=True)):
        with pytest.raises((GraphError, UnknownNameError)) as caught:
            eval(expression, dict(NAMES))
        assert f"    {type(caught.value).__name__}: {caught.value}" == message


def test_the_same_expression_is_the_same_object() -> None:
    x, y = input_node(VECTOR), input_node(VECTOR)
    assert x + y is x + y
    assert x * 2 is x * 2
    assert ops.concat([x, y])[1:4] is ops.concat([x, y])[1:4]
    assert ops.tanh(x) is not ops.tanh(y)
    assert x + y is not y + x


def test_constants_are_the_same_when_their_bytes_dtype_and_shape_are() -> None:
    assert constant(1.5) is constant(np.float32(1.5))
    assert constant([1, 2]) is constant(np.array([1, 2]))
    assert constant(np.nan) is constant(np.nan)
    different = [constant(1.0, "float64"), *map(constant, (1, 1.0, [1], [[1]], True))]
    assert len(set(different)) == len(different)
    assert constant(0.0) is not constant(-0.0)


def test_a_constant_does_not_change_with_the_array_it_was_made_of() -> None:
    array = np.ones(3)
    node = constant(array)
    array[:] = 7
    assert node.attrs["value"].tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        node.attrs["value"][0] = 7


def test_a_python_float_is_float32_and_an_array_keeps_its_dtype() -> None:
    assert [constant(v).dtype for v in (1.0, [1.0], 1, True)] == ["float32", "float32", "int64", "bool"]
    arrays = np.float64(1), np.ones(1), np.ones(1, "int32")
    assert [constant(array).dtype for array in arrays] == ["float64", "float64", "int32"]


def test_a_parameter_is_known_by_identity_not_by_name() -> None:
    first, second = (Parameter(VECTOR, name="w") for _ in range(2))
    assert parameter_node(first) is parameter_node(first)
    assert parameter_node(first) is not parameter_node(second)


def _chain(x: Node) -> Node:
    y = x
    for _ in range(DEEP):
        y = y + x
    return y


def test_a_chain_of_3000_sums_is_no_recursion() -> None:
    x, g = input_node(TensorType((), "float64")), input_node(TensorType((), "float64"))
    y = _chain(x)
    graph = verify(Graph((x,), (y,)))
    assert len(reachable([y])) == DEEP + 1
    assert evaluate(graph, [2.0]) == [2.0 * (DEEP + 1)]
    assert print_graph(graph).count("\n") == DEEP + 1
    (slope,) = vjp([y], [g], [x])
    (ahead,) = jvp([y], [x], [g])
    assert slope is not None
    assert ahead is not None
    assert evaluate(Graph((x, g), (slope, ahead)), [2.0, 3.0]) == [3.0 * (DEEP + 1)] * 2


def test_an_unknown_op_lists_those_there_are() -> None:
    with pytest.raises(UnknownNameError, match=r"expected one of abs, add, .* where, found 'tan'"):
        apply("tan", input_node(VECTOR))


def test_all_cells_of_a_graph_have_one_backward_graph() -> None:
    """Else its order, and so the last bit of a sum, would depend on what else was compiled from the graph."""
    x = input_node(VECTOR)
    graph = CellGraph("cell", (x,), (), (x * x, x * x))
    ends = Ends(active_operands=frozenset({0}), active_outputs=frozenset({0, 1}))
    (seeds, results), (others, twin) = (cotangents(graph, ends) for _ in range(2))
    assert results == twin and seeds == others and seeds[0] is not seeds[1]


SAMPLES = [(op, sample) for op in OPS.values() for sample in op.samples]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_op_yields_the_shape_of_its_type_and_the_precision_asked_for(dtype: str) -> None:
    for op, sample in SAMPLES:
        inputs, y, values = sampled(op, sample, np.random.default_rng(0))
        (found,) = evaluate(Graph(inputs, (y,)), values, dtype)
        for value in found if y.axis.rank == 2 else [found]:
            assert np.shape(value) == y.shape, op.name
            assert np.asarray(value).dtype == (dtype if y.type.is_float else y.dtype), op.name


def test_floats_are_float64_by_default_whatever_the_graph_says() -> None:
    x = input_node(VECTOR)
    (third,) = evaluate(Graph((x,), (x / 3,)), [np.ones(3, "float32")])
    assert third.dtype == np.float64
    assert third[0] == 1 / 3


def test_a_constant_is_the_number_it_was_rounded_to() -> None:
    """0.1 in a float32 graph is the float32 nearest to 0.1, in the oracle as in the kernels."""
    x = input_node(TensorType(()))
    assert evaluate(Graph((x,), (x * 0.1,)), [1.0])[0] == np.float64(np.float32(0.1))


def test_a_cast_to_a_float_gives_the_precision_asked_for() -> None:
    x = input_node(TensorType((3,), "int32"))
    y = ops.cast(x, "float32") / 3
    assert evaluate(Graph((x,), (y,)), [np.ones(3, "int32")])[0][0] == 1 / 3
    assert evaluate(Graph((x,), (y,)), [np.ones(3, "int32")], "float32")[0].dtype == np.float32


def test_parameters_and_interior_inputs_are_read() -> None:
    x, w = input_node(VECTOR), Parameter(VECTOR, 2.0)
    y = x * w
    z = y + 1
    assert evaluate(Graph((x,), (z,)), [[1, 2, 3]])[0].tolist() == [3, 5, 7]
    assert evaluate(Graph((y,), (z,)), [[1.0, 2.0, 3.0]])[0].tolist() == [2, 3, 4]


def test_a_tensor_along_a_sequence_is_a_list() -> None:
    e, x = input_node(VECTOR, ragged()), input_node(VECTOR)
    outputs = (e + x, ops.segment_sum(e), apply("sum_batch", e), apply("batch", constant(5.0), axis=e.axis))
    each, per_call, total, five = evaluate(
        Graph((e, x), outputs), [[np.ones(3), np.full(3, 2)], np.full(3, 10)]
    )
    assert [v.tolist() for v in each] == [[11] * 3, [12] * 3]
    assert per_call.tolist() == total.tolist() == [3] * 3
    assert five == [5, 5]


def test_an_empty_sequence_sums_to_zero() -> None:
    e, w = input_node(VECTOR, ragged()), input_node(TensorType((3, 2)), UNBATCHED)
    outputs = (ops.segment_sum(e @ w), apply("sum_outer", e, e), ops.tanh(e))
    per_call, outer, each = evaluate(Graph((e, w), outputs), [[], np.ones((3, 2))])
    assert per_call.tolist() == [0, 0]
    assert outer.tolist() == np.zeros((3, 3)).tolist()
    assert each == []


def test_two_sequences_have_their_own_lengths() -> None:
    e, d = input_node(VECTOR, ragged()), input_node(VECTOR, ragged())
    total = ops.segment_sum(e) - ops.segment_sum(d)
    assert evaluate(Graph((e, d), (total,)), [[np.ones(3)] * 5, [np.ones(3)] * 2])[0].tolist() == [3, 3, 3]


def test_a_value_too_few_or_too_many_is_an_error() -> None:
    x = input_node(VECTOR)
    for values in ([], [np.ones(3), np.ones(3)]):
        with pytest.raises(ValueError, match="argument 2 is"):
            evaluate(Graph((x,), (x,)), values)


MATRIX = TensorType((2, 3))


@settings(max_examples=35, deadline=None)
@given(problems(smooth=False, gradients=True))
def test_all_that_the_ops_build_is_legal(problem: Problem) -> None:
    assert verify(problem.graph) is problem.graph


def test_an_input_given_twice_is_a_breach() -> None:
    x = input_node(VECTOR)
    with pytest.raises(AssertionError, match="simplify: an input is given twice"):
        verify(Graph((x, x), (x,)), "simplify")


def test_an_input_that_is_read_but_not_given_is_a_breach() -> None:
    x, y = input_node(VECTOR), input_node(VECTOR)
    with pytest.raises(AssertionError, match=r"fuse: <input N float32.3.> is read but not an input"):
        verify(Graph((x,), (x + y,)), "fuse")


def _forged(
    name: str, inputs: tuple[Node, ...], type_: TensorType, along: Axis = CALL, /, **attrs: Any
) -> Graph:
    ends = tuple(dict.fromkeys(x for x in inputs if x.op.name == "input"))
    return Graph(ends, (Node(OPS[name], inputs, attrs, type_, along),))


X, M, W = input_node(VECTOR), input_node(MATRIX), input_node(VECTOR, UNBATCHED)
E, D = input_node(VECTOR, ragged()), input_node(VECTOR, ragged())


NODE_THAT = [
    (_forged("tanh", (X,), MATRIX), r"tanh yields float32\[3\], not float32\[2,3\]"),
    (_forged("tanh", (X,), TensorType((3,), "float64")), r"not float64\[3\]"),
    (_forged("tanh", (X,), VECTOR, UNBATCHED), "tanh runs along N, not 1"),
    (_forged("tanh", (W,), VECTOR, CALL), "tanh runs along 1, not N"),
    (_forged("sum_batch", (X,), VECTOR, CALL), "sum_batch runs along 1, not N"),
    (_forged("sum_batch", (W,), VECTOR, UNBATCHED), "expected a tensor with a row per call"),
    (_forged("add", (X, E), VECTOR, E.axis), r"add mixes the axes \['M', 'N'\]"),
    (_forged("add", (D, E), VECTOR, E.axis), r"add mixes the axes \['M', 'M'\]"),
    (_forged("concat", (X, E), TensorType((6,)), E.axis, axis=0), "concat mixes the axes"),
    (_forged("add", (X, M), MATRIX), "add has batched operands of ranks {1, 2}"),
    (_forged("add", (X, X[:2]), VECTOR), "expected shapes that broadcast"),
    (_forged("slice", (X,), VECTOR, axis=0, start=1, stop=4), "expected a range within"),
]


def test_a_node_that_breaks_its_ops_rules_is_a_breach() -> None:
    for graph, message in NODE_THAT:
        with pytest.raises(AssertionError, match=message):
            verify(graph)


def test_a_node_that_is_older_than_its_operands_is_a_breach() -> None:
    node = ops.tanh(input_node(VECTOR))
    node.inputs = (input_node(VECTOR),)
    with pytest.raises(AssertionError, match="precedes its operands"):
        verify(Graph(node.inputs, (node,)))


def test_the_text_does_not_depend_on_what_was_built_before() -> None:
    """Neither on constants and parameters met earlier, nor on the order in which operands were built."""

    def built(*, reverse: bool) -> str:
        x, w = input_node(VECTOR), Parameter(TensorType((3, 3)))
        makers: list[Callable[[], Node]] = [lambda: ops.tanh(x) * 77.5, lambda: x @ ops.transpose(w)]
        if reverse:
            right, left = [make() for make in makers[::-1]]
        else:
            left, right = [make() for make in makers]
        return print_graph(Graph((x,), (left + right,)))

    assert built(reverse=False) == built(reverse=True)


def _ops(stages: Iterable[Stage]) -> list[str]:
    return [s.op for stage in stages for s in routine_of(stage, TARGET).statements]


def test_feed_bounds_see_through_casts_and_take_the_smallest() -> None:
    """Data used as indices is checked while it is traced, against every table it goes into."""
    ids, free = input_node(TensorType((2,), "int32")), input_node(TensorType((), "int32"))
    wide, narrow = Parameter([9, 2], 0.0), Parameter([5, 2], 0.0)
    cast = ops.cast(ops.reshape(ids, (2, 1)), "int64")
    outputs = (ops.gather(wide, ids), ops.gather(narrow, cast), ops.gather(wide, free + 1))
    graph = CellGraph("cell", (), (ids, free), outputs)
    assert graph.bounds == {ids: 5}
    stages = stage_cell(graph, Ends()).training.forward
    assert _ops(stages.values()).count("check_range") == 1


@pytest.mark.parametrize(("trained", "inferred", "checks"), [(5, 5, 0), (9, 5, 1), (5, 9, 0), (None, 5, 1)])
def test_an_index_that_only_inference_uses_is_checked_in_its_kernel(trained, inferred, checks):
    """Tracing checks feeds against the tables of training; a smaller one in inference needs its own check."""
    x, word = input_node(TensorType((3,))), input_node(TensorType((), "int32"))
    table = lambda n: Parameter([n, 3], "normal", f"table{n}")  # noqa: E731
    first = ops.gather(table(trained), word) if trained else x
    y = x + ops.when_training(first, ops.gather(table(inferred), word))
    cell = stage_cell(CellGraph("cell", (x,), (word,), (y,)), Ends())
    assert _ops(cell.inference.forward.values()).count("check_range") == checks
    assert "check_range" not in _ops(cell.training.forward.values())


def test_what_both_directions_need_of_parameters_alone_is_computed_before_either_reads_it() -> None:
    """The sum of `p`, which forward needs for its mean."""
    p = fb.Parameter([3], init=[1.0, 2.0, 3.0], name="p")
    mixed = fb.Function(lambda x: ops.sum(p * ops.mean(x) + ops.mean(p)))
    model = fb.Vector(2) >> fb.Linear(2, init="ones") >> mixed >> fb.Loss()
    program = fb.compile(model, "numpy", debug=True)
    for scale in (1.0, 10.0):
        program.params["p"] = [scale, 2 * scale, 3 * scale]
        loss, gradients = program.value_and_grad([[1.0, 2.0], [3.0, 4.0]])
        assert loss == pytest.approx(72 * scale)
        assert gradients["p"] == pytest.approx([12.0, 12.0, 12.0])


def test_the_order_of_a_graph_does_not_tell_what_was_built_before() -> None:
    """A node that depends on parameters alone is found where another graph has it already."""

    def order(*, before: bool) -> list[str]:
        weight = parameter_node(Parameter([2, 2], name="w"))
        kept = [ops.square(ops.transpose(weight))] if before else []
        y = ops.tanh(input_node(TensorType((2,)), name="x"))
        found = reachable([ops.square(ops.transpose(weight)), ops.exp(y) @ ops.square(ops.transpose(weight))])
        assert len(kept) <= 1
        return [node.op.name for node in found]

    assert order(before=True) == order(before=False)
    assert order(before=True)[-3:] == ["transpose", "square", "linear"]
