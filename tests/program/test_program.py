"""Programs: any mixture of examples in one call, and nothing lost, mixed up or remembered too long."""

import copy
import pickle
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch import errors, ops
from foldbatch.engines.arrays import ArrayRun
from foldbatch.engines.launch import OutOfRangeError
from foldbatch.engines.pending import pending
from foldbatch.params.parameters import Gradient, dense
from foldbatch.trees import Tree
from tests.knobs import knobs
from tests.program.test_traced import as_tree

N = 3


def _tree_model(
    dtype: str = "float64", *, embed: Any = None, seen: Callable[[Any], None] = lambda node: None
) -> fb.Block:
    """Return a classifier of nested pairs of ints, with a loss and a metric at every node.

    It reads a `Tree` as well; `seen` is called with every node that is traced.
    """
    table = embed or fb.Embedding(7, N, dtype=dtype)
    join, classify = fb.Linear(N, name="join"), fb.Linear(2, name="classify")

    def is_leaf(node: Any) -> bool:
        seen(node)
        return node.is_leaf if isinstance(node, fb.trees.TreeNode | Tree) else not isinstance(node, tuple)

    tree = fb.ForwardDeclaration(output_type=[N, dtype], name="tree")
    word = fb.InputTransform(lambda node: int(node.token) if hasattr(node, "token") else node)
    leaf = word >> fb.Scalar("int32") >> table
    pair = fb.Record((tree(), tree())) >> fb.Concat() >> join >> fb.Function(ops.tanh)
    state = fb.OneOf(is_leaf, {True: leaf, False: pair})
    loss = fb.Function(lambda h: ops.cross_entropy(classify(h), np.array(1, "int32"))) >> fb.Loss()
    text = fb.InputTransform(lambda node: "pair" if not is_leaf(node) else "leaf")
    metric = fb.Record((fb.Function(classify), text)) >> fb.Metric("scores")
    both = fb.AllOf(state, fb.Identity())
    tree.resolve_to(both >> fb.AllOf(fb.GetItem(0), fb.GetItem(0) >> loss, metric) >> fb.GetItem(0))
    return tree()


ALL = {"losses": True, "metrics": True}  # then the program that trains is the one that runs
EXAMPLES: list[Any] = [3, (1, 2), ((1, 1), (2, (0, 6))), ((3, 4), 5), 1]


def _same(a: dict[str, Gradient], b: dict[str, Gradient], **tolerance: float) -> None:
    assert set(a) == set(b)
    for name, gradient in a.items():
        np.testing.assert_allclose(dense(gradient), dense(b[name]), err_msg=name, **tolerance)


def test_a_batch_of_none_is_no_special_case() -> None:
    """Results, loss, gradients and report of nothing."""
    program = fb.compile(_tree_model())
    results = program.run([], **ALL)
    assert results == []
    assert (len(results), results.loss) == (0, 0.0)
    loss, gradients = program.value_and_grad([])
    assert loss == 0.0
    assert isinstance(loss, float)
    assert {name: dense(g).shape for name, g in gradients.items()} == {
        name: value.shape for name, value in program.params.items()
    }
    assert not any(dense(g).any() for g in gradients.values())
    report = program.describe([])
    assert (report.examples, report.calls, report.steps, report.calls_forward) == (0, 0, 0, 0)
    assert program.prepare([]) == []


def test_examples_may_come_from_a_generator() -> None:
    """It is consumed once, in order."""
    program = fb.compile(_tree_model())
    expected = program.run(EXAMPLES, **ALL)
    for found in (
        program.run((x for x in EXAMPLES), **ALL),
        program.run(iter(EXAMPLES), **ALL),
        program.run(tuple(EXAMPLES), **ALL),
    ):
        np.testing.assert_array_equal(np.array(found), np.array(expected))
    assert program.value_and_grad(x for x in EXAMPLES)[0] == program.value_and_grad(EXAMPLES)[0]


