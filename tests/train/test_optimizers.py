"""Optimizers follow their formulas."""

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.pending import pending
from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.params.parameters import SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, Eve, LazyAdam, Optimizer, RMSprop, Trainer
from tests.train import textbook
from tests.train.optimizing import MAKERS, assert_same, gradients, parameters

STEPS = 100
CASES = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "weight_decay": 0.3}),
    (SGD, {"lr": 0.1, "momentum": 0.9}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (SGD, {"lr": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.3}),
    (AdaGrad, {}),
    (AdaGrad, {"lr": 0.3, "weight_decay": 0.3}),
    (AdaGrad, {"lr": 0.3, "eps": 0.1, "initial_accumulator": 0.5}),
    (RMSprop, {}),
    (RMSprop, {"lr": 0.1, "alpha": 0.5, "eps": 0.1, "weight_decay": 0.3}),
    (RMSprop, {"momentum": 0.9}),
    (RMSprop, {"alpha": 0.9, "momentum": 0.5, "weight_decay": 0.3}),
    (RMSprop, {"centered": True}),
    (RMSprop, {"alpha": 0.9, "centered": True, "momentum": 0.5, "weight_decay": 0.3}),
    (Adam, {}),
    (Adam, {"lr": 0.3, "betas": (0.5, 0.75), "eps": 0.1}),
    (Adam, {"lr": 0.3, "betas": (0.0, 0.0)}),
    (Adam, {"lr": 0.3, "weight_decay": 0.3}),
    (LazyAdam, {"lr": 0.3, "weight_decay": 0.3}),
    (AdamW, {}),
    (AdamW, {"lr": 0.1, "betas": (0.5, 0.75), "weight_decay": 0.3}),
    (AdamW, {"lr": 0.1, "weight_decay": 0.0}),
]
every_case = pytest.mark.parametrize(("kind", "settings"), CASES)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def hundred_gradients(dtype):
    rng = np.random.default_rng(0)
    return [((1 + step % 7) * (rng.normal(size=(5, 3)) + 0.2)).astype(dtype) for step in range(STEPS)]


def start(dtype):
    return np.random.default_rng(1).normal(size=(5, 3)).astype(dtype)


def rates(lr):
    return [lr * min(1, (step + 1) / 10) * (1 - step / (2 * STEPS)) for step in range(STEPS)]


def path(kind, settings, dtype):
    """Return the parameter after each step."""
    optimizer = kind(**settings)
    params, taken = {"w": start(dtype)}, []
    for gradient, rate in zip(hundred_gradients(dtype), rates(optimizer.lr), strict=True):
        optimizer.lr = rate
        optimizer.update(params, {"w": gradient})
        taken.append(params["w"].copy())
    return taken


def assert_close(ours, theirs, dtype):
    tolerance = 1e-6 if dtype == "float32" else 1e-10
    for left, right in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance * np.abs(right).max())


@each_dtype
@every_case
def test_a_hundred_steps_are_torchs(kind, settings, dtype):
    torch = pytest.importorskip("torch")
    renamed = {"AdaGrad": "Adagrad", "LazyAdam": "Adam", "initial_accumulator": "initial_accumulator_value"}
    other = torch.nn.Parameter(torch.tensor(start(dtype)))
    optimizer = getattr(torch.optim, renamed.get(kind.__name__, kind.__name__))(
        [other], **{"lr": kind().lr} | {renamed.get(key, key): value for key, value in settings.items()}
    )
    theirs = []
    for gradient, rate in zip(hundred_gradients(dtype), rates(settings.get("lr", kind().lr)), strict=True):
        optimizer.param_groups[0]["lr"] = rate
        other.grad = torch.tensor(gradient)
        optimizer.step()
        theirs.append(other.detach().numpy().copy())
    assert_close(path(kind, settings, dtype), theirs, dtype)


