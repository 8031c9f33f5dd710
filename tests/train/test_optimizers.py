"""Each formula against torch.optim step by step, and against steps worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from foldbatch.params import SparseRows
from foldbatch.train import SGD, AdaGrad, Adam, LazyAdam

STEPS = 12
CASES = [
    ("SGD", SGD, {"lr": 0.1}),
    ("SGD", SGD, {"lr": 0.1, "weight_decay": 0.3}),
    ("SGD", SGD, {"lr": 0.1, "momentum": 0.9}),
    ("SGD", SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", SGD, {"lr": 0.1, "momentum": 0.5, "nesterov": True, "weight_decay": 0.3}),
    ("Adagrad", AdaGrad, {}),
    ("Adagrad", AdaGrad, {"lr": 0.3, "weight_decay": 0.3}),
    ("Adagrad", AdaGrad, {"lr": 0.3, "eps": 0.1, "initial_accumulator": 0.5}),
    ("Adam", Adam, {}),
    ("Adam", Adam, {"lr": 0.3, "betas": (0.5, 0.75), "eps": 0.1}),
    ("Adam", Adam, {"lr": 0.3, "betas": (0.0, 0.0)}),
    ("Adam", Adam, {"lr": 0.3, "weight_decay": 0.3}),
    ("Adam", LazyAdam, {"lr": 0.3, "weight_decay": 0.3}),
    ("SparseAdam", LazyAdam, {"lr": 0.3, "eps": 1e-14}),  # they differ in what eps is added to
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("peer", "optimizer", "settings"), CASES)
def test_every_step_is_torchs(peer, optimizer, settings, dtype):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    start = rng.normal(size=(5, 3)).astype(dtype)
    params, other = {"w": start.copy()}, torch.nn.Parameter(torch.tensor(start))
    ours = optimizer(**settings)
    renamed = {"initial_accumulator": "initial_accumulator_value"}
    theirs = getattr(torch.optim, peer)([other], **{renamed.get(key, key): v for key, v in settings.items()})
    for _ in range(STEPS):
        rows = np.flatnonzero(rng.random(5) < 0.5)
        sparse = SparseRows(rows, rng.normal(size=(len(rows), 3)).astype(dtype), (5, 3))
        if peer == "SparseAdam":
            pairs = torch.tensor(rows)[None], torch.tensor(sparse.values)
            other.grad = torch.sparse_coo_tensor(*pairs, (5, 3), check_invariants=True)
            gradient = sparse
        else:
            gradient = sparse.dense() + rng.normal(size=(5, 3)).astype(dtype)
            other.grad = torch.tensor(gradient)
        ours.update(params, {"w": gradient})
        theirs.step()
        tolerance = 1e-6 if dtype == "float32" else 1e-12
        np.testing.assert_allclose(params["w"], other.detach().numpy(), rtol=tolerance, atol=tolerance)


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
        # mean 1, then 2.5, over 1 - 0.5, then 1 - 0.25; square 1, then 4.75, over 1 - 0.75, then 1 - 0.5625
        (Adam(0.5, betas=(0.5, 0.75)), 1 - 0.5 * 2 / 2 - 0.5 * (2.5 / 0.75) / np.sqrt(4.75 / 0.4375)),
        (Adam(0.5, betas=(0.0, 0.0), eps=2.0), 1 - 0.5 * 2 / 4 - 0.5 * 4 / 6),
    ],
)
def test_two_steps_worked_out_by_hand(optimizer, expected):
    assert stepped(optimizer, 2.0, 4.0) == pytest.approx(expected, rel=1e-7, abs=1e-7)


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


def test_lazy_adam_is_adam_when_every_row_is_touched():
    rng = np.random.default_rng(0)
    lazy, full = {"w": np.ones((4, 2))}, {"w": np.ones((4, 2))}
    optimizers = LazyAdam(0.5), Adam(0.5)
    for _ in range(3):
        values = rng.normal(size=(4, 2))
        optimizers[0].update(lazy, {"w": SparseRows(np.arange(4), values, (4, 2))})
        optimizers[1].update(full, {"w": values})
    np.testing.assert_array_equal(lazy["w"], full["w"])
