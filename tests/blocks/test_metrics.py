"""Losses add up over the batch, metrics keep their example, their place and their label."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.errors import UnknownNameError

ONE = fb.Scalar()


def test_losses_of_all_places_and_visits_add_up():
    block = fb.Map(ONE >> fb.AllOf(fb.Loss("a"), fb.Function(lambda x: x * x) >> fb.Loss("b")))
    program = fb.compile(block)
    assert program.run([[1, 2], [], [3]]).loss == 1 + 1 + 2 + 4 + 3 + 9
    assert program.value_and_grad([[1, 2], [], [3]]) == (20.0, {})


def test_a_loss_of_a_constant_counts_once_for_each_visit():
    program = fb.compile(fb.Map(fb.FromTensor(0.5) >> fb.Loss()))
    assert program.run([[1, 2], [], [3]]).loss == 1.5


def test_a_loss_yields_nothing():
    assert (ONE >> fb.AllOf(fb.Loss(), fb.Identity())).eval(2)[0] is None


def test_a_metric_collects_every_visit_of_the_batch_in_order():
    block = fb.Map({"x": fb.Vector(2) >> fb.Metric("m"), "y": fb.Identity()})
    results = fb.compile(block).run([[{"x": [1, 2], "y": 0}], [], [{"x": [k, 0], "y": 0} for k in (3, 4)]])
    metric = results.metrics["m"]
    assert metric.values.tolist() == [[1.0, 2.0], [3.0, 0.0], [4.0, 0.0]]
    assert metric.examples.tolist() == [0, 2, 2]
    assert metric.nodes.tolist() == [0, 0, 1]
    assert metric.labels is None


def test_labels_are_any_objects_and_stay_with_their_values():
    block = fb.Map(fb.AllOf(fb.GetItem("x") >> ONE, fb.GetItem("name")) >> fb.Metric("m"))
    results = fb.compile(block).run(
        [[{"x": 1, "name": "one"}, {"x": 2, "name": None}], [{"x": 3, "name": ["l"]}]]
    )
    metric = results.metrics["m"]
    assert (metric.values.tolist(), metric.labels) == ([1.0, 2.0, 3.0], ["one", None, ["l"]])


@pytest.mark.parametrize("options", [{}, {"batched": False}, {"backend": "reference"}])
def test_several_blocks_may_share_a_name_labelled_or_not(options):
    """Within one region the order is that of the blocks; what is nested in a region comes before it."""
    labelled = fb.AllOf(ONE, fb.Identity()) >> fb.Metric("m")
    twice = ONE >> fb.Function(lambda x: 2 * x) >> fb.Metric("m")
    block = fb.OneOf(
        lambda x: x > 2,
        {False: fb.AllOf(labelled, twice), True: fb.AllOf(twice) >> fb.AllOf(fb.GetItem(0), fb.GetItem(0))},
    )
    metric = fb.compile(block, **options).run([1, 3, 2]).metrics["m"]
    assert metric.values.tolist() == [1.0, 2.0, 6.0, 2.0, 4.0]
    assert metric.examples.tolist() == [0, 0, 1, 2, 2]
    assert metric.nodes.tolist() == [0, 1, 0, 0, 1]
    assert metric.labels == [1, None, None, 2, None]


def test_metrics_of_a_tree_come_children_first():
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    children = fb.GetItem("kids") >> fb.Map(tree()) >> fb.Function(ops.segment_sum)
    own = fb.GetItem("x") >> ONE
    keep = fb.AllOf(fb.Identity(), fb.Metric("sum")) >> fb.GetItem(0)
    tree.resolve_to(fb.AllOf(own, children) >> fb.Function(lambda a, b: a + b) >> keep)
    leaf = [{"x": k, "kids": []} for k in (1, 2, 3)]
    example = {"x": 10, "kids": [{"x": 20, "kids": leaf[:2]}, leaf[2]]}
    metric = fb.compile(tree()).run([example, leaf[0]]).metrics["sum"]
    assert metric.values.tolist() == [1.0, 2.0, 23.0, 3.0, 36.0, 1.0]
    assert metric.nodes.tolist() == [0, 1, 2, 3, 4, 0]


def test_a_metric_that_is_never_visited_is_there_and_empty():
    program = fb.compile(fb.Map(fb.Vector(2) >> fb.Metric("m")))
    results = program.run([[], []])
    assert results.metrics["m"].values.shape == (0, 2)
    with pytest.raises(UnknownNameError, match="expected a metric of m, found 'n'"):
        results.metrics["n"]


def test_metrics_of_constants_and_of_results_are_collected_too():
    block = fb.FromTensor(0.5) >> fb.AllOf(fb.Metric("constant"), fb.Metric("constant"), fb.Identity())
    results = fb.compile(block).run(["a", "b"])
    assert results.metrics["constant"].values.tolist() == [0.5] * 4


def test_metrics_and_losses_print_as_they_are_written():
    assert [repr(fb.Loss()), repr(fb.Loss("nll")), repr(fb.Metric("hits"))] == [
        "Loss('loss')",
        "Loss('nll')",
        "Metric('hits')",
    ]