@each_dtype
def test_lazy_steps_on_rows_are_torchs(dtype):
    torch = pytest.importorskip("torch")
    params, other = {"w": start(dtype)}, torch.nn.Parameter(torch.tensor(start(dtype)))
    settings = {"lr": 0.3, "eps": 1e-14}  # they differ in what eps is added to
    ours, theirs, rng = (
        LazyAdam(**settings),
        torch.optim.SparseAdam([other], **settings),
        np.random.default_rng(2),
    )
    for gradient in hundred_gradients(dtype)[:12]:
        rows = np.flatnonzero(rng.random(5) < 0.5)
        pairs = torch.tensor(rows)[None], torch.tensor(gradient[rows])
        other.grad = torch.sparse_coo_tensor(*pairs, (5, 3), check_invariants=True)
        ours.update(params, {"w": SparseRows(rows, gradient[rows], (5, 3))})
        theirs.step()
        assert_close([params["w"]], [other.detach().numpy()], dtype)


def test_every_optimizer_is_tried():
    """Here, and wherever `MAKERS` are."""
    public = {
        value
        for value in vars(fb.train).values()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    assert public == {kind for kind, _ in CASES} | {Eve}  # which torch does not have
    assert public == {kind for make in MAKERS.values() for kind in type(make()).__mro__} & public
    lazy = {kind for name, make in MAKERS.items() if name.startswith("lazy") for kind in [type(make())]}
    assert lazy == {kind for kind in public if "Lazy" in kind.__name__}


def test_adam_moves_a_row_whose_gradient_has_ceased_and_lazy_adam_does_not():
    moved = []
    for optimizer in (Adam(0.5), LazyAdam(0.5)):
        params = {"w": np.zeros((2, 1))}
        optimizer.update(params, {"w": SparseRows(np.array([0]), np.ones((1, 1)), (2, 1))})
        after_one = params["w"].copy()
        optimizer.update(params, {"w": SparseRows(np.array([1]), np.ones((1, 1)), (2, 1))})
        moved.append(bool(params["w"][0] != after_one[0]))
    assert moved == [True, False]


def test_lazy_adam_decays_the_touched_rows_only():
    params = {"w": np.ones((2, 1))}
    LazyAdam(0.5, weight_decay=1.0).update(params, {"w": SparseRows(np.array([0]), np.zeros((1, 1)), (2, 1))})
    np.testing.assert_allclose(params["w"], [[0.5], [1.0]], rtol=1e-7)


# -- Eve


def losses():
    """Losses of 100 steps: they fall, leap, stand still, and come near 0."""
    rng = np.random.default_rng(3)
    falling = 5 * np.exp(-np.arange(100) / 30) * rng.uniform(0.5, 1.5, size=100)
    falling[[20, 40]] = 1e3, 1e-6
    falling[60:63] = 0.75
    return falling.tolist()


@each_dtype
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"betas": (0.5, 0.75, 0.5), "eps": 0.1},
        {"betas": (0.9, 0.99, 0.0), "thresholds": (0.5, 2.0)},
        {"betas": (0.9, 0.99, 0.9), "thresholds": (0.01, 1e3), "minimum": -1.0},
    ],
    ids=str,
)
def test_a_hundred_steps_of_eve_are_those_of_the_paper(settings, dtype):
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(5, 3)).astype(dtype)}
    formula = textbook.eve(params["w"].astype("float64"), **settings)
    optimizer = Eve(**settings)
    next(formula)
    for step, loss in enumerate(losses()):
        optimizer.lr = rate = 0.1 / (1 + step / 30)
        gradient = rng.normal(size=(5, 3)).astype(dtype)
        optimizer.update(params, {"w": gradient}, loss=loss)
        right = formula.send((gradient, rate, loss))
        tolerance = 1e-6 if dtype == "float32" else 1e-10
        np.testing.assert_allclose(params["w"], right, rtol=tolerance, atol=tolerance)


def test_two_steps_of_eve_by_hand():
    """The loss falls from 4 to 1: a quarter, within the thresholds; the feedback is 0.5 + 0.5 * 3 / 1 = 2."""
    params, eve = {"w": np.array([1.0])}, Eve(0.1, betas=(0.0, 0.0, 0.5), eps=1e-300)
    eve.update(params, {"w": np.array([7.0])}, loss=4.0)
    assert params["w"] == pytest.approx([0.9])
    eve.update(params, {"w": np.array([-3.0])}, loss=1.0)
    assert eve.state()["feedback"] == 2.0
    assert params["w"] == pytest.approx([0.95])


