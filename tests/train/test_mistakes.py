"""Mistakes: wrong nodes are marked where they stand. No engine runs."""

from __future__ import annotations

import pytest

import foldbatch as fb
from foldbatch.errors import TrainingError
from foldbatch.train import draw_errors

TREES = [
    fb.trees.Tree.from_nested((1, (0, "not"), (None, (2, "so"), (0, "bad")))),
    fb.trees.Tree.leaf(3, "fine"),
    fb.trees.Tree.leaf(None, "odd"),
]


def test_wrong_nodes_are_marked_and_right_trees_left_out(tmp_path):
    path = tmp_path / "errors.txt"
    text = draw_errors(TREES, [[None, 2, 1, 4, 1], 3, 0], path)
    assert text == (
        "1 of 3 trees have a wrong answer\n\ntree 0\n1\n├─ 0 not\n└─ *\n   ├─ 2 so\n   └─ 1, not 0 bad"
    )
    assert path.read_text(encoding="utf-8") == f"{text}\n"


def test_one_answer_is_the_roots_and_only_some_trees_are_drawn():
    text = draw_errors(TREES, [2, [4], [None]], most=1)
    assert "2, not 1\n" in text
    assert text.startswith("2 of 3 trees")
    assert text.endswith("\n\nand 1 more")


def test_answers_are_counted():
    with pytest.raises(TrainingError, match="draw_errors: expected 3 answers, found 1"):
        draw_errors(TREES, [1])
    with pytest.raises(TrainingError, match="expected 5 answers, one a node, found 2 for tree 0"):
        draw_errors(TREES, [[1, 2], 3, 0])
