"""Figures by name, and the better of two. No engine runs."""

from __future__ import annotations

import math

import pytest

from foldbatch.errors import TrainingError, UnknownNameError
from foldbatch.train.callbacks.figures import check_mode, figure_of, is_better

FIGURES = {"loss": 0.5, "dev_f1": {"good": 0.25}, "dev_confusion": [[1]], "note": "text"}


def test_figures_of_classes_have_names_of_two_parts():
    assert figure_of("here", FIGURES, "dev_f1/good") == 0.25


@pytest.mark.parametrize("name", ["dev_los", "dev_f1", "dev_confusion", "note"])
def test_what_is_no_number_is_refused(name):
    with pytest.raises(UnknownNameError, match="here: expected a figure of loss, dev_f1/good"):
        figure_of("here", FIGURES, name)


def test_nan_is_never_better():
    assert not is_better(math.nan, None, "min")
    assert is_better(1.0, None, "max")
    assert not is_better(1.0, 1.0, "max")


def test_a_mode_is_one_of_two():
    with pytest.raises(TrainingError, match="'min' or 'max'"):
        check_mode("here", "auto")
