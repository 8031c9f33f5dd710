"""A sweep over learning rates: what it tries, what it suggests, and that nothing is left of it."""

import warnings
from contextlib import suppress

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError
from foldbatch.train import ClipGradients, LambdaCallback, LRFinder, Trainer
from tests.train.small import EXAMPLES, assert_same, figures, trainer

w = fb.Parameter([], init=0.0, name="w")


def quadratic(optimizer=None, **options):
    error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2) >> fb.Loss()
    return Trainer(fb.compile(error, "numpy", fresh=True), optimizer or fb.SGD(1.0), batch_size=2, **options)


NUMBERS = [1.0, 1.1, 0.9, 1.05]


@pytest.mark.parametrize("optimizer", [fb.SGD(0.3, momentum=0.9), fb.Adam(0.1), fb.train.Eve(0.1)])
@pytest.mark.parametrize("fitted", [0, 1])
def test_a_training_after_it_is_one_without_it_to_the_last_bit(optimizer, fitted):
    """With dropout, moments and a schedule."""
    state = optimizer.state()
    trainings = []
    for found in (False, True):
        rule = type(optimizer)(state["lr"])
        made = trainer(optimizer=rule)
        made.fit(EXAMPLES, EXAMPLES[:6], epochs=fitted)
        if found:
            before = (made.optimizer.state(), made.program.steps_drawn, made.steps, figures(made), made.batch)
            finder = LRFinder(made, lowest=1e-4)
            with suppress(TrainingError):  # dropout may leave no fall to see, which changes nothing either
                finder.find(EXAMPLES)
            assert len(finder.rates) > 20
            after = (made.optimizer.state(), made.program.steps_drawn, made.steps, figures(made), made.batch)
            np.testing.assert_equal(after[:-1], before[:-1])
            assert after[-1] is before[-1]
        made.fit(EXAMPLES, EXAMPLES[:6], epochs=3)
        trainings.append(made)
    assert_same(*trainings)


def test_it_tries_rates_a_factor_apart_on_the_trainers_batches():
    made = quadratic()
    finder = LRFinder(made, lowest=1e-3, highest=1e-1, steps=21)
    finder.find(NUMBERS)
    np.testing.assert_allclose(finder.rates, np.geomspace(1e-3, 1e-1, 21))
    value, batches = 0.0, [batch for epoch in range(11) for batch in made._sampler_for(NUMBERS).epoch(epoch)]
    for rate, loss, batch in zip(finder.rates, finder.losses, batches, strict=False):
        numbers = np.array([NUMBERS[place] for place in batch])
        assert loss == pytest.approx(np.mean((value - numbers) ** 2), rel=1e-4)
        value -= rate * np.mean(2 * (value - numbers))


def test_the_suggested_rate_is_where_the_loss_falls_most_and_the_sweep_ends_where_it_grows():
    finder = LRFinder(quadratic(), lowest=1e-4, highest=100, steps=100)
    found = finder.find(NUMBERS)
    assert finder.rates[-1] < 10  # SGD diverges above 1
    fall = finder.rates.index(found)
    slopes = np.diff(finder.smoothed)
    assert abs(int(np.argmin(slopes)) - fall) <= 1
    assert fall < int(np.argmin(finder.smoothed))
    history = quadratic(fb.SGD(found)).fit(NUMBERS, epochs=30)
    assert history[-1]["loss"] < 0.02


def test_gradients_are_clipped_and_other_callbacks_are_not_called():
    called = []
    watch = LambdaCallback(on_step_end=called.append, on_epoch_end=called.append)
    settings = {"lowest": 0.1, "highest": 0.2, "steps": 10}
    losses = []
    for callbacks in ([watch], [ClipGradients(0.01), watch]):
        finder = LRFinder(quadratic(callbacks=callbacks), **settings)
        finder.find(NUMBERS)
        losses.append(finder.losses)
    assert losses[0][-1] < 0.2 < losses[1][-1]
    assert not called


def test_losses_that_overflow_end_it_without_a_warning_and_leave_what_was():
    w = fb.Parameter([], init=1.0, name="w")
    block = fb.Scalar() >> fb.Function(lambda x: fb.ops.exp(w * x)) >> fb.Loss()
    made = Trainer(fb.compile(block, "numpy"), fb.SGD(0.1), batch_size=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finder = LRFinder(made, lowest=1e-3, highest=1e9, steps=40, diverged=1e30)
        finder.find([1.0, -1.0, 1.0, 2.0])
    assert len(finder.rates) < 40
    assert float(made.program.params["w"]) == 1.0


def test_an_error_on_the_way_leaves_what_was():
    made = trainer()
    before = {name: np.array(array) for name, array in made.program.params.items()}
    finder = LRFinder(made, lowest=1e-3)
    rows = [*EXAMPLES[:-1], ([1.0, 2.0, 3.0], 7)]
    with pytest.raises(fb.errors.ExampleError, match="from 0 to 1, found int 7"):
        finder.find(rows)
    for name, array in before.items():
        np.testing.assert_array_equal(made.program.params[name], array)
    assert made.program.steps_drawn == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LRFinder(fb.SGD(0.1)), "LRFinder trainer: expected a trainer, found SGD"),
        (lambda: LRFinder(trainer(), lowest=0), "LRFinder lowest: expected a number above 0, found int 0"),
        (lambda: LRFinder(trainer(), highest=1e-9), "LRFinder highest: expected a number above 1e-07"),
        (lambda: LRFinder(trainer(), steps=2), "LRFinder steps: expected a whole number of 5 or more"),
        (lambda: LRFinder(trainer(), diverged=1), "LRFinder diverged: expected a number above 1"),
        (
            lambda: LRFinder(trainer()).plot(),
            r"LRFinder plot: expected rates .*; call find\(examples\) first",
        ),
        (lambda: LRFinder(trainer()).find([]), "fit examples: expected one example or more, found none"),
        (
            lambda: LRFinder(quadratic(), lowest=20, highest=100).find(NUMBERS),
            "LRFinder: expected rates at which the loss falls, found none of .* from 20 on; begin with a lower",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, message):
    with pytest.raises(TrainingError, match=message):
        make()


def test_it_draws_what_it_found():
    pytest.importorskip("matplotlib")
    finder = LRFinder(quadratic(), lowest=1e-4, steps=30)
    found = finder.find(NUMBERS)
    (axes,) = finder.plot().figure.axes
    loss, smoothed, mark = axes.get_lines()
    np.testing.assert_allclose(loss.get_xydata(), np.column_stack([finder.rates, finder.losses]))
    np.testing.assert_allclose(smoothed.get_ydata(), finder.smoothed)
    assert mark.get_xdata()[0] == found
    assert axes.get_xscale() == "log"
    assert finder._repr_png_().startswith(b"\x89PNG")
