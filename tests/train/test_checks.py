"""Checks: what a trainer is given wrongly is refused when it is made."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.train import Accuracy, Callback, Sampler, Trainer
from foldbatch.train.checks import fitting_examples
from tests.train import small

PROGRAM = fb.compile(small.model(), "numpy")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"program": fb.Vector(2)}, TrainingError, "program: expected a program, found .*; fb.compile"),
        ({"optimizer": "adam"}, TrainingError, "optimizer: expected an optimizer, found str 'adam'"),
        ({"batch_size": 0}, TrainingError, "batch_size: expected a whole number of 1 or more, found int 0"),
        ({"batch_size": 2.5}, TrainingError, "batch_size: expected a whole number"),
        ({"ahead": -1}, TrainingError, "ahead: expected a whole number of 0 or more"),
        ({"sampler": [[0, 1]]}, TrainingError, "sampler: expected a sampler"),
        ({"sampler": Sampler([1], 1), "batch_size": 3}, TrainingError, "found batch_size=3 as well"),
        ({"callbacks": [Callback]}, TrainingError, r"callbacks\[0\]: expected a callback"),
        ({"callbacks": [Callback(), print]}, TrainingError, r"callbacks\[1\]: expected a callback"),
        (
            {"metrics": [Accuracy("root")]},
            UnknownNameError,
            r"metrics\[0\] of: expected .* of out, found 'root'",
        ),
        ({"metrics": ["out"]}, TrainingError, r"metrics\[0\]: expected a metric, found str 'out'"),
        ({"metrics": [Accuracy("out")] * 2}, TrainingError, "found a second 'accuracy'"),
    ],
)
def test_arguments_are_looked_at_first(options, error, message):
    options = {"program": PROGRAM, "optimizer": fb.SGD(0.1), **options}
    with pytest.raises(error, match=message):
        Trainer(options.pop("program"), options.pop("optimizer"), **options)


def small_trainer(**options):
    w = fb.Parameter([], init=0.0, name="w")
    error = fb.Scalar() >> fb.Function(lambda x: (w - x) ** 2) >> fb.Loss()
    return fb.train.Trainer(fb.compile(error, "numpy"), fb.SGD(0.1), **options)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: small_trainer(callbacks=fb.train.NaNGuard()),
        lambda: small_trainer(metrics=fb.train.Accuracy("root")),
        lambda: small_trainer(metrics="root"),
        lambda: small_trainer().step(3),
        lambda: small_trainer().fit([1.0], epochs=1, resume=3),
        lambda: fb.train.Checkpoints("runs", every="often"),
        lambda: fb.train.Checkpoints("runs", every=1.5),
        lambda: fb.train.Checkpoints("runs", seconds=float("nan")),
        lambda: fb.train.Checkpoints("runs", monitor=3),
        lambda: fb.train.ClipGradients("5"),
        lambda: fb.train.TimeLimit(None),
        lambda: fb.train.AverageWeights("0.9"),
        lambda: fb.train.AverageWeights(start=1.5),
        lambda: fb.train.JSONLinesLog("figures.jsonl", every="epoch"),
        lambda: fb.train.Schedule(0.5),
        lambda: fb.train.Schedule(fb.train.schedules.constant(), lr="0.1"),
        lambda: fb.train.LambdaCallback(on_epoch_end=3),
        lambda: fb.train.schedules.one_cycle("100"),
        lambda: fb.train.schedules.exponential("0.5"),
        lambda: fb.Adam(lr_factors=["words"]),
        lambda: fb.Adam().load_state(None),
        lambda: fb.Adam().load_state({"lr": "fast"}),
    ],
)
def test_settings_of_the_wrong_type_are_errors_of_ours(wrong):
    with pytest.raises(fb.errors.FoldbatchError, match="expected .*, found "):
        wrong()


def test_examples_to_fit_have_a_length_and_the_first_one_is_tried():
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    assert fitting_examples(program, "dev", iter([[1, 2], "wrong"])) == [[1, 2], "wrong"]
    with pytest.raises(fb.errors.ExampleError) as raised:
        fitting_examples(program, "dev", ["wrong"])
    assert raised.value.__notes__ == ["this is the first of fit's dev; losses and metrics need labels"]
