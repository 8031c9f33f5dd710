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


def test_examples_to_fit_have_a_length_and_the_first_one_is_tried():
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    assert fitting_examples(program, "dev", iter([[1, 2], "wrong"])) == [[1, 2], "wrong"]
    with pytest.raises(fb.errors.ExampleError) as raised:
        fitting_examples(program, "dev", ["wrong"])
    assert raised.value.__notes__ == ["this is the first of fit's dev; losses and metrics need labels"]
