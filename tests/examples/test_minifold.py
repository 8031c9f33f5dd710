"""The didactic version computes what the package computes."""

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import foldbatch as fb

WIDTH = 6


@pytest.fixture
def minifold(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("minifold")


def package_program(minifold: ModuleType, parameters: dict[str, Any]) -> fb.program.Program:
    """Write the same model with foldbatch, with parameters of the same names and values."""
    ops = fb.ops
    table = {
        name: fb.Parameter(list(array.shape), init=array, name=name) for name, array in parameters.items()
    }

    @fb.cell
    def leaf(digit):
        return ops.tanh(ops.gather(table["digits"], digit))

    @fb.cell
    def node(left, right, operation):
        sides = ops.concat([left, right]) @ table["sides"]
        return ops.tanh(sides + ops.gather(table["operations"], operation))

    @fb.cell
    def score(state, label):
        fb.loss(ops.cross_entropy(state @ table["classes"] + table["bias"], label))

    def visit(part):
        if isinstance(part, int):
            return leaf(part)
        operation, left, right = part
        return node(visit(left), visit(right), minifold.OPERATIONS.index(operation))

    def walk(expression):
        score(visit(expression), int(minifold.value_of(expression) > 0))

    return fb.compile(walk, "numpy")


def test_loss_and_gradients_are_those_of_the_package(minifold):
    generator = random.Random(1)
    parameters = minifold.random_parameters(WIDTH)
    program = package_program(minifold, parameters)
    batches = [[minifold.random_expression(generator, depth=5) for _ in range(n)] for n in (1, 2, 17)]
    program.warm(batches[-1])  # a plain function's parameters are known once its cells have been called
    for batch in [*batches, [3], [("-", 1, 1)] * 2]:
        loss, gradients, _ = minifold.loss_and_gradients(batch, parameters)
        expected, by_package = program.value_and_grad(batch)
        assert loss == pytest.approx(expected, rel=1e-5)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, np.asarray(by_package[name]), rtol=1e-3, atol=1e-5)


def test_a_batch_is_a_kernel_a_level_and_equals_its_examples_one_by_one(minifold):
    parameters = minifold.random_parameters(WIDTH)
    batch = [3, ("+", 1, 2), ("-", ("+", 1, 2), 9), ("-", 4, ("+", 3, ("+", 3, 3)))]
    loss, gradients, kernels = minifold.loss_and_gradients(batch, parameters)
    assert kernels == 1 + 3 + 1  # leaves, three levels of nodes, losses
    single = [minifold.loss_and_gradients([expression], parameters) for expression in batch]
    assert loss == pytest.approx(sum(result[0] for result in single))
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, sum(result[1][name] for result in single), atol=1e-12)


def test_it_learns(minifold, capsys):
    assert minifold.main(batches=120) < 0.6
    assert "one by one" in capsys.readouterr().out
