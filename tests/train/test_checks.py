"""Checks: what a trainer is given wrongly is refused when it is made."""

import pytest

import foldbatch as fb
from foldbatch.train.checks import fitting_examples


def test_examples_to_fit_have_a_length_and_the_first_one_is_tried():
    program = fb.compile(fb.Vector(2) >> fb.Linear(1), "numpy")
    assert fitting_examples(program, "dev", iter([[1, 2], "wrong"])) == [[1, 2], "wrong"]
    with pytest.raises(fb.errors.ExampleError) as raised:
        fitting_examples(program, "dev", ["wrong"])
    assert raised.value.__notes__ == ["this is the first of fit's dev; losses and metrics need labels"]
