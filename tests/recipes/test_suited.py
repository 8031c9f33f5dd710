"""Models that suit a format: the usual one where none is named, and an error for the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from foldbatch.errors import UnknownNameError
from foldbatch.recipes.data import read_dataset
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
