"""Pictures are refused before they cost anything."""

import sys
from argparse import ArgumentTypeError

import pytest

from benchmarks import figures
from foldbatch.errors import BackendError


def test_matplotlib_is_looked_for_and_not_imported(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not figures.installed()
    with pytest.raises(ArgumentTypeError, match="expected matplotlib to be installed"):
        figures.plot_file("x.svg")


def test_without_matplotlib_it_is_one_line(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendError, match="figure: expected matplotlib to be installed"):
        figures.new_figure()
