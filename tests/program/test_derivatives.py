"""Derivatives along tangents, of inputs and from cotangents of results, by hand.

Those of random programs, on every engine, are the law's (`tests.programs.checks`).
"""

from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import BlockValueError, ExampleError, ExampleTypeError, ParameterError, UnknownNameError
from foldbatch.params.parameters import dense
from tests import derivative_checks as checks
from tests.backends import LLVM, TESTED
from tests.programs import BlockProgram
from tests.programs.comparing import assert_same


def gates(trainable: bool = True) -> fb.Block:
    """Return a model of trees of ids: a table, a recursion, dropout, and a loss at every node."""
    table = fb.Embedding(5, 3, "normal", dtype="float64", trainable=trainable, name="table")
    tree = fb.ForwardDeclaration(output_type=[3, "float64"], name="tree")
    leaf = fb.Scalar("int32") >> table
    join = fb.Linear(3, "tanh", name="join", init="glorot_normal")
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> join >> fb.Dropout(0.4)
    loss = fb.Function(lambda h: ops.sum(h * h * h)) >> fb.Loss()
    state = fb.OneOf(lambda node: isinstance(node, tuple), {False: leaf, True: pair})
    tree.resolve_to(state >> fb.AllOf(fb.Identity(), loss) >> fb.GetItem(0))
    return tree()


@fb.cell
def squares(x: Any) -> None:
    fb.loss(ops.sum(x * x))


def squares_of_parts(example: Any) -> None:
    for part in example:
        squares(np.asarray(part, "float32"))


TREES: list[Any] = [3, (1, 2), ((1, 1), (2, (0, 4))), ((3, 4), 1)]


def test_what_dropout_drops_depends_on_the_step_in_derivatives_too():
    program = BlockProgram(gates(), TREES, 0)
    engine = checks.compiled(program)
    assert any(engine.model.keys)
    checks.assert_jvp(engine, program)
    checks.assert_hvp(engine, program)
    tangents = checks.tangents_of(engine, np.random.default_rng(0))
    assert engine.jvp(TREES, tangents, step=1) == engine.jvp(TREES, tangents, step=1)
    assert engine.jvp(TREES, tangents, step=1) != engine.jvp(TREES, tangents, step=2)
    assert engine.jvp(TREES, tangents) != engine.jvp(TREES, tangents)
    assert engine.jvp(TREES, tangents, step=1)[0] == pytest.approx(engine.value_and_grad(TREES, step=1)[0])


def test_the_hessian_of_a_quadratic_form_is_its_matrix():
    a = np.array([[2.0, 1.0], [1.0, -3.0]])
    w = fb.Parameter([2, "float64"], [0.5, 4.0], "w")
    program = fb.compile(
        fb.Scalar("float64")
        >> fb.Function(lambda s: s * ops.sum(ops.multiply(w, ops.matmul(w, a))) / 2)
        >> fb.Loss()
    )
    columns = [program.hvp([1.0, 2.0], {"w": unit})["w"] for unit in np.eye(2)]
    np.testing.assert_allclose(columns, 3 * a, rtol=1e-12)
    loss, along = program.jvp([1.0, 2.0], {"w": [1, 0]})
    assert (loss, along) == pytest.approx((3 * (0.5 - 48 + 4) / 2, 3 * (1.0 + 4.0)))


def test_parameters_that_are_not_named_stand_still():
    program = fb.compile(gates())
    tangents = checks.tangents_of(program, np.random.default_rng(0))
    some = {"join.weight": tangents["join.weight"]}
    program.jvp(TREES, tangents, step=0)
    zeros = {name: np.zeros_like(t) for name, t in tangents.items()}
    assert program.jvp(TREES, some, step=0) == program.jvp(TREES, zeros | some, step=0)
    assert program.jvp(TREES, {}, step=0)[1] == 0.0
    assert not any(product.any() for product in program.hvp(TREES, {}, step=0).values())


