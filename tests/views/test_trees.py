"""Trees with wrong answers: which are drawn, and what is marked."""

from xml.etree import ElementTree as ET

import pytest

import foldbatch as fb
from foldbatch.errors import ExampleError
from foldbatch.views.shapes import Box, Line
from foldbatch.views.trees import RIGHT, WRONG, draw_errors, shapes_of

SVG = "{http://www.w3.org/2000/svg}"
TEXTS = ["(1 (0 bad) (1 (1 very) (0 good)))", "(0 (1 so) (0 dull))", "(1 fine)"]
TREES = [fb.trees.parse_brackets(text, labels=int) for text in TEXTS]
RIGHT_ANSWERS = [list(tree.labels) for tree in TREES]


def changed(tree: int, node: int, answer: int) -> list[list[int]]:
    answers = [list(each) for each in RIGHT_ANSWERS]
    answers[tree][node] = answer
    return answers


def test_trees_with_an_error_are_drawn_and_its_node_is_marked(tmp_path):
    text = draw_errors(TREES, changed(0, 2, 1), ["no", "yes"], tmp_path / "errors.svg")
    assert (tmp_path / "errors.svg").read_text() == text
    root = ET.fromstring(text)
    words = [node.text for node in root.findall(f"{SVG}text")]
    assert words[0] == "1 of 3 trees with an error"
    assert words.count("yes, not no") == 1 and "good" in words and "dull" not in words
    fills = [box.attrib["fill"] for box in root.findall(f"{SVG}rect")[1:]]
    assert (fills.count(WRONG), fills.count(RIGHT)) == (1, 4)


def test_no_error_is_no_tree():
    assert "0 of 3 trees with an error" in draw_errors(TREES, RIGHT_ANSWERS)


def test_one_answer_is_that_of_the_root():
    text = draw_errors(TREES, [0, 0, 0])
    assert "2 of 3 trees" in text and text.count("0, not 1") == 2


def test_a_node_without_a_label_has_no_wrong_answer():
    tree = fb.trees.Tree([2, 2, -1], [None, -1, 1], ["a", "b", None])
    assert "0 of 1 tree with" in draw_errors([tree], [[0, 0, 1]])
    assert "1 of 1 tree with" in draw_errors([tree], [[0, 0, 0]])


def test_boxes_do_not_overlap_and_children_stand_below():
    deep = fb.trees.parse_brackets(
        "(0 (1 (0 a) (1 (0 extraordinarily) (1 (0 b) (1 c)))) (1 (0 d) (0 e)))", labels=int
    )
    wide = fb.trees.parse_brackets("(0 (1 (0 a) (1 b)) (1 (0 c) (0 d)))", labels=int)
    trees, answers = [deep, wide, *TREES], [1, [0, 1, 0, 0, 0, 0, 0], 0, 1, 0]
    shapes, (width, height) = shapes_of(trees, answers, ["negative", "positive"], 12)
    boxes = [shape for shape in shapes if isinstance(shape, Box)]
    assert len(boxes) == sum(tree.size for tree in trees)
    for i, box in enumerate(boxes):
        assert 0 <= box.x and box.x + box.width <= width and box.y + box.height <= height
        for other in boxes[:i]:
            apart = box.x >= other.x + other.width or other.x >= box.x + box.width
            assert apart or abs(box.y - other.y) >= box.height
    assert all(line.y1 < line.y2 for line in shapes if isinstance(line, Line))


def test_a_chain_of_ten_thousand_nodes_is_counted_and_not_drawn():
    size = 10_001
    chain = fb.trees.Tree([*range(1, size), -1], [0] * size)
    assert "1 of 1 tree with an error; 0 of them" in draw_errors([chain], [1])


def test_only_so_many_are_drawn():
    text = draw_errors(TREES * 10, [0, 1, 0] * 10, count=2)
    assert "30 of 30 trees with an error; 2 of them" in text


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ([1, 1], "draw_errors: expected answers for 3 trees, found 2"),
        (
            [[1], 1, 1],
            "draw_errors at tree 0: expected 5 answers, one a node, or a single one of the root, found sh",
        ),
    ],
)
def test_answers_that_do_not_fit_are_refused(answers, error):
    with pytest.raises(ExampleError, match=error):
        draw_errors(TREES, answers)


def test_what_is_no_tree_is_refused():
    with pytest.raises(ExampleError, match="draw_errors at tree 0: expected a tree, found "):
        draw_errors(["film"], [1])
