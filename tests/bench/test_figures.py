"""Figures are made where matplotlib is, and refused in one line where it is not."""

from __future__ import annotations

import sys

import pytest

from foldbatch.bench.figures import log_axes, new_figure
from foldbatch.errors import BackendError


def test_axes_count_in_powers_and_have_a_legend(tmp_path):
    pytest.importorskip("matplotlib")
    figure, axes = new_figure(2, 2)
    assert len(axes) == 4
    for at in axes:
        at.plot([1, 10], [1, 10], label="line")
        log_axes(at, "x", "y")
    log_axes(axes[0], "nodes", "share", y=False)
    assert (axes[0].get_xscale(), axes[1].get_yscale(), axes[0].get_xlabel()) == ("log", "log", "nodes")
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == ["line"]
    figure.savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_without_matplotlib_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendError, match="figure: expected matplotlib to be installed"):
        new_figure()