@pytest.mark.parametrize(
    "single", [3, 2.5, "text", b"bytes", {"a": 1}, None, Tree.from_nested(("S", "a"))], ids=repr
)
def test_a_single_example_is_refused_with_the_way_out(single: object) -> None:
    """A dict or a tree can be iterated over, but surely not on purpose."""
    program = fb.compile(_tree_model())
    for method in (program.run, program.value_and_grad, program.prepare):
        with pytest.raises(
            errors.ExampleTypeError, match=r"expected an iterable of examples, found .*pass a list of one"
        ):
            method(single)  # type: ignore[operator]


def test_results_are_the_callers_own() -> None:
    """Later batches do not write to them, and writing to them changes no later batch."""
    program = fb.compile(_tree_model())
    first = program.run(EXAMPLES, **ALL)
    kept = [result.copy() for result in first]
    for result in first:
        result[...] = 1e9
    second = program.run(EXAMPLES[::-1], **ALL)
    np.testing.assert_allclose(np.array(second[::-1]), np.array(kept), rtol=1e-13)
    program.run([6, 5, 4], **ALL)
    np.testing.assert_allclose(np.array(second[::-1]), np.array(kept), rtol=1e-13)


def test_programs_that_share_a_layer_share_its_parameters() -> None:
    """Whichever program assigns; a layer used twice in one has one gradient, the sum."""
    shared = fb.Linear(2, name="shared")
    one = fb.compile(fb.Vector(3) >> shared)
    square = fb.Function(lambda h: ops.sum(h * h)) >> fb.Loss()
    two = fb.compile(fb.Vector(3) >> fb.AllOf(shared, shared) >> fb.Concat() >> square)
    assert one.params["shared.weight"] is two.params["shared.weight"]
    one.params["shared.weight"] = np.full((3, 2), 2.0)
    one.params["shared.bias"] = [1.0, 1.0]
    loss, gradients = two.value_and_grad([[1, 0, 0]])
    assert loss == 36.0
    assert dense(gradients["shared.bias"]).tolist() == [12.0, 12.0]
    two.params["shared.bias"][:] = 5
    assert one.run([[0, 0, 0]])[0].tolist() == [5, 5]


def test_frozen_parameters_have_no_gradient() -> None:
    """And what only they act on costs no backward kernel."""
    frozen = fb.Embedding(7, N, dtype="float64", trainable=False, name="frozen")
    program = fb.compile(_tree_model(embed=frozen))
    _, gradients = program.value_and_grad(EXAMPLES)
    assert set(program.params) - set(gradients) == {"frozen.weight"}
    leaf = next(cell for cell in program.model.cells if "is_leaf=True" in cell.name)
    assert leaf.training.backward == {}
    full = fb.compile(_tree_model(), seed=0)
    for name in program.params:
        full.params["embedding.weight" if name == "frozen.weight" else name] = program.params[name]
    _, expected = full.value_and_grad(EXAMPLES)
    expected.pop("embedding.weight")
    _same(gradients, expected, rtol=1e-13)


def test_one_seed_one_draw() -> None:
    """Parameters depend on the seed and their names alone."""
    draws = [fb.compile(_tree_model(), seed=seed).params for seed in (0, 0, 1)]
    for name in draws[0]:
        assert draws[0][name].tobytes() == draws[1][name].tobytes()
    assert draws[0]["join.weight"].tobytes() != draws[2]["join.weight"].tobytes()


@pytest.mark.parametrize("options", [{}, {"batched": False}, {"threads": 3}], ids=str)
def test_a_computed_id_out_of_range_names_its_example(options: dict[str, Any]) -> None:
    """Found by the kernel, be it of a call or of an element of a sequence; sequences may be empty."""
    table = fb.Parameter([3, 2], 1.0)
    double = fb.Function(lambda i: ops.gather(table, i * 2))
    program = fb.compile(fb.Scalar("int32") >> double, **knobs(options))
    program.run([0, 1, 0])
    with pytest.raises(errors.ExampleError, match=r"at example 2: expected ids from 0 to 2, found 4"):
        program.run([0, 1, 2, 3])
    with pytest.raises(errors.ExampleError, match=r"at example 0: .* found -2"):
        program.step([-1])
    elements = fb.Map(fb.Scalar("int32")) >> fb.Function(
        lambda ids: ops.segment_sum(ops.gather(table, ids * 2))
    )
    program = fb.compile(elements, **knobs(options))
    with pytest.raises(errors.ExampleError, match=r"at example 3: expected ids from 0 to 2, found 6"):
        program.run([[0, 1, 1], [], [1], [0, 3], [5]])


