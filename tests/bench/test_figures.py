"""Pictures are refused before they cost anything."""

import sys
from argparse import ArgumentTypeError

import pytest

from foldbatch.bench import figures


def test_matplotlib_is_looked_for_and_not_imported(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not figures.installed()
    with pytest.raises(ArgumentTypeError, match="expected matplotlib to be installed"):
        figures.plot_file("x.svg")


def test_a_panel_more_is_more_room() -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    one, four = figures.new_figure(1, 1), figures.new_figure(2, 2)
    assert (four.get_size_inches() == 2 * one.get_size_inches()).all()
    assert figures.plot_file("x.PNG").name == "x.PNG"
