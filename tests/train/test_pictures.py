"""Pictures: what is in them, read as SVG. No engine runs."""

from __future__ import annotations

import pytest

from foldbatch.errors import TrainingError
from foldbatch.train import plot_confusion, plot_history

pytest.importorskip("matplotlib", reason="needs matplotlib")
HISTORY = [
    {
        "epoch": 1,
        "loss": 2.0,
        "dev_loss": 2.5,
        "dev_f1": {"good": 0.5},
        "seconds": 1.0,
        "dev_confusion": [[1]],
    },
    {"epoch": 2, "loss": 1.0, "dev_loss": 2.0, "dev_f1": {"good": 0.7}, "dev_averaged_loss": 1.5, "lr": 0.1},
]


def test_figures_of_one_name_are_in_one_drawing(tmp_path):
    figure = plot_history(HISTORY, tmp_path / "history.svg")
    drawn = {
        axes.get_title(): {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        for axes in figure.axes
    }
    assert drawn == {
        "loss": {"loss": [[1, 2], [2, 1]], "dev_loss": [[1, 2.5], [2, 2]], "dev_averaged_loss": [[2, 1.5]]},
        "f1": {"dev_f1/good": [[1, 0.5], [2, 0.7]]},
    }
    assert (tmp_path / "history.svg").read_text().startswith("<?xml")


def test_a_matrix_has_its_counts_and_names(tmp_path):
    figure = plot_confusion([[3, 1], [0, 0]], ["bad", "good"], tmp_path / "confusion.png")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["3", "1", "0", "0"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["bad", "good"]
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0, 0]]
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_drawn_is_refused(tmp_path):
    with pytest.raises(TrainingError, match="plot_history: expected the figures of one epoch or more"):
        plot_history([], tmp_path / "a.png")
    with pytest.raises(TrainingError, match=r"a square matrix, found shape \(1, 2\)"):
        plot_confusion([[1, 2]], None, tmp_path / "a.png")
    with pytest.raises(TrainingError, match="expected 1 names, found 2"):
        plot_confusion([[1]], ["a", "b"], tmp_path / "a.png")
