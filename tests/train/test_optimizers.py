"""Each formula against torch.optim and plain NumPy step by step, and against steps worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch
from foldbatch.params import SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, Eve, LazyAdam, Optimizer, RMSprop
from tests.train import textbook
from tests.train.optimizing import MAKERS

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
BY_THE_BOOK = {
    SGD: textbook.sgd,
    AdaGrad: textbook.adagrad,
    RMSprop: textbook.rmsprop,
    Adam: textbook.adam,
    LazyAdam: textbook.adam,
    AdamW: textbook.adamw,
}
every_case = pytest.mark.parametrize(("kind", "settings"), CASES)
each_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def gradients(dtype):
    """Gradients of 100 steps, which grow and shrink and lean to one side."""
    rng = np.random.default_rng(0)
    return [((1 + step % 7) * (rng.normal(size=(5, 3)) + 0.2)).astype(dtype) for step in range(STEPS)]


def start(dtype):
    return np.random.default_rng(1).normal(size=(5, 3)).astype(dtype)


def rates(lr):
    """A learning rate that rises, then falls."""
    return [lr * min(1, (step + 1) / 10) * (1 - step / (2 * STEPS)) for step in range(STEPS)]


def path(kind, settings, dtype):
    """Return the parameter after each step."""
    optimizer = kind(**settings)
    params, taken = {"w": start(dtype)}, []
    for gradient, rate in zip(gradients(dtype), rates(optimizer.lr), strict=True):
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
def test_a_hundred_steps_are_those_of_the_formula(kind, settings, dtype):
    settings = {"lr": kind().lr, **settings}
    formula = BY_THE_BOOK[kind](
        start("float64"), **{name: value for name, value in settings.items() if name != "lr"}
    )
    next(formula)
    steps = zip(gradients(dtype), rates(settings["lr"]), strict=True)
    assert_close(path(kind, settings, dtype), [formula.send(step) for step in steps], dtype)


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
    for gradient, rate in zip(gradients(dtype), rates(settings.get("lr", kind().lr)), strict=True):
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
    for gradient in gradients(dtype)[:12]:
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
        for value in vars(foldbatch).values()
        if isinstance(value, type) and issubclass(value, Optimizer)
    }
    assert public == {*BY_THE_BOOK, Eve}
    assert public == {kind for make in MAKERS.values() for kind in type(make()).__mro__} & public
    lazy = {kind for name, make in MAKERS.items() if name.startswith("lazy") for kind in [type(make())]}
    assert lazy == {kind for kind in public if "Lazy" in kind.__name__}


def stepped(optimizer, *gradients, start=1.0):
    params = {"w": np.array([start])}
    for gradient in gradients:
        optimizer.update(params, {"w": np.array([gradient])})
    return float(params["w"][0])


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (SGD(0.5), 1 - 0.5 * 2 - 0.5 * 4),
        (SGD(0.5, weight_decay=0.5), -0.25 - 0.5 * (4 - 0.125)),  # first: 1 - 0.5 (2 + 0.5) = -0.25
        (SGD(0.5, momentum=0.5), 1 - 0.5 * 2 - 0.5 * (0.5 * 2 + 4)),
        (SGD(0.5, momentum=0.5, nesterov=True), 1 - 0.5 * (2 + 0.5 * 2) - 0.5 * (4 + 0.5 * 5)),
        (AdaGrad(0.5), 1 - 0.5 * 2 / 2 - 0.5 * 4 / np.sqrt(4 + 16)),
        (
            AdaGrad(0.5, eps=1.0, initial_accumulator=12.0),
            1 - 0.5 * 2 / (4 + 1) - 0.5 * 4 / (np.sqrt(32) + 1),
        ),
        (RMSprop(0.5, alpha=0.5), 1 - 0.5 * 2 / np.sqrt(2) - 0.5 * 4 / np.sqrt(1 + 8)),
        (
            RMSprop(0.5, alpha=0.5, eps=1.0, momentum=0.5),
            1 - 0.5 * (q := 2 / (np.sqrt(2) + 1)) - 0.5 * (q / 2 + 1),
        ),
        # squares 2, then 9; means 1, then 2.5
        (RMSprop(0.5, alpha=0.5, centered=True), 1 - 0.5 * 2 - 0.5 * 4 / np.sqrt(9 - 6.25)),
        (AdamW(0.5, betas=(0.0, 0.0), weight_decay=0.5), (1 * 0.75 - 0.5) * 0.75 - 0.5),
        # mean 1, then 2.5, over 1 - 0.5, then 1 - 0.25; square 1, then 4.75, over 1 - 0.75, then 1 - 0.5625
        (Adam(0.5, betas=(0.5, 0.75)), 1 - 0.5 * 2 / 2 - 0.5 * (2.5 / 0.75) / np.sqrt(4.75 / 0.4375)),
        (Adam(0.5, betas=(0.0, 0.0), eps=2.0), 1 - 0.5 * 2 / 4 - 0.5 * 4 / 6),
    ],
)
def test_two_steps_worked_out_by_hand(optimizer, expected):
    assert stepped(optimizer, 2.0, 4.0) == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_steady_gradient_has_no_variance_and_no_nan(momentum):
    """The square of the mean, subtracted from the mean of squares, may fall below 0 by rounding."""
    params = {"w": np.zeros(50, "float32")}
    steady = np.random.default_rng(0).normal(size=50).astype("float32")
    optimizer = RMSprop(1e-6, alpha=0.9, centered=True, momentum=momentum)
    for _ in range(400):
        optimizer.update(params, {"w": steady})
    assert np.isfinite(params["w"]).all()
    assert (np.sign(params["w"]) == -np.sign(steady)).all()
