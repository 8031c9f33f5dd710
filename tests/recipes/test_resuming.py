"""Every option counts when a run is resumed, or is refused; and so are other classes."""

from __future__ import annotations

import pytest

from foldbatch.errors import FoldbatchError, ReadError, TrainingError
from foldbatch.recipes.configuration import describe_options, plain, read_configuration
from foldbatch.recipes.resuming import FREE, Run, check_run
from foldbatch.recipes.settings import Configuration
from foldbatch.train import checkpoint
from tests.recipes.test_fitting import run

NUMPY = {"train__backend": "numpy"}
OPTIONS = sorted({name for name, _, _ in describe_options()})
CHANGED = {  # where the rule below would not make another fitting value
    "data.format": "sst", "data.label": "class", "words.split": "subwords", "model.name": "rntn",
    "task.kind": "root", "task.weights": "[1, 2]", "optimizer.name": "adam", "schedule.name": "cosine",
    "average.name": "moving", "train.backend": "numpy", "train.metrics": "f1", "train.best": "loss",
    "optimizer.lr_factors": "{words = 0.5}", "optimizer.decay_factors": "{words = 0.5}", "model.pooling": "mean",
}  # fmt: skip
KINDS = ("child_sum", "tree_lstm", "rntn", "bilstm", "json")


def other(value):
    """Another value of an option, as text."""
    match value:
        case bool():
            return str(not value).lower()
        case int():
            return str(value + 1)
        case float():
            return str(value / 2 + 0.125)
    return "other"


def kept_at(path, configuration, classes=()):
    checkpoint.write(path, {"callbacks": {"Run": Run(configuration, classes).state()}})


@pytest.mark.parametrize("option", OPTIONS)
def test_no_option_is_ignored(option, tmp_path):
    section, _, key = option.partition(".")
    tried = 0
    for kind in KINDS if section == "model" and key != "name" else ("child_sum",):
        name = {} if kind == "child_sum" else {"model.name": kind}
        try:
            before = read_configuration(None, name)
            now = read_configuration(
                None, {**name, option: CHANGED.get(option) or other(plain(before)[section][key])}
            )
        except (FoldbatchError, KeyError):  # of another kind of model
            continue
        assert now != before
        kept_at(tmp_path / "last", before)
        if option in FREE:
            check_run(Run(now, ()), tmp_path / "last")
        else:
            with pytest.raises(TrainingError, match=f"found {option.replace('.', '[.]')} .* in place of "):
                check_run(Run(now, ()), tmp_path / "last")
        tried += 1
    assert tried


def test_options_that_are_free_are_options():
    assert FREE <= set(OPTIONS)


def test_other_classes_are_refused(tmp_path):
    kept_at(tmp_path / "last", Configuration(), ["bad", "good"])
    check_run(Run(Configuration(), ["bad", "good"]), tmp_path / "last")
    with pytest.raises(TrainingError, match="expected the classes bad, good, .* found bad, fine"):
        check_run(Run(Configuration(), ["bad", "fine"]), tmp_path / "last")


def test_checkpoints_of_something_else_are_refused(tmp_path):
    checkpoint.write(tmp_path / "last", {"callbacks": {}})
    with pytest.raises(TrainingError, match="expected a checkpoint of foldbatch train"):
        check_run(Run(Configuration(), ()), tmp_path / "last")
    (tmp_path / "last").write_bytes(b"")
    with pytest.raises(ReadError, match="damaged"):
        check_run(Run(Configuration(), ()), tmp_path / "last")


def test_a_run_goes_on_with_the_same_data_elsewhere_and_no_others(treebank, tmp_path):
    whole = run(tmp_path / "whole", treebank, **NUMPY, train__epochs=2)
    run(tmp_path / "run", treebank, **NUMPY, train__epochs=1)
    moved = treebank / "moved"
    moved.mkdir()
    for part in ("train", "dev", "test"):
        (moved / f"{part}.txt").write_text((treebank / f"{part}.txt").read_text())
    resumed = run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=2, train__checkpoint=1)
    for name, array in whole.program.params.items():
        assert (resumed.program.params[name] == array).all()
    lines = (moved / "train.txt").read_text()
    (moved / "train.txt").write_text(
        lines.replace("film", "FILM").replace("good", "film").replace("FILM", "good")
    )
    with pytest.raises(TrainingError, match="vocabulary: expected .* which was the name of row"):
        run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=3)
    (moved / "train.txt").write_text(lines.replace("(4 (2 very)", "(3 (2 very)", 1))
    with pytest.raises(TrainingError, match="found others from number 0 on"):
        run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=3)
    (moved / "train.txt").write_text(lines)
    assert len(run(tmp_path / "run", moved, resume=True, **NUMPY, train__epochs=3).figures["epochs"]) == 3