def test_frozen_parameters_do_not_move_and_have_no_product():
    program = fb.compile(gates(trainable=False))
    tangents = {"join.weight": program.params["join.weight"]}
    assert "table.weight" in program.params
    assert set(program.hvp(TREES, tangents)) == {"join.weight", "join.bias"}
    with pytest.raises(ParameterError, match=r"tangents\['table.weight'\]: expected a trainable parameter"):
        program.jvp(TREES, {"table.weight": program.params["table.weight"]})


def test_derivatives_of_nothing_are_nothing():
    program = fb.compile(gates())
    tangents = checks.tangents_of(program, np.random.default_rng(0))
    assert program.jvp([], tangents) == (0.0, 0.0)
    assert not any(product.any() for product in program.hvp([], tangents).values())
    reading = fb.compile(fb.Map(fb.Vector(2)) >> fb.Sum() >> fb.Function(ops.sum) >> fb.Loss())
    loss, _, found = reading.vjp([], inputs=True)
    assert loss == 0.0
    (gradient,) = found.values()
    assert (gradient.values.shape, gradient.values.dtype, gradient.examples.tolist()) == (
        (0, 2),
        np.float32,
        [],
    )
    without = fb.compile(fb.Vector(2))
    assert without.jvp([[1, 2]], {}) == (0.0, 0.0)
    assert without.hvp([[1, 2]], {}) == {}
    assert not without.vjp([[1, 2]], inputs=True).inputs["model Vector(2, 'float32')"].values.any()


def test_integers_have_no_gradient():
    _, _, found = fb.compile(gates()).vjp(TREES, inputs=True)
    assert len(found) == 0
    with pytest.raises(UnknownNameError, match=r"inputs: expected a block that reads floats, of none"):
        found["tree"]


def test_a_cell_that_runs_level_by_level_collects_the_gradients_of_all_its_calls():
    chain = fb.ForwardDeclaration(output_type=[2, "float64"], name="chain")
    w = fb.Parameter([2, "float64"], [0.3, -0.7], "w")
    again = chain() >> fb.Function(lambda h: ops.tanh(h + w))
    chain.resolve_to(
        fb.OneOf(
            lambda x: isinstance(x, tuple), {True: fb.GetItem(0) >> again, False: fb.Zeros([2, "float64"])}
        )
    )
    both = fb.AllOf(fb.GetItem(0) >> chain(), fb.GetItem(1) >> fb.Vector(2, "float64"))
    model = fb.Map(both >> fb.Function(lambda h, x: ops.sum(h * x)) >> fb.Loss())
    data = [[(((0,),), [1.0, 2.0]), (0, [3.0, 4.0])], [((0,), [5.0, 6.0])]]
    program = fb.compile(model, options={"policy": "by_depth"}, threads=1)
    _, _, found = program.vjp(data, inputs=True)
    once = np.tanh(program.params["w"])
    right = [np.tanh(once + program.params["w"]), [0.0, 0.0], once]
    (gradient,) = found.values()
    np.testing.assert_allclose(gradient.values, right, rtol=1e-6)
    seen = next(k for k, cell in enumerate(program.model.cells) if cell.graph.losses)
    schedule = fb.program.schedule(program, data).schedule
    assert sum(step.cell == seen for step in schedule.steps) == 3


def test_asking_for_gradients_of_inputs_changes_no_kernel_of_training():
    program = fb.compile(checks.passed_down_and_up())
    before = program.kernels()
    program.vjp([], inputs=True)
    assert program.kernels() == before
    yielded = {
        kind
        for cell in program.model.cells
        for stage in cell.training.backward.values()
        for (kind, _), _ in stage.results
    }
    assert "feed" not in yielded


@pytest.mark.parametrize("backend", [TESTED, "reference"])
def test_a_value_that_stands_twice_in_a_result_adds_up_its_cotangents(backend):
    w = fb.Parameter([2, "float64"], [0.5, 3.0], "w")
    scaled = fb.Vector(2, "float64") >> fb.Function(lambda x: x * w)
    program = fb.compile(scaled >> fb.AllOf(fb.Identity(), fb.Identity()), backend)
    x, y = np.array([1.0, 2.0]), np.array([-1.0, 4.0])
    found = program.vjp([x, y], [([1, 10], [2, 20]), (None, [3, 0])], inputs=True)
    assert found.gradients["w"].tolist() == (x * [3, 30] + y * [3, 0]).tolist()
    (gradient,) = found.inputs.values()
    assert gradient.values.tolist() == [[1.5, 90.0], [1.5, 0.0]]