def test_a_constant_id_out_of_range_is_found_when_it_is_used() -> None:
    """The first example that comes there is named."""
    table = fb.Parameter([3], 1.0)
    fixed = fb.Function(lambda x: x + ops.sum(ops.gather(table, np.array([0, 1, 3]))))
    program = fb.compile(fb.OneOf(type, {float: fb.Scalar() >> fixed, int: fb.Scalar()}))
    assert program.run([1, 2]) == [1, 2]
    with pytest.raises(errors.ExampleError, match=r"at example 1: expected ids from 0 to 2, found 3"):
        program.run([1, 2.5])


def test_threads_may_call_one_program_at_once() -> None:
    """Tracing, running and differentiating side by side; everybody gets his own results."""
    program = fb.compile(_tree_model(), threads=1)
    rng = np.random.default_rng(0)
    batches = [[EXAMPLES[i] for i in rng.integers(0, len(EXAMPLES), 6)] for _ in range(8)]
    expected = [(np.array(program.run(batch, **ALL)), program.value_and_grad(batch)) for batch in batches]
    failures: list[str] = []
    start = threading.Barrier(len(batches))

    def work(number: int) -> None:
        start.wait()
        for _ in range(10):
            results, (loss, gradients) = (
                program.run(batches[number], **ALL),
                program.value_and_grad(batches[number]),
            )
            same = np.array_equal(np.array(results), expected[number][0]) and loss == expected[number][1][0]
            for name, gradient in gradients.items():
                same = same and np.array_equal(dense(gradient), dense(expected[number][1][1][name]))
            if not same:
                failures.append(f"batch {number}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(batches))]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures


def test_describe_takes_one_example_or_many() -> None:
    """Calls and steps are of the batch; parameters stay as they are."""
    program = fb.compile(_tree_model())
    before = {name: value.tobytes() for name, value in program.params.items()}
    one, many = program.describe(as_tree(EXAMPLES[2])), program.describe(EXAMPLES)
    assert (one.examples, many.examples) == (1, 5)
    assert one.calls < many.calls
    assert one.steps <= many.steps
    assert many.lower_bound <= many.steps
    assert {name: value.tobytes() for name, value in program.params.items()} == before
    assert str(many).startswith("5 examples: ")


def test_kernels_of_many_cells_are_listed_and_chosen_by_name() -> None:
    """By default short; the last line says how to see more."""
    cases = {k: fb.Vector(2) >> fb.Linear(2) for k in range(20)}
    program = fb.compile(fb.OneOf(len, cases), "numpy")
    first, *rows, last = program.kernels().splitlines()
    assert first.startswith("the tracing program: ")
    assert [row.split(":")[0] for row in rows] == [cell.name for cell in program.model.cells]
    assert last == "kernels(name) shows the cells whose names contain it, kernels(whole=True) everything"
    chosen = program.kernels("len=7")
    assert "# model(len=7) forward_before" in chosen
    assert "len=8" not in chosen
    whole = program.kernels(whole=True)
    assert whole.startswith("def ")
    assert chosen.split("\n\n")[0] in whole
    assert "# model(len=19) " in whole
    with pytest.raises(
        errors.UnknownNameError, match=r"kernels: expected a part of the name of a cell .*and 8 more"
    ):
        program.kernels("len=20")


def test_a_program_prints_in_a_line() -> None:
    program = fb.compile(fb.Vector(2) >> fb.Linear(3), "numpy")
    shown = "Program(Vector(2, 'float32') >> Linear(3), 1 cell, 2 parameters (9 numbers), backend numpy)"
    assert repr(program) == shown
    assert "\n" not in repr(fb.compile(_tree_model(), "numpy"))
    made = fb.compile(fb.Vector(2) >> fb.Linear(3) >> fb.Function(ops.sum) >> fb.Loss("near"), "numpy").step(
        [[0, 0]]
    )
    expected = "Step(loss 0, losses {'near': 0.0}, gradients of 2 parameters, 1 result, Metrics({}))"
    assert repr(made) == expected


def test_a_step_that_is_no_number_is_refused_and_changes_nothing() -> None:
    program = fb.compile(fb.Vector(20) >> fb.Dropout(0.5) >> fb.Function(ops.sum) >> fb.Loss())
    first = fb.compile(program.lowered.origin).value_and_grad([np.ones(20)])[0]
    with pytest.raises(
        errors.BlockValueError, match="step: expected a whole number of 0 or more, found str 'a'"
    ):
        program.value_and_grad([np.ones(20)], step="a")
    assert program.value_and_grad([np.ones(20)])[0] == first


@pytest.mark.parametrize("use", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_program_says_what_to_pickle_instead(use):
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: x), "numpy")
    with pytest.raises(
        errors.BlockTypeError, match=r"Program: expected .*; program.save.path. keeps it in a file; or pickle"
    ):
        use(program)


