"""Figures of each class, from a confusion matrix."""

from __future__ import annotations

import pytest

from foldbatch.recipes.reports import class_figures, class_table

CONFUSION = [[3, 1, 0], [2, 4, 0], [0, 0, 0]]
CLASSES = ["bad", "good", "never seen"]


def test_precision_is_by_answers_and_recall_by_labels():
    figures = class_figures(CONFUSION, CLASSES)
    assert figures["bad"] == pytest.approx({"examples": 4, "precision": 3 / 5, "recall": 3 / 4, "f1": 2 / 3})
    assert figures["never seen"] == {"examples": 0, "precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_a_line_of_the_table_is_a_label():
    head, *lines = class_table(CONFUSION, CLASSES).splitlines()
    assert lines[1].split() == ["2", "good", "6", "0.800", "0.667", "0.727", "2", "4", "0"]
    assert len({len(line) for line in (head, *lines)}) == 1
