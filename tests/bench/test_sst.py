"""The benchmark runs at toy size and reports what it says it does."""

import json
from pathlib import Path

import pytest

from foldbatch.bench import sst
from foldbatch.bench.command import main
from foldbatch.bench.workload import random_trees
from foldbatch.static.backends import AUTO


def test_outcome_has_every_figure() -> None:
    """Training and inference, batched and one at a time, every phase, the report."""
    outcome = sst.run(random_trees(4), hidden=8, repeats=2, peers=False)
    assert {"train", "infer", "train_one", "infer_one"} == outcome.timings.keys()
    assert {"trace", "merge", "tables", "forward", "backward", "update"} == outcome.phases.keys()
    assert all(seconds > 0 for seconds in outcome.phases.values())
    assert outcome.rate("train") > 0
    assert "steps" in outcome.report


def test_the_backend_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    """And is named beside the figures; one that does not exist is one line."""
    outcome = sst.run(random_trees(2), hidden=4, repeats=1, peers=False, backend="numpy")
    assert outcome.options["backend"] == "numpy"
    assert sst.run(random_trees(2), hidden=4, repeats=1, peers=False).options["backend"] in AUTO
    assert main(["--batch", "2", "--backend", "abacus", "--no-peers"]) == 2
    assert "found 'abacus'" in capsys.readouterr().err


def test_pytorch_computes_the_same_loss() -> None:
    """`run` refuses a peer whose loss differs, so that finishing is the test."""
    pytest.importorskip("torch")
    outcome = sst.run(random_trees(4), hidden=8, repeats=2)
    assert len(outcome.peers) >= 2
    assert {
        f"{peer} {task}" for peer in outcome.peers for task in ("train", "infer")
    } <= outcome.timings.keys()
    assert outcome.best_peer("train") in outcome.peers


def test_command_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The figures are for programs too."""
    file = tmp_path / "figures.json"
    assert main(["--hidden", "8", "--batch", "3", "--repeats", "2", "--no-peers", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["options"]["batch"] == 3
    assert figures["trees_per_second"]["train"] > 0
    assert "backward" in capsys.readouterr().out


def test_missing_data_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback for a wrong path."""
    assert main(["--data", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.startswith("error: ")
