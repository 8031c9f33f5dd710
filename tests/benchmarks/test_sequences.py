"""The case ``sequences`` at toy size."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from benchmarks import sequences
from benchmarks.command import main
from benchmarks.contest import TASKS
from benchmarks.measure import Timing
from benchmarks.sequences import CASE, Found, Outcome
from benchmarks.workload import random_trees
from foldbatch.errors import FoldbatchError
from tests.benchmarks.wrong_peer import wrong_peer


def _t(seconds: float) -> Timing:
    return Timing(seconds, seconds, seconds, 3)


FOUND = Found(
    "lstm",
    150,
    4,
    2,
    80,
    {
        "ours": {"train": _t(0.5), "infer": _t(0.2)},
        "ours, new examples": {"train": _t(0.8), "infer": _t(0.4)},
        "Peer slow": {"train": _t(2.0), "infer": _t(0.1)},
        "Peer slower": {"train": _t(4.0), "infer": _t(1.0)},
    },
)


def test_ratios_are_to_the_fastest_peer() -> None:
    assert [FOUND.ratio("train", new=new) for new in (False, True)] == [4, 2.5]
    assert [FOUND.ratio("infer", new=new) for new in (False, True)] == [0.5, 0.25]
    data = json.loads(json.dumps(Outcome("here", (FOUND,), {}).as_dict()))
    derived = data["found"][0]["derived"]["train"]
    assert derived["ratio_to_best_peer"] == {"known": 4, "new": 2.5}
    assert derived["sentences_per_second"]["Peer slower"] == 1


def test_tables_show_known_and_new_beside_peers() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    for part in CASE.tables(Outcome("here", (FOUND,), {"PyTorch, gru": "not installed: x"})):
        console.print(part)
    text = console.export_text()
    for words in ("Sentences per second", "150", "5 ±0%", "2.50x", "0.25x"):
        assert words in text
    assert "not measured: PyTorch, gru: not installed: x" in text


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


def test_pytorch_takes_part_where_it_computes_the_same() -> None:
    """`run` refuses one whose loss differs, so that finishing is the test."""
    pytest.importorskip("torch", reason="needs PyTorch")
    options = {"kinds": ["lstm", "gru"], "hidden": [3], "batches": [3], "repeats": 1, "backend": "numpy"}
    outcome = sequences.run(random_trees(5), "here", **options)
    assert outcome.absent == {}
    for found in outcome.found:
        assert any(f"nn.{found.kind.upper()}, packed, 1 thread" in name for name in found.timings)
        assert all(found.ratio(task, new=True) > 0 for task in TASKS)


def test_a_wrong_peer_is_refused_and_an_absent_one_is_named(tmp_path) -> None:
    script = wrong_peer(tmp_path)
    options = {"kinds": ["gru"], "hidden": [3], "batches": [2], "repeats": 1, "backend": "numpy"}
    with pytest.raises(FoldbatchError, match="benchmarks, PyTorch 1 x: expected a loss of"):
        sequences.run(random_trees(3), "here", **options, python=str(script))
    outcome = sequences.run(random_trees(3), "here", **options, python="/no/such/python")
    assert outcome.absent["PyTorch, gru"].startswith("not installed: PyTorch peer: expected an interpreter")
    assert len(outcome.found) == 1


def test_the_picture_has_a_line_for_each_contender() -> None:
    pytest.importorskip("matplotlib")
    axes = CASE.figure(Outcome("here", (FOUND,), {})).axes
    assert [len(each.lines) for each in axes] == [4, 4]
