"""Losses add up over the batch, metrics keep their example, their place and their label."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import UnknownNameError

ONE = fb.Scalar()


def test_labels_are_any_objects_and_stay_with_their_values():
    block = fb.Map(fb.AllOf(fb.GetItem("x") >> ONE, fb.GetItem("name")) >> fb.Metric("m"))
    results = fb.compile(block).run(
        [[{"x": 1, "name": "one"}, {"x": 2, "name": None}], [{"x": 3, "name": ["l"]}]], metrics=True
    )
    metric = results.metrics["m"]
    assert (metric.values.tolist(), metric.labels) == ([1.0, 2.0, 3.0], ["one", None, ["l"]])


def test_a_metric_that_is_never_visited_is_there_and_empty():
    program = fb.compile(fb.Map(fb.Vector(2) >> fb.Metric("m")))
    results = program.run([[], []], metrics=True)
    assert results.metrics["m"].values.shape == (0, 2)
    with pytest.raises(UnknownNameError, match="expected a metric of m, found 'n'"):
        results.metrics["n"]
