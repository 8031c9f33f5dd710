"""The calculator on a few hundred expressions."""

import numpy as np
import pytest

import foldbatch as fb


@pytest.fixture(scope="module")
def calculator(load):
    return load("trees/calculator")


@pytest.mark.parametrize(
    ("expression", "result"),
    [(7, 7), (("+", 3, ("*", 2, 4)), 11), (("//", 7, 0), 0), (("//", ("-", 1, 2), 2), -1)],
)
def test_expressions_come_to_what_python_makes_of_them(calculator, expression, result):
    assert calculator.result(expression) == result
    assert calculator.SIGNS[calculator.sign(expression)] == ("zero", "positive", "negative")[np.sign(result)]


def test_it_learns_more_than_always_guessing_the_same(calculator):
    found = calculator.data(2300)
    training, test = found[:2000], found[2000:]
    program = fb.compile(calculator.model(16))
    calculator.train(program, training, epochs=4)
    guessed = max(np.mean([wanted == sign for _, wanted in test]) for sign in range(3))
    assert calculator.report(program, test) > guessed + 0.15
