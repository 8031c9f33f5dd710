"""Pictures that can be read: boxes in layers, none on another, words inside them, arrows from box to box."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from foldbatch.views.drawing import KINDS, Box, draw, draw_rails

NS = {"s": "http://www.w3.org/2000/svg"}


@dataclass(frozen=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Rectangle) -> bool:
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.y + other.height
            and other.y < self.y + self.height
        )

    def holds(self, x: float, y: float) -> bool:
        return self.x <= x <= self.x + self.width and self.y <= y <= self.y + self.height


def rectangle(element: ET.Element) -> Rectangle:
    return Rectangle(*(float(element.attrib[name]) for name in ("x", "y", "width", "height")))


def pictures(text: str) -> list[ET.Element]:
    """Return the groups with a picture each; the text must be XML."""
    return ET.fromstring(text).findall("s:g[@transform]", NS)


def rectangles(picture: ET.Element) -> dict[str, Rectangle]:
    return {
        g.attrib["data-key"]: rectangle(g.find("s:rect", NS))
        for g in picture.findall("s:g[@class='fb-node']", NS)
    }


def edges(picture: ET.Element) -> list[list[float]]:
    """Return each edge's numbers: where it starts, how it bends, where its head is."""
    lines = picture.findall("s:path[@class='fb-edge']", NS)
    heads = picture.findall("s:path[@class='fb-head']", NS)
    assert len(lines) == len(heads)
    numbers = r"-?\d+(?:\.\d+)?"
    return [
        [
            float(x)
            for x in (*re.findall(numbers, line.attrib["d"])[:2], *re.findall(numbers, head.attrib["d"])[:2])
        ]
        for line, head in zip(lines, heads, strict=True)
    ]


def random_boxes(seed: int, count: int) -> list[Box]:
    """Return boxes that read some earlier ones, with words of all lengths."""
    rng = np.random.default_rng(seed)
    boxes: list[Box] = []
    for i in range(count):
        reads = tuple(f"b{j}" for j in rng.integers(0, i, rng.integers(0, 4))) if i else ()
        kind = str(rng.choice(list(KINDS)))
        boxes.append(Box(f"b{i}", "m" * int(rng.integers(1, 40)), f"float32[{i}]", kind, reads))
    return boxes


@pytest.mark.parametrize("seed", range(20))
def test_boxes_lie_below_what_they_read_and_none_on_another(seed):
    boxes = random_boxes(seed, 30)
    (picture,) = pictures(draw({"random": boxes}))
    found = rectangles(picture)
    assert set(found) == {box.key for box in boxes}
    places = list(found.values())
    assert not [(a, b) for i, a in enumerate(places) for b in places[:i] if a.overlaps(b)]
    assert all(found[x].y + found[x].height < found[box.key].y for box in boxes for x in box.reads)


@pytest.mark.parametrize("seed", range(20))
def test_arrows_go_from_the_box_that_is_read_to_the_one_that_reads(seed):
    boxes = random_boxes(seed, 30)
    (picture,) = pictures(draw({"random": boxes}))
    found = rectangles(picture)
    pairs = []
    for x, y, to_x, to_y in edges(picture):
        (start,) = [key for key, r in found.items() if r.holds(x, y)]
        (end,) = [key for key, r in found.items() if r.holds(to_x, to_y)]
        assert y == pytest.approx(found[start].y + found[start].height, abs=0.11)
        assert to_y == pytest.approx(found[end].y, abs=0.11)
        pairs.append((start, end))
    assert sorted(pairs) == sorted((x, box.key) for box in boxes for x in box.reads)