def test_without_cotangents_gradients_come_from_losses():
    program = fb.compile(gates(), TESTED, threads=1)
    loss, gradients, inputs = program.vjp(TREES, step=3)
    right, expected = program.value_and_grad(TREES, step=3)
    assert (loss, len(inputs)) == (right, 0)
    assert {name: type(g) for name, g in gradients.items()} == {n: type(g) for n, g in expected.items()}
    for name, gradient in expected.items():
        assert_same(dense(gradients[name]), dense(gradient))


def test_what_random_numbers_drop_from_results_depends_on_the_step():
    program = fb.compile(fb.Vector(50) >> fb.Linear(50, name="layer") >> fb.Dropout(0.5), TESTED)
    data, ones = [np.ones(50)], [np.ones(50)]

    def biases(step: int) -> list[float]:
        return program.vjp(data, ones, step=step).gradients["layer.bias"].tolist()

    assert biases(1) == biases(1) != biases(2)
    assert set(biases(1)) == {0.0, 2.0}


def test_only_cotangents_count_unless_losses_shall():
    w = fb.Parameter(fb.types.TensorType((), "float64"), 3.0, "w")
    model = fb.Scalar("float64") >> fb.Function(lambda x: w * x) >> fb.AllOf(fb.Identity(), fb.Loss())
    program = fb.compile(model >> fb.GetItem(0), TESTED)
    assert program.vjp([2.0]) == (6.0, {"w": 2.0}, {})
    assert program.vjp([2.0], [10.0]) == (6.0, {"w": 20.0}, {})
    assert program.vjp([2.0], [10.0], losses=True) == (6.0, {"w": 22.0}, {})
    assert program.vjp([2.0], [None]) == (6.0, {"w": 0.0}, {})
    assert program.vjp([2.0], losses=False) == (6.0, {"w": 0.0}, {})


def test_cotangents_fit_batches_that_were_planned_and_examples_that_were_prepared():
    program = fb.compile(gates(), TESTED)
    cotangents = [None, [1.0, 2.0, 3.0], np.ones(3), None]
    right = program.vjp(TREES, cotangents, step=0)
    for batch in (program.plan(TREES), program.prepare(TREES), (tree for tree in TREES)):
        found = program.vjp(batch, iter(cotangents), step=0)
        assert found.loss == right.loss
        for name, gradient in right.gradients.items():
            assert_same(dense(found.gradients[name]), dense(gradient))


@pytest.mark.parametrize("backend", [TESTED, "reference"])
def test_results_that_are_data_or_parameters_or_constants_have_cotangents_too(backend):
    """Cotangents of what no parameter acts on, and no datum, lead nowhere."""
    w = fb.Parameter([2], 1.0, "w")
    fixed = fb.AllOf(fb.Vector(2), fb.FromTensor(w), fb.FromTensor(np.ones(2, "float32")))
    program = fb.compile(fixed, backend)
    cotangents = [([1, 2], [3, 4], [5, 6]), None, ([7, 8], [9, 10], None)]
    found = program.vjp([[0, 0]] * 3, cotangents, inputs=True)
    assert found.gradients["w"].tolist() == [12, 14]
    assert [g.values.tolist() for g in found.inputs.values()] == [[[1, 2], [0, 0], [7, 8]]]
    without = program.vjp([[0, 0]] * 3, cotangents)
    assert (without.gradients["w"].tolist(), len(without.inputs)) == ([12, 14], 0)
    assert fb.compile(fb.Vector(2), backend).vjp([[1, 2]], [[1, 2]]) == (0.0, {}, {})


def test_cotangents_of_nothing_are_nothing():
    program = fb.compile(gates(), TESTED)
    for cotangents in ([], None):
        found = program.vjp([], cotangents, inputs=True)
        assert found.loss == 0.0
        assert not any(dense(gradient).any() for gradient in found.gradients.values())
        assert list(found.gradients) == list(program.params)


