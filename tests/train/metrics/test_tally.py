"""Tally: the figures of several batches are those of all their values."""

from __future__ import annotations

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import UnknownNameError
from foldbatch.train.metrics import Accuracy, MeanSquaredError, Tally


def program() -> fb.Program:
    """Return the sum over a nested list (number, label, children), collected at every node."""
    tree = fb.ForwardDeclaration(output_type="float32")
    children = fb.GetItem(2) >> fb.Map(tree()) >> fb.Sum()
    total = fb.AllOf(fb.GetItem(0) >> fb.Scalar(), children) >> fb.Function(lambda a, b: a + b)
    seen = fb.AllOf(fb.GetItem(0), fb.Metric("sum")) >> fb.GetItem(0)
    tree.resolve_to(fb.AllOf(total, fb.GetItem(1)) >> seen)
    return fb.compile(tree() >> fb.AllOf(fb.Identity(), fb.Loss()) >> fb.GetItem(0))


EXAMPLES = [(1, 7, [(2, None, []), (3, 5, [])]), (4, 4, []), (5, None, [(1, 3, [])])]
SUMS = {"node": [3, 6, 4, 1], "label": [5, 7, 4, 3]}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_figures_are_those_of_all_batches(size):
    metrics = [MeanSquaredError("sum"), MeanSquaredError("sum", "root_mse", every="example")]
    made, tally = program(), Tally(metrics)
    for first in range(0, 3, size):
        part = EXAMPLES[first : first + size]
        tally.add(made.run(part, losses=True, metrics=True), len(part))
    figures = tally.figures()
    difference = np.subtract(SUMS["node"], SUMS["label"])
    assert figures["loss"] == 16 / 3
    assert figures["mse"] == np.mean(difference**2)
    assert figures["root_mse"] == 0.5  # of 6 for 7 and 4 for 4; the root of the third has no label


def test_nothing_has_no_figures():
    figures = Tally([Accuracy("sum")]).figures()
    assert figures["loss"] == 0
    assert math.isnan(figures["accuracy"])


def test_a_block_that_is_not_there_is_named():
    results = program().run(EXAMPLES, losses=True, metrics=True)
    with pytest.raises(UnknownNameError, match="expected a metric of sum, found 'root'"):
        Tally([Accuracy("root")]).add(results, 3)
