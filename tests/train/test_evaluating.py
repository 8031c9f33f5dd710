"""Evaluating by several ranks: the same figures, of values in the order of the examples."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.communicators import Alone, in_threads
from foldbatch.errors import TrainingError
from foldbatch.train import Accuracy, DataParallel
from foldbatch.train.evaluating import EVALUATED, evaluate, in_parts
from tests.train.small import EXAMPLES, model


class Ordered:
    """A figure that depends on the order of values."""

    name, of, every = "ordered", "out", "value"

    def compute(self, values, labels):
        return [values.tolist(), labels]


def figures(communicator, examples=EXAMPLES):
    program = DataParallel(fb.compile(model(), "numpy"), communicator)
    return evaluate(program, [Accuracy("out"), Ordered()], examples, lambda: 0, lambda: None)


@pytest.mark.parametrize("count", [20, 1])
def test_ranks_see_what_one_process_sees(count):
    alone = figures(Alone(), EXAMPLES[:count])
    for each in in_threads(lambda communicator: figures(communicator, iter(EXAMPLES[:count])), 3):
        assert each["accuracy"] == alone["accuracy"] and np.isclose(each["loss"], alone["loss"])
        np.testing.assert_allclose(each["ordered"][0], alone["ordered"][0], rtol=1e-5)
        assert each["ordered"][1] == alone["ordered"][1]


def test_no_examples_are_refused_on_all_ranks():
    def work(communicator):
        with pytest.raises(TrainingError, match="one example or more"):
            figures(communicator, [])

    in_threads(work, 2)


def test_parts_are_of_one_size():
    assert [len(part) for part in in_parts(range(2 * EVALUATED + 3))] == [EVALUATED, EVALUATED, 3]
