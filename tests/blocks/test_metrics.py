"""Losses add up over the batch, metrics keep their example, their place and their label."""

from __future__ import annotations

import math

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.errors import BlockValueError, UnknownNameError
from tests.knobs import knobs

ONE = fb.Scalar()
ADD = fb.Function(lambda a, b: a + b)


def test_a_loss_of_a_constant_counts_once_for_each_visit():
    program = fb.compile(fb.Map(fb.FromTensor(0.5) >> fb.Loss()))
    assert program.run([[1, 2], [], [3]], losses=True).loss == 1.5


def test_a_loss_is_weighed_with_its_gradient():
    w = fb.Parameter([], init=2.0, name="w")
    both = fb.AllOf(fb.Loss("a", weight=0.5), fb.Loss("b"), fb.Loss("c", 0))
    program = fb.compile(ONE >> fb.Function(lambda x: w * x) >> both)
    losses = program.run([1, 3], losses=True).losses
    assert {name: float(loss) for name, loss in losses.items()} == {"a": 4.0, "b": 8.0, "c": 0.0}
    loss, gradients = program.value_and_grad([1, 3])
    assert (float(loss), float(gradients["w"])) == (12.0, 6.0)


def test_the_weight_of_a_loss_is_a_finite_number():
    assert repr(fb.Loss("a", 2)) == "Loss('a', 2)"
    for weight in (math.nan, math.inf, "much", None, True):
        with pytest.raises(BlockValueError, match="^Loss weight: expected a finite number, found "):
            fb.Loss(weight=weight)


def test_a_metric_collects_every_visit_of_the_batch_in_order():
    block = fb.Map({"x": fb.Vector(2) >> fb.Metric("m"), "y": fb.Identity()})
    results = fb.compile(block).run(
        [[{"x": [1, 2], "y": 0}], [], [{"x": [k, 0], "y": 0} for k in (3, 4)]], metrics=True
    )
    metric = results.metrics["m"]
    assert metric.values.tolist() == [[1.0, 2.0], [3.0, 0.0], [4.0, 0.0]]
    assert metric.examples.tolist() == [0, 2, 2]
    assert metric.nodes.tolist() == [0, 0, 1]
    assert metric.labels is None


def test_labels_are_any_objects_and_stay_with_their_values():
    block = fb.Map(fb.AllOf(fb.GetItem("x") >> ONE, fb.GetItem("name")) >> fb.Metric("m"))
    results = fb.compile(block).run(
        [[{"x": 1, "name": "one"}, {"x": 2, "name": None}], [{"x": 3, "name": ["l"]}]], metrics=True
    )
    metric = results.metrics["m"]
    assert (metric.values.tolist(), metric.labels) == ([1.0, 2.0, 3.0], ["one", None, ["l"]])


@pytest.mark.parametrize("options", [{}, {"batched": False}, {"backend": "reference"}])
def test_several_blocks_may_share_a_name_labelled_or_not(options):
    """Within an example the order is that of the blocks."""
    labelled = fb.AllOf(ONE, fb.Identity()) >> fb.Metric("m")
    twice = ONE >> fb.Function(lambda x: 2 * x) >> fb.Metric("m")
    block = fb.OneOf(
        lambda x: x > 2,
        {False: fb.AllOf(labelled, twice), True: fb.AllOf(twice) >> fb.AllOf(fb.GetItem(0), fb.GetItem(0))},
    )
    metric = fb.compile(block, **knobs(options)).run([1, 3, 2], metrics=True).metrics["m"]
    assert metric.values.tolist() == [1.0, 2.0, 6.0, 2.0, 4.0]
    assert metric.examples.tolist() == [0, 0, 1, 2, 2]
    assert metric.nodes.tolist() == [0, 1, 0, 0, 1]
    assert metric.labels == [1, None, None, 2, None]


KEPT = fb.AllOf(fb.Identity(), fb.Metric("m")) >> fb.GetItem(0)
NESTED = fb.GetItem(1) >> fb.Map(ONE >> fb.Metric("m"))
OPTIONS = [
    {},
    {"policy": "by_depth"},
    {"policy": "by_agenda", "layout": "producer"},
    {"batched": False},
    {"threads": 2},
    {"share": "subtrees"},
    {"backend": "reference"},
]