@pytest.mark.parametrize(
    ("cotangents", "error", "message"),
    [
        ([None] * 3, ExampleError, "cotangents: expected one for each of 4 examples, found 3"),
        (1.0, ExampleTypeError, "cotangents: expected one for each of 4 examples, found float 1.0"),
        ([None, [1.0, 2.0], None, None], ExampleError, r"cotangents\[1\]: .*shape \(3,\), found shape \(2,\)"),
        ([{"h": 1}, None, None, None], ExampleTypeError, r"cotangents\[0\]: expected numbers of shape \(3,\), found dict"),
        ([None, None, [1, np.nan, 3], None], ExampleError, r"cotangents\[2\]: expected finite numbers, found NaN"),
    ],
)  # fmt: skip
def test_cotangents_that_do_not_fit_are_refused_and_change_nothing(cotangents, error, message):
    program, untouched = fb.compile(gates(), TESTED), fb.compile(gates(), TESTED)
    before = {name: value.copy() for name, value in program.params.items()}
    with pytest.raises(error, match=message):
        program.vjp(TREES, cotangents)
    with pytest.raises(BlockValueError, match="step: expected a whole number"):
        program.vjp(TREES, [np.ones(3)] * 4, step=-1)
    for name, value in before.items():
        assert_same(program.params[name], value)
    right, found = (
        p.vjp(TREES, [np.ones(3)] * 4) for p in (untouched, program)
    )  # the same numbers are drawn
    for name, gradient in right.gradients.items():
        assert_same(dense(found.gradients[name]), dense(gradient))


def test_examples_that_do_not_fit_are_refused():
    program = fb.compile(gates())
    for call in (
        lambda: program.jvp(["x"], {}),
        lambda: program.hvp(["x"], {}),
        lambda: program.vjp(["x"], inputs=True),
        lambda: program.vjp(["x"], [None]),
    ):
        with pytest.raises(ExampleError, match=r"tree.*at example 0"):
            call()


def test_where_all_parameters_are_frozen_no_backward_kernel_is_made():
    w = fb.Parameter([3, "float64"], 0.5, "w", trainable=False)
    table = fb.Embedding(4, 3, dtype="float64", trainable=False)
    tree = fb.ForwardDeclaration(output_type=[3, "float64"], name="tree")
    leaf = fb.Scalar("int32") >> table
    pair = fb.Record((tree(), tree())) >> fb.Function(lambda a, b: ops.tanh(a * w - b))
    tree.resolve_to(fb.OneOf(lambda node: isinstance(node, tuple), {False: leaf, True: pair}))
    program = fb.compile(tree() >> fb.Function(ops.sum) >> fb.Loss())
    assert not any(cell.training.backward or cell.sums for cell in program.model.cells)
    assert not any(operand.differentiable for cell in program.model.signatures for operand in cell.operands)
    loss, gradients = program.value_and_grad([(1, 2)])
    assert (loss != 0, gradients) == (True, {})
    assert program.jvp([(1, 2)], {}) == (pytest.approx(loss), 0.0)
    assert program.hvp([(1, 2)], {}) == {}


@pytest.mark.parametrize("backend", ["reference", TESTED, *LLVM])
def test_data_of_two_shapes_that_a_cell_reads_have_gradients_of_their_own(backend: str) -> None:
    program = fb.compile(squares_of_parts, backend)
    _, _, gradients = program.vjp([[[1, 2], [1, 2, 3], [4, 5]], [[7, 8, 9]]], inputs=True)
    assert len(gradients) == 2
    by_length = {values.values.shape[1]: values for values in gradients.values()}
    np.testing.assert_array_equal(by_length[2].values, [[2, 4], [8, 10]])
    np.testing.assert_array_equal(by_length[3].values, [[2, 4, 6], [14, 16, 18]])
    assert by_length[2].examples.tolist() == [0, 0]
    assert by_length[3].examples.tolist() == [0, 1]