def _inverse(read: fb.Block | None = None) -> fb.Block:
    w = fb.Parameter([], 1.0, "w")
    return (read or fb.Scalar()) >> fb.Function(lambda x: w / x) >> fb.Loss()


@pytest.mark.parametrize("backend", ["reference", "numpy", "auto"])
def test_a_loss_that_is_not_finite_is_told_once_a_program(backend: str) -> None:
    """At the user's line, by `run` or by training; NumPy's own warnings, errors in these tests, are not met."""
    run_with_losses = partial(fb.Program.run, losses=True)
    for runs in ((run_with_losses, fb.Program.value_and_grad), (fb.Program.step, run_with_losses)):
        program = fb.compile(_inverse(), backend)
        program.value_and_grad([1, 2])
        with pytest.warns(
            errors.NotFiniteWarning, match="^loss: expected a finite number, found inf; call program.find_nan"
        ) as record:
            for run in runs:
                made = run(program, [1, 0])
                assert (made[0] if isinstance(made, tuple) else made.loss) == np.inf
        assert [warning.filename for warning in record] == [__file__]


@pytest.mark.parametrize("train", [fb.Program.value_and_grad, fb.Program.step])
@pytest.mark.parametrize("row", [False, True])
def test_a_gradient_that_is_not_finite_is_told_once_a_program(train: Any, row: bool) -> None:
    """Though the loss is finite: the root of 0 is 0, its slope is infinite. Rows of a table are looked at, too."""
    w = fb.Embedding(2, 1, init="zeros") if row else fb.Linear(1, init="zeros", bias=False)
    read = fb.Scalar("int32") if row else fb.Vector(1)
    program = fb.compile(read >> w >> fb.Function(lambda x: ops.sum(ops.sqrt(x))) >> fb.Loss(), "numpy")
    name = next(iter(program.params))
    with pytest.warns(
        errors.NotFiniteWarning, match=rf"^{name} gradient: expected finite numbers, found "
    ) as record:
        for _ in range(2):
            train(program, [1 if row else [1]])
    assert [warning.filename for warning in record] == [__file__]


def test_large_gradients_are_finite_though_their_sum_is_not() -> None:
    """No warning, of which any is an error in these tests."""
    large = fb.Vector(2) >> fb.Linear(2, bias=False) >> fb.Function(lambda x: ops.sum(x) * 3e38) >> fb.Loss()
    program = fb.compile(large, "numpy")
    program.params["linear.weight"] = np.zeros((2, 2))
    assert np.isfinite(program.value_and_grad([[1, 1]])[1]["linear.weight"]).all()


def test_training_a_model_without_a_loss_is_told_once() -> None:
    """Its gradients are all zero. To run it is no mistake, nor to train one whose losses an example does not reach."""
    program = fb.compile(fb.Vector(2) >> fb.Linear(2), "numpy")
    program.run([[1, 2]])
    with pytest.warns(errors.NoLossWarning, match="expected a model with a loss, found none; ") as record:
        for _ in range(2):
            loss, gradients = program.value_and_grad([[1, 2]])
    assert [warning.filename for warning in record] == [__file__]
    assert loss == 0
    assert not any(dense(gradient).any() for gradient in gradients.values())
    assert fb.compile(fb.Map(_inverse()), "numpy").value_and_grad([[]])[0] == 0


