"""Pictures are refused before they cost anything."""

import sys
from argparse import ArgumentTypeError

import pytest

from foldbatch.bench import figures
from foldbatch.errors import BackendError


def test_matplotlib_is_looked_for_and_not_imported(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert not figures.installed()
    with pytest.raises(ArgumentTypeError, match="expected matplotlib to be installed"):
        figures.plot_file("x.svg")


def test_axes_count_in_powers_and_have_a_legend(tmp_path) -> None:
    """Row by row."""
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    figure, axes = figures.new_figure(2, 2)
    assert len(axes) == 4
    for at in axes:
        at.plot([1, 10], [1, 10], label="line")
        figures.log_axes(at, "x", "y")
    figures.log_axes(axes[0], "nodes", "share", y=False)
    assert (axes[0].get_xscale(), axes[1].get_yscale(), axes[0].get_xlabel()) == ("log", "log", "nodes")
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["line"]
    figures.write(figure, figures.plot_file(str(tmp_path / "figure.SVG")))
    assert (tmp_path / "figure.SVG").read_text().startswith("<?xml")


def test_without_matplotlib_it_is_one_line(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendError, match="figure: expected matplotlib to be installed"):
        figures.new_figure()