def test_a_loss_is_scaled_as_its_gradients_and_read_where_it_is_pending():
    states = []
    for loss, scale in ((3.0, 0.5), (pending(lambda: 3.0), 0.5), (np.float32(1.5), 1.0)):
        eve = Eve()
        eve.update({"w": np.ones(1)}, {"w": np.ones(1) / scale}, scale=scale, loss=loss)
        states.append(eve.state())
    assert states[0]["loss"] == 1.5
    assert_same(states[0], states[1])
    assert_same(states[0], states[2])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (None, "expected the loss whose gradients these are, found None; call update"),
        (math.nan, "expected a finite number, found float nan"),
        (math.inf, "expected a finite number"),
        (np.ones(2), "expected a finite number"),
        ("low", "expected a finite number, found str 'low'"),
        (0.5, "expected above 0.5, found 0.5; give Eve a lower minimum"),
    ],
)
def test_a_loss_that_is_not_fit_changes_nothing(loss, message):
    eve, params = Eve(minimum=0.5), parameters()
    with pytest.raises(TrainingError, match=f"^Eve.update loss: {message}"):
        eve.update(params, gradients(0), loss=loss)
    assert_same(params, parameters())
    assert eve.state() == {"lr": 0.001}


def test_a_refused_gradient_leaves_the_memory_of_losses():
    eve, params = Eve(), {"w": np.ones(2)}
    eve.update(params, {"w": np.ones(2)}, loss=3.0)
    before = eve.state()
    with pytest.raises(fb.errors.ParameterError, match="finite numbers"):
        eve.update(params, {"w": np.array([1.0, np.nan])}, loss=1.0)
    assert_same(eve.state(), before)


def test_a_trainer_gives_eve_its_losses():
    w = fb.Parameter([], init=0.0, name="w")
    error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (w * x - y) ** 2) >> fb.Loss()
    trainer = Trainer(fb.compile(error, "numpy"), Eve(0.1))
    trainer.step([(1, 2), (2, 2)])
    assert trainer.optimizer.state()["loss"] == 4.0  # the mean


@pytest.mark.parametrize("key", ["loss", "feedback"])
def test_a_state_without_the_memory_of_losses_is_refused(key):
    eve = Eve()
    eve.update({"w": np.ones(1)}, {"w": np.ones(1)}, loss=1.0)
    before = eve.state()
    with pytest.raises(TrainingError, match=f"expected the keys lr, loss, feedback, .*found '{key}' missing"):
        eve.load_state({name: value for name, value in before.items() if name != key})
    assert_same(eve.state(), before)


def test_eve_starts_again_from_a_state_before_the_first_step():
    eve = Eve()
    fresh = eve.state()
    eve.update({"w": np.ones(1)}, {"w": np.ones(1)}, loss=1.0)
    eve.load_state(fresh)
    assert eve.state() == {"lr": 0.001}


# -- factors by pattern


def test_patterns_of_names_keep_biases_and_norms_from_decay():
    names = ("norm.scale", "layer.weight", "layer.bias", "head.bias")
    params = {name: np.ones(1) for name in names}
    factors = {"*.bias": 0.0, "*norm*": 0, "head": 0.5}  # a prefix counts before a pattern
    optimizer = SGD(0.1, weight_decay=1.0, decay_factors=factors)
    optimizer.update(params, {name: np.zeros(1) for name in names})
    assert {name: p.round(6).item() for name, p in params.items()} == {
        "norm.scale": 1.0,
        "layer.weight": 0.9,
        "layer.bias": 1.0,
        "head.bias": 0.95,
    }


def test_a_pattern_that_fits_no_parameter_is_refused():
    with pytest.raises(UnknownNameError, match=r"found '\*.bia'"):
        SGD(0.1, decay_factors={"*.bia": 0}).update({"w.bias": np.ones(1)}, {"w.bias": np.ones(1)})
