"""Words of nodes, trees and lists as vectors."""

import numpy as np

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