@pytest.mark.parametrize(
    ("block", "right"),
    [
        (fb.AllOf(fb.GetItem(0) >> ONE >> fb.Metric("m"), NESTED), [1, 2, 3]),
        (fb.AllOf(NESTED, fb.GetItem(0) >> ONE >> fb.Metric("m")), [2, 3, 1]),
        (fb.AllOf(fb.FromTensor(np.float32(9)) >> fb.Metric("m"), NESTED), [9, 2, 3]),
        (fb.AllOf(fb.GetItem(0) >> ONE >> KEPT, NESTED, fb.GetItem(0) >> ONE >> KEPT), [1, 2, 3, 1]),
        (  # two before and two behind a choice, of which the last is computed last
            fb.AllOf(
                fb.GetItem(0) >> ONE >> KEPT >> fb.Function(lambda x: x + 4) >> KEPT,
                fb.OneOf(len, {2: NESTED, 3: NESTED}),
                fb.GetItem(0) >> ONE >> fb.Function(lambda x: x + 5) >> fb.Metric("m"),
                fb.GetItem(1) >> fb.Map(ONE) >> fb.Sum() >> fb.Metric("m"),
            ),
            [1, 5, 2, 3, 6, 5],
        ),
        (  # an element's own, then what is nested in it, one after the other
            fb.GetItem(1)
            >> fb.Map(
                fb.AllOf(ONE >> KEPT, fb.InputTransform(range) >> fb.Map(ONE >> fb.Metric("m")), ONE >> KEPT)
            ),
            [2, 0, 1, 2, 3, 0, 1, 2, 3],
        ),
        (
            fb.AllOf(
                fb.GetItem(0) >> ONE >> KEPT,
                fb.GetItem(1) >> fb.Optional(fb.Map(ONE) >> fb.Fold(ADD >> KEPT, fb.Zeros([])) >> KEPT),
            ),
            [1, 2, 5, 5],
        ),
        (fb.GetItem(1) >> fb.Map(ONE >> KEPT) >> fb.Reduce(ADD >> KEPT) >> KEPT, [2, 3, 5, 5]),
    ],
)
def test_a_metrics_values_are_in_the_order_of_visits(block, right):
    """However many cells collect under one name, and whenever these are called."""
    for options in OPTIONS:
        program = fb.compile(block, **knobs(options))
        metric = program.run([[1, [2, 3]]] * 3, metrics=True).metrics["m"]
        assert metric.values.tolist() == right * 3
        assert metric.examples.tolist() == [0] * len(right) + [1] * len(right) + [2] * len(right)
        assert metric.nodes.tolist() == list(range(len(right))) * 3
        assert program.run(program.prepare([[1, [2, 3]]]), metrics=True).metrics["m"].values.tolist() == right
        assert [float(x) for x in block.eval([1, [2, 3]])[1]["m"]] == right


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_metric_before_the_children_has_parents_first_with_their_labels(options):
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    own = fb.AllOf(fb.GetItem("x") >> ONE, fb.GetItem("x")) >> fb.AllOf(fb.Metric("m"), fb.GetItem(0))
    kids = fb.GetItem("kids") >> fb.Map(tree()) >> fb.Sum()
    tree.resolve_to(fb.AllOf(own >> fb.GetItem(1), kids) >> ADD)
    leaf = [{"x": k, "kids": []} for k in (1, 2, 3)]
    example = {"x": 10, "kids": [{"x": 20, "kids": leaf[:2]}, leaf[2]]}
    metric = fb.compile(tree(), **knobs(options)).run([example, leaf[0], example], metrics=True).metrics["m"]
    assert metric.values.tolist() == [10, 20, 1, 2, 3, 1, 10, 20, 1, 2, 3]
    assert metric.labels == metric.values.tolist()


def test_a_metric_that_is_never_visited_is_there_and_empty():
    program = fb.compile(fb.Map(fb.Vector(2) >> fb.Metric("m")))
    results = program.run([[], []], metrics=True)
    assert results.metrics["m"].values.shape == (0, 2)
    with pytest.raises(UnknownNameError, match="expected a metric of m, found 'n'"):
        results.metrics["n"]
