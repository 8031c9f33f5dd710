"""Formats of data, with labels and without."""

from __future__ import annotations

import pytest

from foldbatch.errors import ReadError
from foldbatch.recipes.formats import FORMATS
from foldbatch.recipes.settings import Data


def test_binary_sentiment_leaves_out_what_is_neutral(treebank):
    trees = [tree for tree, _ in FORMATS["sst-binary"].part(Data(folder=str(treebank)), "train")]
    assert len(trees) == 8
    assert trees[0].labels == (-1, 1, -1, 1, 1)
    assert {tree.label for tree in trees} == {0, 1}


def test_a_part_that_is_not_named_is_empty(treebank):
    data = Data(train=str(treebank / "train.txt"))
    assert len(list(FORMATS["sst"].part(data, "train"))) == 12
    assert list(FORMATS["sst"].part(data, "dev")) == []


def test_lines_are_trees_or_words():
    named = list(FORMATS["sst"].structures(["(3 (2 a) (4 gem))\n", "\n", "a gem\n"], "standard input"))
    assert named[0][1].words() == ("a", "gem")
    assert named[1] == (None, ["a", "gem"])


def test_a_broken_line_is_named():
    with pytest.raises(ReadError) as error:
        list(FORMATS["sst"].structures(["(3 (2 a) (4 gem))", "(3 (2 a)"], "my.txt"))
    assert str(error.value).startswith("my.txt:2:")


def test_a_folder_has_files_with_the_ending_of_their_format(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"label": 1, "x": 2}\n')
    assert list(FORMATS["jsonlines"].part(Data(folder=str(tmp_path)), "train")) == [({"x": 2}, 1)]


def test_files_of_classes(tmp_path):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text("x = 1\n")
    samples = list(FORMATS["python"].part(Data(train=str(tmp_path)), "train"))
    assert [(tree.label, label) for tree, label in samples] == [("Module", "bad"), ("Module", "good")]
    with pytest.raises(ReadError, match=r"expected files CLASS/\*.py, found none"):
        list(FORMATS["python"].samples(tmp_path / "good", Data()))


def test_functions_of_a_file_are_told_by_name():
    text = ["def get_it(x):\n", "  'Say it.'\n", "  return get_it\n"]
    ((name, tree),) = FORMATS["functions"].structures(text, "my.py")
    assert name == "get_it"
    assert tree.label == "FunctionDef" and "get_it" not in tree.tokens and "Say it." not in tree.tokens
    (named,) = FORMATS["python"].structures(text, "my.py")
    assert named[0] == "my.py" and named[1].label == "Module"


def test_the_embedded_functions_are_no_file(tmp_path):
    with pytest.raises(ReadError, match="expected no file for the embedded functions"):
        FORMATS["functions"].samples(tmp_path, Data())
