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
)
from foldbatch.engines.visits import InputGradients


def _results(items: list[int], values: list[float], examples: list[int], labels: list[str] | None) -> Results:
    nodes = np.zeros(len(values), np.int64)
    metric = MetricValues(np.array(values), np.array(examples, np.int64), nodes, labels)
    return Results(items, Metrics({"m": metric}), Losses(float(sum(values)), {"loss": float(sum(values))}))


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
