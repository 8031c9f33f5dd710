"""The picture of a model: a box for each cell, an arrow from each cell to those that read it."""

from importlib.util import find_spec
from xml.etree import ElementTree as ET

import pytest

import foldbatch as fb
from foldbatch.views.graph import draw_model, edges_of, floors_of, shapes_of
from foldbatch.views.shapes import Box, Circle, Line, Text, as_plot, as_svg
from tests.views.drawn import tree_model

SVG = "{http://www.w3.org/2000/svg}"


def chain() -> fb.Program:
    """Words, a recursion over them, and a loss of its last state."""
    words = fb.Map(fb.Scalar("int32") >> fb.Embedding(3, 2, name="words")) >> fb.RNN(fb.LSTMCell(2))
    last = words >> fb.GetItem(1) >> fb.GetItem(0)
    return fb.compile(last >> fb.Function(fb.ops.sum) >> fb.Loss("sum"), "numpy")


@pytest.mark.parametrize("program", [fb.compile(tree_model(), "numpy"), chain()], ids=["tree", "chain"])
def test_boxes_are_cells_and_arrows_what_they_read(program, tmp_path):
    text = draw_model(program, tmp_path / "model.svg")
    assert (tmp_path / "model.svg").read_text() == text
    root = ET.fromstring(text)
    signatures = program.model.signatures
    boxes = root.findall(f"{SVG}rect")[1:]
    assert [box[0].text.partition(":")[0] for box in boxes].sort() == [
        cell.name for cell in signatures
    ].sort()
    reads = {
        (a, b)
        for b, reader in enumerate(signatures)
        for a, writer in enumerate(signatures)
        if {operand.arena for operand in reader.operands} & set(writer.outputs)
    }
    assert set(edges_of(signatures)) == reads
    assert len(root.findall(f"{SVG}path")) == len(root.findall(f"{SVG}polygon")) == len(reads)
    assert any(a == b for a, b in reads)  # a recursion


def test_a_reader_stands_above_what_it_reads():
    program = chain()
    signatures = program.model.signatures
    edges = edges_of(signatures)
    floors = floors_of(len(signatures), edges, [cell.component for cell in signatures])
    assert all(floors[a] < floors[b] for a, b in edges if signatures[a].component != signatures[b].component)
    shapes, (width, height) = shapes_of(program)
    boxes = [shape for shape in shapes if isinstance(shape, Box)]
    for i, box in enumerate(boxes):
        assert 0 <= box.x and box.x + box.width <= width and 0 <= box.y and box.y + box.height <= height
        for other in boxes[:i]:
            apart = box.x >= other.x + other.width or other.x >= box.x + box.width
            assert apart or abs(box.y - other.y) >= box.height


@pytest.mark.skipif(not find_spec("matplotlib"), reason="matplotlib is not installed")
def test_a_drawing_is_the_same_size_in_pixels_and_as_svg(tmp_path):
    shapes = [
        Line(10, 10, 90, 40),
        Line(10, 10, 90, 10, arrow=True, bend=5),
        Circle(50, 20, 9, "#2f6fd0"),
        Box(5, 30, 40, 15, "#ffffff", "#000000", "a box"),
        Text(8, 41, "$x_1$ & <y>"),
    ]
    root = ET.fromstring(as_svg(shapes, (100, 50)))
    assert root.attrib["width"] == "100" and root.find(f"{SVG}text").text == "$x_1$ & <y>"
    plot = as_plot(shapes, (100, 50))
    plot.save(tmp_path / "drawing.png")
    header = (tmp_path / "drawing.png").read_bytes()[:24]
    assert (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) == (100, 50)
    with pytest.raises(ValueError, match=r"a name that ends in \.png or \.svg or \.pdf, found '.*gif'"):
        plot.save(tmp_path / "drawing.gif")
