"""The case runs at toy size and measures what it says it does."""

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
    """Without a batch of one, ours is still compared to it."""
    outcome = sst.run(TREES, "here", _settings())
    assert [(found.hidden, found.batch) for found in outcome.found] == [(4, 3)]
    for found in outcome.found:
        kinds = ["", ", new examples", ", plain function, new examples"]
        assert list(found.timings) == [f"foldbatch (numpy){kind}" for kind in kinds]
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
    assert outcome.absent == {}
    assert outcome.memory == {}


def test_a_wrong_peer_is_refused_before_anything_is_timed(tmp_path: Path, monkeypatch) -> None:
    """Whatever it computes, its loss is 1."""
    script = wrong_peer(tmp_path)
    monkeypatch.setattr(sst, "contest", None)
    with pytest.raises(FoldbatchError, match=r"benchmarks, JAX 1 x: expected a loss of .*, found 1\.000000"):
        sst.run(TREES, "here", _settings(peers={"jax": str(script)}))
