"""Losses add up over the batch, metrics keep their example, their place and their label."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import UnknownNameError
from tests.knobs import knobs

ONE = fb.Scalar()
ADD = fb.Function(lambda a, b: a + b)


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


OPTIONS = [
    {},
    {"policy": "by_depth"},
    {"policy": "by_agenda", "layout": "producer"},
    {"batched": False},
    {"threads": 2},
    {"share": "subtrees"},
    {"backend": "reference"},
]


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