def way(line: str) -> list[tuple[float, float]]:
    """Return points along an edge: cubic curves, and lines straight down."""
    points: list[tuple[float, float]] = []
    for letter, words in re.findall(r"([MCV])([^MCV]+)", line):
        numbers = [float(x) for x in words.split()]
        if letter == "C":
            (ax, ay), (bx, by, cx, cy, dx, dy) = points[-1], numbers
            for t in np.linspace(0, 1, 25):
                a, b, c, d = (1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3
                points.append((a * ax + b * bx + c * cx + d * dx, a * ay + b * by + c * cy + d * dy))
        elif letter == "V":
            points += [(points[-1][0], float(y)) for y in np.linspace(points[-1][1], numbers[0], 25)]
        else:
            points.append((numbers[0], numbers[1]))
    return points


@pytest.mark.parametrize("seed", range(10))
def test_no_edge_runs_behind_a_box(seed):
    (picture,) = pictures(draw({"random": random_boxes(seed, 30)}))
    inner = [
        Rectangle(r.x + 1, r.y + 1, r.width - 2, r.height - 2) for r in rectangles(picture).values()
    ]  # edges touch the sides where they start and end
    for line in picture.findall("s:path[@class='fb-edge']", NS):
        assert not any(box.holds(x, y) for x, y in way(line.attrib["d"]) for box in inner)


def test_edges_that_need_not_cross_do_not():
    """Three chains side by side, given in an order that crosses."""
    boxes = [Box(f"a{i}", "a", "T", "operand") for i in range(3)]
    boxes += [Box(f"b{i}", "b", "T", "step", (f"a{i}",)) for i in (2, 0, 1)]
    boxes += [Box(f"c{i}", "c", "T", "step", (f"b{i}",)) for i in (1, 2, 0)]
    (picture,) = pictures(draw({"chains": boxes}))
    found = rectangles(picture)
    orders = [sorted(range(3), key=lambda i: found[f"{row}{i}"].x) for row in "abc"]
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize("words", ["%0 add", "a_rather_long_name_of_a_parameter.weight", "<&'\">"])
def test_words_fit_their_box(words):
    """Letters of the widest usual monospaced font, 12 px high, are 7.23 px wide."""
    (picture,) = pictures(draw({"one": [Box("k", words, words, "after")]}))
    (box,) = rectangles(picture).values()
    texts = [text.text or "" for text in picture.iter(f"{{{NS['s']}}}text")]
    assert texts == [words, words]
    assert len(words) * 7.23 + 8 <= box.width


def test_all_lies_on_the_page():
    drawn = draw({f"cell {i} with a long title" * 3: random_boxes(i, 12) for i in range(3)})
    root = ET.fromstring(drawn)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    assert root.attrib["viewBox"] == f"0 0 {root.attrib['width']} {root.attrib['height']}"
    assert len(pictures(drawn)) == 3
    bottoms = [0.0]
    for picture in pictures(drawn):
        x, y = map(float, re.findall(r"[\d.]+", picture.attrib["transform"]))
        found = rectangles(picture).values()
        assert min(r.x for r in found) >= 0
        assert x + max(r.x + r.width for r in found) <= width
        assert y > bottoms[-1], "pictures follow each other"
        bottoms.append(y + max(r.y + r.height for r in found))
    assert bottoms[-1] <= height
    titles = root.findall("s:text", NS)
    assert all(len(title.text or "") * 8.5 < width for title in titles)


def test_the_legend_explains_the_kinds_that_are_drawn():
    text = draw({"two": [Box("a", "a", "T", "operand"), Box("b", "b", "T", "before", ("a",))]})
    legend = ET.fromstring(text).find("s:g[@class='fb-legend']", NS)
    words = [entry.text for entry in legend.findall("s:text", NS)]
    assert words == [KINDS["operand"], KINDS["before"]]


def test_it_needs_nothing_else_and_follows_light_and_dark():
    text = draw({"one": [Box("a", "a", "T", "operand")]})
    assert "prefers-color-scheme:dark" in text
    assert not re.search(r"href|url\(|<script|@import", text)
    light, _, dark = text.partition("@media")
    for kind in KINDS:
        assert f".fb-{kind}" in light
    assert set(re.findall(r"\.fb-[\w-]+(?=[^}]*fill:)", dark)) >= {".fb-page", ".fb-word", ".fb-step"}


def luminance(colour: str) -> float:
    """Return a colour's relative luminance (WCAG 2.1)."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_words_stand_out_from_every_box(scheme):
    """A contrast of 4.5 or more, as WCAG 2.1 asks."""
    rules = draw({}).split("style>")[1].split("@media")[scheme]
    fills: dict[str, str] = {}
    for names, body in re.findall(r"([^{}]+)\{([^{}]*)\}", rules):
        fill = re.search(r"fill:(#\w{6})", body)
        for name in names.split(","):
            if fill:
                fills[name.strip()] = fill[1]
    assert {f".fb-{kind}" for kind in KINDS} <= set(fills)
    for word in (".fb-word", ".fb-type"):
        for kind in (*KINDS, "page"):
            light, dark = sorted((luminance(fills[word]), luminance(fills[f".fb-{kind}"])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (word, kind)


def test_nothing_can_be_drawn():
    assert pictures(draw({})) == []
    assert rectangles(pictures(draw({"empty": []}))[0]) == {}


def test_a_graph_as_deep_as_it_gets_is_drawn_without_recursion():
    boxes = [
        Box("b0", "b", "T", "operand"),
        *(Box(f"b{i}", "b", "T", "step", (f"b{i - 1}",)) for i in range(1, 2000)),
    ]
    (picture,) = pictures(draw({"chain": boxes}))
    assert len(rectangles(picture)) == 2000


def rails(*names: str) -> list[str]:
    """Draw boxes given as ``name:what,it,reads``, and return the rails without the words."""
    boxes = []
    for text in names:
        key, _, reads = text.partition(":")
        boxes.append(
            Box(key, key, "T", "step" if reads else "operand", tuple(filter(None, reads.split(","))))
        )
    return [
        line.rsplit("  ", 3 if "step" in line else 2)[0].rstrip() for line in draw_rails(boxes).split("\n")
    ]


def test_a_value_runs_down_to_its_last_reader():
    assert rails("a", "b:a", "c:a", "d:b,c") == ["○", "├─●", "● │", "●─╯"]


def test_what_a_line_crosses_it_does_not_read():
    """``c`` reads a and d; the value in the middle passes under the line."""
    assert rails("a", "b:a", "d:a", "c:a,d", "e:b,c") == ["○", "├─●", "├─│─●", "●─│─╯", "●─╯"]


def test_of_what_it_reads_some_ends_and_some_goes_on():
    assert rails("a", "b", "c", "x:a,b,c", "y:b,x", "z:c,y") == [
        "○",
        "│ ○",
        "│ │ ○",
        "●─┼─┤",
        "●─╯ │",
        "●───╯",
    ]
    assert rails("a", "b", "c", "x:a,b,c", "z:a,x")[3] == "├─●─╯"


def test_a_freed_column_is_used_again():
    assert rails("a", "b", "c:a,b", "d", "e:c,d") == ["○", "│ ○", "●─╯", "│ ○", "●─╯"]


def test_a_value_read_twice_by_one_node_is_one_rail():
    assert rails("a", "b:a,a") == ["○", "●"]


def test_sources_stand_above_their_first_reader():
    assert rails("a", "b", "c:a", "d:c,b") == ["○", "●", "│ ○", "●─╯"]


def test_each_kind_has_its_sign_and_stages_are_said():
    boxes = [
        Box("f0", "f0", "N float32", "feed"),
        Box("w", "w", "1 float32", "parameter"),
        Box("c", "2.0", "1 float32", "constant"),
        Box("%0", "%0 add", "N float32", "after", ("f0", "w", "c")),
        Box("r", "loss 0", "N float32", "result", ("%0",)),
    ]
    assert draw_rails(boxes).split("\n") == [
        "○      f0  N float32",
        "│ □    w  1 float32",
        "│ │ ·  2.0  1 float32",
        "●─┴─╯  %0 add  N float32  after",
        "◆      loss 0  N float32",
    ]


@pytest.mark.parametrize("boxes", [[], [Box("a", "a", "T", "operand")]])
def test_nothing_and_a_single_box_can_be_drawn(boxes):
    assert draw_rails(boxes) == ("○  a  T" if boxes else "")
