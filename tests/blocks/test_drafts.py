"""What building collects: statements with what they are for, and what a region has read and drafted."""

from __future__ import annotations

import foldbatch as fb
from foldbatch.blocks.drafts import FeedReading, Region
from foldbatch.blocks.values import Object
from foldbatch.model.drafts import Feed
from foldbatch.types import TensorType


def functions(block: fb.Block) -> list:
    return fb.compile(block, "numpy").lowered.tracer.functions


def test_a_reading_is_a_feed_that_knows_its_object():
    reading = FeedReading(TensorType((2,)), "model", "", source := Object("x"))
    assert isinstance(reading, Feed)
    assert (reading.type, reading.where, reading.source) == (TensorType((2,)), "model", source)


def test_a_region_starts_empty_and_shares_nothing_with_others():
    first, second = Region(), Region()
    first.losses.append(("loss", None))
    assert second.losses == []
    assert not (second.values or second.feeds or second.elements or second.drafts or second.metrics)


def test_statements_tell_the_block_that_they_are_for():
    """What its object must have, and whether it calls a function of the user's, so that errors can say it."""
    (root,) = functions(fb.GetItem("x") >> fb.InputTransform(len) >> fb.Scalar())
    blames = [statement.blame for statement in root.body]
    assert [(blame.where, blame.expected, blame.calls) for blame in blames[:2]] == [
        ("model GetItem('x')", "an item 'x'", ""),
        ("model InputTransform(len)", "", "function"),
    ]
    assert blames[0].subject != blames[1].subject


def test_a_function_knows_which_it_calls_in_any_case():
    tree = fb.ForwardDeclaration(output_type="float32", name="tree")
    leaf = fb.ForwardDeclaration(output_type="float32", name="leaf")
    leaf.resolve_to(fb.Scalar())
    tree.resolve_to(fb.OneOf(lambda x: isinstance(x, list), {False: leaf(), True: fb.GetItem(0) >> tree()}))
    by_path = {function.path: function for function in functions(tree())}
    assert by_path["root"].always == [by_path["tree"].name]
    assert by_path["tree"].always == []  # it depends on the example
