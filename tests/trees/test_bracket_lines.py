"""The quick reader of lines reads what the other one reads, or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foldbatch as fb
from foldbatch.trees.bracket_lines import plain_trees

PLAIN = [
    "(a)",
    "(a b)",
    "(S (NP I) (VP slept))",
    "(A (B c)) (D e)\n",
    "\t(A  (B\tc)(D (E f) (G)) )\r\n",
    "(A\u00a0x b)",
]
OTHERS = [
    "",
    "a",
    "( (S (NP I)))",
    "(A (B c)",
    "(A b))",
    "(A b c)",
    "(A (B c) d)",
    "(A b (C d))",
    "()",
    "(A \0)",
]
OTHERS += ["\ufeff(A b)", "x (A b)", "(A b) x", "(A\nb)"]


def slow(line):
    return list(fb.trees.read_brackets([line]))


@pytest.mark.parametrize("line", PLAIN)
def test_plain_lines_are_read_as_by_the_other_reader(line):
    assert plain_trees(line) == slow(line)


@pytest.mark.parametrize("line", OTHERS)
def test_other_lines_are_left_to_it(line):
    assert plain_trees(line) is None


@settings(max_examples=150)
@given(st.text("() \tab", max_size=30).map(lambda text: f"({text})"))
def test_no_line_is_read_differently(line):
    trees = plain_trees(line)
    if trees is not None:
        assert trees == slow(line)
        assert [tree.labels for tree in trees] == [tree.labels for tree in slow(line)]


def test_the_trees_of_the_treebank_are_plain(sst_dir):
    lines = (sst_dir / "dev.txt").read_text().splitlines()[:100]
    assert [plain_trees(line) for line in lines] == [slow(line) for line in lines]