@pytest.fixture
def later(monkeypatch):
    """Let the NumPy engine's losses be pending; return the list of those that were read."""
    read = []
    at_once = ArrayRun.loss_sums

    def sums(run):
        def reading(key, number):
            read.append(key)
            return number

        return {key: pending(partial(reading, key, number)) for key, number in at_once(run).items()}

    monkeypatch.setattr(ArrayRun, "loss_sums", sums)
    return read


def _product(threads: int = 1) -> fb.Program:
    w = fb.Parameter([], init=3.0, name="w")
    block = fb.Map(fb.Scalar() >> fb.Function(lambda x: w * x)) >> fb.Sum() >> fb.Loss("product")
    return fb.compile(block, "numpy", threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pending_loss_is_read_by_those_who_look(later, threads):
    program = _product(threads)
    examples = [[1.0], [2.0, 3.0], [4.0]]
    loss, gradients = program.value_and_grad(examples)
    step, results = program.step(examples), program.run(examples, losses=True)
    assert later == []
    assert gradients["w"] == step.gradients["w"] == 10.0
    assert (loss, step.loss, step.losses["product"], results.loss) == (30.0,) * 4
    assert len(later) >= 3


def test_a_pending_loss_that_is_not_finite_warns_the_one_who_looks(later):
    program = _product()
    loss, _ = program.value_and_grad([[np.inf]])
    with pytest.warns(errors.NotFiniteWarning, match="loss: expected a finite number, found inf") as caught:
        assert loss == np.inf
    assert caught[0].filename == __file__
    assert program.value_and_grad([[np.inf]])[0] == np.inf  # once a program


def test_a_gradient_that_is_not_finite_warns_when_the_loss_is_read(later):
    w = fb.Parameter([], init=0.0, name="w")
    program = fb.compile(fb.Scalar() >> fb.Function(lambda x: ops.sqrt(w) * x) >> fb.Loss(), "numpy")
    loss, _ = program.value_and_grad([1.0])
    with pytest.warns(errors.NotFiniteWarning, match="w gradient: expected finite numbers"):
        assert loss == 0.0


def test_an_id_out_of_range_that_shows_when_the_loss_is_read_names_the_example(later, monkeypatch):
    def sums(run):
        def reading():
            with run.within():
                raise OutOfRangeError(rank=2, id=9, size=5, cell=1)

        return {(1, 0): pending(reading)}

    monkeypatch.setattr(ArrayRun, "loss_sums", sums)
    loss, _ = _product().value_and_grad([[1.0], [2.0], [3.0]])
    for _ in range(2):
        with pytest.raises(errors.ExampleError, match=r"at example \d: expected ids from 0 to 4, found 9"):
            float(loss)


def test_an_evaluation_yields_metrics_beside_the_result():
    both = fb.Scalar("int32") >> fb.AllOf(fb.Identity(), fb.Metric("m")) >> fb.GetItem(0)
    result, metrics = both.eval(3)
    assert (int(result), [int(x) for x in metrics["m"]]) == (3, [3])
    assert (fb.Scalar() >> fb.Loss()).eval(3) is None


def test_the_depth_is_that_of_one_example():
    assert (fb.Map(fb.Scalar()) >> fb.Sum()).max_depth([1, 2]) == 1


def test_an_evaluation_needs_no_labels():
    error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: x - y) >> fb.Loss()
    block = fb.AllOf(fb.GetItem(0) >> fb.Scalar(), error) >> fb.GetItem(0)
    assert block.eval((3, "unknown")) == 3


def test_a_name_from_elsewhere_is_told_what_does_it_here() -> None:
    program = fb.compile(fb.Scalar(), "numpy")
    for name, told in (
        ("fit", "fb.train.Trainer"),
        ("state_dict", "see params"),
        ("backward", "value_and_grad"),
    ):
        with pytest.raises(AttributeError, match=f"a Program has no '{name}'; .*{told}"):
            getattr(program, name)
    assert not hasattr(program, "shape")
