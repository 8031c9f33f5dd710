"""Results have the shape of the block's type; metrics keep their example and node."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.engines.results import (
    Losses,
    Metrics,
    MetricValues,
    Results,
    collect_metric,
    decode,
    join,
    no_values,
    walk,
)
from foldbatch.engines.visits import InputGradients
from foldbatch.errors import UnknownNameError
from foldbatch.types import OBJECT, VOID, BroadcastType, SequenceType, TensorType, TupleType, Type

T = TensorType((2,))
ROW = TupleType((T, OBJECT))


def _walked(type_: Type, *held: Any) -> Any:
    return walk(type_, iter(held), lambda number: f"v{number}")


@pytest.mark.parametrize(
    ("element", "held", "expected"),
    [
        (T, [3, 4], ["v3", "v4"]),
        (T, [], []),
        (VOID, [(), ()], [None, None]),
        (TupleType(()), [(), ()], [(), ()]),
        (ROW, [(3, "x"), (4, (5, 6))], [("v3", "x"), ("v4", (5, 6))]),
        (TupleType((T,)), [3, 4], [("v3",), ("v4",)]),
        (TupleType((OBJECT,)), [(1, 2), "x"], [((1, 2),), ("x",)]),
        (TupleType((VOID, T)), [3], [(None, "v3")]),
        (SequenceType(T), [[3], []], [["v3"], []]),
        (TupleType((SequenceType(T), T)), [([3, 4], 5)], [(["v3", "v4"], "v5")]),
    ],
    ids=str,
)
def test_an_element_is_held_as_what_its_terminals_are(
    element: Type, held: list[Any], expected: list[Any]
) -> None:
    """One terminal stands for itself, be it a tuple of the user's; several are a tuple."""
    assert _walked(SequenceType(element), held) == expected


def test_a_broadcast_repeats_for_ever() -> None:
    """As itertools does."""
    found = _walked(BroadcastType(TupleType((T, OBJECT))), 3, "x")
    assert list(itertools.islice(found, 2)) == [("v3", "x")] * 2


def test_decode_fetches_all_values_at_once() -> None:
    """Numbers are moved by each example's offset; arrays come back in order."""
    asked: list[list[int]] = []

    def fetch(numbers: list[int]) -> list[Any]:
        asked.append(numbers)
        return [np.array(number) for number in numbers]

    type_ = TupleType((T, SequenceType(T)))
    found = decode(type_, [(1, [0, 2]), (0, [])], [10, 20], fetch)
    assert asked == [[11, 10, 12, 20]]
    assert found == [(11, [10, 12]), (20, [])]


def _part(values: list[float], calls: list[int], examples: list[int], labels: list[str] | None) -> Any:
    return np.array(values), np.array(calls), np.array(examples, np.int64), labels


def test_metrics_of_several_cells_come_in_order_of_visits() -> None:
    """Example by example; nodes count from 0 in each."""
    one = _part([1, 4], [0, 7], [0, 1], ["a", "d"])
    two = _part([3, 2, 5], [5, 2, 9], [1, 0, 1], None)
    found = collect_metric([one, two])
    assert found.values.tolist() == [1, 2, 3, 4, 5]
    assert found.examples.tolist() == [0, 0, 1, 1, 1]
    assert found.nodes.tolist() == [0, 1, 0, 1, 2]
    assert found.labels == ["a", None, None, "d", None]
    assert len(found) == 5


def test_a_metric_never_visited_has_no_values() -> None:
    """But the right shape."""
    none = no_values(T, labelled=True)
    assert none.values.shape == (0, 2)
    assert (len(none), none.labels) == (0, [])
    assert no_values(T, labelled=False).labels is None
    assert len(collect_metric([_part([], [], [], None)])) == 0


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
