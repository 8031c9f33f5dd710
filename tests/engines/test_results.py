"""Results have the shape of the block's type; metrics keep their example and node."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.results import (
    Losses,
    Metrics,
    MetricValues,
    Results,
    join,
)
from foldbatch.engines.visits import InputGradients
from foldbatch.errors import UnknownNameError


def _results(items: list[int], values: list[float], examples: list[int], labels: list[str] | None) -> Results:
    nodes = np.zeros(len(values), np.int64)
    metric = MetricValues(np.array(values), np.array(examples, np.int64), nodes, labels)
    return Results(items, Metrics({"m": metric}), Losses(float(sum(values)), {"loss": float(sum(values))}))


def test_parts_of_a_batch_are_joined() -> None:
    """Examples are numbered on; a part without labels has None for each value."""
    parts = [
        _results([1, 2], [0.5], [1], None),
        _results([3], [1.5, 2.5], [0, 0], ["x", "y"]),
        _results([4], [], [], None),
    ]
    joined = join(parts)
    assert joined == [1, 2, 3, 4]
    assert joined.loss == 4.5
    metric = joined.metrics["m"]
    assert metric.values.tolist() == [0.5, 1.5, 2.5]
    assert metric.examples.tolist() == [1, 2, 2]
    assert metric.labels == [None, "x", "y"]
    assert join([parts[0]]) is parts[0]
    assert join([parts[0], parts[2]]).metrics["m"].labels is None


def test_results_behave_as_a_list() -> None:
    """Index, slice, iterate, compare."""
    results = _results([1, 2, 3], [], [], None)
    assert (len(results), results[0], results[-1], results[1:]) == (3, 1, 3, [2, 3])
    assert list(results) == [1, 2, 3]
    assert results == _results([1, 2, 3], [1.0], [0], None)
    assert results != [1, 2]
    assert repr(results) == "[1, 2, 3]"
    with pytest.raises(TypeError, match="unhashable"):
        hash(results)


def test_an_unknown_metric_names_those_there_are() -> None:
    """As any unknown name does."""
    metrics = _results([], [], [], None).metrics
    assert list(metrics) == ["m"]
    assert len(metrics) == 1
    with pytest.raises(UnknownNameError, match="metrics: expected a metric of m, found 'n'"):
        metrics["n"]
    with pytest.raises(UnknownNameError, match="expected a metric of none"):
        Metrics({})["n"]


def test_values_of_metrics_print_in_a_line() -> None:
    """Kind and number, however many there are; a program's schedule likewise."""
    examples = np.repeat([0, 2, 3], 50)
    values = MetricValues(np.zeros((150, 5), "float32"), examples, np.arange(150), ["label"] * 150)
    assert repr(values) == "MetricValues(150 values float32[5] of 3 examples, labelled)"
    plain = MetricValues(values.values[:, 0], examples, values.nodes, None)
    assert repr(Metrics({"seen": plain})) == (
        "Metrics({'seen': MetricValues(150 values float32 of 3 examples)})"
    )
    assert repr(InputGradients({})) == "InputGradients({})"
    program = fb.compile(fb.Map(fb.Scalar()), "numpy")
    assert repr(fb.program.schedule(program, [[1, 2], [3]])) == "Batch(2 examples, 3 calls in 1 step)"
