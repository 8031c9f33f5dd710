"""Words of nodes, trees and lists as vectors."""

from __future__ import annotations

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo.words import Words, leaf_vector, token_vector

VOCABULARY = fb.trees.Vocabulary(["read", "line"])
TABLE = np.array([[1, 1], [2, 3], [10, 20]], "float32")


def test_the_vectors_given_are_the_table():
    block = leaf_vector(Words(VOCABULARY, 2, TABLE))
    assert [block.eval(fb.trees.Tree.leaf(0, word)).tolist() for word in ("line", "new", None)] == [
        [10, 20],
        [1, 1],
        [1, 1],
    ]


def test_subwords_add_up():
    block = token_vector(Words(VOCABULARY, 2, TABLE, split="subwords"))
    read_line_2 = block.eval(fb.trees.Tree.leaf(0, "readLine2"))
    assert read_line_2.tolist() == [13, 24]
    assert block.eval(fb.trees.Tree.leaf(0, None)).tolist() == [0, 0]


@pytest.mark.parametrize(
    "given, message",
    [
        ({"vectors": TABLE, "size": 3}, r"expected vectors of shape \(3, 3\), found \(3, 2\)"),
        ({"split": "letters"}, "expected split whole or subwords, found 'letters'"),
    ],
)
def test_wrong_settings_are_refused(given, message):
    with pytest.raises(fb.errors.BlockValueError, match=message):
        Words(VOCABULARY, **given)
