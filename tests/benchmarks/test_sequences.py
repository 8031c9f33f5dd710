"""The case ``sequences`` at toy size."""

from __future__ import annotations

import json

import pytest

from benchmarks import sequences
from benchmarks.command import main
from benchmarks.workload import random_trees
from foldbatch.errors import FoldbatchError
from tests.benchmarks.wrong_peer import wrong_peer


def test_the_command_measures_known_and_new_examples(tmp_path, capsys) -> None:
    file = tmp_path / "figures.json"
    small = ["--hidden", "4", "--batch", "2", "3", "--repeats", "1", "--backend", "numpy", "--no-peers"]
    assert main(["sequences", *small, "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert figures["case"] == "sequences"
    assert [(f["kind"], f["batch"]) for f in figures["found"]] == [
        ("lstm", 2),
        ("lstm", 3),
        ("gru", 2),
        ("gru", 3),
    ]
    for found in figures["found"]:
        assert list(found["timings"]) == ["foldbatch (numpy)", "foldbatch (numpy), new examples"]
        assert all(timing["median"] > 0 for name in found["timings"].values() for timing in name.values())
        assert found["words"] > found["batch"] * found["batches"]
        assert found["derived"]["infer"]["ratio_to_best_peer"] == {"known": None, "new": None}
    assert "inference, GRU, hidden 4" in capsys.readouterr().out


def test_a_wrong_peer_is_refused_and_an_absent_one_is_named(tmp_path) -> None:
    script = wrong_peer(tmp_path)
    options = {"kinds": ["gru"], "hidden": [3], "batches": [2], "repeats": 1, "backend": "numpy"}
    with pytest.raises(FoldbatchError, match="benchmarks, PyTorch 1 x: expected a loss of"):
        sequences.run(random_trees(3), "here", **options, python=str(script))
    outcome = sequences.run(random_trees(3), "here", **options, python="/no/such/python")
    assert outcome.absent["PyTorch, gru"].startswith("not installed: PyTorch peer: expected an interpreter")
    assert len(outcome.found) == 1
