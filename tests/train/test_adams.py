"""What is peculiar to one kin of Adam: lazy rows, and Eve's feedback."""

from __future__ import annotations

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.pending import pending
from foldbatch.errors import TrainingError
from foldbatch.params import SparseRows
from foldbatch.train import Adam, AdamW, Eve, LazyAdam, Trainer
from tests.train import textbook
from tests.train.optimizing import assert_same, gradients, parameters


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


def test_adamw_shrinks_rows_without_a_gradient():
    params = {"w": np.ones((2, 1))}
    nothing = SparseRows(np.zeros(0, np.int64), np.zeros((0, 1)), (2, 1))
    AdamW(0.5, weight_decay=0.5).update(params, {"w": nothing})
    np.testing.assert_allclose(params["w"], 0.75, rtol=1e-7)


def losses():
    """Losses of 100 steps: they fall, leap, stand still, and touch their minimum."""
    rng = np.random.default_rng(3)
    falling = 5 * np.exp(-np.arange(100) / 30) * rng.uniform(0.5, 1.5, size=100)
    falling[[20, 40]] = 1e3, 1e-6
    falling[60:63] = 0.75
    return falling.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"betas": (0.5, 0.75, 0.5), "eps": 0.1},
        {"betas": (0.9, 0.99, 0.0), "limit": 2.0},
        {"betas": (0.9, 0.99, 0.9), "limit": 1e4, "minimum": -1.0},
    ],
    ids=str,
)
def test_a_hundred_steps_of_eve_are_those_of_the_paper(settings, dtype):
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(5, 3)).astype(dtype)}
    formula, optimizer = textbook.eve(params["w"].astype("float64"), **settings), Eve(**settings)
    next(formula)
    for step, loss in enumerate(losses()):
        optimizer.lr = rate = 0.1 / (1 + step / 30)
        gradient = rng.normal(size=(5, 3)).astype(dtype)
        optimizer.update(params, {"w": gradient}, loss=loss)
        right = formula.send((gradient, rate, loss))
        tolerance = 1e-6 if dtype == "float32" else 1e-10
        np.testing.assert_allclose(params["w"], right, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("before", "now", "ratio"),
    [
        (3.0, 1.0, 2.0),
        (1.0, 3.0, 2.0),
        (1.0, 1.01, 0.1),
        (1.0, 1.0, 0.1),
        (100.0, 1.0, 10.0),
        (1.0, 0.0, 10.0),
    ],
)
def test_the_feedback_is_the_clipped_ratio_of_the_losses(before, now, ratio):
    eve, params = Eve(betas=(0.9, 0.999, 0.0)), {"w": np.ones(1)}
    for loss in (before, now):
        eve.update(params, {"w": np.ones(1)}, loss=loss)
    assert eve.state()["feedback"] == pytest.approx(ratio)


def test_a_loss_that_stays_at_the_minimum_is_no_leap():
    eve, params = Eve(betas=(0.9, 0.999, 0.0), minimum=2.0), {"w": np.ones(1)}
    for _ in range(2):
        eve.update(params, {"w": np.ones(1)}, loss=2.0)
    assert eve.state()["feedback"] == 0.1


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
        (0.25, "expected 0.5 or more, found 0.25; give Eve a lower minimum"),
    ],
)
def test_a_loss_that_is_not_fit_changes_nothing(loss, message):
    eve, params = Eve(minimum=0.5), parameters()
    with pytest.raises(TrainingError, match=f"^Eve.update loss: {message}"):
        eve.update(params, gradients(0), loss=loss)
    assert_same(params, parameters())
    assert eve.state() == {"lr": 0.001}


def test_a_trainer_gives_eve_its_losses():
    w = fb.Parameter([], init=0.0, name="w")
    error = fb.Record((fb.Scalar(), fb.Scalar())) >> fb.Function(lambda x, y: (w * x - y) ** 2) >> fb.Loss()
    trainer = Trainer(fb.compile(error, "numpy"), Eve(0.1))
    trainer.step([(1, 2), (2, 2)])
    assert trainer.optimizer.state()["loss"] == 4.0  # the mean


@pytest.mark.parametrize("key", ["loss", "feedback"])
def test_a_state_without_what_eve_remembers_is_refused(key):
    eve = Eve()
    eve.update({"w": np.ones(1)}, {"w": np.ones(1)}, loss=1.0)
    before = eve.state()
    with pytest.raises(TrainingError, match=f"expected the keys lr, feedback, loss, .*found '{key}' missing"):
        eve.load_state({name: value for name, value in before.items() if name != key})
    assert_same(eve.state(), before)


def test_eve_starts_again_from_a_state_before_the_first_step():
    eve = Eve()
    fresh = eve.state()
    eve.update({"w": np.ones(1)}, {"w": np.ones(1)}, loss=1.0)
    eve.load_state(fresh)
    assert eve.state() == {"lr": 0.001}


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Eve(betas=(0.9, 0.999)), "Eve betas: expected three numbers"),
        (lambda: Eve(betas=(0.9, 0.999, 1.0)), r"Eve betas\[2\]"),
        (lambda: Eve(limit=1.0), "Eve limit: expected a number above 1"),
        (lambda: Eve(minimum=-math.inf), "Eve minimum: expected a finite number"),
        (lambda: AdamW(weight_decay=-1), "AdamW weight_decay"),
    ],
)
def test_a_setting_out_of_range_is_an_error(build, message):
    with pytest.raises(TrainingError, match=message):
        build()
