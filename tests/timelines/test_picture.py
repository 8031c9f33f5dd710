"""The picture of a timeline."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from foldbatch.timelines.picture import _LEFT, _WIDE, MOST, svg
from foldbatch.timelines.spans import Span

BOX = "{http://www.w3.org/2000/svg}rect"


def test_a_box_stands_where_and_as_long_as_its_span():
    spans = [Span("host", "a < b", 2, 1, {"level": 1}), Span("compute", "c", 3, 3)]
    root = ET.fromstring(svg(spans, "of the host"))
    boxes = [box for box in root.iter(BOX) if len(box)]
    assert [float(box.get("x")) for box in boxes] == pytest.approx([_LEFT, _LEFT + _WIDE / 4])
    assert [float(box.get("width")) for box in boxes] == pytest.approx([_WIDE / 4, _WIDE * 3 / 4])
    assert boxes[0].get("y") != boxes[1].get("y")
    assert boxes[0][0].text == "a < b: 1000 ms, level 1"
    assert "of the host" in [text.text for text in root.iter() if text.tag.endswith("text")]


def test_names_may_have_any_sign():
    names = ["é", "\x0b", "\ud800", "\uffff", "a\nb", "<&\"'>"]
    root = ET.fromstring(svg([Span("host", name, 0, 1) for name in names], "").encode())
    titles = [box[0].text.partition(":")[0] for box in root.iter(BOX) if len(box)]
    assert titles == ["é", "\\x0b", "\\ud800", "\\uffff", "a\\nb", "<&\"'>"]


def test_many_names_and_none_are_drawn():
    spans = [Span("host", f"name {number}", number, 1) for number in range(2 * MOST)]
    root = ET.fromstring(svg(spans, ""))
    boxes = [box for box in root.iter(BOX) if len(box)]
    assert len({box.get("fill") for box in boxes}) == MOST + 1
    assert len(list(ET.fromstring(svg([], "")).iter(BOX))) == 1
