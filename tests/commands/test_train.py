"""The command that trains: folders, seeds, what goes wrong."""

import json
import os
import re
import signal

import pytest

from foldbatch.cli import main
from foldbatch.recipes.configuration import read_configuration
from foldbatch.train import Progress
from tests.commands.conftest import TINY


def test_a_run_ends_with_a_prediction_drawn_as_a_tree(treebank, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('[task]\nkind = "nodes"\n')
    arguments = ["train", "mine.toml", *TINY, "--data.folder", str(treebank)]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "6 examples to train on, 6 dev, 6 test; 5 classes" in out
    assert "model: runs/mine/model.safetensors" in out and "└─ " in out
    figures = json.loads((tmp_path / "runs" / "mine" / "figures.json").read_text())
    test, share = figures["test"], figures["baselines"]["test"]["accuracy"]
    beside = f"accuracy {test['accuracy']:.4f} (always the most frequent class: {share:.4f}), node_accuracy "
    assert f"\ntest: loss {test['loss']:.4f}, {beside}" in out
    share_of_dev = figures["baselines"]["dev"]["accuracy"]
    always = "always answering the most frequent class: accuracy"
    assert out.splitlines()[1] == f"{always} {share_of_dev:.4f} on dev, {share:.4f} on test"
    beside = f"(always the most frequent class: {share:.1%})"
    assert f"predictions of the test part; {test['accuracy']:.1%} of all 6 are right {beside}:" in out
    marks = re.findall(r"^(✓ |✗ it is [a-z ]+, not )", out, re.MULTILINE)
    assert len(marks) == 3
    assert re.match(
        r"batching: [\d.]+x .* \(new examples: [\d.]+x\), in training steps of ", out.splitlines()[-1]
    )
    assert main([*arguments, "--no-gain"]) == 0  # into a folder of its own
    assert "batching:" not in capsys.readouterr().out
    assert (tmp_path / "runs" / "mine-2" / "model.safetensors").exists()
    assert main([*arguments, "--resume", "--train.epochs", "2"]) == 0  # the newest
    assert len((tmp_path / "runs" / "mine-2" / "epochs.csv").read_text().splitlines()) == 3


def test_seeds_are_compared_with_their_ensemble(treebank, tmp_path, capsys):
    folder = tmp_path / "runs"
    arguments = ["train", *TINY, "--data.folder", str(treebank), "--folder", str(folder), "--seeds", "2"]
    assert main([*arguments, "--train.seed=5"]) == 0
    assert "test, 2 seeds: loss " in capsys.readouterr().out
    figures = json.loads((folder / "figures.json").read_text())
    assert set(figures["test"]["accuracy"]) == {"mean", "deviation"}
    assert set(figures["test"]["ensemble"]) == {"accuracy", "node_accuracy", "vote_accuracy"}
    assert main(["eval", str(folder), str(treebank / "test.txt"), "--json"]) == 0
    together = json.loads(capsys.readouterr().out)
    assert together["accuracy"] == figures["test"]["ensemble"]["accuracy"] and "loss" not in together
    assert main(["predict", str(folder), str(treebank / "test.txt")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    seeds = [
        read_configuration(folder / f"seed-{seed}" / "configuration.toml", {}).train.seed for seed in (5, 6)
    ]
    assert seeds == [5, 6]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["none.toml"], "none.toml"),
        (["--train.epoch", "3"], "found '--train.epoch' (did you mean '--train.epochs'?)"),
        (["--lr", "0.1"], "expected an option, found '--lr' (did you mean '--optimizer.lr'?)"),
        (["--data.format", "sst"], "data.train: expected examples to train on, found none"),
        (["--resume"], "--resume: expected a run in runs/functions, found none"),
        (
            ["--resume", "--folder", "none"],
            "--folder: expected a folder with a run to resume, found no folder none",
        ),
    ],
)
def test_wrong_input_is_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and len(err.splitlines()) == 1 and message in err
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_not_overwritten(run, treebank, capsys):
    assert main(["train", *TINY, "--data.folder", str(treebank), "--folder", str(run)]) == 2
    assert "expected a folder without a run" in capsys.readouterr().err


def test_the_help_lists_all_options(capsys):
    with pytest.raises(SystemExit) as found:
        main(["train", "--help"])
    assert found.value.code == 0
    out = capsys.readouterr().out
    assert "--optimizer.lr_factors {}" in out and "--resume" in out


def test_ctrl_c_keeps_a_checkpoint(treebank, tmp_path, capsys, monkeypatch):
    """From which the run ends as it would have without a break."""
    arguments = [
        "train",
        *TINY,
        "--data.folder",
        str(treebank),
        *"--train.batch_size 2 --train.epochs 2".split(),
    ]
    assert main([*arguments, "--folder", str(tmp_path / "whole")]) == 0

    def interrupt(callback, trainer):
        if trainer.steps == 4:  # within the second epoch
            os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "parts"
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "on_step_end", interrupt)
        assert main([*arguments, "--folder", str(folder)]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")
    assert not (folder / "model.safetensors").exists()
    assert main([*arguments, "--folder", str(folder), "--resume"]) == 0
    whole, parts = (json.loads((tmp_path / name / "figures.json").read_text()) for name in ("whole", "parts"))
    assert whole["test"] == parts["test"]


def test_several_seeds_that_were_interrupted_are_not_trained_over(tmp_path, treebank, capsys):
    (tmp_path / "run" / "seed-0").mkdir(parents=True)
    given = ["--data.folder", str(treebank), "--folder", str(tmp_path / "run")]
    assert main(["train", *TINY, *given, "--seeds", "2"]) == 2
    assert "expected a folder without a run" in capsys.readouterr().err


@pytest.mark.filterwarnings("always")
def test_examples_without_a_label_are_counted(tmp_path, capsys):
    data = tmp_path / "train.jsonl"
    data.write_text("".join(f'{{"x": {i}, "label": {["0", "1", "null"][i % 3]}}}\n' for i in range(9)))
    given = [
        *"train --data.format jsonlines --data.train".split(),
        str(data),
        *"--train.epochs 1 --no-gain".split(),
    ]
    assert main([*given, "--folder", str(tmp_path / "a"), "--train.batch_size", "4"]) == 0
    out, err = capsys.readouterr()
    assert "data.train: expected a label of each example, found 3 of 9 without" in err
    assert "of all 6 are right" not in out  # nothing was tested
    assert main([*given, "--folder", str(tmp_path / "b"), "--strict"]) == 2
    assert not (tmp_path / "b").exists()
