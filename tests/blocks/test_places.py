"""The part of an example that a call is for, found by tracing the example again up to that call."""

from __future__ import annotations

from typing import Any

import pytest

import foldbatch as fb
from foldbatch import ops
from foldbatch.blocks.places import place_of


def _places(block: Any, example: Any) -> dict[str, list[str]]:
    """Return, by cell, the places of its calls for an example."""
    lowered = fb.compile(block, "numpy").lowered
    trace = lowered.tracer.trace(example)
    return {
        cell.name: [place_of(lowered.tracer, example, k, i) for i in range(len(trace.calls[k]))]
        for k, cell in enumerate(lowered.model.cells)
    }


def test_calls_of_a_recursion_are_for_its_parts() -> None:
    """A call that reads a datum is for the datum; one that reads results only, for the node."""
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    leaf = fb.GetItem("v") >> fb.Scalar()
    pair = fb.Record({"l": tree(), "r": tree()}) >> fb.Function(ops.multiply)
    tree.resolve_to(fb.OneOf(lambda node: "v" in node, {True: leaf, False: pair}))
    example = {"l": {"v": 1}, "r": {"l": {"v": 2}, "r": {"v": 3}}}
    assert _places(tree(), example) == {
        "tree.case(True)": ["['l']['v']", "['r']['l']['v']", "['r']['r']['v']"],
        "tree.case(False).multiply": ["['r']", ""],
    }


def test_calls_that_read_several_data_are_for_what_holds_them() -> None:
    """Items of a sequence are counted."""
    item = fb.Record({"a": fb.Scalar(), "b": fb.Scalar()}) >> fb.Function(ops.multiply)
    places = _places(fb.GetItem("items") >> fb.Map(item), {"items": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]})
    assert list(places.values()) == [["['items'][0]", "['items'][1]"]]


@pytest.mark.parametrize(
    "block", [fb.Map(fb.Scalar()), fb.Map(fb.Scalar() >> fb.Dropout(0.5) >> fb.Metric("m"))]
)
def test_an_example_that_can_be_read_only_once_has_no_places(block: Any) -> None:
    """The numbers of calls and marks of metrics are no data."""
    lowered = fb.compile(block, "numpy").lowered
    assert place_of(lowered.tracer, [1, 2], 0, 1) == "[1]"
    assert place_of(lowered.tracer, iter([]), 0, 1) == ""
    assert place_of(lowered.tracer, [1], 0, 1) == ""
    assert len(lowered.tracer.trace([1, 2]).calls[0]) == 2
