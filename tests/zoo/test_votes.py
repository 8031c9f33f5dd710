"""Votes of features: added up, and dropped as a whole while training."""

import numpy as np
import pytest

import foldbatch as fb
from foldbatch.zoo import Task, Words, child_sum
from foldbatch.zoo.votes import features_of, votes
from foldbatch.zoo.words import leaf_vector, token_vector

TREE = fb.trees.Tree([2, 2, -1], ["Name", "Name", "Return"], ["readLine", None, None])
FEATURES = fb.trees.Vocabulary(["kind Name", "word line", "word other"])


def test_features_are_distinct_and_of_the_whole_tree():
    assert features_of(TREE[0]) == features_of(TREE)
    assert list(features_of(TREE)) == [
        "0 arguments",
        "2 children",
        "child Name",
        "first Name",
        "kind Name",
        "kind Name in Return",
        "kind Return",
        "last Name",
        "size 2",
        "word line",
        "word read",
    ]


def test_features_of_a_function_tell_its_outline():
    (_, function), *_ = fb.trees.python_functions("def f(a, b):\n  x = a\n  return x\n")
    outline = {"2 children", "2 arguments", "first Assign", "last Return", "child Assign"}
    assert outline <= set(features_of(function)) and "child arguments" not in features_of(function)


def test_votes_add_up():
    program = fb.compile(votes(FEATURES, Task(classes=2)))
    assert program.run([TREE])[0].tolist() == [0, 0]
    program.params["votes.weight"] = [[1, 0], [10, 0], [100, 1], [1000, 1]]
    unknown = 9  # all but a name and line
    assert program.run([TREE])[0].tolist() == [unknown + 10 + 100, 1]


def test_a_tree_is_told_with_votes_beside_it():
    kinds = fb.trees.Vocabulary(["Name", "Return"])
    words = Words(fb.trees.Vocabulary(["read"]), 2)
    block = child_sum(words, Task(classes=2), kinds=kinds, hidden=2, features=FEATURES)
    program = fb.compile(block)
    without = program.run([(TREE, None)])[0]
    program.params["votes.weight"][1] = [5, -5]
    np.testing.assert_allclose(program.run([(TREE, None)])[0], without + np.array([5, -5]), rtol=1e-5)


VOCABULARY = fb.trees.Vocabulary(["read", "line"])
TABLE = np.array([[1, 1], [2, 3], [10, 20]], "float32")


def test_the_vectors_given_are_the_table():
    block = leaf_vector(Words(VOCABULARY, 2, TABLE))
    assert [block.eval(fb.trees.Tree.leaf(0, word)).tolist() for word in ("line", "new", None)] == [
        [10, 20],
        [1, 1],
        [1, 1],
    ]


def test_words_are_looked_up_in_lower_case_where_that_is_asked_for():
    leaves = [fb.trees.Tree.leaf(0, word) for word in ("line", "Line", "LINE", "New", None)]
    block = leaf_vector(Words(VOCABULARY, 2, TABLE, lower=True))
    assert [block.eval(leaf).tolist() for leaf in leaves] == [[10, 20], [10, 20], [10, 20], [1, 1], [1, 1]]
    exact = leaf_vector(Words(VOCABULARY, 2, TABLE))
    assert exact.eval(leaves[1]).tolist() == [1, 1]


def test_a_vocabulary_that_lower_case_cannot_reach_is_refused():
    with pytest.raises(fb.errors.BlockValueError, match="a vocabulary in lower case, found 'Read'"):
        Words(fb.trees.Vocabulary(["line", "Read"]), 2, TABLE, lower=True)


def test_subwords_add_up():
    block = token_vector(Words(VOCABULARY, 2, TABLE, split="subwords"))
    read_line_2 = block.eval(fb.trees.Tree.leaf(0, "readLine2"))
    assert read_line_2.tolist() == [13, 24]
    assert block.eval(fb.trees.Tree.leaf(0, None)).tolist() == [0, 0]
