"""Figures are found and compared; pictures and mistakes are drawn."""

import math
import sys

import pytest

import foldbatch as fb
from foldbatch.errors import BackendError, UnknownNameError
from foldbatch.train import Plots, Progress, TensorBoardLog, draw_errors, plot_confusion, plot_history
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


@pytest.mark.parametrize(
    ("module", "extra", "make"),
    [
        ("tensorboardX", "tensorboard", lambda: TensorBoardLog("runs")),
        ("tqdm.auto", "notebook", lambda: Progress("notebook")),
        ("matplotlib.figure", "plot", lambda: Plots("runs")),
    ],
)
def test_what_is_missing_is_named_before_anything_runs(monkeypatch, module, extra, make):
    monkeypatch.setitem(sys.modules, module, None)
    library = module.partition(".")[0]
    with pytest.raises(
        BackendError, match=rf"expected {library} to be installed, .*pip install -e '.\[{extra}\]'"
    ):
        make()


pytest.importorskip("matplotlib", reason="needs matplotlib")
HISTORY = [
    {
        "epoch": 1,
        "loss": 2.0,
        "validation_loss": 2.5,
        "validation_f1": {"good": 0.5},
        "seconds": 1.0,
        "validation_confusion": [[1]],
    },
    {
        "epoch": 2,
        "loss": 1.0,
        "validation_loss": 2.0,
        "validation_f1": {"good": 0.7},
        "validation_averaged_loss": 1.5,
        "lr": 0.1,
    },
]


def test_figures_of_one_name_are_in_one_drawing(tmp_path):
    figure = plot_history(HISTORY, tmp_path / "history.svg")
    drawn = {
        axes.get_title(): {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
        for axes in figure.axes
    }
    assert drawn == {
        "loss": {
            "loss": [[1, 2], [2, 1]],
            "validation_loss": [[1, 2.5], [2, 2]],
            "validation_averaged_loss": [[2, 1.5]],
        },
        "f1": {"validation_f1/good": [[1, 0.5], [2, 0.7]]},
    }
    assert (tmp_path / "history.svg").read_text().startswith("<?xml")


def test_a_matrix_has_its_counts_and_names(tmp_path):
    figure = plot_confusion([[3, 1], [0, 0]], ["bad", "good"], tmp_path / "confusion.png")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["3", "1", "0", "0"]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["bad", "good"]
    assert axes.images[0].get_array().tolist() == [[0.75, 0.25], [0, 0]]
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")


TREES = [
    fb.trees.Tree.from_nested((1, (0, "not"), (None, (2, "so"), (0, "bad")))),
    fb.trees.Tree.leaf(3, "fine"),
    fb.trees.Tree.leaf(None, "odd"),
]


def test_wrong_nodes_are_marked_and_right_trees_left_out(tmp_path):
    path = tmp_path / "errors.txt"
    text = draw_errors(TREES, [[None, 2, 1, 4, 1], 3, 0], path)
    assert text == (
        "1 of 3 trees have a wrong answer\n\ntree 0\n1\n├─ 0 not\n└─ *\n   ├─ 2 so\n   └─ 1, not 0 bad"
    )
    assert path.read_text(encoding="utf-8") == f"{text}\n"


def test_one_answer_is_the_roots_and_only_some_trees_are_drawn():
    text = draw_errors(TREES, [2, [4], [None]], most=1)
    assert "2, not 1\n" in text
    assert text.startswith("2 of 3 trees")
    assert text.endswith("\n\nand 1 more")
