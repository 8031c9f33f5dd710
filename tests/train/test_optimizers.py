"""Optimizers follow their formulas."""

import numpy as np
import pytest

import foldbatch
from foldbatch.params.parameters import SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, AdamW, LazyAdam, Optimizer, RMSprop
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
    (RMSprop, {"alpha": 0.9, "momentum": 0.5, "weight_decay": 0.3}),
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
        for value in vars(foldbatch.train).values()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    assert public == {kind for kind, _ in CASES}
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
