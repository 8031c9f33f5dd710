"""Figures are found and compared."""

import math

import pytest

from foldbatch.errors import UnknownNameError
from foldbatch.train.metrics import figure_of, is_better

FIGURES = {"loss": 0.5, "validation_f1": {"good": 0.25}, "validation_confusion": [[1]], "note": "text"}


def test_figures_of_classes_have_names_of_two_parts():
    assert figure_of("here", FIGURES, "validation_f1/good") == 0.25


@pytest.mark.parametrize("name", ["validation_los", "validation_f1", "validation_confusion", "note"])
def test_what_is_no_number_is_refused(name):
    with pytest.raises(UnknownNameError, match="here: expected a figure of loss, validation_f1/good"):
        figure_of("here", FIGURES, name)


def test_nan_is_never_better():
    assert not is_better(math.nan, None, "min")
    assert is_better(1.0, None, "max")
    assert not is_better(1.0, 1.0, "max")
