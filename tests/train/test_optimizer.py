"""What optimizers share: checks, steps on the host, state, programs."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.errors import FoldbatchError, ParameterError, TrainingError
from foldbatch.params.parameters import Parameter, ParameterStore, Rule, SparseRows
from foldbatch.train import SGD, Adam, Optimizer, clip_by_global_norm, optimizer, scale
from foldbatch.train.optimizer import formula
from foldbatch.types import TensorType
from tests.train.optimizing import (
    MAKERS,
    assert_same,
    copied,
    densified,
    every_optimizer,
    gradients,
    on_host,
    parameters,
    wherever,
)


@pytest.mark.parametrize("name", [name for name in MAKERS if not name.startswith("lazy")])
@given(st.lists(st.integers(0, 2**32 - 1), max_size=5, unique=True), st.sampled_from([1, 5, 32_768]))
def test_a_sparse_gradient_does_bit_for_bit_what_its_dense_form_does(name, seeds, block):
    sparse, dense = parameters(), parameters()
    by_rows, by_table = MAKERS[name](), MAKERS[name]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizer, "BLOCK_ELEMENTS", block)  # several blocks even in a small table
        for seed in seeds:
            by_rows.update(sparse, gradients(seed))
            by_table.update(dense, densified(gradients(seed)))
    assert_same(sparse, dense)
    assert_same(by_rows.state(), by_table.state())


@given(st.sampled_from(sorted(MAKERS)), st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_how_a_table_is_cut_into_blocks_changes_nothing(name, seed, block):
    whole, cut = parameters(), parameters()
    MAKERS[name]().update(whole, gradients(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizer, "BLOCK_ELEMENTS", block)
        MAKERS[name]().update(cut, gradients(seed))
    assert_same(whole, cut)


@wherever
@given(
    st.sampled_from(sorted(MAKERS)),
    st.integers(0, 2**32 - 1),
    st.floats(-3, 3) | st.just(1 / 3),
    st.sampled_from(["float32", "float64", "int8"]),
)
def test_a_scaled_step_is_to_the_last_bit_that_of_scaled_gradients(place, name, seed, factor, dtype):
    params, other = place(parameters()), place(parameters())
    opt, scaling_first = MAKERS[name](), MAKERS[name]()
    for k in range(2):
        grads = {name: np.asarray(g, dtype) for name, g in densified(gradients(seed + k)).items()}
        rows = gradients(seed + k)["table.weight"].rows
        grads["table.weight"] = SparseRows(rows, grads["table.weight"][rows], (7, 3))
        before = densified(grads) | {"table.weight": grads["table.weight"].values.copy()}
        opt.update(params, grads, scale=factor, loss=k + 0.5)
        scaling_first.update(other, scale(grads, factor), loss=(k + 0.5) * factor)
        assert_same(densified(grads) | {"table.weight": grads["table.weight"].values}, before)
    assert_same(params, other)
    assert_same(opt.state(), scaling_first.state())


BAD = [
    {"scale": np.float32(np.nan)},
    {"scale": np.float32(1e38)},  # finite only until it is scaled
    {"table.weight": SparseRows(np.array([2, 6]), np.array([[0.0] * 3, [0, 0, np.nan]]), (7, 3))},
    {"scale": np.zeros(1)},
    {"layer.bias": np.array([0, np.inf, 0, 0])},
    {"table.weight": SparseRows(np.array([8]), np.zeros((1, 3)), (7, 3))},
    {"missing": np.zeros(1)},
]


@wherever
@every_optimizer
def test_a_bad_batch_changes_nothing(make, place):
    params, opt = place(parameters()), make()
    opt.update(params, gradients(0))
    params_before, state_before = copied(params), opt.state()
    for bad in BAD:
        with pytest.raises(FoldbatchError, match=next(iter(bad))):
            opt.update(params, gradients(1) | bad, scale=10.0)
        assert_same(params, params_before)
        assert_same(opt.state(), state_before)


@every_optimizer
def test_parameters_are_updated_in_place_and_only_those_with_a_gradient(make):
    params = parameters()
    arrays, before = dict(params), copied(params)
    make().update(params, {"layer.bias": np.ones(4, "float32")})
    assert all(params[name] is arrays[name] for name in params)
    assert {name for name in params if (params[name] != before[name]).any()} == {"layer.bias"}


def test_a_parameter_that_is_no_contiguous_array_is_updated_in_place():
    table = np.ones((4, 6), "float32")
    params = {"w": table[:, ::2].T}
    Adam(0.5).update(params, {"w": np.ones((3, 4), "float32")})
    np.testing.assert_allclose(table, [[0.5, 1, 0.5, 1, 0.5, 1]] * 4, rtol=1e-6)


def test_a_frozen_parameter_is_skipped():
    layer = {
        "free": Parameter(TensorType((2,)), 1.0),
        "frozen": Parameter(TensorType((2,)), 1.0, trainable=False),
    }
    params = ParameterStore(layer)
    opt = SGD(1.0, momentum=0.9)
    opt.update(params, {"free": np.ones(2), "frozen": np.ones(2)})
    assert params["free"].tolist() == [0, 0]
    assert params["frozen"].tolist() == [1, 1]
    assert set(opt.state()) == {"lr", "steps/free", "velocity/free"}


@every_optimizer
def test_training_resumed_from_a_state_goes_on_bit_for_bit(make):
    straight, resumed = parameters(), parameters()
    opt, first, second = make(), make(), make()
    for seed in range(4):
        opt.update(straight, gradients(seed))
    for seed in range(2):
        first.update(resumed, gradients(seed))
    second.load_state({key: np.asarray(value) for key, value in first.state().items()})  # as a file has it
    for seed in range(2, 4):
        second.update(resumed, gradients(seed))
    assert_same(straight, resumed)
    assert_same(opt.state(), second.state())


def test_a_state_carries_the_learning_rate():
    opt = SGD(0.5)
    opt.lr = 0.25
    other = SGD(0.5)
    other.load_state(opt.state())
    assert other.lr == 0.25


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"lr": 0.1, "steps/w": 1, "mean/w": np.zeros(2)}, "found 'square/w' missing"),
        ({"lr": 0.1, "velocity/w": np.zeros(2)}, "found 'velocity/w' besides"),
        ({"steps/w": 1, "mean/w": np.zeros(2), "square/w": np.zeros(2)}, "found 'lr' missing"),
        ({"lr": -1.0}, "expected a number above 0"),
    ],
)
def test_a_state_of_another_optimizer_is_refused_and_changes_nothing(state, message):
    opt = Adam(0.5)
    opt.update(parameters(), gradients(0))
    before = opt.state()
    with pytest.raises(TrainingError, match=message):
        opt.load_state(state)
    assert_same(opt.state(), before)


def test_a_state_of_another_model_is_refused_at_the_next_step():
    opt = Adam()
    opt.update({"w": np.zeros(3)}, {"w": np.ones(3)})
    params = {"first": np.zeros(2), "w": np.zeros(2)}
    with pytest.raises(ParameterError, match=r"w moment: expected .*\(2,\), found .*\(3,\)"):
        opt.update(params, {"first": np.ones(2), "w": np.ones(2)})
    assert (params["first"] == 0).all()


def test_factors_multiply_the_learning_rate_by_name_or_prefix_and_the_longest_counts():
    params = {name: np.zeros(1) for name in ("a.b.weight", "a.b.bias", "a.c", "a_1.c", "free")}
    opt = SGD(1.0, lr_factors={"a": 0.5, "a.b": 0.25, "a.b.bias": 0.0})
    opt.update(params, {name: np.ones(1) for name in params})
    moved = {name: -float(p[0]) for name, p in params.items()}
    assert moved == {"a.b.weight": 0.25, "a.b.bias": 0.0, "a.c": 0.5, "a_1.c": 1.0, "free": 1.0}
    opt.lr_factors["a"] = -1.0
    with pytest.raises(TrainingError, match=r"SGD lr_factors\['a'\]: expected a number of 0 or more"):
        opt.update(params, {"a.c": np.ones(1)})


def test_a_table_without_decay_is_visited_by_rows():
    opt = SGD(1.0, weight_decay=0.5, decay_factors={"table": 0.0})
    opt._moments = {"table.weight": [], "layer.weight": []}
    change = opt._change("table.weight", np.ones(2), np.ones(2), 1.0, {})
    assert change.by_rows
    assert "decay" not in change.rule.numbers
    assert not opt._change("layer.weight", np.ones(2), np.ones(2), 1.0, {}).by_rows


def test_an_optimizer_without_a_formula_says_so():
    with pytest.raises(NotImplementedError):
        Optimizer(0.1, weight_decay=0.0, lr_factors=None).update({"w": np.ones(1)}, {"w": np.ones(1)})


@pytest.mark.parametrize("wrong", [-1, 0, float("nan"), float("inf"), "fast", None])
def test_an_assigned_learning_rate_is_checked_as_the_constructor_checks_it(wrong):
    """A refused one changes nothing."""
    adam = Adam(lr=0.5)
    with pytest.raises(TrainingError, match="^Adam lr: expected a number above 0"):
        adam.lr = wrong
    assert adam.lr == 0.5
    adam.lr = np.float32(0.25)
    assert adam.lr == 0.25


NAMES = st.sampled_from(["p", "g", "m", "(rate * g)", "(m / rate)"])
EXPRESSIONS = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("sqrt({})".format, inner),
    ),
    max_leaves=6,
)
LINES = st.lists(st.tuples(st.sampled_from(["p", "g", "m", "work"]), EXPRESSIONS), min_size=1, max_size=4)


@settings(max_examples=30)
@given(LINES, st.sampled_from(["float32", "float64"]))
def test_lines_are_computed_as_python_would(lines, dtype):
    rule = Rule(tuple(f"{name} = {expression}" for name, expression in lines), ("m",), ("rate",))
    start = {name: np.random.default_rng(i).normal(size=(2, 3)).astype(dtype) for i, name in enumerate("pgm")}
    expected = {**{name: array.copy() for name, array in start.items()}, "rate": 0.3, "sqrt": np.sqrt}
    made = formula(rule)
    arrays = {name: array.copy() for name, array in start.items()}
    with np.errstate(all="ignore"):
        exec("\n".join(rule.lines), expected)
        made(*arrays.values(), 0.3)
    for name in ("p", "m"):
        np.testing.assert_array_equal(arrays[name], np.broadcast_to(expected[name], (2, 3)).astype(dtype))
    np.testing.assert_array_equal(arrays["g"], start["g"])


@pytest.mark.parametrize("name", MAKERS)
def test_moments_are_those_of_one_program(name):
    """Others are refused, and nothing has changed then; a state goes on with the program that it is loaded for."""
    one, other, alike = [on_host(parameters()) for _ in range(3)]
    opt, twin = MAKERS[name](), MAKERS[name]()
    for seed in range(2):
        opt.update(one, gradients(seed))
        twin.update(alike, gradients(seed))
    before, state = copied(other), opt.state()
    if opt.moments:
        found = "found (table.weight|.*) of another program; make an optimizer for each program"
        with pytest.raises(TrainingError, match=f"{type(opt).__name__}.update: expected .*, {found}"):
            opt.update(other, gradients(2))
        assert_same(other, before)
        assert_same(opt.state(), state)
    opt.load_state(opt.state())
    other.update(copied(one))
    opt.update(other, gradients(2))
    twin.update(alike, gradients(2))
    assert_same(other, alike)
    assert_same(opt.state(), twin.state())


def test_an_optimizer_may_be_pickled_after_a_step_and_takes_a_program_again_after_a_refused_first_one():
    params = on_host(parameters())
    opt = Adam(0.1)
    with pytest.raises(ParameterError, match="finite"):
        opt.update(params, {"layer.bias": np.full(4, np.nan)})
    other = on_host(parameters())
    for seed in range(2):
        opt.update(other, gradients(seed))
    pickle.loads(pickle.dumps(opt)).update(on_host(parameters()), gradients(1))


def test_a_parameter_that_no_call_has_read_may_be_skipped():
    """By one that has seen the batch; heads move otherwise, as their means do."""
    heads = {name: fb.GetItem(1) >> fb.Vector(2) >> fb.Linear(1, name=name) for name in "ab"}
    block = fb.OneOf(fb.GetItem(0), heads) >> fb.Function(fb.ops.sum) >> fb.Loss()
    found = {}
    for way in ("zero", "skip"):
        program, opt = fb.compile(block, "numpy", seed=0, fresh=True), Adam(0.1, unused=way)
        opt.update(program.params, program.value_and_grad([("a", [1, 2]), ("b", [3, 4])])[1])
        before = program.params["b.weight"].copy()
        step = program.step([("a", [1, 2])])
        assert step.gradients.unused == {"b.weight", "b.bias"}
        clipped, _ = clip_by_global_norm(scale(step.gradients, 0.5), 1e-3)
        opt.update(program.params, clipped)
        found[way] = bool((program.params["b.weight"] != before).any()), opt.state()["steps/b.weight"]
    assert found == {"zero": (True, 2), "skip": (False, 1)}
    with pytest.raises(TrainingError, match="Adam unused: expected zero or skip, found str 'none'"):
        Adam(unused="none")
