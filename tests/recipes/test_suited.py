"""Models that suit a format: the usual one where none is named, and an error for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldbatch.errors import ReadError, UnknownNameError
from foldbatch.recipes.data import read_dataset, read_labelled
from foldbatch.recipes.formats import FORMATS
from foldbatch.recipes.suited import MODELS_OF, check_model, usual_model
from foldbatch.zoo import MODELS
from tests.recipes.test_data import configured


def test_every_format_has_models_of_the_zoo():
    assert MODELS_OF.keys() == FORMATS.keys()
    assert {name for names in MODELS_OF.values() for name in names} == set(MODELS)


@pytest.mark.parametrize("format_", MODELS_OF)
def test_the_model_that_is_not_named_suits(format_):
    configuration = configured(data__format=format_)
    assert configuration.model.__struct_config__.tag == usual_model(format_)
    check_model(configuration)


@pytest.mark.parametrize(
    "format_, name",
    [("jsonlines", "bilstm"), ("conllu", "tree_lstm"), ("functions", "rntn"), ("sst", "json")],
)
def test_a_model_that_cannot_read_the_data_is_refused_before_they_are_read(format_, name):
    configuration = configured(data__format=format_, model__name=name, data__train=Path("no such file"))
    with pytest.raises(UnknownNameError, match=rf"model.name: expected .* for data of format {format_}"):
        read_dataset(configuration)


@pytest.mark.parametrize("tree, count", [("(S (X a))", 1), ("(S (X a) (X b) (X c))", 3)])
def test_trees_that_are_not_binary_are_named(tmp_path, tree, count):
    (tmp_path / "t.txt").write_text(f"(X (S a) (S b))\n{tree}\n")
    given = {"data__format": "brackets", "data__train": tmp_path / "t.txt"}
    message = f"data.train, tree 2: expected two children at each inner node, found a node with {count}"
    with pytest.raises(ReadError, match=message):
        read_dataset(configured(**given))
    with pytest.raises(ReadError, match="t.txt, tree 2: expected two children"):
        read_labelled(tmp_path / "t.txt", configured(**given), ["S", "X"])
    assert len(read_dataset(configured(**given, model__name="child_sum")).train) == 2
