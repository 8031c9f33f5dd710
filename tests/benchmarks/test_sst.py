"""The case runs at toy size and measures what it says it does."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import sst
from benchmarks.contest import TASKS
from benchmarks.sst_outcome import Settings
from benchmarks.workload import random_trees
from foldbatch.errors import FoldbatchError
from tests.benchmarks.wrong_peer import wrong_peer

TREES = random_trees(9, seed=2)


def _settings(**options) -> Settings:
    return Settings(**{"hidden": (4,), "batches": (3,), "repeats": 2, "backend": "numpy"} | options)


def test_outcome_has_every_figure() -> None:
    """For each size of model and batch; without a batch of one, ours is still compared to it."""
    outcome = sst.run(TREES, "here", _settings(hidden=(4, 6), batches=(2, 3)))
    assert [(found.hidden, found.batch) for found in outcome.found] == [(4, 2), (4, 3), (6, 2), (6, 3)]
    for found in outcome.found:
        assert list(found.timings) == ["foldbatch (numpy)", "foldbatch (numpy), new examples"]
        assert found.phases.keys() == {"trace", "merge", "tables", "ready", "forward", "backward", "update"}
        assert all(seconds > 0 for seconds in found.phases.values())
        assert found.batches == 16
        assert found.counts.trees == found.batch * found.batches
        assert found.rate > 0
        assert found.trace.median > 0
        assert found.best_peer("train") is None
        assert "steps" in found.report
        for task in TASKS:
            assert found.speedup(task) > 0
            assert 0 < found.of_floor(task, shared=True) <= found.of_floor(task, shared=False)
    rates = [found.rate for found in outcome.found]
    assert rates[0] == rates[1]  # the machine has one for each size of the model
    assert rates[2] == rates[3]
    assert outcome.absent == {}
    assert outcome.memory == {}


def test_pytorch_takes_part_where_it_computes_the_same() -> None:
    """`run` refuses one whose loss differs, so that finishing is the test; node by node only on small batches."""
    pytest.importorskip("torch", reason="needs PyTorch")
    found = sst.run(
        TREES, "here", _settings(batches=(1, 3), repeats=1, peers={"torch": sys.executable}, per_node_batch=2)
    )
    small, large = found.found
    assert len(small.timings) == len(large.timings) + 1 >= 6
    (only_small,) = small.timings.keys() - large.timings.keys()
    assert only_small.endswith("per node, 1 thread")
    assert small.best_peer("train").startswith("PyTorch")


def test_a_wrong_peer_is_refused_before_anything_is_timed(tmp_path: Path, monkeypatch) -> None:
    """Whatever it computes, its loss is 1."""
    script = wrong_peer(tmp_path)
    monkeypatch.setattr(sst, "contest", None)
    with pytest.raises(FoldbatchError, match=r"benchmarks, JAX 1 x: expected a loss of .*, found 1\.000000"):
        sst.run(TREES, "here", _settings(peers={"jax": str(script)}))


def test_a_peer_that_is_not_there_is_named() -> None:
    """And all else is measured."""
    outcome = sst.run(TREES, "here", _settings(repeats=1, peers={"dynet": "/no/such/python"}))
    assert outcome.absent["DyNet"].startswith("not installed: DyNet peer: expected an interpreter to run")
    assert len(outcome.found) == 1


def test_a_peer_that_fails_is_named(tmp_path: Path) -> None:
    """Its process ends at the first command; all else is measured."""
    script = tmp_path / "python"
    hello = '{"version": "1", "variants": [{"name": "x", "batched": true}], "memory": 1}'
    script.write_text(f"#!/bin/sh\necho '{hello}'\n", encoding="ascii")
    script.chmod(0o755)
    outcome = sst.run(TREES, "here", _settings(repeats=1, peers={"jax": str(script)}))
    assert "ended with status 0" in outcome.absent["JAX 1, hidden 4"]
    assert len(outcome.found) == 1


def test_busy_neighbours_and_memory_are_measured_when_asked_for() -> None:
    outcome = sst.run(TREES, "here", _settings(repeats=1, busy=1, memory=True))
    (found,) = outcome.found
    assert found.kept(found.ours, "train") > 0
    assert outcome.memory[4].keys() == {"foldbatch"}


def test_there_must_be_trees() -> None:
    with pytest.raises(FoldbatchError, match="benchmarks sst: expected one tree or more, found none"):
        sst.run([], "here", _settings())
