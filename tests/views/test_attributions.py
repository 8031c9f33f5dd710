"""Attributions drawn: a node's amount on its tree, a bar for a datum of anything else."""

from xml.etree import ElementTree as ET

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.views.attributions import colour, draw_attribution, shapes_of
from foldbatch.views.shapes import Box, Text

SVG = "{http://www.w3.org/2000/svg}"


def lengths(node):
    if node.is_leaf:
        return fb.tensor(float(len(node.token)))
    return lengths(node[0]) - lengths(node[1])


def test_a_tree_has_each_amount_at_its_node(tmp_path):
    tree = fb.trees.parse_brackets("(1 (1 (1 ab) (1 abcd)) (1 abc))", labels=int)
    attribution = fb.compile(lengths, "numpy").attribute(tree)
    text = draw_attribution(attribution, tmp_path / "tree.svg")
    assert (tmp_path / "tree.svg").read_text() == text
    root = ET.fromstring(text)
    words = [node.text for node in root.findall(f"{SVG}text")]
    assert words == ["number -5, with zeros for all data 0", "+2", "ab", "-4", "abcd", "-3", "abc"]
    fills = [box.attrib["fill"] for box in root.findall(f"{SVG}rect")[1:]]
    assert fills == [colour(0.5), colour(-1.0), colour(-0.75)]


def test_what_is_no_tree_is_rows_with_bars():
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy")
    shapes, (width, height) = shapes_of(program.attribute([4.0, -2.0]))
    bars = [shape for shape in shapes if isinstance(shape, Box)]
    assert [bar.width for bar in bars] == [60.0, 30.0] and bars[1].x + 30 == bars[0].x
    words = [shape.words for shape in shapes if isinstance(shape, Text)]
    assert words[1:] == ["[0]", "float 4.0", "+4", "[1]", "float -2.0", "-2"]
    assert all(bar.x + bar.width < width and bar.y + bar.height < height for bar in bars)


def test_a_number_of_no_data_is_drawn():
    program = fb.compile(fb.Map(fb.Scalar()) >> fb.Sum(), "numpy")
    assert "number 0" in draw_attribution(program.attribute([]))


def test_a_large_tree_is_refused():
    chain = fb.trees.Tree([*range(1, 202), -1], [0] * 202, ["a"] + [None] * 201)

    def first(node):
        return fb.tensor(1.0 * len(node.token)) if node.is_leaf else first(node[0])

    with pytest.raises(
        ExampleError, match="draw_attribution: expected a tree of 200 nodes or fewer, found 202"
    ):
        draw_attribution(fb.compile(first, "numpy").attribute(chain))
